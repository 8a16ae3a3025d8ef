"""Real clients on simulated GPUs: where they are, and how they are run.

`sim` is that of the end-to-end tests (tests/e2e/conftest.py).
"""
import os
import pathlib
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from simulated import e2e  # noqa: E402

sim = e2e.sim
lull = e2e.lull

ROOT = pathlib.Path(os.environ.get("LULL_CLIENTS", HERE.parents[1] / "build" / "clients" / "root"))
SMI = ROOT / "usr/lib/nvidia/current/nvidia-smi"
NVTOP = ROOT / "usr/bin/nvtop"
PYTHON = {"PYTHONPATH": str(ROOT / "usr/lib/python3/dist-packages"), "PYTHONDONTWRITEBYTECODE": "1"}


def pytest_collection_modifyitems(items):
    if not SMI.exists():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="the clients are not there: tests/clients/run fetches them"))


class Clients:
    """The clients, each run inside a simulation; what they print."""

    def __init__(self, gpus):
        self.gpus = gpus

    def smi(self, *args, status=0):
        done = self.gpus.run(SMI, *args)
        assert done.returncode == status, f"nvidia-smi {args}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def query(self, fields, *args):
        """Rows of --query-gpu, as lists of text."""
        text = self.smi(f"--query-gpu={fields}", "--format=csv,noheader", *args)
        return [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]

    def follow(self, *args):
        """nvidia-smi as a process that goes on; a Popen."""
        return self.gpus.start(SMI, *args)

    def gpustat(self, *args, status=0):
        done = self.gpus.run("/usr/bin/python3", "-m", "gpustat", *args, env=PYTHON)
        assert done.returncode == status, done.stderr
        return done.stdout

    def python(self, code):
        done = self.gpus.run("/usr/bin/python3", "-c", code, env=PYTHON)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def nvtop_screen(self, shows, limit=30):
        """What nvtop draws, once it `shows` a text (or after `limit` seconds)."""
        socket = f"lull-clients-{os.getpid()}"
        libraries = f"{self.gpus.env['LD_LIBRARY_PATH']}:{ROOT}/usr/lib/x86_64-linux-gnu"
        tmux = ["tmux", "-L", socket, "-f", "/dev/null"]
        environment = {**self.gpus.env, "LD_LIBRARY_PATH": libraries, "LC_ALL": "C.UTF-8", "HOME": str(self.gpus.folder)}
        variables = [x for name in ("LULL_SIM", "LULL_DEV", "LD_LIBRARY_PATH", "LC_ALL", "HOME")
                     for x in ("-e", f"{name}={environment[name]}")]
        subprocess.run([*tmux, "new-session", "-d", "-x", "180", "-y", "50", *variables, str(NVTOP), "-d", "5"],
                       check=True, env=environment)
        try:
            end = time.monotonic() + limit
            while True:
                screen = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True).stdout
                if shows in screen or time.monotonic() > end:
                    return screen
                time.sleep(0.1)
        finally:
            subprocess.run([*tmux, "kill-server"], capture_output=True)


@pytest.fixture
def clients(sim):
    """clients(gpus='2xH100') starts a simulation; .gpus changes it, .smi() and the others look at it."""
    return lambda *args, **kwargs: Clients(sim(*args, **kwargs))
