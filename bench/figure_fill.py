#!/usr/bin/env python3
"""lull fill: from somebody's open of a device file to the filler standing still, a scan against `fuser -av`, and what it
costs while nothing happens.

Standing still is the kernel's word: `frozen 1` in the cgroup's events. As root the GPUs' files are device nodes (of a number
that no driver has: the kernel tells of the open all the same), so that the BPF program hears them; else plain files.
"""
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from figures import BUILD, LULL, finish, numbers, report, simulation

OPENS = int(os.environ.get("LULL_FILL_OPENS", "200"))
STEADY = float(os.environ.get("LULL_FILL_STEADY", "30"))
OPENER = """
import os, sys, time
for line in sys.stdin:
    for file in sys.argv[1:]:
        began = time.monotonic_ns()
        try: os.close(os.open(file, os.O_RDONLY))
        except OSError: pass
        print(began)
    print("done", flush=True)
"""


def as_if_alone(on):
    """Where we may: whatever else runs on this machine has to wait, as if it were idle."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR if on else os.SCHED_OTHER, os.sched_param(1 if on else 0))
    except OSError:
        pass


def make_nodes(env, count):
    try:
        for gpu in range(count):
            path = os.path.join(env["LULL_DEV"], f"nvidia{gpu}")
            os.mknod(path + ".new", 0o600 | 0o020000, os.makedev(240, gpu))
            os.rename(path + ".new", path)
    except OSError:
        pass


class Filling:
    """`lull fill` with one filler on each GPU."""

    def __init__(self, gpus, nodes=True, every="1s", free="util < 5 for 1s"):
        self.holder, self.env = simulation(gpus)
        self.folder = tempfile.mkdtemp()
        self.env["LULL_CONTROL"] = self.folder
        if nodes:
            make_nodes(self.env, gpus)
        self.files = [os.path.join(self.env["LULL_DEV"], f"nvidia{gpu}") for gpu in range(gpus)]
        self.process = subprocess.Popen([LULL, "fill", "--per-gpu", "--every", every, "--confirm", "300ms", "--idle", free, "--", "sleep", "100000"],
                                        env=self.env, stderr=subprocess.PIPE, text=True)
        self.pids, self.way = {}, "?"
        while len(self.pids) < gpus:
            line = self.process.stderr.readline()
            if not line:
                raise SystemExit("lull fill ended")
            if "opens are heard by" in line:
                self.way = line.rpartition("opens are heard by ")[2].strip()
            if ": started (pid " in line:
                self.pids[int(line.partition(" on GPU ")[2].partition(":")[0])] = int(line.rpartition("pid ")[2].rstrip(")\n"))
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        self.holder.stdin.close()
        self.holder.wait()
        os.system(f"rm -rf {self.folder}")

    def events_files(self):
        mount = next(line.split()[4] for line in open("/proc/self/mountinfo") if " - cgroup2 " in line)
        files = {}
        for gpu, pid in self.pids.items():
            path = next(line.strip()[3:] for line in open(f"/proc/{pid}/cgroup") if line.startswith("0::"))
            files[gpu] = open(f"{mount}{path}/cgroup.events")
        return files


def latencies(gpus, opens):
    as_if_alone(True)
    fill = Filling(gpus)
    events = fill.events_files()
    poll = select.poll()
    by_fd = {file.fileno(): gpu for gpu, file in events.items()}
    for fd in by_fd:
        os.pread(fd, 4096, 0)
        poll.register(fd, select.POLLPRI)
    found = []

    def all_are(wanted, limit=30.0):
        """When each was first seen to be so."""
        seen, end = {}, time.monotonic() + limit
        while len(seen) < gpus and time.monotonic() < end:
            for fd, _ in poll.poll(100):
                now = time.monotonic_ns()
                if f"frozen {wanted}" in os.pread(fd, 4096, 0).decode():
                    seen.setdefault(by_fd[fd], now)
        return seen

    for _ in range(opens):
        opener = subprocess.Popen([sys.executable, "-S", "-c", OPENER, *fill.files], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        time.sleep(0.05)
        opener.stdin.write("go\n")
        opener.stdin.flush()
        seen = all_are(1)
        began = [int(opener.stdout.readline()) for _ in range(gpus)]
        found += [seen[gpu] - began[gpu] if gpu in seen else 30e9 for gpu in range(gpus)]
        opener.stdin.close()
        opener.wait()
        opener.stdout.close()
        all_are(0)
    way = fill.way
    fill.close()
    as_if_alone(False)
    found.sort()
    return way, found[len(found) // 2] / 1e6, found[min(len(found) - 1, int(len(found) * 0.99))] / 1e6, len(found)


def scan():
    script = "import os, sys, time\nfiles = [open('/dev/null') for _ in range(100)]\nprint(1, flush=True)\nsys.stdin.read()"
    crowd = [subprocess.Popen([sys.executable, "-S", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(300)]
    for one in crowd:
        one.stdout.readline()
    holder, env = simulation(8)
    as_if_alone(True)  # both of them
    ours = numbers([os.path.join(BUILD, "scan_bench"), "20"], env)
    files = [os.path.join(env["LULL_DEV"], f"nvidia{gpu}") for gpu in range(8)]
    theirs = []
    for _ in range(7):
        began = time.perf_counter()
        subprocess.run(["fuser", "-av", *files], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        theirs.append((time.perf_counter() - began) * 1e3)
    as_if_alone(False)
    holder.stdin.close()
    holder.wait()
    for one in crowd:
        one.kill()
        one.wait()
    return ours, statistics.median(theirs)


def cpu_seconds(pid):
    """Of it and everything below it, all threads, to the nanosecond."""
    total = 0.0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            total += int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0]) / 1e9
        children = open(f"/proc/{pid}/task/{pid}/children").read().split()
    except OSError:
        return total
    return total + sum(cpu_seconds(int(child)) for child in children)


def main():
    for gpus, opens in ((1, OPENS), (64, max(5, OPENS // 20))):
        way, half, most, count = latencies(gpus, opens)
        report(f"open to standing still, {gpus} filler{'s' if gpus > 1 else ''}, by {way}: p50, p99", f"{half:.2f} ms, {most:.2f} ms", "< 1 ms, < 5 ms",
               half < 1 and most < 5, f"{count} opens")
    ours, theirs = scan()
    first, ours = ours["first_scan_ms"], ours["scan_ms"]
    report("a scan with 300 processes of 100 files", f"{ours:.1f} ms", "< 20 ms", ours < 20, f"the first one {first:.0f} ms")
    report("the same by fuser -av", f"{theirs / ours:.1f} x as long", ">= 10 x", theirs >= 10 * ours, f"{theirs:.0f} ms")
    fill = Filling(8, every="1s")
    time.sleep(10)  # the driver's own samples have to reach back far enough first
    before = cpu_seconds(fill.process.pid)
    time.sleep(STEADY)
    share = (cpu_seconds(fill.process.pid) - before) / STEADY * 100
    fill.close()
    report("steady state with 8 GPUs and 8 fillers", f"{share:.3f} % of a core", "< 0.2 %", share < 0.2)
    finish()


main()
