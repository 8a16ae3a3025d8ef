"""Which GPU is which: cards with the same UUID, and machines with more GPUs than lull can read."""
import json
import subprocess

import pytest
from conftest import LIMIT, end, read_until, wait_for_samples

UUID = "GPU-5c6a4ad0-9d8a-4d17-8f0e-1d0b6a3f2b11"
TWINS = "".join(f'[[gpu]]\nmodel = "H100"\nuuid = "{UUID}"\nutil = {util}\n' for util in (0, 90))
PLACES = ("00000000:0B:00.0", "00000000:13:00.0")
QUICK = ("--every", "50ms")
MOST = 512  # GPUs that lull reads


def does_not_fire(gpus, tmp_path, *words):
    """Starts a watcher that would act within 10 samples, lets it take 40, and returns what it said by then."""
    log = tmp_path / "calls"
    watch = gpus.start_lull("watch", *QUICK, *words, "--do", "exit=7", env={"LULL_SIM_LOG": str(log)})
    wait_for_samples(log, 40 * len(gpus.show()["gpus"]), "40 samples")
    assert watch.poll() is None, watch.stderr.read()
    watch.terminate()
    return watch.communicate(timeout=LIMIT)[1]


# ---- the same UUID twice --------------------------------------------------------------------------

def test_a_busy_gpu_is_not_judged_by_another_with_its_uuid(sim, tmp_path):
    with sim(text=TWINS) as gpus:
        said = does_not_fire(gpus, tmp_path, "--gpus", "1", "--idle", "util < 5 for 500ms")
        assert said.count(f"the same UUID {UUID} on GPU 0 ({PLACES[0]}), GPU 1 ({PLACES[1]})") == 1


def test_all_gpus_are_judged_where_two_have_one_uuid(sim, tmp_path):
    with sim(text=TWINS) as gpus:
        does_not_fire(gpus, tmp_path, "--idle", "all(util) < 5 for 500ms")


def test_the_idle_one_of_two_with_one_uuid_is_judged_by_itself(sim):
    with sim(text=TWINS) as gpus:
        done = gpus.lull("watch", *QUICK, "--gpus", "0", "--idle", "util < 5 for 500ms", "--do", "exit=7")
        assert done.returncode == 7, done.stderr


def test_a_job_that_is_given_a_shared_uuid_is_not_ended_while_one_of_them_works(sim):
    with sim(text=TWINS) as gpus:
        run = gpus.start_lull("run", *QUICK, "--idle", "util < 5 for 500ms", "--", "sh", "-c", "read line",
                              env={"CUDA_VISIBLE_DEVICES": UUID}, stdin=subprocess.PIPE)
        said = read_until(run.stderr, "the UUID of several GPUs")
        assert "all that may be meant are watched" in said
        end(run)


def test_a_shared_uuid_is_refused_and_both_places_are_named(sim):
    with sim(text=TWINS) as gpus:
        for command in (("status",), ("watch", "--idle", "util < 5 for 1s", "--do", "exit=7"), ("pick",)):
            done = gpus.lull(command[0], "--gpus", UUID, *command[1:])
            assert done.returncode == 2, done
            assert f"GPU 0 at {PLACES[0]}, GPU 1 at {PLACES[1]}" in done.stderr
        assert gpus.lull("status", "--gpus", PLACES[1]).returncode == 0


@pytest.mark.parametrize("command", [("status",), ("record", "--for", "200ms", "--every", "100ms"), ("pick",)])
def test_a_shared_uuid_is_said_once(sim, command):
    with sim(text=TWINS) as gpus:
        done = gpus.lull(*command)
        assert done.returncode == 0 and done.stderr.count("the same UUID") == 1, done.stderr


def test_leases_tell_gpus_with_the_same_uuid_apart(sim):
    with sim(text=TWINS.replace("util = 90", "util = 0")) as gpus:
        held = [gpus.start_lull("pick", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read line", stdin=subprocess.PIPE)
                for _ in range(2)]
        got = sorted(job.stdout.readline().strip() for job in held)
        assert got == ["0", "1"], [job.stderr.read() for job in held]
        leases = json.loads(gpus.lull("leases", "--json").stdout)["leases"]
        assert sorted(lease["label"] for lease in leases) == ["0", "1"]
        refused = gpus.lull("pick", "--", "true")
        assert refused.returncode == 125 and refused.stderr.count("leased") == 2, refused.stderr
        shown = json.loads(gpus.lull("status", "--json").stdout)["gpus"]
        assert all(gpu["lease"] for gpu in shown)
        for job in held:
            end(job)


def test_only_the_leased_one_of_two_with_one_uuid_is_taken(sim):
    with sim(text=TWINS.replace("util = 90", "util = 0")) as gpus:
        first = gpus.start_lull("pick", "--gpus", "1", "--uuid", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read line",
                                stdin=subprocess.PIPE)
        assert first.stdout.readline().strip() == "1", "its UUID would name the other as well"
        assert gpus.lull("pick", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout.strip() == "0"
        end(first)


def test_replay_does_not_merge_gpus_with_the_same_uuid(sim, tmp_path):
    trace = tmp_path / "trace.csv"
    with sim(text=TWINS) as gpus:
        assert gpus.lull("record", "--for", "1s", "--every", "100ms", "-o", trace).returncode == 0
        done = gpus.lull("replay", trace, "--idle", "util < 5 for 500ms", "--json", "--verbose")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["gpus"], found["totals"]["firings"]) == (2, 1), found


# ---- more GPUs than can be read -------------------------------------------------------------------

def test_130_gpus_are_all_read(sim, tmp_path):
    with sim("130xT4") as gpus:
        gpus.set(129, util=90)
        shown = json.loads(gpus.lull("status", "--json").stdout)["gpus"]
        assert len(shown) == 130 and shown[129]["util_percent"] > 50
        does_not_fire(gpus, tmp_path, "--idle", "all(util) < 5 for 500ms")


def test_gpus_beyond_the_limit_are_said_and_make_all_unknown(sim, tmp_path):
    with sim(f"{MOST + 3}xT4") as gpus:
        gpus.set(MOST + 1, util=90)
        done = gpus.lull("status", "--json")
        warning = f"this machine has {MOST + 3} GPUs, and lull reads the first {MOST}; nothing is known of the others"
        assert done.returncode == 0 and done.stderr.count(warning) == 1
        shown = json.loads(done.stdout)["gpus"]
        assert len(shown) == MOST + 3
        assert shown[MOST - 1]["util_percent"] == 0 and all(gpu["util_percent"] is None for gpu in shown[MOST:])
        said = does_not_fire(gpus, tmp_path, "--idle", "all(util) < 5 for 500ms")
        assert said.count(warning) == 1
        fires = gpus.lull("watch", *QUICK, "--gpus", f"0,{MOST - 1}", "--idle", "all(util) < 5 for 500ms", "--do", "exit=7")
        assert fires.returncode == 7, fires.stderr
        beyond = gpus.lull("pick", "--gpus", MOST + 2, "--", "true")
        assert beyond.returncode == 125 and "more GPUs than lull can read" in beyond.stderr
