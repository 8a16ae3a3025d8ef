#!/usr/bin/env python3
"""Many picks of 8 GPUs at once beside many watchers: how long it takes, who is kept waiting, and what is left of it.

All GPUs are held until every pick is in line, so that they really wait at once. The rival is flock(1), in the same run and
beside the same watchers: as many jobs, each for one of 8 files. It cannot wait for whichever is free, so its jobs are dealt
out to the files in turn.

    figure_storm.py [WATCHERS [PICKS [SEED]]]
"""
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time

from figures import LULL, finish, report, simulation

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests"))
from storm import Storm  # noqa: E402

signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whoever ends us: nothing is left behind
WATCHERS, PICKS, SEED = [int(word) for word in sys.argv[1:]] + [64, 1000, 20][len(sys.argv) - 1:]
GPUS = 8
LIMIT = 240  # seconds for each half, of what should take 20


@dataclasses.dataclass
class Outcome:
    seconds: float  # from the start of the first to the end of the last
    served_in: float  # of that: once all were in line
    wrong: int  # lost, failed, given to two at once, or too many or too few
    left: int  # leases, tickets, processes
    overtaken: float  # who overtook the unluckiest, as a share of all
    longest: float  # wait, in seconds
    median: float
    gap: float  # of a watcher, in seconds
    memory: float  # GiB


def until(condition, end, what):
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what} in time")
        time.sleep(0.05)


class Picks:
    def __init__(self, folder):
        self.command = None

    def hold_all(self):
        return [[LULL, "pick", "-q", "-n", GPUS, "--"]]

    def in_line(self):
        return sum(name.startswith("ticket.") for name in os.listdir(leases.name))


class Flocks:
    def __init__(self, folder):
        self.files = [f"{folder}/lock.{number}" for number in range(GPUS)]
        self.command = lambda number: ["flock", self.files[number % GPUS]]

    def hold_all(self):
        return [["flock", file] for file in self.files]

    def in_line(self):
        """The kernel lists those who wait for a lock with an arrow."""
        inodes = {str(os.stat(file).st_ino) for file in self.files}
        with open("/proc/locks") as locks:
            return sum("->" in line and line.split()[6].split(":")[2] in inodes for line in locks)


def hold(command, env):
    holder = subprocess.Popen([*map(str, command), "sh", "-c", "echo; exec cat"], env=env, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    holder.stdout.readline()
    return holder


def storm_of(env, kind):
    with tempfile.TemporaryDirectory(prefix="lull-storm-", dir="/dev/shm") as folder:
        storm, picks, holders = Storm(LULL, env, folder, SEED, LIMIT), kind(folder), []
        try:
            storm.watch(WATCHERS)
            until(storm.traces, storm.end, "the watchers did not begin")
            holders += [hold(command, env) for command in picks.hold_all()]
            begin = time.monotonic()
            if picks.command:
                storm.env = {**env, "CUDA_VISIBLE_DEVICES": ""}  # its files are its own locks
            storm.pick(PICKS, command=picks.command)
            until(lambda: picks.in_line() == PICKS, storm.end, "not all came into the line")
            all_in_line = time.monotonic()
            for one in holders:
                one.stdin.close()
            failed = storm.wait()
            end = time.monotonic()
            served = storm.served()
            wrong = (PICKS - len(set(served)) + len(served) - len(set(served)) + len(failed) + len(storm.lines("clashes"))
                     + len(storm.lines("wrong")))
            return Outcome(end - begin, end - all_in_line, wrong, len(storm.left_behind()), storm.places_lost(), *storm.waits(),
                           storm.longest_gap(), storm.memory())
        finally:
            storm.close()
            for one in holders:
                one.kill()
                one.wait()


holder, env = simulation(GPUS)
leases = tempfile.TemporaryDirectory(prefix="lull-bench-", dir="/dev/shm")  # as /run is: in memory
os.chmod(leases.name, 0o1777)
env["LULL_LEASES"] = leases.name
try:
    rival, ours = storm_of(env, Flocks), storm_of(env, Picks)
    what = f"{PICKS} picks at once beside {WATCHERS} watchers"
    report(f"{what}, lost or given twice", f"{ours.wrong}", "0", ours.wrong == 0, f"(seed {SEED})")
    report(f"{what}, leases, tickets and processes left", f"{ours.left}", "0", ours.left == 0)
    report(f"{what}, beside flock", f"{ours.seconds / rival.seconds:.2f} x", "at most 8 x", ours.seconds <= 8 * rival.seconds,
           f"({ours.seconds:.1f} s, {ours.served_in:.1f} s of it with all in line; flock {rival.seconds:.1f} s, {rival.served_in:.1f} s)")
    report(f"{what}, longest wait beside the median", f"{ours.longest / ours.median:.2f} x", "at most 3 x",
           ours.longest <= 3 * ours.median, f"({ours.longest:.1f} s, {ours.median:.1f} s; flock {rival.longest / rival.median:.2f} x)")
    report(f"{what}, who overtook the unluckiest in line", f"{ours.overtaken:.1%} of all", "at most 5 %", ours.overtaken <= 0.05)
    report(f"{what}, longest gap of a watcher", f"{ours.gap:.2f} intervals", "at most 3", ours.gap <= 3,
           f"(beside flock {rival.gap:.2f})")
    report(f"{what}, memory", f"{ours.memory:.1f} GiB", "at most 6 GiB", ours.memory <= 6, f"(flock {rival.memory:.1f} GiB)")
finally:
    holder.stdin.close()
    holder.wait()
    leases.cleanup()
finish()
