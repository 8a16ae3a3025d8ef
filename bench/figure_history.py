#!/usr/bin/env python3
"""How soon `lull report` and `lull replay` answer for a month of 8 GPUs, on a history folder as the recorder leaves it, with
its roll-ups (see history_bench.cc), beside `zstd -d`, which only unpacks the days. The processor time, of all cores
together, shows what a busy machine adds."""
import os
import subprocess
import tempfile

import figures

DAYS, GPUS, EVERY = 30, 8, 5


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(figures.BUILD, "history_bench"), folder, str(DAYS), str(GPUS), str(EVERY)],
                       env={**os.environ, "TZ": "UTC"}, check=True)
        files = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".csv.zst")]
        size = sum(os.path.getsize(file) for file in files) / 2**20
        unpack = min(figures.run_wall(["zstd", "-dcq", *files]) for _ in range(3))
        rule = ["--idle", "util < 1 for 30m"]
        for name, words in (("report", ["report"]), ("report by hour", ["report", "--last", "30d", "--by-hour"]),
                            ("replay", ["replay", *rule]), ("replay of each job", ["replay", "--per", "job", *rule])):
            command = [figures.LULL, words[0], folder, *words[1:], "--json"]
            ours = min(figures.run_wall(command) for _ in range(5))
            figures.report(f"{name}: a recorded month of {GPUS} GPUs", f"{ours:.2f} s", "under 1 s", ours < 1,
                           f"({ours / unpack:.1f} x zstd -d, {figures.run_cpu(command):.2f} s of processor time, {size:.0f} MiB)")
    figures.finish()


main()
