#!/usr/bin/env python3
"""How `lull replay` bears what is large: traces in any order, ten thousand GPUs, long sweeps; and pandas beside it."""
import importlib.util
import os
import random
import subprocess
import sys
import tempfile

import figures

HERE = os.path.dirname(os.path.abspath(__file__))
RULE = "util < 5 for 1m"
TURNS = 5
PANDAS = """
import sys, pandas
rows = pandas.read_csv(sys.argv[1], usecols=["time", "gpu", "util"]).sort_values(["gpu", "time"])
gpus = rows.groupby("gpu")
idle = rows.util < 5
gap = gpus.time.diff() > 3
run = (~idle | gap | (rows.gpu != rows.gpu.shift())).cumsum()
print((rows[idle].groupby(run[idle]).time.agg(lambda at: at.max() - at.min()) >= 60).sum())
"""


def replay(path, *more):
    return [figures.LULL, "replay", path, "--idle", RULE, "--json", "--threads", "1", *more]


def orders(folder):
    """The same rows oldest first, newest first and shuffled."""
    path = os.path.join(folder, "oldest.csv")
    subprocess.run([sys.executable, os.path.join(HERE, "make_trace.py"), path, "--style", "plain", "--megabytes", "60"],
                   check=True)
    with open(path) as file:
        header, *rows = file.readlines()
    made = {"oldest first": path}
    for name, order in (("newest first", rows[::-1]), ("shuffled", random.Random(1).sample(rows, len(rows)))):
        made[name] = os.path.join(folder, name.replace(" ", "-") + ".csv")
        with open(made[name], "w") as out:
            out.write(header)
            out.writelines(order)
    best = {name: [] for name in made}
    for _ in range(TURNS):
        for name, file in made.items():
            best[name].append(figures.run_cpu(replay(file)))
    for name, most in (("newest first", 3), ("shuffled", 10)):
        ratio = min(best[name]) / min(best["oldest first"])
        figures.report(f"replay of a trace that comes {name}, against oldest first", f"{ratio:.1f} x", f"at most {most} x",
                       ratio <= most)
    pandas(path)


def pandas(path):
    """The totals of the same rule with pandas, where there is one."""
    if importlib.util.find_spec("pandas") is None:
        print("        pandas is not here (python3-pandas): not compared")
        return
    ours = min(figures.run_cpu(replay(path)) for _ in range(TURNS))
    rival = figures.run_cpu([sys.executable, "-c", PANDAS, path])
    figures.report("replay against pandas", f"{rival / ours:.0f} x faster", "at least 5 x", rival / ours >= 5)


def fleet(folder, gpus=10_000, samples=300):
    path = os.path.join(folder, "fleet.csv")
    dice = random.Random(1)
    rest = [f",node{gpu // 8}/{gpu % 8},GPU-5dc3a1b2-0000-4000-8000-{gpu:012}," for gpu in range(gpus)]
    idle = [False] * gpus
    with open(path, "w") as out:
        out.write("time,gpu,uuid,util_percent,power_watts\n")
        for second in range(samples):
            when = f"2024-03-15T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.052Z"
            for gpu in range(gpus):
                if dice.random() < 0.01:
                    idle[gpu] = not idle[gpu]
                out.write(f"{when}{rest[gpu]}{'0,65' if idle[gpu] else '87,312.5'}\n")
    megabytes = os.path.getsize(path) / 1e6
    ten = ["--sweep", "for=" + ",".join(f"{10 * i}s" for i in range(1, 11))]
    speed = megabytes / min(figures.run_cpu(replay(path, *ten)) for _ in range(TURNS))
    figures.report(f"replay of {gpus} GPUs with a sweep of 10, one core", f"{speed:.0f} MB/s", "at least 200 MB/s",
                   speed >= 200)
    for words, more in (("a sweep of 10", ten), ("a sweep of 100", ["--sweep", "for=" + ",".join(f"{i}s" for i in range(10, 110))]),
                        ("a mean in the rule", ["--sweep", "for=10s,1m", "--arm", "mean(util, 30s) > 5"])):
        peak = figures.peak_memory_mib(replay(path, *more))
        figures.report(f"memory of replaying {gpus} GPUs with {words}", f"{peak:.0f} MiB", "at most 512 MiB", peak <= 512)


def main():
    with tempfile.TemporaryDirectory() as folder:
        orders(folder)
        fleet(folder)
    figures.finish()


if __name__ == "__main__":
    main()
