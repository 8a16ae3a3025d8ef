"""What all drop-ins do like their originals, and what a link or a copy with their name does."""
import os
import shutil
import signal
import subprocess

import pytest
from conftest import LIMIT, build_dir, read_until, wait_until

PYTHON = "/usr/bin/python3"
QUICK = ["--gpus", "all", "-s", "0.2", "-n", "4", "-d", "1"]
NAMES = {"idle": "gpu_idle_timeout", "sentinel": "gpu_sentinel", "select": "gpuselect"}


def ignoring():
    """As nohup and a script's `&` start a program. Python itself ignores SIGPIPE, which is no part of this."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def catches(pid, number):
    """The process has the signal blocked, to read it as data."""
    with open(f"/proc/{pid}/status") as status:
        mask = next(line for line in status if line.startswith("SigBlk:")).split()[1]
    return int(mask, 16) >> (number - 1) & 1


@pytest.mark.parametrize("command", [
    [NAMES["idle"], "sleep", "1000"],
    [NAMES["sentinel"]],
    ["lull", "run", "--", "sleep", "1000"],
    ["lull", "watch", "--do", "exit"],
    ["lull", "record", "-o", "/dev/null"],
    ["lull", "status", "--watch"]], ids=lambda command: " ".join(command[:2]))
def test_inherited_ignored_signal_stays_ignored(sim, command):
    with sim(1) as gpus:
        job = gpus.start(build_dir() / command[0], *command[1:], preexec_fn=ignoring, stdout=subprocess.DEVNULL)
        wait_until(lambda: catches(job.pid, signal.SIGTERM), what="SIGTERM being waited for")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            job.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):  # who acts on one of them is gone long before that
            job.wait(timeout=2)
        job.terminate()
        assert job.wait(timeout=LIMIT) in (143, -15, 0), job.stderr.read()


def test_name_with_py_suffix_selects_the_drop_in(sim, tmp_path):
    with sim(1) as gpus:
        for name, words in (("gpu_idle_timeout", ["sh", "-c", "exit 7"]), ("gpuselect", ["--", "sh", "-c", "exit 7"])):
            link = tmp_path / f"{name}.py"
            link.symlink_to(build_dir() / "lull")
            assert gpus.run(link, *words).returncode == 7
        link = tmp_path / "gpu_sentinel.py"
        link.symlink_to(build_dir() / "lull")
        assert gpus.run(link, "--help").stdout.startswith("usage: gpu_sentinel")


@pytest.mark.parametrize("name, words, status", [
    ("gpu_idle_timeout", [*QUICK, "sh", "-c", "exit 7"], 7),
    ("gpu_idle_timeout", [*QUICK, "sleep", "1000"], 1),
    ("gpu_sentinel", ["--help"], 0)])
def test_python3_runs_the_py_file(sim, tmp_path, name, words, status):
    if not (build_dir() / f"{name}.py").exists():
        pytest.skip("the tested build is a copy without it")
    with sim(1) as gpus:
        assert gpus.run(PYTHON, build_dir() / f"{name}.py", *words).returncode == status
        # Copied into a folder of one's own, as its document does: then it is PATH that has lull.
        copied = shutil.copy(build_dir() / f"{name}.py", tmp_path)
        path = f"{build_dir()}:{os.environ['PATH']}"
        assert gpus.run(PYTHON, copied, *words, env={"PATH": path}).returncode == status
        lost = gpus.run(PYTHON, copied, *words, env={"PATH": "/usr/bin:/bin"})
        if shutil.which("lull", path="/usr/bin:/bin") is None:
            assert lost.returncode == 1 and lost.stderr == f"{name}: lull is neither next to this file nor in PATH\n"


def test_job_started_by_the_py_file_has_the_default_sigpipe(sim):
    """Python itself ignores it; a job that inherits that writes on into a closed pipe."""
    if not (build_dir() / "gpu_idle_timeout.py").exists():
        pytest.skip("the tested build is a copy without it")
    with sim(1) as gpus:
        done = gpus.run(PYTHON, build_dir() / "gpu_idle_timeout.py", *QUICK, "cat", "/proc/self/status")
        (ignored,) = [int(line.split()[1], 16) for line in done.stdout.splitlines() if line.startswith("SigIgn:")]
        assert not ignored & 1 << signal.SIGPIPE - 1


@pytest.mark.parametrize("command", [["gpu_idle_timeout", "/no/such/command"], ["gpuselect", "--", "/no/such/command"],
                                     ["gpu_sentinel", "--kill_action", "reboot"]], ids=lambda command: command[0])
def test_errors_begin_with_the_drop_ins_name(sim, tmp_path, command):
    with sim(1) as gpus:
        env = {"PATH": str(tmp_path)}
        if command[0] == "gpu_sentinel" and os.geteuid() == 0:
            pytest.skip("root may reboot")
        done = gpus.run(build_dir() / command[0], *command[1:], env=env)
        assert done.returncode != 0 and "lull:" not in done.stderr
        assert f"{command[0]}: " in done.stderr


@pytest.mark.parametrize("command, status", [
    (["gpu_idle_timeout", "-n", "x", "true"], 2),
    (["gpu_idle_timeout", "-n", "0", "true"], 1),
    (["gpu_idle_timeout", "--gpus", "0", "/no/such/command"], 127),
    (["gpu_idle_timeout", "--help"], 0),
    (["gpu_sentinel", "--arm_duration", "3600"], 1),
    (["gpu_sentinel", "--gpu_devices", "7"], 1),
    (["gpu_sentinel", "--bogus"], 2)], ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_refusal_keeps_its_exit_status_when_nothing_reads_its_output(sim, command, status):
    with sim(1) as gpus:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as unread:
            job = gpus.start(build_dir() / command[0], *command[1:], stdout=unread, stderr=unread)
        assert job.wait(timeout=LIMIT) == status
