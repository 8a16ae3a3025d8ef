#!/usr/bin/env python3
"""How long a GPU lies idle between one job's last act and the next one's first, by how many wait for it.

The rival is flock(1) on a file, in the same run. The job is a shell that stamps the time, works for 20 ms and stamps
the time again, so starting the command and its end are on both sides.
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

from figures import BUILD, LULL, finish, report, simulation

STAMP = os.path.join(BUILD, "stamp_bench")
JOB = ["sh", "-c", f"{STAMP}; sleep 0.02; {STAMP}"]
# Waiters: how often. Others may be named: figure_queue.py 1:60 10:8
ROUNDS = dict(map(int, word.split(":")) for word in sys.argv[1:]) or {1: 60, 10: 8, 127: 1, 1000: 1}
AT_ONCE = 16  # on their way into the queue
SETTLE = 0.2  # seconds: whoever came last sleeps by then
LIMIT = 600  # seconds, for what should take 30


def until(condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not come true within {LIMIT} s")
        time.sleep(0.01)


def queued_for_gpu(folder):
    return sum(name.startswith("ticket.") for name in os.listdir(folder))


def queued_for_file(path):
    """The kernel lists those who wait for a lock with an arrow."""
    inode = f":{os.stat(path).st_ino} "
    with open("/proc/locks") as locks:
        return sum("->" in line and inode in line for line in locks)


def hand_overs(command, waiters, queued, env):
    """Seconds of each: the first holder waits until all are in line, and is not counted."""
    with tempfile.NamedTemporaryFile("w+", prefix="lull-stamps-") as stamps:
        out = os.open(stamps.name, os.O_WRONLY | os.O_APPEND)
        first = subprocess.Popen([*command, "sh", "-c", f"echo on; read line; {STAMP} >&{out}"], env=env, text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[out])
        first.stdout.readline()
        started = []
        while len(started) < waiters:
            until(lambda: queued() > len(started) - AT_ONCE, "the queue to grow")
            started.append(subprocess.Popen([*command, *JOB], env=env, stdin=subprocess.DEVNULL, stdout=out))
        until(lambda: queued() >= waiters, f"{waiters} in line")
        time.sleep(SETTLE)
        first.stdin.close()
        failed = sum(process.wait() != 0 for process in started)
        first.wait()
        os.close(out)
        if failed:
            raise SystemExit(f"{failed} of {waiters} were not served by {command[0]}")
        times = [int(line) for line in stamps.read().split()]
    return [(after - before) / 1e9 for before, after in zip(times[::2], times[1::2])]


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


holder, env = simulation(1)
leases = tempfile.TemporaryDirectory(prefix="lull-bench-", dir="/dev/shm")  # as /run is: in memory
os.chmod(leases.name, 0o1777)
env["LULL_LEASES"] = leases.name
medians = {}
try:
    with tempfile.NamedTemporaryFile(prefix="lull-bench-", dir="/dev/shm") as file:
        for waiters, rounds in ROUNDS.items():
            ours, rival = [], []
            for _ in range(rounds):
                ours += hand_overs([LULL, "pick", "--wait", "-q", "--"], waiters, lambda: queued_for_gpu(leases.name), env)
                rival += hand_overs(["flock", file.name], waiters, lambda: queued_for_file(file.name), env)
            medians[waiters] = statistics.median(ours)
            ratio = medians[waiters] / statistics.median(rival)
            report(f"hand-over, {waiters} in line, beside flock", f"{ratio:.2f} x", "at most 3 x", ratio <= 3,
                   f"(p50 {medians[waiters] * 1e3:.2f} ms, p99 {percentile(ours, 0.99) * 1e3:.2f} ms; flock "
                   f"{statistics.median(rival) * 1e3:.2f}, {percentile(rival, 0.99) * 1e3:.2f} ms)")
    growth = medians[max(medians)] / medians[min(medians)]
    report(f"hand-over, {max(medians)} in line, beside {min(medians)}", f"{growth:.2f} x", "at most 2 x", growth <= 2)
finally:
    holder.stdin.close()
    holder.wait()
    leases.cleanup()
finish()
