"""GPUs that several hold by agreement: `lull pick --share N`."""
import json
import random
import subprocess

import pytest
from conftest import LIMIT, build_dir, wait_until
from test_leases import ROOT_ONLY, ROUNDS, Job, another_mount, as_user, held, leases, queued, strike_some, users, wait_free, waiting, witnesses  # noqa: F401


def test_so_many_and_no_more(sim):
    gpus = sim(1)
    jobs = [Job(gpus, "--share", "2") for _ in range(2)]
    assert [job.gpu() for job in jobs] == ["0", "0"]
    assert held(gpus) == ["0", "0"]
    assert [one["share"] for one in leases(gpus)["leases"]] == [2, 2]
    assert gpus.lull("leases").stdout.count("1 of 2") == 2
    for words in (["--share", "2"], ["--share", "9"], []):
        refused = gpus.lull("pick", *words, "--", "true")
        assert refused.returncode == 125 and "2 share it" in refused.stderr, words
    jobs[0].end()
    third = Job(gpus, "--share", "3", "--wait")  # the one who is there lives with one other
    assert third.gpu() == "0"
    assert gpus.lull("pick", "--share", "3", "--", "true").returncode == 125
    for job in (jobs[1], third):
        job.end()
    wait_free(gpus)
    assert gpus.lull("pick", "--", "true").returncode == 0


def test_joinable_takes_a_gpu_alone_and_lets_others_come(sim):
    gpus = sim(2)
    jobs = [Job(gpus, "--joinable", "3") for _ in range(2)]
    first, second = (job.gpu() for job in jobs)
    assert {first, second} == {"0", "1"}
    assert gpus.lull("pick", "--joinable", "3", "--", "true").returncode == 125  # it joins nobody itself
    jobs.append(Job(gpus, "--gpus", first, "--share", "2"))
    assert jobs[-1].gpu() == first
    refused = gpus.lull("pick", "--gpus", first, "--share", "3", "--", "true")
    assert refused.returncode == 125 and "2 share it" in refused.stderr  # the second lives with one other only
    for job in jobs:
        job.end()
    for words in (["--joinable", "0"], ["--share", "3", "--joinable", "2"], ["--joinable", "many"]):
        wrong = gpus.lull("pick", *words)
        assert wrong.returncode == 2 and "would be right" in wrong.stderr and wrong.stderr.count("\n") == 1, words


def test_who_does_not_share_is_alone(sim):
    gpus = sim(1)
    alone = Job(gpus)
    alone.gpu()
    refused = gpus.lull("pick", "--share", "5", "--", "true")
    assert refused.returncode == 125 and "leased" in refused.stderr
    alone.end()


def test_empty_gpus_come_first(sim):
    gpus = sim(3)
    jobs = [Job(gpus, "--share", "2") for _ in range(6)]
    got = [job.gpu() for job in jobs]
    assert sorted(got) == ["0", "0", "1", "1", "2", "2"]
    for job in jobs:
        job.end()


def test_the_others_work_is_no_objection_but_a_limit_is(sim, lull):
    gpus = sim(1)
    load = f"{lull} sim load --gpu 0 --util 60 --mem 4GiB & echo; read line; kill $!"
    first = Job(gpus, "--share", "3", script=load)
    first.gpu()
    first.process.stdout.readline()
    wait_until(lambda: '"util_percent":60' in gpus.lull("status", "--json").stdout.replace(" ", ""), what="the load")
    assert gpus.lull("pick", "--share", "3", "--", "true").returncode == 0
    refused = gpus.lull("pick", "--share", "3", "--util", "50", "--", "true")
    assert refused.returncode == 125 and "60 % util" in refused.stderr
    first.end()
    wait_free(gpus)
    gpus.load(0, util=60)  # nobody leased this: it is foreign use
    wait_until(lambda: gpus.lull("pick", "--share", "3", "--", "true").returncode == 125, what="foreign use to count")


def test_who_waits_for_it_alone_is_not_overtaken(sim):
    gpus = sim(1)
    first = Job(gpus, "--share", "2")
    first.gpu()
    alone = queued(gpus)
    sharer = queued(gpus, "--share", "2")
    assert gpus.lull("pick", "--share", "2", "--", "true").returncode == 125
    first.end()
    assert alone.gpu() == "0"
    assert sharer.process.pid in waiting(gpus)
    alone.end()
    assert sharer.gpu() == "0"
    sharer.end()


def test_inside_a_shared_job_pick_narrows(sim):
    """Also while somebody beside it has done the same, which is in nobody's way."""
    gpus = sim(1)
    inner = "$0 pick -- sh -c 'echo $CUDA_VISIBLE_DEVICES; read line; true'; echo $?; read line"
    jobs = [gpus.start(gpus.binary, "pick", "--share", "2", "--", "sh", "-c", inner, gpus.binary, stdin=subprocess.PIPE)
            for _ in range(2)]
    for job in jobs:
        assert job.stdout.readline() == "0\n"  # both at once
    for job in jobs:
        job.stdin.close()
        assert job.stdout.read() == "0\n"
        job.wait(timeout=LIMIT)


def test_inside_a_shared_job_two_do_not_narrow_to_the_same(sim):
    done = sim(1).lull("pick", "--share", "2", "--", "sh", "-c", "$0 pick --hold 10m; $0 pick -- true; echo $?",
                       build_dir() / "lull")
    assert done.stdout == "0\n125\n", (done.stdout, done.stderr)


@pytest.mark.parametrize("value", ["0", "-1", "1001", "many"])
def test_bad_numbers_are_refused(sim, value):
    refused = sim(1).lull("pick", "--share", value, "--", "true")
    assert refused.returncode == 2 and "1 to 1000" in refused.stderr


@ROOT_ONLY
def test_released_is_ones_own_part(users):
    gpus, folder = users(1)
    for uid in (12345, 12346):
        assert gpus.lull("pick", "--share", "2", "--hold", "10m", **as_user(uid)).stdout == "0\n"
    assert gpus.lull("release", "0", **as_user(12345)).returncode == 0
    assert [one["uid"] for one in leases(gpus)["leases"]] == [12346]
    assert gpus.lull("release", "0").returncode == 0  # root: whoever is there
    assert held(gpus) == []


@ROOT_ONLY
def test_status_names_all_who_share_a_gpu(users):
    gpus, folder = users(2)
    for uid in (12345, 12346):
        assert gpus.lull("pick", "--share", "2", "--gpus", "0", "--hold", "10m", **as_user(uid)).stdout == "0\n"
    shared, other = json.loads(gpus.lull("status", "--json").stdout)["gpus"]
    names = {one["user"] for one in shared["leases"]}
    assert len(names) == len(shared["leases"]) == 2 and other["leases"] == [] and other["lease"] is None
    for width in ("200", "80"):
        row = gpus.lull("status", env={"COLUMNS": width}).stdout
        assert all(row.count(name) >= 1 for name in names), (width, row)


# A lock a seat: whoever finds none of as many free as it lives with is one too many.
SEATS = """
i=0
while [ $i -lt $N ]; do
  exec 9>>"$W/gpu$CUDA_VISIBLE_DEVICES.$i"
  if flock -n 9; then echo x >>"$W/served"; sleep 0.00$((i + 1)); exit 0; fi
  i=$((i + 1))
done
echo "$CUDA_VISIBLE_DEVICES" >>"$W/crowded"
"""


def storm(gpus, rounds, uids=(0,), prefix=(), picks=48, count=4):
    dice = random.Random(rounds)
    seats = [f"gpu{i}.{seat}" for i in range(count) for seat in range(3)]
    with witnesses(*seats, "served", "crowded") as witness:
        for _ in range(rounds):
            running = []
            for i in range(picks):
                uid, share = uids[i % len(uids)], str(dice.choice([1, 3, 3, 3]))
                running.append(gpus.start(*(prefix if i % 2 else ()), gpus.binary, "pick", "--wait", "-q", "--share", share,
                                          "--", "sh", "-c", SEATS, env={"W": str(witness), "N": share},
                                          stdout=subprocess.DEVNULL, **(as_user(uid) if uid else {})))
            strike_some(gpus, running, dice)
        assert (witness / "crowded").read_text() == ""
        assert len((witness / "served").read_text().splitlines()) >= rounds * (picks - picks // 4)
        wait_free(gpus)
        assert gpus.lull("pick", "-n", count).returncode == 0


def test_storm_of_sharers(sim):
    storm(sim(4), ROUNDS)


@ROOT_ONLY
def test_storm_of_sharers_of_two_users_across_mount_namespaces(users):
    gpus, folder = users(4)
    with another_mount(folder) as enter:  # where there is none, two users are left
        storm(gpus, ROUNDS)
        storm(gpus, ROUNDS, uids=(0, 12345))
        storm(gpus, ROUNDS, prefix=enter)
