#!/usr/bin/env python3
"""How fast rules are judged: over blocks in memory, and live (judge_bench.cc).

The rival, one virtual call a sample and condition, runs in turns with ours. Times are
of the processor, so that a busy machine does not blur them.
"""
import json
import os
import statistics
import subprocess

from figures import BUILD, finish, report

TURNS = 7


def measure():
    """Median processor nanoseconds of each benchmark, over turns taken in random order."""
    out = subprocess.run([os.path.join(BUILD, "judge_bench"), "--benchmark_format=json",
                          f"--benchmark_repetitions={TURNS}", "--benchmark_enable_random_interleaving=true",
                          "--benchmark_min_time=0.05"], capture_output=True, text=True, check=True)
    runs = {}
    for row in json.loads(out.stdout)["benchmarks"]:
        if row["run_type"] == "iteration":
            runs.setdefault(row["run_name"], []).append(row)
    if runs["blocks"][0]["fired"] != runs["virtual_calls"][0]["fired"] or not runs["blocks"][0]["fired"]:
        raise SystemExit("the two ways do not count the same firings")
    return {name: (statistics.median(row["cpu_time"] for row in rows),
                   statistics.median(row["items_per_second"] for row in rows)) for name, rows in runs.items()}


def main():
    found = measure()
    ours, rival = found["blocks"][1], found["virtual_calls"][1]
    report("judging blocks, two comparisons, a streak and an arm", f"{ours / 1e6:.0f} M samples/s", ">= 200",
           ours >= 200e6, f"{ours / rival:.1f} x a virtual call a sample")
    report("live, a snapshot of 1 GPU to a verdict", f"{found['live/1'][0]:.0f} ns", "< 300", found["live/1"][0] < 300,
           f"8 GPUs {found['live/8'][0]:.0f} ns, 64 GPUs {found['live/64'][0]:.0f} ns")
    finish()


if __name__ == "__main__":
    main()
