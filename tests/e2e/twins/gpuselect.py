"""gpuselect as its README describes it, in a few obvious lines: the slow twin that lull's drop-in is compared with.

A program that reads a simulation ($LULL_BINARY sim show --json). It prints *every* GPU that matches, where the original
prints some of them at random; what the README promises and the original did not keep (-d 0,1 means both) is kept here.
"""
import argparse
import json
import os
import subprocess
import sys


def integers(text):
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError("Parameter must be a single int or 'int1,int2,...'")


def matching(args):
    if args.count < 1:
        raise Exception("GPU count must be >= 1")
    if args.devices and args.name is not None:
        raise Exception("Use only one of 'devices' and 'name' parameters")
    if min(args.util, args.mem_util, args.processes) < 0:
        raise Exception("Utilization/process count thresholds must be >= 0")
    shown = json.loads(subprocess.check_output([os.environ["LULL_BINARY"], "sim", "show", "--json"]))["gpus"]
    for device in args.devices:
        if not 0 <= device < len(shown):
            raise Exception(f"Invalid device ID {device}")
    fitting = [gpu["index"] for gpu in shown
               if (not args.devices or gpu["index"] in args.devices)
               and (args.name is None or args.name in gpu["name"])
               and gpu["util_percent"] <= args.util
               and gpu["mem_util_percent"] <= args.mem_util
               and len(gpu["processes"]) <= args.processes]
    wanted = max(args.count, len(set(args.devices)))
    if len(fitting) < wanted:
        raise Exception(f"Requested {wanted} GPUs, but {len(fitting)} matched filters")
    return fitting


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--devices", type=integers, default=[])
    parser.add_argument("-n", "--name")
    for letter, name, default in (("-u", "--util", 0), ("-m", "--mem_util", 0), ("-p", "--processes", 0),
                                  ("-c", "--count", 1)):
        parser.add_argument(letter, name, type=int, default=default)
    args = parser.parse_args()
    try:
        print(",".join(map(str, matching(args))))
    except Exception as error:
        sys.exit(f"Exception: {error}")


if __name__ == "__main__":
    main()
