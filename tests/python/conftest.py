"""What the tests of the Python module share. PYTHONPATH has BUILD/python in it, LULL_BUILD_DIR says which build."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("LULL_BUILD_DIR", "build/dev")).resolve()
sys.path.insert(0, str(ROOT / "tests"))
import hermetic  # noqa: E402, F401
from waiting import LIMIT, never_for_ever, wait_until  # noqa: E402, F401
if str(BUILD / "python") not in sys.path:
    sys.path.insert(0, str(BUILD / "python"))
# A shell starts what it puts in the background with SIGINT ignored, and programs of a test would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
pytest_plugins = ["lull.pytest_plugin"]


def sensors_of(pid=None):
    """The sensor processes that serve this process (or `pid`): no children of it, but they hold a handle of it."""
    served = os.getpid() if pid is None else pid
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as line:
                if not line.read().startswith(b"lull-sensor"):
                    continue
            with open(f"/proc/{entry}/fdinfo/5") as handle:
                if f"\nPid:\t{served}\n" in handle.read():
                    found.append(int(entry))
        except OSError:
            continue
    return found


class Script:
    """A Python program that runs in the environment of now."""

    def __init__(self, text, *arguments, **options):
        env = dict(os.environ, PYTHONPATH=str(BUILD / "python"), PYTHONUNBUFFERED="1")
        env.update(options.pop("env", {}))
        self.process = subprocess.Popen([sys.executable, "-c", text, *map(str, arguments)], env=env, text=True,
                                        stdin=options.pop("stdin", subprocess.PIPE), stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, start_new_session=True, **options)

    def line(self):
        return self.process.stdout.readline().rstrip("\n")

    def finish(self, limit=LIMIT):
        """(status, what was left on stdout, stderr)"""
        out, err = self.process.communicate(timeout=limit)
        return self.process.returncode, out, err


@pytest.fixture
def script():
    """Starts Python programs; what still runs after the test is ended."""
    started = []

    def start(text, *arguments, **options):
        started.append(Script(text, *arguments, **options))
        return started[-1]

    yield start
    for one in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)  # with its children, who hold our pipes
        one.process.communicate()
