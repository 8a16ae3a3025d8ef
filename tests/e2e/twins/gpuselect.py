"""gpuselect as its README describes it, in a few obvious lines: the slow twin that lull's drop-in is compared with.

It chooses *every* GPU that matches, where the original takes some of them at random: $TWIN_CHOSEN says which.
"""
import argparse
import contextlib
import os
import signal
import subprocess
import sys

from common import DriverError, Gpu, begin, driver, mended

CHOSEN = os.environ.pop("TWIN_CHOSEN", "")


def integers(text):
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError("Parameter must be a single int or 'int1,int2,...'")


def states():
    """index: name, use, use of memory, processes; None where it cannot be read."""
    found = []
    with driver() as (library, count):
        for index in range(count):
            try:
                gpu = Gpu(library, index)
                found.append((gpu.name, *gpu.rates, gpu.processes))
            except DriverError:
                if not mended("a lost GPU"):
                    raise
                found.append(None)
    return found


def matching(args):
    if args.count < 1:
        raise Exception("GPU count must be >= 1")
    if args.devices and args.name is not None:
        raise Exception("Use only one of 'devices' and 'name' parameters")
    if min(args.util, args.mem_util, args.processes) < 0:
        raise Exception("Utilization/process count thresholds must be >= 0")
    if min(args.devices, default=0) < 0 and mended("a device below zero"):
        raise Exception(f"Invalid device ID {next(device for device in args.devices if device < 0)}")
    gpus = states()
    for device in args.devices:
        if not 0 <= device < len(gpus):
            raise Exception(f"Invalid device ID {device}")
    fitting = [index for index, gpu in enumerate(gpus)
               if gpu is not None
               and (not args.devices or index in args.devices)
               and (args.name is None or args.name in gpu[0])
               and gpu[1] <= args.util and gpu[2] <= args.mem_util and gpu[3] <= args.processes]
    wanted = args.count
    if args.devices and mended("one of the devices named"):
        wanted = max(wanted, len(set(args.devices)))
    if len(fitting) < wanted:
        raise Exception(f"Requested {wanted} GPUs, but {len(fitting)} matched filters")
    return fitting


def run(command, chosen):
    os.environ |= {"CUDA_VISIBLE_DEVICES": CHOSEN or chosen, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1"}
    print(f"Running: {command}", flush=True)
    job = subprocess.Popen(command)
    if mended("orphan"):
        signal.signal(signal.SIGTERM, lambda *_: job.send_signal(signal.SIGTERM))
    status = job.wait()
    if not mended("lost status"):
        sys.exit(0)
    if status < 0:  # it became the command: there is nobody else to die
        with contextlib.suppress(OSError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def main():
    words = sys.argv[1:]
    if mended("unread refusal"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    parser = argparse.ArgumentParser("gpuselect")
    parser.add_argument("-d", "--devices", type=integers, default=[])
    parser.add_argument("-n", "--name")
    for letter, name, default in (("-u", "--util", 0), ("-m", "--mem_util", 0), ("-p", "--processes", 0),
                                  ("-c", "--count", 1)):
        parser.add_argument(letter, name, type=int, default=default)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-D", "--debug", action="store_true")
    if mended("eaten options"):
        parser.add_argument("command", nargs=argparse.REMAINDER)
        args = parser.parse_args(words)
        command = args.command[args.command[:1] == ["--"]:]
    else:
        args, command = parser.parse_known_args(words)
    if args.debug:
        print("(debugging)", file=sys.stderr)
    try:
        chosen = ",".join(map(str, matching(args)))
    except Exception as error:
        sys.exit(f"gpuselect: {error}" if mended("traceback") else f"Exception: {error}")
    if command:
        run(command, chosen)
    if not args.quiet:
        print(chosen)


if __name__ == "__main__":
    begin()
    main()
