#!/usr/bin/env python3
"""The slow twin of `lull replay`: the same count as a plain Python loop, straight from the definitions.

    replay_twin.py TRACE [--util 5] [--for SECONDS] [--regret SECONDS]

Reads `lull record`'s CSV, nvidia-smi's (--format=csv), or any with the columns time, gpu, util; prints the totals
as JSON with the names that `lull replay --json` uses. The rule is `util < U for D`, each GPU by itself.
"""
import argparse
import csv
import datetime
import json
import statistics

WORKING = 1  # % of utilisation at which a GPU works


def read_time(text):
    if "/" in text:
        return datetime.datetime.strptime(text, "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=datetime.timezone.utc).timestamp()
    if "-" in text[1:]:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    return float(text)


def read_util(text):
    try:
        return float(text.removesuffix(" %"))
    except ValueError:
        return None  # unknown is not idle


def read_trace(path):
    """{gpu: [(time, util or None), …]} in order of time."""
    names = {"time": "time", "timestamp": "time", "gpu": "gpu", "index": "gpu", "util": "util", "util_percent": "util",
             "utilization.gpu [%]": "util"}
    gpus = {}
    with open(path, newline="") as file:
        rows = csv.reader(file, skipinitialspace=True)
        header = [names.get(name) for name in next(rows)]
        time_at, gpu_at, util_at = (header.index(name) for name in ("time", "gpu", "util"))
        for row in rows:
            gpus.setdefault(row[gpu_at], []).append((read_time(row[time_at]), read_util(row[util_at])))
    for samples in gpus.values():
        samples.sort(key=lambda sample: sample[0])
    return gpus


def judge(samples, limit, length, regret, totals):
    intervals = [b[0] - a[0] for a, b in zip(samples, samples[1:])]
    longest = max(3 * statistics.median(intervals), 1) * (1 + 1e-9) if intervals else 0.0
    begin = fired = last = None
    ended, again, lost, freed = None, False, 0.0, 0.0

    def end(at, came_back):
        totals["idle_hours"] += (at - begin) / 3600
        if fired is not None:
            totals["reclaimed_hours"] += (at - fired) / 3600
            totals["came_back"] += came_back
            totals["regretted"] += came_back and at - fired <= regret

    for at, util in samples:
        if last is not None and at - last > longest:
            if begin is not None:
                end(last, False)
            begin = fired = None
            totals["gap_hours"] += (at - last) / 3600
        elif last is not None:
            totals["seen_hours"] += (at - last) / 3600
            work = util * (at - last) if util is not None and util >= WORKING else 0
            totals["work"] += work
            if ended is not None:  # the first firing ended it: this would not have happened
                lost += work
                again = again or (util is not None and util >= WORKING)
                freed += 0 if again else (at - last) / 3600
        if ended is not None and util is not None and util >= WORKING:
            again = True
        if util is not None and util < limit:
            if begin is None:
                begin = at
            if fired is None and at - begin >= length - 1e-6:
                fired = at
                ended = at if ended is None else ended
                totals["firings"] += 1
        elif begin is not None:
            end(at, util is not None)
            begin = fired = None
        last = at
    if begin is not None:
        end(last, False)
    totals["ended"] += ended is not None
    totals["worked_again"] += again
    totals["lost"] += lost
    totals["freed_hours"] += freed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trace")
    parser.add_argument("--util", type=float, default=5)
    parser.add_argument("--for", dest="length", type=float, default=1800)
    parser.add_argument("--regret", type=float, default=600)
    args = parser.parse_args()
    gpus = read_trace(args.trace)
    totals = {"firings": 0, "came_back": 0, "regretted": 0, "idle_hours": 0.0, "reclaimed_hours": 0.0, "seen_hours": 0.0,
              "ended": 0, "worked_again": 0, "freed_hours": 0.0, "gap_hours": 0.0, "work": 0.0, "lost": 0.0, "gpus": len(gpus), "samples": sum(len(samples) for samples in gpus.values())}
    for samples in gpus.values():
        judge(samples, args.util, args.length, args.regret, totals)
    lost, work = totals.pop("lost"), totals.pop("work")
    totals["work_lost_ratio"] = lost / work if work else None
    print(json.dumps(totals))


if __name__ == "__main__":
    main()
