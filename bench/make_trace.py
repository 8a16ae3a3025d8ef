#!/usr/bin/env python3
"""Makes telemetry that looks like a cluster's: jobs that come and go, pauses, GPUs left idle, a few faults.

    make_trace.py FILE [--gpus 8] [--hours 1] [--every 1.0] [--style own|nvidia-smi|plain] [--megabytes N] [--seed 1]

With --megabytes the trace is as long as it takes. Rows are in order of time, GPU by GPU.
"""
import argparse
import datetime
import random

STYLES = ("own", "nvidia-smi", "plain")


class Gpu:
    """One GPU: phases of work, short pauses in them, and long idle times."""

    def __init__(self, dice, every):
        self.dice, self.every = dice, every
        self.level, self.left, self.pause = 0.0, 0.0, 0.0
        self.next_phase()

    def next_phase(self):
        kind = self.dice.random()
        if kind < 0.45:
            self.level, self.left = self.dice.uniform(60, 99), self.dice.expovariate(1 / 5400)
        elif kind < 0.6:
            self.level, self.left = self.dice.uniform(15, 60), self.dice.expovariate(1 / 2400)
        else:
            self.level, self.left = 0.0, self.dice.expovariate(1 / (9000 if kind < 0.75 else 600))

    def step(self):
        self.left -= self.every
        if self.left <= 0:
            self.next_phase()
        if self.pause > 0:
            self.pause -= self.every
        elif self.level > 0 and self.dice.random() < self.every / 2400:
            self.pause = self.dice.expovariate(1 / 150)
        working = self.level > 0 and self.pause <= 0
        util = min(100, max(0, round(self.dice.gauss(self.level, 9)))) if working else (0 if self.dice.random() < 0.99 else 2)
        return util, 65 + util * 5.6 + self.dice.random() * 8, 60000 + util * 100 if self.level > 0 else 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--style", choices=STYLES, default="own")
    parser.add_argument("--megabytes", type=float)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dice = random.Random(args.seed)
    gpus = [Gpu(dice, args.every) for _ in range(args.gpus)]
    start = datetime.datetime(2024, 3, 15, 11, 4, 29, 52000)
    header = {"own": "time,gpu,uuid,util_percent,mem_used_bytes,power_watts\n",
              "nvidia-smi": "timestamp, index, uuid, utilization.gpu [%], power.draw [W], memory.used [MiB]\n",
              "plain": "time,gpu,util,power\n"}[args.style]
    size, tick = 0, 0
    with open(args.file, "w") as out:
        out.write(header)
        while (size < args.megabytes * 1e6) if args.megabytes else (tick * args.every < args.hours * 3600):
            at = start + datetime.timedelta(seconds=tick * args.every)
            if args.style == "own":
                when = at.isoformat(timespec="milliseconds") + "Z"
            elif args.style == "nvidia-smi":
                when = at.strftime("%Y/%m/%d %H:%M:%S.") + f"{at.microsecond // 1000:03}"
            else:
                when = f"{at.replace(tzinfo=datetime.timezone.utc).timestamp():.3f}"
            rows = []
            for i, gpu in enumerate(gpus):
                util, watts, mib = gpu.step()
                if args.style == "own":
                    rows.append(f"{when},{i},GPU-5dc3a1b2-0000-4000-8000-{i:012},{util},{mib * 1048576},{watts:.3f}\n")
                elif args.style == "nvidia-smi":
                    cell = f"{util} %" if dice.random() > 0.0005 else "[N/A]"
                    rows.append(f"{when}, {i}, GPU-5dc3a1b2-0000-4000-8000-{i:012}, {cell}, {watts:.2f} W, {mib} MiB\n")
                else:
                    rows.append(f"{when},{i},{util},{watts:.1f}\n")
            text = "".join(rows)
            size += len(text)
            out.write(text)
            tick += 1


if __name__ == "__main__":
    main()
