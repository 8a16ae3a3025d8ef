"""What the end-to-end tests share: the binary, and simulated GPUs to run it on.

    def test_something(sim):
        with sim("2xH100") as gpus:              # or sim(4), sim(scenario=path), sim(text='[[gpu]]…')
            gpus.set(0, util=90, mem_used="8GiB")
            job = gpus.load(0, util=95)          # a process that holds GPU 0; a Popen
            gpus.fault(1, "lost")
            done = gpus.lull("status", "--json") # subprocess.CompletedProcess, text
            assert done.returncode == 0

A simulation lives in a folder of its own, so tests may run side by side. It ends
when the test ends, however that is: its holder reads a pipe from this process.
`$LULL_BUILD_DIR` says which build is tested (default: build/dev).
"""
import atexit
import contextlib
import fcntl
import functools
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import hermetic  # noqa: E402, F401
from waiting import LIMIT, descriptors, never_for_ever, read_until, wait_until  # noqa: E402, F401
# A shell starts what it puts in the background with these ignored, and jobs of a test would inherit that. They do
# not inherit a handler, not even one that does nothing.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)
SUDO = '[ "$2" = -l ] || { shift; exec "$@"; }'  # in a script: a sudo that lets everybody do everything


def let_others_in(folder):
    """Opens a test's folder to other users, with those above it that pytest made (one more of them under xdist)."""
    for one in (folder, *folder.parents):
        if one.stat().st_uid == os.geteuid() and one.stat().st_mode & 0o055 != 0o055 and "pytest" in str(one):
            one.chmod(one.stat().st_mode | 0o055)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Folders of this run's own: pytest's is closed to other users again whenever another run begins on this machine."""
    if config.option.basetemp is None and not hasattr(config, "workerinput"):
        config.option.basetemp = tempfile.mkdtemp(prefix="lull-pytest-")


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput") and "lull-pytest-" in str(config.option.basetemp):
        shutil.rmtree(config.option.basetemp, ignore_errors=True)


@functools.cache
def build_dir() -> pathlib.Path:
    built = (ROOT / os.environ.get("LULL_BUILD_DIR", "build/dev")).resolve()
    closed = [folder for folder in built.parents if not folder.stat().st_mode & stat.S_IXOTH]
    if os.geteuid() != 0 or not closed or not (built / "lull").exists():
        return built
    # Root's tests also run as other users, whom a folder like /root keeps out: they get a copy.
    copy = pathlib.Path(tempfile.mkdtemp(prefix="lull-e2e-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    copy.chmod(0o755)
    (copy / built.name).mkdir()
    for program in ("lull", "lull-serve"):
        if (built / program).exists():
            shutil.copy2(built / program, copy / built.name)
    for link in built.iterdir():
        if link.is_symlink():
            shutil.copy2(link, copy / built.name, follow_symlinks=False)
    shutil.copytree(built / "sim", copy / built.name / "sim", symlinks=True)
    return copy / built.name


def clean_environment(**extra) -> dict:
    """That of a command outside any simulation: no driver, no settings (tests/hermetic.py)."""
    return {**os.environ, **{k: str(v) for k, v in extra.items()}}


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def end(process: subprocess.Popen):
    """Ends a process that a test started, if it still runs."""
    if process.poll() is None:
        process.kill()
    process.wait(timeout=LIMIT)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


def processes_of(folder, name=None):
    """Those that run in the simulation of this folder; only of this name, if one is given."""
    found = []
    mark = f"LULL_SIM={folder}\0".encode()
    for process in pathlib.Path("/proc").iterdir():
        try:
            if (process.name.isdigit() and alive(int(process.name)) and mark in (process / "environ").read_bytes()
                    and name in (None, (process / "comm").read_text().strip())):
                found.append(int(process.name))
        except OSError:
            pass
    return found


def lines_in(path) -> list:
    """The whole lines that are in a file by now."""
    return path.read_text().rpartition("\n")[0].split("\n") if path.exists() and "\n" in path.read_text() else []


def calls(log, name, gpu=None):
    """How often a client that logs to $LULL_SIM_LOG called a function whose name has `name` in it, and was answered."""
    lines = [line.split() for line in log.read_text().rpartition("\n")[0].splitlines()] if log.exists() else []
    return sum(name in line[1] and gpu in (None, line[2]) for line in lines)


def wait_for_samples(log, count, what="samples"):
    """So many more looks at the utilization of a GPU: the time in which something must not happen."""
    wanted = calls(log, "nvmlDeviceGetUtilizationRates") + count
    wait_until(lambda: calls(log, "nvmlDeviceGetUtilizationRates") >= wanted, what=what)


class Sim:
    """A running simulation; `env` is the environment of whatever runs inside it."""

    def __init__(self, lull: str, gpus=None, scenario=None, speed=None, env=None):
        self.binary = lull
        command = [lull, "sim"]
        if gpus is not None:
            command += ["--gpus", str(gpus)]
        if scenario is not None:
            command += ["--scenario", str(scenario)]
        if speed is not None:
            command += ["--speed", str(speed)]
        command += ["--", "sh", "-c", r'env -0; printf "SIM_READY=1\0"; exec cat >/dev/null']
        self.holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=env or clean_environment())
        self.started = []
        text = b""
        while not text.endswith(b"SIM_READY=1\0"):
            more = os.read(self.holder.stdout.fileno(), 65536)
            if not more:
                complaint = self.holder.stderr.read().decode(errors="replace")
                end(self.holder)
                raise AssertionError(f"{command} did not start: {complaint}")
            text += more
        pairs = (entry.split("=", 1) for entry in text.decode(errors="surrogateescape").split("\0") if "=" in entry)
        self.env = dict(pairs)
        del self.env["SIM_READY"]
        self.folder = pathlib.Path(self.env["LULL_SIM"])
        (self.folder / "dev/pts").unlink()  # who types at this machine is nothing to the tests

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process in self.started:
            end(process)
        self.started = []
        self.end_what_is_left()
        if self.holder.poll() is None:
            self.holder.stdin.close()  # the holder's `cat` sees the end, and lull sim tidies up
            try:
                self.holder.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                self.holder.send_signal(signal.SIGTERM)
        end(self.holder)

    def end_what_is_left(self):
        """Whoever holds a lease for ten minutes, or is left by a hook, ends with the test. A sensor goes by itself."""
        if self.holder.poll() is not None:
            return
        sensors = processes_of(self.folder, "lull-sensor")
        shell = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()
        for pid in processes_of(self.folder):
            if pid not in sensors and str(pid) not in shell:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not processes_of(self.folder, "lull-sensor"), what="the end of the sensors")

    # -- running things inside ------------------------------------------------------------------
    def run(self, *command, timeout=LIMIT, env=None, **kwargs) -> subprocess.CompletedProcess:
        kwargs = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, **kwargs}
        if "input" in kwargs:
            del kwargs["stdin"]
        return subprocess.run([str(c) for c in command], timeout=timeout, env={**self.env, **(env or {})}, **kwargs)

    def lull(self, *args, **kwargs) -> subprocess.CompletedProcess:
        return self.run(self.binary, *args, **kwargs)

    def start(self, *command, env=None, **kwargs) -> subprocess.Popen:
        """A process inside the simulation, ended with it at the latest."""
        kwargs = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                  **kwargs}
        process = subprocess.Popen([str(c) for c in command], env={**self.env, **(env or {})}, **kwargs)
        self.started.append(process)
        return process

    def run_idle_once(self, ready, *command, timeout=LIMIT, **kwargs) -> subprocess.CompletedProcess:
        """Runs a command among GPUs that work until ready() is true and idle from then on: what it ends has begun."""
        self.set("all", util=90)
        process = self.start(*command, **kwargs)
        wait_until(lambda: process.poll() is not None or ready(), what="it to be ready")
        self.set("all", util=0)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start_lull(self, *args, **kwargs) -> subprocess.Popen:
        return self.start(self.binary, *args, **kwargs)

    # -- changing the world ---------------------------------------------------------------------
    def ok(self, *args) -> str:
        done = self.lull("sim", *args)
        assert done.returncode == 0, f"lull sim {' '.join(map(str, args))}: {done.stderr}"
        return done.stdout

    def set(self, gpu="all", **values):
        self.ok("set", gpu, *(f"{name}={value}" for name, value in values.items()))

    def fault(self, gpu, kind, function=None, lasting=None):
        more = (["--function", function] if function else []) + (["--for", lasting] if lasting else [])
        self.ok("fault", gpu, kind, *more)

    def clear(self, gpu=None):
        self.ok("clear", *([] if gpu is None else [gpu]))

    def show(self) -> dict:
        return json.loads(self.ok("show", "--json"))

    def load(self, gpu, util=None, mem=None, lasting=None, *more, wait=True) -> subprocess.Popen:
        """A process that holds the GPU(s) as a CUDA program would; returns once it is there."""
        args = ["sim", "load", "--gpu", gpu]
        for option, value in (("--util", util), ("--mem", mem), ("--for", lasting)):
            if value is not None:
                args += [option, value]
        process = self.start_lull(*args, *more)
        if wait:
            count = len(self.show()["gpus"]) if gpu == "all" else len(str(gpu).split(","))
            wait_until(lambda: process.poll() is not None or self.holds(process.pid) == count, what="the load")
            if not self.holds(process.pid) and process.returncode:
                raise AssertionError(f"lull {' '.join(map(str, args))}: {process.stderr.read()}")
            self.settle()
        return process

    def settle(self):
        """Returns when the change in progress is written: plain files follow the state, under the same lock."""
        with open(self.folder / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

    def holds(self, pid: int) -> int:
        """How many GPUs."""
        return sum(any(p["pid"] == pid for p in gpu["processes"]) for gpu in self.show()["gpus"])


@pytest.fixture(scope="session")
def lull() -> str:
    path = build_dir() / "lull"
    if not path.exists():
        pytest.exit(f"{path} is not built; LULL_BUILD_DIR says which build to test", returncode=2)
    return str(path)


@pytest.fixture
def run_lull(lull):
    """Runs lull outside any simulation: run_lull('check', 'util < 5')."""

    def run(*args, timeout=LIMIT, env=None, **kwargs):
        kwargs = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, **kwargs}
        return subprocess.run([lull, *map(str, args)], timeout=timeout, env=env or clean_environment(), **kwargs)

    return run


@pytest.fixture
def sim(lull, tmp_path):
    """Starts simulations: sim(), sim(4), sim('2xH100,1xT4'), sim(scenario=path), sim(text='[[gpu]]…')."""
    running = []

    def start(gpus=None, scenario=None, text=None, speed=None, env=None) -> Sim:
        if text is not None:
            scenario = tmp_path / f"scenario{len(running)}.toml"
            scenario.write_text(text)
        if gpus is None and scenario is None:
            gpus = 2
        running.append(Sim(lull, gpus, scenario, speed, env))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def programs(tmp_path):
    """A folder for PATH with programs that only write down how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    calls = tmp_path / "calls"

    class Programs:
        path = f"{folder}:{os.environ['PATH']}"
        alone = str(folder)

        @staticmethod
        def add(name, script="true"):
            program = folder / name
            program.write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\n{script}\n')
            program.chmod(0o755)

        @staticmethod
        def calls():
            return calls.read_text().splitlines() if calls.exists() else []

    return Programs


def squeue_row(state="RUNNING", restarts=0, batch=1, requeue=1, array="22", task="N/A", het="N/A", job="22", uid=1000, count=1,
               partition="main", qos="(null)", account="(null)", tres="cpu=1,node=1,billing=1", nodes="gpu1"):
    """A job as squeue 22.05 prints it."""
    return (f"{job:24}{state:24}{restarts:<16}{batch:<8}{requeue:<8}{array:24}{task:64}{het:24}{uid:<16}{count:<12}{partition:64}"
            f"{qos:64}{account:64}{tres:256}{nodes:1024}")


def slurm_gpus(programs, folder, count):
    """A stand-in for slurmd whose gres.conf names so many GPUs; the environment for whoever asks it. Needs root."""
    folder.mkdir()
    for number in range(count):
        os.mknod(folder / f"nvidia{number}", 0o020600, os.makedev(195, number))
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/nvidia[0-{count - 1}]\n")
    os.utime(folder / "gres.conf", (1, 1))
    programs.add("slurmd", f"echo 'slurmd: Gres Name=gpu Type=(null) Count={count} Index=0 ID=7696487 "
                           f"File={folder}/nvidia[0-{count - 1}] (null)' >&2")
    return {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": programs.path}
