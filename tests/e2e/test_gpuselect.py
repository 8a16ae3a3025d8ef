"""The drop-in gpuselect: what its README promises, and what it did wrong."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest
from conftest import LIMIT, build_dir, clean_environment, let_others_in, wait_until

PYTHON = "/usr/bin/python3"


@pytest.fixture
def gpuselect():
    return str(build_dir() / "gpuselect")


def out(gpus, *command, **kwargs):
    done = gpus.run(*command, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ran(gpus, *command, **kwargs):
    """What the command itself printed: the line before is gpuselect's."""
    running, _, rest = out(gpus, *command, **kwargs).partition("\n")
    assert running.startswith("Running: [")
    return rest


def test_prints_one_idle_gpu(sim, gpuselect):
    gpus = sim(3)
    gpus.load(0, util=50)
    gpus.load(1, util=0, mem="100MiB")
    assert {out(gpus, gpuselect) for _ in range(4)} == {"2\n"}


def test_several_are_in_random_order(sim, gpuselect):
    """As the original has it: programs that know one GPU only share the load of all."""
    gpus = sim(2)
    assert {out(gpus, gpuselect, "-c", "2") for _ in range(20)} == {"0,1\n", "1,0\n"}


def test_readme_examples(sim, gpuselect):
    gpus = sim("2x3090,1xT4")
    assert out(gpus, gpuselect, "--count", "2", "--name", "3090") in ("0,1\n", "1,0\n")
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    assert ran(gpus, gpuselect, "--", *show) in ("0\n", "1\n", "2\n")
    assert len(ran(gpus, gpuselect, "--count", "2", "--", *show).split(",")) == 2
    assert ran(gpus, gpuselect, "--name", "T4", "--", *show) == "2\n"
    gpus.set(2, util=5, mem_util=10)
    assert gpus.run(gpuselect, "--name", "T4").returncode == 1
    assert ran(gpus, gpuselect, "--name", "T4", "--util", "5", "--mem_util", "10", "--", *show) == "2\n"


def test_docker_line_of_the_readme(sim, gpuselect, tmp_path):
    gpus = sim("2x3090")
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    docker.chmod(0o755)
    line = f'{docker} run --gpus \\"device=$({gpuselect} --count 2 --name 3090)\\" --rm -it gpu_container nvidia-smi'
    assert gpus.run("sh", "-c", line).stdout.splitlines()[2] in ('"device=0,1"', '"device=1,0"')


def test_only_the_given_devices_are_taken(sim, gpuselect):
    gpus = sim(3)
    done = gpus.run(gpuselect, "-d", "0,1")
    assert done.stdout in ("0,1\n", "1,0\n")
    assert done.stderr == "count=1 but 2 device IDs were specified, setting count=2\n"
    assert out(gpus, gpuselect, "-d", "2") == "2\n"
    gpus.load(1, util=50)
    done = gpus.run(gpuselect, "-d", "0,1")
    assert done.returncode == 1 and "Requested 2 GPUs, but 1 matched filters" in done.stderr
    done = gpus.run(gpuselect, "-d", "7")
    assert done.returncode == 1 and "Invalid device ID 7" in done.stderr


def test_quiet_and_debug(sim, gpuselect):
    gpus = sim(1)
    assert out(gpus, gpuselect, "-q") == ""
    done = gpus.run(gpuselect, "-D")
    assert done.stdout == "0\n"
    lines = done.stderr.splitlines()
    info = re.fullmatch(r"Device 0: GpuInfo\(device=0, name='.*', util=0, mem_util=0, mem_free=(\d+), mem_used=(\d+), "
                        r"mem_total=(\d+), processes=0, fan_speed=\w+, effective_power_limt=\d+, performance_state=\d+, "
                        r"power_usage=\d+, temperature=\d+, is_throttling=0\)", lines.pop(2))
    assert int(info[1]) + int(info[2]) == int(info[3])
    assert lines == ["count=1,devices=None,name=None,util=0,mem_util=0,processes=0,silent=False", "GPU count: 1",
                     "Utilization filter matched 1 / 1 GPUs", "Memory utilization filter matched 1 / 1 GPUs",
                     "Processes filter matched 1 / 1 GPUs", "GPUs left after filtering (1 requested): 1",
                     "CUDA_VISIBLE_DEVICES=0"]
    wrong = gpus.run(gpuselect, "-c", "x")
    assert wrong.returncode == 2 and wrong.stderr.startswith("usage: gpuselect [-h] [-d DEVICES] [-n NAME]")
    assert wrong.stderr.endswith("gpuselect: error: argument -c/--count: invalid int value: 'x'\n")
    assert out(gpus, gpuselect, "--help").startswith("usage: gpuselect")


def test_processes_are_allowed_with_p(sim, gpuselect):
    gpus = sim(1)
    gpus.load(0, util=0, mem="4GiB")
    assert gpus.run(gpuselect).returncode == 1
    assert out(gpus, gpuselect, "-p", "1") == "0\n"


def test_p_shares_a_gpu_with_that_many_others(sim, gpuselect):
    gpus = sim(1)
    jobs = [gpus.start(gpuselect, "-p", "1", "-u", "10", "--", "sh", "-c", "echo on; read line; true", stdin=subprocess.PIPE)
            for _ in range(2)]
    for job in jobs:
        assert job.stdout.readline().startswith("Running: ") and job.stdout.readline() == "on\n"
    third = gpus.run(gpuselect, "-p", "1", "-u", "10", "--", "true")
    assert third.returncode == 1 and "leased" in third.stderr and "2 share it" in third.stderr
    assert gpus.run(gpuselect, "--", "true").returncode == 1
    assert gpus.run(gpuselect, "-p", "2", "-u", "10", "--", "true").returncode == 0
    # The third's lease is let go just after its command ended, by another process.
    shown = wait_until(lambda: len(leases := json.loads(gpus.lull("leases", "--json").stdout)["leases"]) == 2 and leases,
                       what="the leases of the two that run")
    assert {one["label"] for one in shown} == {"0"} and all(one["alive"] for one in shown)
    jobs[0].stdin.close()
    assert jobs[0].wait(timeout=LIMIT) == 0
    wait_until(lambda: gpus.run(gpuselect, "-p", "1", "-u", "10", "--", "true").returncode == 0,
               what="a place beside the other")
    jobs[1].stdin.close()
    assert jobs[1].wait(timeout=LIMIT) == 0


def test_p_joins_a_job_without_p_but_not_a_lease_of_lull_pick(sim, gpuselect):
    """There whoever comes decides. What `lull pick` holds is its own."""
    gpus = sim(2)
    plain = gpus.start(gpuselect, "-d", "0", "--", "sh", "-c", "echo on; read line; true", stdin=subprocess.PIPE)
    own = gpus.start_lull("pick", "--gpus", "1", "--", "sh", "-c", "echo on; read line; true", stdin=subprocess.PIPE)
    assert plain.stdout.readline().startswith("Running: ") and plain.stdout.readline() == "on\n"
    assert own.stdout.readline() == "on\n"
    assert gpus.run(gpuselect, "-d", "0", "--", "true").returncode == 1
    assert gpus.run(gpuselect, "-d", "0", "-p", "1", "--", "true").returncode == 0
    assert gpus.run(gpuselect, "-d", "1", "-p", "1", "--", "true").returncode == 1
    for job in (plain, own):
        job.stdin.close()
        assert job.wait(timeout=LIMIT) == 0


def test_none_free_is_an_error_at_once(sim, gpuselect):
    gpus = sim(1)
    gpus.load(0, util=50)
    done = gpus.run(gpuselect, "--", "true")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[0] == "gpuselect: Requested 1 GPUs, but 0 matched filters"
    assert "GPU 0: 1 process, 50 % util" in done.stderr


@pytest.mark.parametrize("words, status, said", [
    (["-c", "0"], 1, "GPU count must be >= 1"),
    (["-d", "0", "-n", "A100"], 1, "Use only one of"),
    (["-u", "-1"], 1, "must be >= 0"),
    (["-c", "many"], 2, "invalid int value"),
    (["--frobnicate"], 2, "unrecognized arguments")])
def test_wrong_options_are_refused(sim, gpuselect, words, status, said):
    done = sim(1).run(gpuselect, *words)
    *usage, last = done.stderr.splitlines()
    assert done.returncode == status and said in last
    assert "".join(usage).startswith("usage: gpuselect [-h]") if status == 2 else not usage


# ---- what the predecessor did wrong --------------------------------------------------------------

def test_four_starts_at_once_never_share(sim, gpuselect):
    gpus = sim(4)
    for _ in range(20):
        jobs = [gpus.start(gpuselect, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read x", stdin=subprocess.PIPE)
                for _ in range(4)]
        assert all(job.stdout.readline().startswith("Running: ['sh', '-c', ") for job in jobs)
        assert sorted(job.stdout.readline() for job in jobs) == ["0\n", "1\n", "2\n", "3\n"]
        for job in jobs:
            job.stdin.close()
        for job in jobs:
            assert job.wait(timeout=LIMIT) in (0, 1)  # read met the end
        wait_until(lambda: json.loads(gpus.lull("leases", "--json").stdout)["leases"] == [])


def test_the_exit_status_is_passed_on(sim, gpuselect):
    gpus = sim(1)
    assert gpus.run(gpuselect, "--", "sh", "-c", "exit 42").returncode == 42
    assert gpus.run(gpuselect, "--", "no-such-command").returncode == 127


def test_a_card_without_a_fan_and_a_lost_one(sim, gpuselect):
    gpus = sim("1xT4,1xA100")
    gpus.fault(1, "lost")
    assert out(gpus, gpuselect) == "0\n"
    done = gpus.run(gpuselect, "-c", "2")
    assert done.returncode == 1 and "GPU 1: cannot be read (GPU is lost)" in done.stderr


def test_memory_in_use_counts(sim, gpuselect):
    gpus = sim("1xT4")
    gpus.set(0, mem_used="14.5GiB")
    assert gpus.run(gpuselect).returncode == 1


def test_much_on_stderr_and_binary_output(sim, gpuselect):
    gpus = sim(1)
    data = bytes(range(256)) * 1000
    done = gpus.run(gpuselect, "--", "sh", "-c", "tee /dev/stderr", input=data, text=False)
    assert done.stdout == b"Running: ['sh', '-c', 'tee /dev/stderr']\n" + data and done.stderr == data


def test_sigterm_reaches_the_job(sim, gpuselect):
    gpus = sim(1)
    job = gpus.start(gpuselect, "--", "sleep", "1000")
    wait_until(lambda: pathlib.Path(f"/proc/{job.pid}/comm").read_text() == "sleep\n")
    job.terminate()
    assert job.wait(timeout=LIMIT) == -signal.SIGTERM


def test_the_jobs_options_are_the_jobs(sim, gpuselect):
    gpus = sim(4)
    echo = [PYTHON, "-c", "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], sys.argv[1:])", "-c", "3"]
    gpu, rest = ran(gpus, gpuselect, *echo).split(" ", 1)
    assert gpu in "0123" and rest == "['-c', '3']\n"


# ---- in the place of the original ----------------------------------------------------------------

def test_prints_running_and_sets_pythonunbuffered(sim, gpuselect):
    gpus = sim(1)
    text = out(gpus, gpuselect, "--", "sh", "-c", "echo $PYTHONUNBUFFERED it\\'s")
    assert text == """Running: ['sh', '-c', "echo $PYTHONUNBUFFERED it\\\\'s"]\n1 it's\n"""


def test_given_thresholds_replace_the_defaults(sim, gpuselect):
    gpus = sim("1xT4")
    gpus.set(0, mem_used="900MiB", util=60, mem_util=30)
    assert gpus.run(gpuselect).returncode == 1
    assert out(gpus, gpuselect, "-m", "100", "-u", "100") == "0\n"
    assert out(gpus, gpuselect, "-m", "30", "-u", "60") == "0\n"
    assert gpus.run(gpuselect, "-m", "29", "-u", "60").returncode == 1
    gpus.set(0, mem_used="14.5GiB", util=0, mem_util=0)
    full = gpus.run(gpuselect, "-m", "50")
    assert full.returncode == 1 and "of its memory in use; wanted at most 50 %" in full.stderr
    gpus.fault(0, "lost")
    assert gpus.run(gpuselect, "-m", "100", "-u", "100").returncode == 1


def test_names_are_case_sensitive(sim, gpuselect):
    gpus = sim("1x3090")
    assert out(gpus, gpuselect, "-n", "RTX") == "0\n"
    done = gpus.run(gpuselect, "-n", "rtx")
    assert done.returncode == 1 and "Requested 1 GPUs, but 0 matched filters" in done.stderr


@pytest.mark.parametrize("devices, wrong", [("0,9", "9"), ("10,0", "10"), ("-1", "-1"), ("0,-1", "-1")])
def test_error_names_the_invalid_device(sim, gpuselect, devices, wrong):
    done = sim(1).run(gpuselect, "-d", devices)
    assert done.returncode == 1 and f"gpuselect: Invalid device ID {wrong}" in done.stderr


NOBODY = 100000 + os.getpid()  # and nobody else's, in a test that runs beside this one: its folder is /tmp/lull-UID


@pytest.mark.skipif(os.path.exists("/run/lull"), reason="this machine has a lease folder")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("place", ["runtime", "tmp", "hostile"])
@pytest.mark.parametrize("name", ["gpuselect", "lull"])
def test_non_root_user_without_the_shared_lease_folder(gpuselect, lull, tmp_path, name, place):
    """It goes on to the GPUs (of which there are none here), and says what cannot be promised."""
    let_others_in(tmp_path)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, NOBODY, NOBODY)
    made = pathlib.Path(f"/tmp/lull-{NOBODY}")  # whatever the variable says: cron and su do not set it
    if place == "hostile":
        made.mkdir(mode=0o777)
    env = clean_environment(LULL_NVML="/nonexistent/libnvidia-ml.so.1",
                            XDG_RUNTIME_DIR=runtime if place == "runtime" else "")
    try:
        command = [gpuselect] if name == "gpuselect" else [lull, "pick"]
        done = subprocess.run([*command, "--", "true"], env=env, user=NOBODY, group=NOBODY, extra_groups=[],
                              capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == (1 if name == "gpuselect" else 125)
        first, *rest = done.stderr.splitlines()
        if place == "hostile":
            assert first == f"{name}: {made} is not a folder of ours" and rest == []
        else:
            assert first.startswith(f"{name}: ") and f"leased in {made}, which other users do not look into" in first
            assert len(rest) == 1 and "libnvidia-ml" in rest[0]
            status = made.stat()
            assert status.st_uid == NOBODY and status.st_mode & 0o777 == 0o700
    finally:
        shutil.rmtree(made)
