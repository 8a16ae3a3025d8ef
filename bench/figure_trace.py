#!/usr/bin/env python3
"""How fast traces come in, and how much memory a long one takes."""
import json
import os
import subprocess
import sys
import tempfile

import figures

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY_MEGABYTES = float(os.environ.get("LULL_BENCH_TRACE_MB", "1000"))


def speeds():
    """MB/s by benchmark name, from the C++ benchmark: file to blocks, on one thread and on two."""
    out = subprocess.run([os.path.join(figures.BUILD, "trace_bench"), "--benchmark_format=json",
                          "--benchmark_repetitions=5", "--benchmark_min_time=0.2"],
                         capture_output=True, text=True, check=True).stdout
    best = {}
    for run in json.loads(out)["benchmarks"]:
        if run["run_type"] == "iteration":  # the best of five: others may be at work on this machine
            best[run["name"]] = max(best.get(run["name"], 0), run["bytes_per_second"] / 1e6)
    return best


def grow(path, megabytes):
    """A long trace from a short one: the same day again and again, later each time."""
    with tempfile.NamedTemporaryFile("w+", suffix=".csv") as seed:
        subprocess.run([sys.executable, os.path.join(HERE, "make_trace.py"), seed.name, "--style", "plain", "--gpus", "8",
                        "--megabytes", "8"], check=True)
        seed.seek(0)
        header = seed.readline()
        rows = [line.split(",", 1) for line in seed]
    length = round(float(rows[-1][0]) - float(rows[0][0])) + 1
    with open(path, "w") as out:
        out.write(header)
        day = 0
        while out.tell() < megabytes * 1e6:
            out.writelines(f"{float(at) + day * length:.3f},{rest}" for at, rest in rows)
            day += 1


def main():
    speed = speeds()
    for kind, words in (("own", "our own CSV"), ("nvidia_smi", "nvidia-smi's CSV")):
        one, two = (speed[f"read_csv/{kind}/{n}/real_time"] for n in (1, 2))
        figures.report(f"{words} in, one core", f"{one:.0f} MB/s", "at least 300 MB/s", one >= 300)
        figures.report(f"{words} in, two cores against one", f"{two / one:.2f} x", "nearly 2 x (at least 1.6)",
                       two / one >= 1.6, f"{two:.0f} MB/s")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "long.csv")
        grow(path, MEMORY_MEGABYTES)
        size = os.path.getsize(path) / 1e6
        peak = figures.peak_memory_mib([figures.LULL, "replay", path, "--idle", "util < 5 for 30m", "--sweep",
                                        "for=5m,15m,30m,1h,2h", "--json"])
        figures.report(f"memory of replaying a CSV of {size:.0f} MB", f"{peak:.0f} MiB", "at most 200 MB", peak <= 190)
    figures.finish()


if __name__ == "__main__":
    main()
