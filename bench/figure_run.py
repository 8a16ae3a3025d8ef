#!/usr/bin/env python3
"""`lull run`: how soon the job starts, how little it takes to watch it, how soon all is over."""
import json
import os
import select
import statistics
import subprocess
import sys
import time

from figures import BUILD, LULL, finish, numbers, peak_memory_mib, real_nvidia_smi, report, run_cpu, run_wall, simulation, wall_ratio

STAMP = os.path.join(BUILD, "stamp_bench")
WATCH = os.path.join(BUILD, "watch_bench")


def stamped(command, env):
    """Seconds from starting the command to the stamp of the job, and from that to the command's end."""
    reader, writer = os.pipe()
    start = time.monotonic_ns()
    pid = os.posix_spawnp(command[0], command, env, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)])
    _, status = os.waitpid(pid, 0)
    end = time.monotonic_ns()
    os.close(writer)
    with os.fdopen(reader) as stream:
        stamp = int(stream.read())
    if status != 0:
        raise SystemExit(f"{command} ended with {status}")
    return (stamp - start) / 1e9, (end - stamp) / 1e9


def to_exec_and_from_end(env):
    to_exec, from_end, alone, rival = [], [], [], []
    for _ in range(200):
        begun, ended = stamped([LULL, "run", "--", STAMP], env)
        to_exec.append(begun)
        from_end.append(ended)
        alone.append(stamped([STAMP], env)[0])
        rival.append(run_wall(["/bin/true"], env))
    ours, true = statistics.median(to_exec), statistics.median(rival)
    report("from `lull run` to the job's first line, over a run of `true`", f"{ours / true:.2f} x", "at most 4 x",
           ours / true <= 4, f"({ours * 1e3:.2f} ms, {true * 1e3:.2f} ms; the job's first line alone "
                             f"{statistics.median(alone) * 1e3:.2f} ms)")
    end = statistics.median(from_end)
    worst = sorted(from_end)[int(len(from_end) * 0.95)]
    report("from the job's end to lull's end", f"{end * 1e3:.2f} ms", "under 5 ms", end < 0.005, f"(95th of 100: {worst * 1e3:.2f} ms)")


def beside_timeout(env):
    """A whole `lull run -- true`, beside `true` itself and the tool that people wrap jobs in today."""
    ratio, ours, rival = wall_ratio([LULL, "run", "--", "true"], ["/bin/true"], env=env)
    report("lull run -- true, beside true", f"{ratio:.2f} x", "at most 4 x", ratio <= 4,
           f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms)")
    ratio, ours, rival = wall_ratio([LULL, "run", "--", "true"], ["timeout", "1h", "true"], env=env)
    report("lull run -- true, beside timeout 1h true", f"{ratio:.2f} x", "at most 3 x", ratio <= 3,
           f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms)")


def memory(env):
    peak = peak_memory_mib([LULL, "run", "--every", "10ms", "--", "sleep", "1"], env)
    report("peak memory, 8 GPUs, 100 samples", f"{peak:.1f} MiB", "at most 8 MiB", peak <= 8)
    found = numbers([WATCH, "memory", "100000"], env)
    growth = found["end_kib"] - found["early_kib"]
    report("growth over 100 000 samples, time-warped", f"{growth:.0f} KiB", "none (under 128 KiB)", growth < 128,
           f"({found['early_kib']:.0f} KiB after 2 000, {found['hours']:.0f} hours watched, "
           f"fired {found['fired']:.0f} times)")


def cpu_of_a_sample(env):
    smi = real_nvidia_smi()
    # What that rule needs, and the memory, which `lull run` always looks at.
    query = [smi, "--query-gpu=index,uuid,utilization.gpu,memory.used,power.draw,power.limit", "--format=csv"]
    ours, rival = [], []
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})  # both on one processor
    try:
        for _ in range(5):
            ours.append(numbers([WATCH, "cpu", "20000"], env)["cpu_us"] / 1e6)
            if smi:
                rival += [run_cpu(query, env) for _ in range(10)]
    finally:
        os.sched_setaffinity(0, everywhere)
    sample = statistics.median(ours)
    if smi is None:
        print(f"skip    CPU of the real nvidia-smi: not here; './test clients' fetches it (a sample of 8 GPUs, "
              f"the loop included: {sample * 1e6:.0f} us)")
        return
    spawn = statistics.median(rival)
    report("CPU of the real nvidia-smi over a sample of 8 GPUs with the loop around it", f"{spawn / sample:.0f} x",
           "at least 50 x", spawn / sample >= 50, f"({spawn * 1e3:.2f} ms, {sample * 1e6:.1f} us; one sample after the other, on one processor)")
    spread = numbers([WATCH, "cpu", "20000"], env)["cpu_us"]
    print(f"        its two threads on two processors, each waking the other: {spread:.0f} us")
    # Not one after the other but at a pace, the processor sleeps between and both cost more; then
    # waking up is most of it (a program that only waits for the timer: 35 to 50 us here).
    seconds, every = 4, 0.01
    watching = [LULL, "run", "--idle", "util < 1 and power < 30% for 1h", "--every", f"{every * 1000:.0f}ms", "--gpus", "all"]
    busy = run_cpu([*watching, "--", "sleep", str(seconds)], env)
    still = run_cpu([LULL, "run", "--gpus", "all", "--every", "1h", "--", "sleep", str(seconds)], env)
    paced = []
    for _ in range(30):
        time.sleep(every)
        paced.append(run_cpu(query, env))
    print(f"        at a pace of 10 ms, waking up included: {statistics.median(paced) / ((busy - still) * every / seconds):.0f} x"
          f" ({statistics.median(paced) * 1e3:.2f} ms, {(busy - still) * every / seconds * 1e6:.0f} us)", flush=True)


CROWD = """
import os, signal, sys, time
for i in range(199):
    if os.fork() == 0:
        if i % 2: signal.signal(signal.SIGTERM, signal.SIG_IGN)
        break
os.write(1, b"x")
time.sleep(600)
"""


def end_of_a_crowd(env, more, name):
    grace = 0.5
    reader, writer = os.pipe()
    job = subprocess.Popen([LULL, "run", "--gpus", "all", *more, "--delay", "0", "--every", "100ms", "--idle",
                            "util < 1 for 2s", "--grace", "500ms", "--log-format", "json", "--", sys.executable, "-c", CROWD],
                           env=env, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    seen = 0
    while seen < 200:
        seen += len(os.read(reader, 200))
    fired = None
    while fired is None:
        event = json.loads(job.stderr.readline())
        if event["event"] == "end":
            fired = time.monotonic()
    shown = len(event["details"]["processes"])
    select.select([reader], [], [], 30)
    if os.read(reader, 1) != b"":
        raise SystemExit("the crowd still writes")
    took = time.monotonic() - fired
    os.close(reader)
    status = job.wait()
    job.stderr.close()
    if status != 124 or shown != 200:
        raise SystemExit(f"status {status}, {shown} processes")
    report(f"idle kill of 200 processes, half ignoring TERM ({name})", f"grace + {(took - grace) * 1e3:.0f} ms",
           "at most grace + 100 ms", took <= grace + 0.1)


def main():
    holder, env = simulation(8)
    try:
        to_exec_and_from_end(env)
        beside_timeout(env)
        memory(env)
        cpu_of_a_sample(env)
        end_of_a_crowd(env, [], "cgroup where allowed")
        end_of_a_crowd(env, ["--no-cgroup"], "walk")
    finally:
        holder.stdin.close()
        holder.wait()
    finish()


main()
