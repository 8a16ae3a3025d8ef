"""gpu_idle_timeout as its document describes it, in a few obvious lines: the slow twin that lull's drop-in is compared with.

It reads a simulation ($LULL_BINARY sim show --json), and takes only what the comparison gives it.
"""
import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import time


def log(level, text):
    print(f"2024-03-15 11:04:29,052: {level}: gpu_idle_timeout: {text}", file=sys.stderr, flush=True)


def readings():
    shown = json.loads(subprocess.check_output([os.environ["LULL_BINARY"], "sim", "show", "--json"]))["gpus"]
    return {gpu["uuid"]: int(gpu["util_percent"]) for gpu in shown}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-t", type=int, default=1)
    parser.add_argument("-s", type=float, default=5)
    parser.add_argument("-n", type=int, default=60)
    parser.add_argument("-d", type=int, default=12)
    parser.add_argument("-a", default="all")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    window = f"{args.s * args.n:.10g}"
    job = subprocess.Popen(args.command)
    log("INFO", f"Starting GPU idle watcher: threshhold_percentage={args.t}%, sample_freq={args.s:g}, "
                f"num_samples={args.n}, delay_samples={args.d}, window_size={window}")
    seen = collections.defaultdict(lambda: collections.deque(maxlen=args.n))
    tick = 0
    while True:
        try:
            sys.exit(job.wait(timeout=args.s))
        except subprocess.TimeoutExpired:
            tick += 1
        if tick < args.d:
            log("INFO", f"waiting for delay samples. {(args.d - tick) * args.s:.10g} seconds left")
            continue
        for uuid, util in readings().items():
            seen[uuid].append(util)
        idle = [len(of) == args.n and all(util < args.t for util in of) for of in seen.values()]
        if not (all(idle) if args.a == "all" else any(idle)):
            continue
        log("ERROR", f"usage for {args.a} GPUs: {list(seen)} was below threshhold {args.t}% for last {window} seconds. "
                     "Killing process.")
        log("INFO", f"Sending signal {int(signal.SIGQUIT)} to process {job.pid}")
        job.send_signal(signal.SIGQUIT)
        try:
            job.wait(timeout=3)
        except subprocess.TimeoutExpired:
            log("ERROR", "process still alive, maybe hung, killing.")
            job.kill()
            job.wait()
        sys.exit(1)


if __name__ == "__main__":
    main()
