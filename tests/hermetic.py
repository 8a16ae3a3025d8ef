#!/usr/bin/python3
"""Hides the machine from the tests that run on it: its driver, its GPUs, its settings, its leases, its users.

Every conftest.py imports this before anything else; `./test` runs the unit tests by it: tests/hermetic.py ctest …
The environment is made anew from a list of what tests may see. Root's tests get a mount namespace as well, in which the
driver's library, GPUs in /sys, /run and settings are hidden; without it (not root, no right to mount) the environment alone has to do,
and tests that need more skip. tests/foreign checks that this is enough.
"""
import atexit
import ctypes
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile

KEPT = {"PATH", "USER", "LOGNAME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "RC_PARAMS",
        # Which build is tested, and how much of what: a knob that is new is called LULL_TEST_…
        "LULL_BUILD_DIR", "LULL_CLIENTS", "LULL_PICTURES", "LULL_TWINS", "LULL_TWINS_SEED", "LULL_TWINS_AT_ONCE",
        "LULL_MANY_WAITERS", "LULL_STRESS_ROUNDS", "LULL_FILL_EPISODES", "LULL_FILL_SEED", "LULL_FILL_NODES",
        "LULL_SCHEDULES", "LULL_DAYS", "LULL_CASES"}
KEPT_BEGINNINGS = ("LULL_TEST_", "PYTEST_", "GTEST_", "CTEST_", "GCOV_", "CCACHE_", "ASAN_", "TSAN_", "UBSAN_", "LSAN_")
FIXED = {
    "LULL_CONFIG": "",  # no file of settings
    "LULL_NVML": "/nonexistent/libnvidia-ml.so.1",  # `lull sim` sets it to nothing, for what runs inside
    "LC_ALL": "C.UTF-8",
    "NO_COLOR": "1",
    "TZ": "UTC",
}
LIBRARY = "libnvidia-ml.so.1"
# Where lull looks for the library when the loader has none (src/sense/nvml/library.cc); what is in /run is hidden with it.
LIBRARY_FOLDERS = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/home/kubernetes/bin/nvidia/lib64", "/usr/lib64-nvidia")
# Where lull looks for GPUs of AMD and Intel, and for Jetsons. In a simulation it does not look there (Root::machine()).
GPU_FOLDERS = ("/sys/class/drm", "/sys/class/kfd", "/sys/class/devfreq")
MADE = "LULL_TEST_HERMETIC"  # set: all of this is done; its value says whether there is a namespace

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source, target, kind=None, flags=0, options=None):
    words = [None if word is None else str(word).encode() for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), None if options is None else options.encode()) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))


def libraries():
    """Every file that the loader would take for the driver's library."""
    folders = ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"]
    folders += [str(path) for path in pathlib.Path("/usr/lib").glob("*-linux-gnu*")]
    found = {os.path.realpath(path) for path in (f"{folder}/{LIBRARY}" for folder in folders) if os.path.exists(path)}
    ldconfig = shutil.which("ldconfig", path="/usr/sbin:/sbin")
    cache = subprocess.run([ldconfig, "-p"], capture_output=True, text=True).stdout if ldconfig else ""
    return found | {os.path.realpath(line.split(" => ")[1]) for line in cache.splitlines()
                    if line.split()[:1] == [LIBRARY] and os.path.exists(line.split(" => ")[1])}


def _hide_files():
    """In a mount namespace of this process; False where none can be had."""
    if os.geteuid() != 0 or _libc.unshare(CLONE_NEWNS) != 0:
        return False
    try:
        _mount(None, "/", flags=MS_REC | MS_PRIVATE)
        _mount("none", "/run", "tmpfs", options="mode=755")  # leases, sockets, who is logged in, logind, D-Bus
        for path in ("/etc/lull", pwd.getpwuid(0).pw_dir + "/.config/lull", "/proc/driver/nvidia", *GPU_FOLDERS, *LIBRARY_FOLDERS):
            if os.path.isdir(path):
                _mount("none", path, "tmpfs", options="mode=755")
        for path in libraries():
            _mount("/dev/null", path, flags=MS_BIND)
    except OSError as error:
        print(f"tests/hermetic.py: cannot hide files of this machine: {error}", file=sys.stderr)
        return False
    return True


def hide_machine():
    if MADE in os.environ:
        return
    kept = {name: value for name, value in os.environ.items() if name in KEPT or name.startswith(KEPT_BEGINNINGS)}
    os.environ.clear()
    os.environ.update(kept | FIXED)
    # A folder of PATH that is closed to us makes "no permission" of every command that is not found.
    os.environ["PATH"] = ":".join(folder for folder in kept.get("PATH", os.defpath).split(":") if os.access(folder or ".", os.X_OK))
    os.umask(0o022)
    os.environ[MADE] = "namespace" if _hide_files() else "environment"
    tempfile.tempdir = None  # found by $TMPDIR before
    home = tempfile.mkdtemp(prefix="lull-home-")
    os.chmod(home, 0o755)
    os.environ["HOME"] = home
    atexit.register(shutil.rmtree, home, ignore_errors=True)


hide_machine()
if __name__ == "__main__":
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # ignored in what a shell starts in the background
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    sys.exit(subprocess.call(sys.argv[1:]))
