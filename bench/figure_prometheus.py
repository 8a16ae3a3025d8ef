#!/usr/bin/env python3
"""A month of 64 GPUs out of a Prometheus, pulled and judged per job, against a plain curl of the same samples.

Processor time of both ends is compared: what other programs do meanwhile does not count. LULL_DAYS makes it shorter
than 30 days; the ratio is the same.
"""
import os
import random
import subprocess
import sys
import tempfile
import time

import figures

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", part)
                for part in ("", "prometheus")]
from server import SETTLED, Prometheus, why_not  # noqa: E402

HOSTS, GPUS, INTERVAL = 8, 8, 30
DAYS = int(os.environ.get("LULL_DAYS", "30"))
RULE = "util < 1 and power < 80W for 30m"
LONGEST = 15  # seconds for 30 days, on two cores
MOST = 7  # server and curl take about 2 s of processor time for 30 days; all of it may take 15 s


def cost(command, server):
    """Processor seconds of a command with what it starts, and of the server meanwhile."""
    def used():
        with open(f"/proc/{server.process.pid}/stat") as stat:
            return sum(map(int, stat.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    before = used()
    return figures.run_cpu(command) + used() - before


def points(draw, times, work, busy, idle, noise):
    """Only while they are written: 11 million would not fit."""
    return ((at, f"{(busy if number < work else idle) + noise * draw():.4g}") for number, at in enumerate(times))


def fleet(end):
    """Utilization and power of jobs that follow each other, each with an idle end."""
    draw = random.Random(7)
    util, power = [], []
    for host in range(HOSTS):
        for gpu in range(GPUS):
            at, job = end - DAYS * 86400 + host, 0
            while at < end:
                job += 1
                work, idle = draw.choice([120, 1440, 5760]), draw.choice([0, 60, 960])
                labels = {"Hostname": f"node{host}", "gpu": str(gpu), "UUID": f"GPU-{host}-{gpu}", "hpc_job": f"{host}{gpu}{job:05}",
                          "user": draw.choice(["ada", "bob", "eve"]), "instance": f"node{host}:9400", "job": "dcgm"}
                times = range(at, min(end, at + (work + idle) * INTERVAL), INTERVAL)
                level = draw.choice([95, 80, 40])
                util.append((labels, points(draw.random, times, work, level, 0, 0)))
                power.append((labels, points(draw.random, times, work, 310, 61, 9)))
                at += (work + idle) * INTERVAL
    return {"DCGM_FI_DEV_GPU_UTIL": util, "DCGM_FI_DEV_POWER_USAGE": power}


def main():
    if why := why_not():
        print(f"        skipped: {why}")
        return
    end = int(time.time()) - SETTLED
    server = Prometheus(fleet(end))
    try:
        with tempfile.TemporaryDirectory() as folder:
            # The same requests, by curl alone.
            config = os.path.join(folder, "curl")
            with open(config, "w") as out:
                for day in range(DAYS):
                    until = end - (DAYS - 1 - day) * 86400
                    out.write("next\n" if day else "")
                    out.write(f'url = "{server.url}/api/v1/query"\noutput = "{folder}/day{day}"\nsilent\n'
                              f'data-urlencode = "query={{__name__=~\\"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_POWER_USAGE\\"}}[1d]"\n'
                              f'data-urlencode = "time={until - 0.001:.3f}"\n')
            rival = ["curl", "-q", "--config", config]
            when = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for at in (end - DAYS * 86400, end)]
            ours = [figures.LULL, "replay", f"prometheus:{server.url}", "--from", when[0], "--to", when[1], "--per", "job",
                    "--idle", RULE, "--json"]
            subprocess.run(rival, check=True)  # both with a warm cache
            turns = [(cost(ours, server), cost(rival, server), figures.run_wall(ours)) for _ in range(3)]
        mine, theirs, wall = (min(turn[i] for turn in turns) for i in range(3))
        print(f"        {DAYS} days of {HOSTS * GPUS} GPUs: {mine:.1f} s of processor time ({wall:.1f} s in all), "
              f"curl alone {theirs:.1f} s")
        figures.report("replay of a Prometheus per job, against curl of the same samples", f"{mine / theirs:.2f} x",
                       f"at most {MOST} x", mine / theirs <= MOST)
        figures.report(f"{DAYS} days of {HOSTS * GPUS} GPUs out of a Prometheus, pulled and judged per job", f"{wall:.1f} s",
                       f"at most {LONGEST * DAYS / 30:.1f} s", wall <= LONGEST * DAYS / 30)
    finally:
        server.close()


if __name__ == "__main__":
    main()
    figures.finish()
