#!/usr/bin/env python3
"""How long a month of 8 GPUs takes: `lull report` and `lull replay` on a history folder as the recorder leaves it (see
history_bench.cc), beside unpacking it alone."""
import os
import subprocess
import tempfile

import figures

DAYS, GPUS, EVERY = 30, 8, 5


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(figures.BUILD, "history_bench"), folder, str(DAYS), str(GPUS), str(EVERY)],
                       env={**os.environ, "TZ": "UTC"}, check=True)
        files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        size = sum(os.path.getsize(file) for file in files) / 2**20
        unpack = ["zstd", "-dcq", *files]
        for name, command in (("report", [figures.LULL, "report", folder, "--json"]),
                              ("replay", [figures.LULL, "replay", folder, "--idle", "util < 1 for 30m", "--json"])):
            ratio, ours, rival = figures.wall_ratio(command, unpack, turns=5)
            figures.report(f"{name} of a recorded month of {GPUS} GPUs, over unpacking it", f"{ratio:.2f} x",
                           "under 1 s on two idle cores", ours < 1,
                           f"{ours:.2f} s, zstd -d {rival:.2f} s, {size:.0f} MiB")
    figures.finish()


main()
