#!/usr/bin/env python3
"""lull beside a GPU that hangs in the kernel (D state, which SIGKILL does not end): does everything still return?

The simulated library reads a file of a FUSE server that never answers. Each command must end, or become its command,
at most 1.5 s after the last answer that can be had (which comes within milliseconds), every time. LULL_HANG_RUNS=1000
is the full figure: about two minutes, since three of the four commands wait a second for the GPU, eight at a time. It says
every ten seconds how far it is.
"""
import concurrent.futures
import os
import subprocess
import sys
import time

from figures import LULL, finish, report, simulation

RUNS = int(os.environ.get("LULL_HANG_RUNS", "200"))
AT_ONCE = 8
LIMIT = 1.5
COMMANDS = {
    "status": [LULL, "status", "--json"],
    "check": [LULL, "check", "util < 5 for 1m"],
    "pick -- CMD": [LULL, "pick", "--gpus", "0", "--no-lease", "--", "true"],
    "run -- CMD": [LULL, "run", "--", "true"],
}


def one(job):
    name, env = job
    began = time.monotonic()
    try:
        done = subprocess.run(COMMANDS[name], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=30)
        return name, time.monotonic() - began, done.returncode, done.stderr
    except subprocess.TimeoutExpired:
        return name, 30.0, "left waiting", b""


def told(results, count):
    """The same, and how far they are."""
    began = said = time.monotonic()
    for done, result in enumerate(results, 1):
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"        {done} of {count} runs in {said - began:.0f} s", file=sys.stderr, flush=True)
        yield result


def main():
    holder, env = simulation(8)
    try:
        if subprocess.run([LULL, "sim", "fault", "3", "hang=dstate"], env=env).returncode != 0:
            print("skip    no FUSE here: a call cannot be made to hang in the kernel")
            return finish()
        jobs = [(name, env) for i in range(RUNS // len(COMMANDS)) for name in COMMANDS]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            results = list(told(pool.map(one, jobs), len(jobs)))
        for name in COMMANDS:
            times = sorted(t for n, t, _, _ in results if n == name)
            wrong = [(rc, err) for n, _, rc, err in results if n == name and rc != 0]
            late = sum(t > LIMIT for t in times)
            report(f"{name} beside a GPU in D state: not back within {LIMIT} s", f"{late} of {len(times)}", "0",
                   late == 0 and not wrong,
                   f"median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s" + (f"; {wrong[0]}" if wrong else ""))
    finally:
        subprocess.run([LULL, "sim", "clear", "all"], env=env)
        holder.stdin.close()
        holder.wait()
    finish()


main()
