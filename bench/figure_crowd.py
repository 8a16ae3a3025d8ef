#!/usr/bin/env python3
"""`lull watch --per gpu|job` beside 8 GPUs with 1 500 processes each: its share of a core, with that of its sensor."""
import array
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from figures import BUILD, LULL, finish, report

GPUS, EACH, MOST = 8, 1500, 12_000
LIMIT = 0.05  # of a core
WARM_UP, WINDOW = 8, 20  # seconds

# Opens a device file, forks so many that do nothing, and says their numbers. All of them end when it does.
CROWD = """
import ctypes, os, signal, sys
prctl = ctypes.CDLL(None).prctl
count, device = int(sys.argv[1]), sys.argv[2]
os.setsid()
os.open(device, os.O_RDWR)
for _ in range(count):
    pid = os.fork()
    if pid == 0:
        prctl(1, 9)
        os.close(0), os.close(1)
        while True:
            signal.pause()
    print(pid)
sys.stdout.flush()
sys.stdin.read()
"""


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def cpu_seconds(pid):
    total = 0
    for one in (pid, *children_of(pid)):
        with open(f"/proc/{one}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def share_of_a_core(env, per):
    watch = subprocess.Popen([LULL, "watch", "--per", per, "--every", "1s", "--idle", "util < 1 for 10m", "--do",
                              "kill=holders", "--dry-run"], env=env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(WARM_UP)
        if watch.poll() is not None:
            raise SystemExit(f"lull watch --per {per} ended with {watch.returncode}")
        before, began = cpu_seconds(watch.pid), time.monotonic()
        time.sleep(WINDOW)
        return (cpu_seconds(watch.pid) - before) / (time.monotonic() - began)
    finally:
        watch.send_signal(signal.SIGTERM)
        watch.wait(timeout=30)


def main():
    library = os.environ.get("LULL_CROWD_LIBRARY", os.path.join(BUILD, "libcrowd.so"))
    each = int(sys.argv[1]) if len(sys.argv) > 1 else EACH
    assert GPUS * each <= MOST
    folder = tempfile.mkdtemp(prefix="lull-crowd-")
    crowds = []
    try:
        os.mkdir(f"{folder}/dev")
        pids = array.array("I")
        for gpu in range(GPUS):
            device = f"{folder}/dev/nvidia{gpu}"
            with open(device, "w"):
                pass
            crowd = subprocess.Popen([sys.executable, "-S", "-I", "-c", CROWD, str(each), device],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            crowds.append(crowd)
            pids.extend(int(crowd.stdout.readline()) for _ in range(each))
        with open(f"{folder}/pids", "wb") as file:
            pids.tofile(file)
        env = {**os.environ, "LULL_NVML": library, "LULL_DEV": f"{folder}/dev", "LULL_CROWD": f"{folder}/pids",
               "LULL_CONTROL": folder, "LULL_CONFIG": ""}
        env.pop("LULL_SIM", None)
        for per in ("job", "gpu"):
            share = share_of_a_core(env, per)
            report(f"lull watch --per {per}, {GPUS} GPUs with {each} processes each, at 1 s", f"{share / LIMIT:.2f}",
                   f"at most 1, of {LIMIT:.0%} of a core", share <= LIMIT, f"({share:.1%} of a core)")
    finally:
        for crowd in crowds:
            crowd.kill()
            crowd.communicate()
        shutil.rmtree(folder, ignore_errors=True)
    finish()


main()
