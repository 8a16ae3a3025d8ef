"""The drop-in gpuselect: what its README promises, and what it did wrong."""
import json
import pathlib
import signal
import subprocess

import pytest
from conftest import LIMIT, build_dir, wait_until

PYTHON = "/usr/bin/python3"


@pytest.fixture
def gpuselect():
    return str(build_dir() / "gpuselect")


def out(gpus, *command, **kwargs):
    done = gpus.run(*command, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_prints_one_idle_gpu(sim, gpuselect):
    gpus = sim(3)
    gpus.load(0, util=50)
    gpus.load(1, util=0, mem="100MiB")
    assert {out(gpus, gpuselect) for _ in range(4)} == {"2\n"}


def test_readme_examples(sim, gpuselect):
    gpus = sim("2x3090,1xT4")
    assert out(gpus, gpuselect, "--count", "2", "--name", "3090") == "0,1\n"
    show = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    assert out(gpus, gpuselect, "--", *show) in ("0\n", "1\n", "2\n")
    assert len(out(gpus, gpuselect, "--count", "2", "--", *show).split(",")) == 2
    assert out(gpus, gpuselect, "--name", "T4", "--", *show) == "2\n"
    gpus.set(2, util=5, mem_util=10)
    assert gpus.run(gpuselect, "--name", "T4").returncode == 1
    assert out(gpus, gpuselect, "--name", "T4", "--util", "5", "--mem_util", "10", "--", *show) == "2\n"


def test_docker_line_of_the_readme(sim, gpuselect, tmp_path):
    gpus = sim("2x3090")
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    docker.chmod(0o755)
    line = f'{docker} run --gpus \\"device=$({gpuselect} --count 2 --name 3090)\\" --rm -it gpu_container nvidia-smi'
    assert gpus.run("sh", "-c", line).stdout.splitlines()[:3] == ["run", "--gpus", '"device=0,1"']


def test_devices(sim, gpuselect):
    gpus = sim(3)
    assert out(gpus, gpuselect, "-d", "0,1") == "0,1\n"
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
    assert done.stdout == "0\n" and "GPU count: 1" in done.stderr and "CUDA_VISIBLE_DEVICES=0" in done.stderr
    assert out(gpus, gpuselect, "--help").startswith("usage: gpuselect")


def test_processes(sim, gpuselect):
    gpus = sim(1)
    gpus.load(0, util=0, mem="4GiB")
    assert gpus.run(gpuselect).returncode == 1
    assert out(gpus, gpuselect, "-p", "1") == "0\n"


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
def test_mistakes(sim, gpuselect, words, status, said):
    done = sim(1).run(gpuselect, *words)
    assert done.returncode == status and said in done.stderr and done.stderr.count("\n") == 1


# ---- what the predecessor did wrong --------------------------------------------------------------

def test_four_starts_at_once_never_share(sim, gpuselect):
    gpus = sim(4)
    for _ in range(20):
        jobs = [gpus.start(gpuselect, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; read x", stdin=subprocess.PIPE)
                for _ in range(4)]
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
    assert done.stdout == data and done.stderr == data


def test_sigterm_reaches_the_job(sim, gpuselect):
    gpus = sim(1)
    job = gpus.start(gpuselect, "--", "sleep", "1000")
    wait_until(lambda: pathlib.Path(f"/proc/{job.pid}/comm").read_text() == "sleep\n")
    job.terminate()
    assert job.wait(timeout=LIMIT) == -signal.SIGTERM


def test_the_jobs_options_are_the_jobs(sim, gpuselect):
    gpus = sim(4)
    echo = [PYTHON, "-c", "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], sys.argv[1:])", "-c", "3"]
    gpu, rest = out(gpus, gpuselect, *echo).split(" ", 1)
    assert gpu in "0123" and rest == "['-c', '3']\n"
