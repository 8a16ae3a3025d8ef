#!/usr/bin/env python3
"""How long a month of 8 GPUs takes: `lull report` and `lull replay` on a history folder, beside unpacking it alone."""
import datetime
import os
import random
import subprocess
import tempfile

import figures

DAYS, GPUS, EVERY = 30, 8, 5
HEADER = ("time,gpu,uuid,util_percent,mem_util_percent,mem_used_bytes,mem_free_bytes,mem_total_bytes,power_watts,"
          "power_limit_watts,temp_celsius,clock_mhz,pstate,fan_percent,procs,host,users,pids,command,lease,job\n")


def one_day(dice, date):
    """As `lull record` writes it, with times that wander by milliseconds."""
    rows, left = [HEADER], [0] * GPUS
    level, who = [0] * GPUS, ["none"] * GPUS
    for second in range(0, 86400, EVERY):
        at = f"{date}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{dice.randrange(120, 124)}Z"
        for gpu in range(GPUS):
            left[gpu] -= EVERY
            if left[gpu] <= 0:
                left[gpu] = dice.expovariate(1 / 3600)
                level[gpu], who[gpu] = dice.choice([(95, "alice"), (60, "bob"), (0, "alice"), (0, "none")])
            util = round(min(100, max(0, dice.gauss(level[gpu], 5))), 1) if level[gpu] else 0
            held = who[gpu] != "none"
            pid = "1234" if held else "none"
            rows.append(f"{at},{gpu},GPU-{gpu:08}-0000-0000-0000-000000000000,{util},{util / 2:.0f},"
                        f"{60000000000 if held else 4000000},20000000000,85899345920,{65 + util * 5:.1f},700,40,1980,0,,"
                        f"{int(held)},node1,{who[gpu]},{pid},{'train.py' if held else ''},,\n")
    return "".join(rows)


def main():
    dice = random.Random(1)
    first = datetime.date(2026, 10, 1)
    text = one_day(dice, "2026-10-01")
    with tempfile.TemporaryDirectory() as folder:
        for day in range(DAYS):
            date = str(first + datetime.timedelta(days=day))
            subprocess.run(["zstd", "-q", "-o", os.path.join(folder, f"{date}.csv.zst")],
                           input=text.replace("2026-10-01T", date + "T").encode(), check=True)
        files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        unpack = ["zstd", "-dcq", *files]
        for name, command in (("report", [figures.LULL, "report", folder, "--json"]),
                              ("replay", [figures.LULL, "replay", folder, "--idle", "util < 1 for 30m", "--json"])):
            ratio, ours, rival = figures.wall_ratio(command, unpack, turns=5)
            figures.report(f"{name} of a month of {GPUS} GPUs, over unpacking it", f"{ratio:.2f} x",
                           "under 1 s on two idle cores", ours < 1, f"{ours:.2f} s, zstd -d {rival:.2f} s")
    figures.finish()


main()
