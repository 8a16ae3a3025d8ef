"""`job_util`: two jobs on one simulated card, each judged by what it does itself."""
import csv
import json
import os
import subprocess

import pytest
from conftest import LIMIT, calls, wait_until

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs a pid namespace")
EVERY = ["--delay", "0", "--every", "500ms", "--grace", "300ms"]
RULE = ["--idle", "job_util < 1 for 2s"]
FUNCTION = "nvmlDeviceGetProcessUtilization"


def load(gpus, util):
    """The command of a job that holds GPU 0."""
    return [str(gpus.binary), "sim", "load", "--gpu", "0", "--util", str(util), "--mem", "1GiB"]


def start(gpus, log, *job):
    """`lull run` of a job; `log` has its calls."""
    return gpus.start_lull("run", *EVERY, *RULE, "--", *job, env={"LULL_SIM_LOG": str(log)})


def outlives_its_rule(run, log):
    """So many more samples as would have ended it several times."""
    seen = calls(log, FUNCTION)
    wait_until(lambda: run.poll() is not None or calls(log, FUNCTION) >= seen + 20, what="more samples")
    return run.poll() is None


def test_idle_job_beside_a_busy_one_is_ended_and_the_busy_one_is_not(sim, tmp_path):
    gpus = sim("H100")
    log = tmp_path / "calls"
    busy = start(gpus, log, *load(gpus, 90))
    idle = gpus.start_lull("run", *EVERY, *RULE, "--", *load(gpus, 0))
    _, stderr = idle.communicate(timeout=LIMIT)
    assert idle.returncode == 124, stderr
    assert "job_util" in stderr
    assert outlives_its_rule(busy, log), busy.stderr.read()


def test_busy_job_beside_an_idle_one_is_never_ended(sim, tmp_path):
    gpus = sim("H100")
    gpus.load(0, util=0, mem="1GiB")
    busy = start(gpus, tmp_path / "calls", *load(gpus, 3))
    assert outlives_its_rule(busy, tmp_path / "calls"), busy.stderr.read()


def test_idle_job_alone_is_ended(sim):
    gpus = sim("H100")
    done = gpus.lull("run", *EVERY, *RULE, "--", *load(gpus, 0))
    assert done.returncode == 124, done.stderr


def test_work_of_a_child_is_the_jobs(sim, tmp_path):
    """Beside a busy neighbour: the first process of the job only holds the card, one that it started works."""
    gpus = sim("H100")
    gpus.load(0, util=60, mem="1GiB")
    job = ["sh", "-c", '"$@" & exec ' + " ".join(load(gpus, 0)), "sh", *load(gpus, 30)]
    run = start(gpus, tmp_path / "calls", *job)
    assert outlives_its_rule(run, tmp_path / "calls"), run.stderr.read()


@ROOT_ONLY
@pytest.mark.parametrize("view", ["all", "own_namespace", "host"])
def test_work_in_a_pid_namespace_is_never_taken_for_idleness(sim, tmp_path, view):
    """Of a child of the job; and of a whole job with its lull, where the driver's numbers mean somebody else or nobody."""
    gpus = sim(text=f'process_view = "{view}"\n[[gpu]]\nmodel = "H100"\n')
    gpus.load(0, util=60, mem="1GiB")
    log = tmp_path / "calls"
    run = start(gpus, log, "sh", "-c", 'unshare -pf "$@" & exec ' + " ".join(load(gpus, 0)), "sh", *load(gpus, 30))
    assert outlives_its_rule(run, log), run.stderr.read()
    inside = tmp_path / "inside"
    run = gpus.start("unshare", "-pf", "--mount-proc", gpus.binary, "run", "--no-cgroup", *EVERY, *RULE, "--",
                     *load(gpus, 30), env={"LULL_SIM_LOG": str(inside)})
    assert outlives_its_rule(run, inside), run.stderr.read()


@pytest.mark.parametrize("fault", ["unsupported", "no-permission", "garbage", "unknown"])
def test_share_that_the_driver_does_not_tell_ends_nobody(sim, tmp_path, fault):
    gpus = sim("H100")
    gpus.load(0, util=90)
    gpus.fault(0, fault, FUNCTION)
    idle = start(gpus, tmp_path / "calls", *load(gpus, 0))
    assert outlives_its_rule(idle, tmp_path / "calls"), idle.stderr.read()


def test_number_that_passed_to_somebody_else_makes_the_share_unknown(sim, tmp_path):
    """The driver lists the work of a process that has ended; who has its number never opened a GPU."""
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        gpus = sim(text='[[gpu]]\nmodel = "H100"\n[[process]]\ngpu = 0\nutil = 70\nmem = "2GiB"\n'
                        f"pid = {bystander.pid}\n")
        idle = start(gpus, tmp_path / "calls", *load(gpus, 0))
        assert outlives_its_rule(idle, tmp_path / "calls"), idle.stderr.read()
    finally:
        bystander.kill()
        bystander.wait(timeout=LIMIT)


def test_job_without_a_process_on_the_card_is_not_judged_by_who_works_there(sim, tmp_path):
    """What works may do so for it: a container that it asked somebody else to start."""
    gpus = sim("H100")
    gpus.load(0, util=90, mem="1GiB")
    run = gpus.start_lull("run", *EVERY, *RULE, "--gpus", "0", "--", "sleep", "600",
                          env={"LULL_SIM_LOG": str(tmp_path / "calls")})
    assert outlives_its_rule(run, tmp_path / "calls"), run.stderr.read()


def test_mig_device_has_no_shares(sim, tmp_path):
    gpus = sim(text='[[gpu]]\nmodel = "A100"\nmig = ["3g.40gb", "3g.40gb"]\n')
    log = tmp_path / "calls"
    run = gpus.start_lull("run", *EVERY, *RULE, "--", gpus.binary, "sim", "load", "--gpu", "0:0", "--util", "0",
                          env={"LULL_SIM_LOG": str(log)})
    wait_until(lambda: run.poll() is not None or calls(log, "nvmlDeviceGetMemoryInfo") > 60, what="samples")
    assert run.poll() is None, run.stderr.read()


def test_job_util_is_recorded_and_replayed(sim, tmp_path):
    gpus = sim("H100")
    gpus.load(0, 90, "1GiB")
    trace = tmp_path / "job.csv"
    done = gpus.lull("run", *EVERY, *RULE, "--record", trace, "--", *load(gpus, 0))
    assert done.returncode == 124, done.stderr
    values = [row["job_util_percent"] for row in csv.DictReader(trace.open())]
    assert values.count("0") > 3 and all(value in ("", "0") for value in values)
    replayed = gpus.lull("replay", trace, "--idle", "job_util < 1 for 1s", "--json")
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["totals"]["ended"] == 1


@pytest.mark.parametrize("options, said", [
    ([], "job_util is a signal of a job: give --per job, or --also PID"),
    (["--per", "gpu"], "job_util is a signal of a job, not of a GPU: give --per job"),
])
def test_whole_machine_has_no_job_util(sim, options, said):
    done = sim("H100").lull("watch", *RULE, *options, "--do", "exec=true")
    assert done.returncode == 2 and said in done.stderr
    assert done.stderr.count("\n") == 1


def test_check_says_where_job_util_is_known(sim):
    done = sim("H100").lull("check", *RULE[1:])
    assert "job_util" in done.stdout and "known under `lull run`, `lull watch --per job` and `--also`" in done.stdout
