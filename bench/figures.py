"""What every figure_*.py in this folder shares: fair timing and one way to report.

Machines are noisy, so a figure is a ratio: ours and its rival run in turns in the
same process, and the medians of many turns are compared.
"""
import glob
import os
import statistics
import subprocess
import sys
import time

BUILD = os.environ.get("LULL_BUILD_DIR",
                       os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build/dev"))
LULL = os.path.join(BUILD, "lull")

_missed = 0


def run_wall(command, env=None):
    """Wall seconds of one run, started as cheaply as Python can."""
    start = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, env or os.environ,
                          file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status = os.waitpid(pid, 0)
    elapsed = time.perf_counter() - start
    if status != 0:
        raise SystemExit(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return elapsed


def wall_ratio(ours, rival, turns=200, env=None):
    """Median wall time of ours over that of its rival, taken in turns."""
    a, b = [], []
    for _ in range(turns):
        a.append(run_wall(ours, env))
        b.append(run_wall(rival, env))
    return statistics.median(a) / statistics.median(b), statistics.median(a), statistics.median(b)


def run_cpu(command, env=None):
    """Processor seconds of one run, with what it says thrown away."""
    null = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_WRONLY, 0) for fd in (1, 2)]
    pid = os.posix_spawnp(command[0], command, env or os.environ, file_actions=null)
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


def numbers(command, env=None):
    """What a *_bench program prints: a name and a number a line."""
    out = subprocess.run(command, env=env or os.environ, capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"{command}: {out.stderr.strip() or out.returncode}")
    return {name: float(number) for name, number in (line.split() for line in out.stdout.splitlines())}


def peak_memory_mib(command, env=None):
    """Peak resident memory of one run, by the kernel's own account (see peak_bench.cc)."""
    out = subprocess.run([os.path.join(BUILD, "peak_bench"), *command], env=env or os.environ,
                         capture_output=True, text=True, check=True)
    return int(out.stdout) / 1024


def _of_the_clients(name, suits):
    """A file that `./test clients` unpacked, whichever build folder that was."""
    for place in (os.path.join(BUILD, "clients"), os.path.join(os.path.dirname(BUILD), "clients")):
        for path in sorted(glob.glob(os.path.join(place, "**", name), recursive=True)):
            if suits(path):
                return path
    return None


def real_nvidia_smi():
    return _of_the_clients("nvidia-smi", lambda path: os.path.isfile(path) and os.access(path, os.X_OK))


def real_pynvml():
    """The folder to import it from."""
    path = _of_the_clients("pynvml.py", os.path.isfile)
    return path and os.path.dirname(path)


def simulation(gpus):
    """A running simulation and the environment to see it by."""
    holder = subprocess.Popen([LULL, "sim", "--gpus", str(gpus), "--", "sh", "-c", 'env -0; printf "READY=1\\0"; exec cat'],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    text = b""
    while not text.endswith(b"READY=1\0"):
        more = os.read(holder.stdout.fileno(), 65536)
        if not more:
            raise SystemExit("lull sim did not start")
        text += more
    return holder, dict(pair.split("=", 1) for pair in text.decode().split("\0") if "=" in pair)


def report(name, measured, wanted, ok, detail=""):
    """One line a figure; the exit status of the script says whether all were met."""
    global _missed
    if not ok:
        _missed += 1
    print(f"{'ok    ' if ok else 'MISSED'}  {name}: {measured} (wanted {wanted}){'  ' + detail if detail else ''}",
          flush=True)


def finish():
    sys.exit(1 if _missed else 0)
