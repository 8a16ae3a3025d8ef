"""Leases: who holds a GPU, for how long, and who is next. docs/leases.md is the text behind it."""
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest
from conftest import LIMIT, descriptors, wait_until
from terminals import on_terminal, read_all, read_until

PYTHON = "/usr/bin/python3"
ROUNDS = int(os.environ.get("LULL_STRESS_ROUNDS", "3"))
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")


def leases(gpus, **kwargs):
    done = gpus.lull("leases", "--json", **kwargs)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def held(gpus):
    return sorted(lease["label"] for lease in leases(gpus)["leases"])


def files(gpus):
    return sorted(p.name for p in (gpus.folder / "leases").iterdir()) if (gpus.folder / "leases").exists() else []


def wait_free(gpus):
    wait_until(lambda: held(gpus) == [], what="the lease to end")


class Job:
    """`lull pick … -- sh` whose end is a line on its stdin."""

    def __init__(self, gpus, *options, script="read line", **kwargs):
        self.process = gpus.start_lull("pick", *options, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; " + script,
                                       stdin=subprocess.PIPE, **kwargs)

    def gpu(self):
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.wait(timeout=LIMIT)


def test_a_lease_ends_with_its_job(sim):
    gpus = sim(2)
    job = Job(gpus, "-n", "2")
    assert job.gpu() == "0,1"
    assert held(gpus) == ["0", "1"]
    job.end()
    wait_free(gpus)
    wait_until(lambda: files(gpus) == [], what="the files to go")


def test_it_says_who_what_and_since_when(sim):
    gpus = sim(1)
    before = time.time()
    job = Job(gpus)
    job.gpu()
    [lease] = leases(gpus)["leases"]
    assert lease["pid"] == job.process.pid and lease["alive"] is True
    assert lease["uid"] == os.geteuid() and lease["kind"] == "job"
    assert lease["command"].startswith("sh -c echo")
    [file] = [f for f in (gpus.folder / "leases").iterdir()]
    text = file.read_text()
    assert f"pid: {job.process.pid}\n" in text and "since: " in text and "command: sh -c" in text
    assert abs(time.mktime(time.strptime(lease["since"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone - before) < 60
    job.end()


def test_watch_is_a_screen_on_a_terminal_and_lines_in_a_pipe(sim):
    gpus = sim(2)
    process, leader = on_terminal(gpus, "leases", "--watch", "50ms")
    read_until(leader, b"", b"no GPU is leased, nobody waits")
    job = Job(gpus, "--gpus", "1")
    assert job.gpu() == "1"
    text = read_until(leader, b"", b"1 GPU is leased")  # what changes is seen without asking again
    read_until(leader, text, b"running")

    os.write(leader, b"e")
    read_until(leader, b"", b"(uid 0) has it since" if os.geteuid() == 0 else b"has it since")
    os.write(leader, b"q")
    assert read_all(leader).endswith(b"\x1b[?25h\x1b[?1049l")
    assert process.wait(timeout=LIMIT) == 0
    os.close(leader)
    lines = gpus.start_lull("leases", "--watch", "50ms", "--json")
    for _ in range(2):
        assert [lease["label"] for lease in json.loads(lines.stdout.readline())["leases"]] == ["1"]
    lines.stdout.close()  # the reader has seen enough
    assert lines.wait(timeout=LIMIT) == 0
    job.end()
    for wrong in ("soon", "1ms"):
        done = gpus.lull("leases", "--watch", wrong)
        assert done.returncode == 2 and "--watch" in done.stderr and done.stderr.count("\n") == 1


def test_status_says_who_has_it_since_when_and_how_long_it_is_idle(sim, lull):
    gpus = sim(2)
    job = Job(gpus, "--gpus", "1", script=f"{lull} sim load --gpu 1 --util 0 --mem 1GiB & read line; kill $!")
    job.gpu()

    def rows():
        done = gpus.lull("status", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["gpus"]

    wait_until(lambda: (rows()[1]["idle_seconds"] or 0) >= 1, what="a second of idleness")
    free, mine = rows()
    assert free["lease"] is None
    assert mine["lease"]["pid"] == job.process.pid and mine["lease"]["command"].startswith("sh -c echo")
    assert mine["lease"]["since"] == leases(gpus)["leases"][0]["since"]
    table = gpus.lull("status").stdout.splitlines()
    assert "IDLE FOR" in table[0] and "LEASED TO" in table[0]
    assert f"{job.process.pid} for " in table[2] and ": sh -c echo" in table[2]
    job.end()


def test_killed_job_frees_at_once(sim):
    gpus = sim(1)
    job = Job(gpus)
    job.gpu()
    job.process.kill()
    job.process.wait()
    done = gpus.lull("pick", "--wait=20s", "--", "true")
    assert done.returncode == 0, done.stderr


def test_a_job_that_closes_its_descriptors_keeps_its_lease(sim):
    gpus = sim(1)
    job = gpus.start_lull("pick", "--", PYTHON, "-c",
                          "import os, sys; os.closerange(3, 4096); print('closed', flush=True); sys.stdin.read()",
                          stdin=subprocess.PIPE)
    assert job.stdout.readline() == "closed\n"
    assert held(gpus) == ["0"]
    assert gpus.lull("pick").returncode == 125
    job.stdin.close()
    job.wait(timeout=LIMIT)
    wait_free(gpus)


def test_a_child_that_outlives_the_job_keeps_it(sim):
    gpus = sim(1)
    job = gpus.start_lull("pick", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
    child = int(job.stdout.readline())
    try:
        assert job.wait(timeout=LIMIT) == 0
        # The lease holder has gone with the job: what holds the lease now is the child.
        wait_until(lambda: not lease_holders_of(gpus), what="the lease holder to go")
        [lease] = leases(gpus)["leases"]
        assert lease["alive"] is False
        assert "left behind" in gpus.lull("leases").stdout
    finally:
        os.kill(child, signal.SIGKILL)
    wait_free(gpus)


def lease_holders_of(gpus):
    """Lease holders whose folder is this simulation's."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text() == "lull-leases\n":
                if str(gpus.folder / "leases") in descriptors(entry.name).values():
                    found.append(int(entry.name))
        except OSError:
            pass
    return found


def test_the_lease_holder_is_not_in_the_way(sim):
    gpus = sim(1)
    job = Job(gpus)
    job.gpu()
    [holder] = wait_until(lambda: lease_holders_of(gpus))
    links = descriptors(holder)
    assert {links[n] for n in (0, 1, 2)} == {"/dev/null"}
    assert not any("pipe" in link for link in links.values())
    assert os.getsid(holder) == holder != os.getsid(job.process.pid)
    assert os.readlink(f"/proc/{holder}/cwd") == "/"
    # Nobody who looks for the job by its words finds the lease holder.
    assert b"CUDA_VISIBLE_DEVICES" not in pathlib.Path(f"/proc/{holder}/cmdline").read_bytes()
    private = [line for line in pathlib.Path(f"/proc/{holder}/smaps_rollup").read_text().splitlines()
               if line.startswith("Private_Dirty")]
    plain = not any(word in gpus.binary for word in ("asan", "tsan", "coverage"))
    assert int(private[0].split()[1]) < (1024 if plain else 1 << 20)
    job.end()
    wait_until(lambda: not lease_holders_of(gpus), what="the lease holder to go")


def test_a_killed_lease_holder_does_not_lose_the_lease(sim):
    gpus = sim(1)
    job = Job(gpus)
    job.gpu()
    [holder] = wait_until(lambda: lease_holders_of(gpus))
    os.kill(holder, signal.SIGKILL)
    wait_until(lambda: not lease_holders_of(gpus))
    assert held(gpus) == ["0"]
    job.end()
    wait_free(gpus)


def test_the_job_has_no_child_that_it_did_not_make(sim):
    gpus = sim(1)
    done = gpus.lull("pick", "--", PYTHON, "-c",
                     "import os, signal\n"
                     "try: os.wait()\n"
                     "except ChildProcessError: print('no child')\n"
                     "print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))")
    assert done.stdout == "no child\n[]\n"
    done = gpus.lull("pick", "--", "sh", "-c", "sleep 0.01 & wait; echo waited")
    assert done.stdout == "waited\n"


def test_pipes_close_when_the_job_ends(sim):
    gpus = sim(1)
    start = time.monotonic()
    done = gpus.lull("pick", "--hold", "10m")  # the lease holder lives on; our end of the pipe must not
    assert done.stdout == "0\n" and time.monotonic() - start < 30
    assert held(gpus) == ["0"]
    assert gpus.lull("release", "0").returncode == 0
    wait_until(lambda: not lease_holders_of(gpus), what="the lease holder to go")


def test_a_hold_ends_by_itself(sim):
    gpus = sim(1)
    assert gpus.lull("pick", "--hold", "300ms").stdout == "0\n"
    wait_free(gpus)
    wait_until(lambda: files(gpus) == [])


def test_hold_pid_until_the_process_ends(sim):
    gpus = sim(2)
    process = gpus.start("sleep", "1000")
    assert gpus.lull("pick", "--hold-pid", process.pid, "-n", "2").stdout == "0,1\n"
    [lease, _] = leases(gpus)["leases"]
    assert lease["pid"] == process.pid and lease["command"] == "sleep 1000" and lease["kind"] == "process"
    process.kill()
    process.wait()
    wait_free(gpus)
    gone = gpus.lull("pick", "--hold-pid", process.pid)
    assert gone.returncode == 125 and "no such process" in gone.stderr


def test_release_gives_back_only_what_nobody_uses(sim):
    gpus = sim(3)
    assert gpus.lull("release", "0").returncode == 125
    gpus.lull("pick", "-n", "2", "--gpus", "0,1", "--hold", "10m")
    job = Job(gpus, "--gpus", "2")
    job.gpu()
    assert gpus.lull("release", "0").stdout == "GPU 0 released\n"
    assert held(gpus) == ["1", "2"]  # the rest of the hold stays
    refused = gpus.lull("release", "2")
    assert refused.returncode == 125 and str(job.process.pid) in refused.stderr and "--force" in refused.stderr
    assert held(gpus) == ["1", "2"]
    assert gpus.lull("release", "2", "--force").returncode == 0
    assert job.process.poll() is None  # it is not ended
    assert gpus.lull("release", "all").returncode == 0
    assert held(gpus) == []
    again = Job(gpus, "--gpus", "2")  # may be taken anew, and the old job's end does not take it away
    assert again.gpu() == "2"
    job.end()
    wait_until(lambda: len(lease_holders_of(gpus)) == 1)
    assert held(gpus) == ["2"]
    again.end()


def test_release_of_what_a_job_left_behind_needs_no_force(sim):
    gpus = sim(1)
    job = gpus.start_lull("pick", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
    child = int(job.stdout.readline())
    try:
        job.wait(timeout=LIMIT)
        wait_until(lambda: not lease_holders_of(gpus))
        assert gpus.lull("release", "0").returncode == 0
        assert held(gpus) == []
    finally:
        os.kill(child, signal.SIGKILL)


def test_inside_a_job_pick_narrows(sim):
    gpus = sim(4)
    script = ("lull=$0; echo $CUDA_VISIBLE_DEVICES; $lull pick -n 2; $lull pick -n 3; "
              "$lull pick -- sh -c 'echo $CUDA_VISIBLE_DEVICES; '$lull' pick -n 2; '$lull' pick; read line'")
    job = gpus.start(gpus.binary, "pick", "-n", "2", "--gpus", "1,3", "--", "sh", "-c", script, gpus.binary,
                     stdin=subprocess.PIPE)
    assert job.stdout.readline() == "1,3\n"
    assert job.stdout.readline() == "1,3\n"
    inner = job.stdout.readline().strip()
    assert inner in ("1", "3")
    assert job.stdout.readline().strip() == inner  # inside the inner one there is only that
    assert held(gpus) == sorted(["1", "3", inner])
    outside = gpus.lull("pick", "-n", "3")
    assert outside.returncode == 125 and outside.stderr.count("leased") == 2
    job.stdin.close()
    job.wait(timeout=LIMIT)
    assert "in the lease of this job" in job.stderr.read()
    wait_free(gpus)


def test_two_inside_one_job_do_not_share(sim):
    gpus = sim(2)
    script = ("$0 pick -- sh -c 'echo $CUDA_VISIBLE_DEVICES; exec sleep 1000' & "
              "$0 pick --wait -q -- sh -c 'echo $CUDA_VISIBLE_DEVICES; exec sleep 1000' & read line; kill %1 %2; wait")
    job = gpus.start(gpus.binary, "pick", "-n", "2", "--", "bash", "-c", script, gpus.binary, stdin=subprocess.PIPE)
    got = sorted(job.stdout.readline().strip() for _ in range(2))
    assert got == ["0", "1"]
    job.stdin.close()
    job.wait(timeout=LIMIT)
    wait_free(gpus)


def test_a_lease_that_is_over_does_not_narrow(sim):
    gpus = sim(2)
    assert gpus.lull("pick", "-n", "2", env={"LULL_LEASE": "0123456789abcdef"}).stdout == "0,1\n"


# ---- the queue -----------------------------------------------------------------------------------

def waiting(gpus):
    return [ticket["pid"] for ticket in leases(gpus)["queue"]]


def queued(gpus, *options, **kwargs):
    job = Job(gpus, "--wait", "-q", *options, **kwargs)
    wait_until(lambda: job.process.pid in waiting(gpus), what="the waiter to queue")
    return job


def test_first_come_first_served(sim):
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    others = [queued(gpus) for _ in range(5)]
    assert waiting(gpus) == [job.process.pid for job in others]
    now = first
    for job in others:
        now.end()
        assert job.gpu() == "0"
        assert waiting(gpus) == [j.process.pid for j in others[others.index(job) + 1:]]
        now = job
    now.end()


def test_priority_goes_first(sim):
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    low, normal, high = queued(gpus, "--priority", "-1"), queued(gpus), queued(gpus, "--priority", "5")
    for before, after in ((first, high), (high, normal), (normal, low)):
        before.end()
        assert after.gpu() == "0"
    low.end()


def test_a_waiter_for_many_collects(sim):
    gpus = sim(3)
    ones = [Job(gpus) for _ in range(3)]
    assert sorted(job.gpu() for job in ones) == ["0", "1", "2"]
    three = queued(gpus, "-n", "3")
    one = queued(gpus)
    for number, job in enumerate(ones[:2], 1):
        job.end()
        wait_until(lambda: leases(gpus)["queue"][0]["missing"] == 3 - number, what="it to collect")
        assert one.process.poll() is None and one.process.pid in waiting(gpus)
    hurried = gpus.lull("pick")
    assert hurried.returncode == 125 and "collects" in hurried.stderr
    ones[2].end()
    assert three.gpu() == "0,1,2"
    assert one.process.pid in waiting(gpus)
    three.end()
    assert one.gpu() in "012"
    one.end()


def test_a_killed_waiter_leaves_no_trace(sim):
    gpus = sim(2)
    first = Job(gpus, "--gpus", "0")
    first.gpu()
    both = queued(gpus, "-n", "2")
    wait_until(lambda: len(held(gpus)) == 2, what="it to collect GPU 1")
    behind = queued(gpus)
    both.process.kill()
    both.process.wait()
    assert behind.gpu() == "1"
    behind.end()
    first.end()
    wait_until(lambda: files(gpus) == [], what="the files to go")


def test_a_stopped_waiter_does_not_hold_up_the_others(sim):
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    stopped, behind = queued(gpus), queued(gpus)
    stopped.process.send_signal(signal.SIGSTOP)
    first.end()
    assert behind.gpu() == "0"
    stopped.process.send_signal(signal.SIGCONT)
    behind.end()
    assert stopped.gpu() == "0"
    stopped.end()


def test_waiting_runs_out(sim):
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    done = gpus.lull("pick", "--wait=200ms", "--", "true")
    assert done.returncode == 124
    assert "GPU 0: leased" in done.stderr
    assert waiting(gpus) == []
    first.end()


def test_waiting_costs_nothing(sim):
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    job = queued(gpus)
    ticks = lambda: sum(map(int, pathlib.Path(f"/proc/{job.process.pid}/stat").read_text().rsplit(")")[1].split()[11:13]))
    switches = lambda: sum(int(line.split()[1]) for task in pathlib.Path(f"/proc/{job.process.pid}/task").iterdir()
                           for line in (task / "status").read_text().splitlines() if "ctxt_switches" in line)

    def rests():  # all is leased: no timer, no polling
        before = ticks(), switches()
        time.sleep(1.5)
        return ticks() - before[0] <= 1 and switches() - before[1] <= 2

    wait_until(rests, what="rest, once it has settled")
    first.end()
    assert job.gpu() == "0"
    job.end()


def test_foreign_use_is_waited_out(sim):
    gpus = sim(1)
    foreign = gpus.load(0, util=90)
    job = queued(gpus)
    assert held(gpus) == []
    foreign.kill()
    foreign.wait()
    assert job.gpu() == "0"
    job.end()


def test_who_cannot_be_served_keeps_nothing(sim):
    gpus = sim(2)
    gpus.load(0, util=90)
    both = queued(gpus, "-n", "2")
    assert held(gpus) == []
    assert gpus.lull("pick").stdout == "1\n"
    both.process.kill()


# ---- other users, other places -------------------------------------------------------------------

def shared(gpus, tmp_path_factory):
    """A lease folder for all users, and a simulation that they may read."""
    folder = pathlib.Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    folder.chmod(0o1777)
    gpus.folder.chmod(0o755)
    for path in gpus.folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666)
    gpus.env["LULL_LEASES"] = str(folder)
    return folder


@pytest.fixture
def users(sim, tmp_path_factory):
    made = []

    def start(count):
        gpus = sim(count)
        made.append((gpus, shared(gpus, tmp_path_factory)))
        return made[-1]

    yield start
    for gpus, folder in made:
        gpus.close()
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def as_user(uid):
    return {"user": uid, "group": uid, "extra_groups": []}


@ROOT_ONLY
def test_users_see_and_respect_each_other(users):
    gpus, folder = users(2)
    mine = Job(gpus, "--gpus", "0")
    assert mine.gpu() == "0"
    theirs = Job(gpus, **as_user(12345))
    assert theirs.gpu() == "1"
    assert gpus.lull("pick", **as_user(12346)).returncode == 125
    assert {(lease["label"], lease["uid"]) for lease in leases(gpus, **as_user(12346))["leases"]} == {("0", 0), ("1", 12345)}
    for label, uid in (("0", 12345), ("1", 12346)):
        refused = gpus.lull("release", label, "--force", **as_user(uid))
        assert refused.returncode == 125 and "only that user and root" in refused.stderr
    assert gpus.lull("release", "1", "--force", **as_user(12345)).returncode == 0
    again = Job(gpus, **as_user(12346))
    assert again.gpu() == "1"
    assert gpus.lull("release", "1", "--force").returncode == 0  # root may
    for job in (mine, theirs, again):
        job.end()


@ROOT_ONLY
def test_a_waiter_of_another_user_is_served_in_turn(users):
    gpus, folder = users(1)
    first = Job(gpus, **as_user(12345))
    first.gpu()
    order = [12346, 0, 12345, 12346]
    jobs = [queued(gpus, **(as_user(uid) if uid else {})) for uid in order]
    for job in jobs:
        first.end()
        assert job.gpu() == "0"
        first = job
    first.end()


@ROOT_ONLY
def test_hostile_files_take_nothing_over(users):
    gpus, folder = users(2)
    uuid = json.loads(gpus.lull("pick", "--gpus", "0", "--format", "json").stdout)["gpus"][0]["uuid"]
    victim = folder.parent / (folder.name + "-victim")
    victim.write_text("precious\n")
    try:
        attack = (f"import os\nos.chdir('{folder}')\n"
                  f"os.symlink('{victim}', '{uuid}.0')\nos.mkfifo('{uuid}.12346')\n"
                  f"open('{uuid}.12347', 'w').write('gpu: x\\nuser: root\\n')\n"
                  "open('ticket.0.1', 'w').write('number: 1\\nmissing: 1\\nwants: ' + '" + uuid + "' + ' \\n')\n")
        subprocess.run([PYTHON, "-c", attack], check=True, **as_user(12345))
        for uid in (0, 12346, 12347):
            job = Job(gpus, "--gpus", "0", **(as_user(uid) if uid else {}))
            assert job.gpu() == "0"
            [lease] = leases(gpus)["leases"]
            assert lease["uid"] == uid
            job.end()
            wait_free(gpus)
        assert victim.read_text() == "precious\n"
    finally:
        victim.unlink()


@ROOT_ONLY
def test_a_file_that_hides_its_lock_counts_as_taken(users):
    gpus, folder = users(1)
    uuid = json.loads(gpus.lull("pick", "--format", "json").stdout)["gpus"][0]["uuid"]
    (folder / f"{uuid}.0").touch(mode=0o600)
    refused = gpus.lull("pick", "--", "true", **as_user(12345))
    assert refused.returncode == 125 and "may not be read" in refused.stderr


@ROOT_ONLY
def test_the_shared_folder_must_be_there_and_roots(users, tmp_path):
    gpus, folder = users(1)
    unsafe = folder / "unsafe"
    unsafe.mkdir()
    unsafe.chmod(0o777)
    refused = gpus.lull("pick", "--", "true", env={"LULL_LEASES": str(unsafe)})
    assert refused.returncode == 125 and "chmod 1777" in refused.stderr and refused.stderr.count("\n") == 1
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o755)
    refused = gpus.lull("pick", "--", "true", env={"LULL_LEASES": str(closed)}, **as_user(12345))
    assert refused.returncode == 125 and "not ours to write" in refused.stderr
    assert gpus.lull("pick", env={"LULL_LEASES": str(folder / "none")}, **as_user(12345)).returncode == 0


@ROOT_ONLY
def test_umask_does_not_hide_a_lease(users):
    gpus, folder = users(1)
    job = Job(gpus, umask=0o077)
    job.gpu()
    refused = gpus.lull("pick", **as_user(12345))
    assert refused.returncode == 125 and "leased (root" in refused.stderr
    job.end()


# ---- many at once --------------------------------------------------------------------------------

WITNESS = """
exec 9>>"$W/gpu$CUDA_VISIBLE_DEVICES"
flock -n 9 || echo "$CUDA_VISIBLE_DEVICES" >>"$W/double"
echo x >>"$W/served"
"""


def strike_some(gpus, running, dice):
    """Kills a quarter of them at random moments; all others must end well."""
    doomed = dice.sample(running, len(running) // 4)
    for process in doomed:
        time.sleep(dice.random() * 0.01)
        process.send_signal(signal.SIGKILL)
    for process in running:
        status = process.wait(timeout=LIMIT)
        assert status == 0 or process in doomed, process.stderr.read()
        process.stderr.close()
    gpus.started = [p for p in gpus.started if p not in running]


@contextlib.contextmanager
def witnesses(*names):
    """A folder with files that every user may write to."""
    folder = pathlib.Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    try:
        folder.chmod(0o777)
        for name in names:
            (folder / name).touch()
            (folder / name).chmod(0o666)
        yield folder
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


def storm(gpus, rounds, users=(0,), prefix=(), picks=64, count=8):
    """`picks` at once for `count` GPUs, killed at random; returns how many were left in peace."""
    dice = random.Random(rounds)
    with witnesses(*(f"gpu{i}" for i in range(count)), "served", "double") as witness:
        for _ in range(rounds):
            running = []
            for i in range(picks):
                uid = users[i % len(users)]
                where = prefix if i % 2 else ()
                running.append(gpus.start(*where, gpus.binary, "pick", "--wait", "-q", "--", "sh", "-c", WITNESS,
                                          env={"W": str(witness)}, stdout=subprocess.DEVNULL,
                                          **(as_user(uid) if uid else {})))
            strike_some(gpus, running, dice)
        assert (witness / "double").read_text() == ""
        assert len((witness / "served").read_text().splitlines()) >= rounds * (picks - picks // 4)
        wait_free(gpus)
        done = gpus.lull("pick", "-n", count)  # none is lost
        assert done.returncode == 0, done.stderr


def test_many_jobs_at_once_leave_no_lease_behind(sim):
    gpus = sim(8)
    storm(gpus, ROUNDS)
    wait_until(lambda: files(gpus) == [], what="the files to go")


@ROOT_ONLY
def test_many_jobs_of_two_users_at_once_leave_no_lease_behind(users):
    gpus, folder = users(8)
    storm(gpus, ROUNDS, users=(0, 12345))


@contextlib.contextmanager
def another_mount(folder):
    """What starts a command that sees the folder at another place of its own mount namespace; (): none is to be had."""
    elsewhere = folder.parent / (folder.name + "-mount")
    elsewhere.mkdir()
    enter = ["unshare", "-m", "--propagation", "private", "sh", "-c",
             f"mount --bind {folder} {elsewhere} && LULL_LEASES={elsewhere} exec \"$@\"", "sh"]
    try:
        works = subprocess.run([*enter, "true"], capture_output=True, timeout=LIMIT).returncode == 0
        yield enter if works else ()
    finally:
        elsewhere.rmdir()


@ROOT_ONLY
def test_storm_across_mount_namespaces(users):
    """Half of them see the folder at another place of their own mount namespace."""
    gpus, folder = users(8)
    with another_mount(folder) as enter:
        if not enter:
            pytest.skip("no mount namespace to be had here")
        storm(gpus, ROUNDS, prefix=enter)


def test_without_waiting_as_many_as_there_are(sim):
    gpus = sim(4)
    for _ in range(5):
        running = [Job(gpus) for _ in range(8)]
        got = [job.gpu() for job in running]
        assert sorted(g for g in got if g) == ["0", "1", "2", "3"]
        for job, gpu in zip(running, got):
            assert (job.end() if gpu else job.process.wait(timeout=LIMIT)) == (0 if gpu else 125)
        wait_free(gpus)


def test_leases_show_what_the_gpus_do(sim):
    with sim(2) as gpus:
        gpus.lull("pick", "-n", "2", "--hold", "1m")
        gpus.set(1, util=80)
        rows = {row["label"]: row for row in json.loads(gpus.lull("leases", "--json").stdout)["leases"]}
        assert rows["0"]["util_percent"] == 0 and rows["1"]["util_percent"] > 0
        assert rows["1"]["idle_seconds"] is None
        table = gpus.lull("leases").stdout
        assert "UTIL" in table and "IDLE FOR" in table
        blind = gpus.lull("leases", env={"LULL_NVML": "/nowhere.so"})
        assert blind.returncode == 0 and blind.stdout.count("     -         -  held for") == 2, blind.stdout
