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
DEBUG = False


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


def shown(index, gpu):
    name, util, mem_util, processes = gpu or ("", None, None, None)
    return f"GpuInfo(device={index}, name='{name}', util={util}, mem_util={mem_util}, more, processes={processes}, more)"


def debug(text):
    if DEBUG:
        print(text, file=sys.stderr, flush=True)


def check_values(args):
    """The original tells with -D what it was given before it looks at that; nobody needs it."""
    if args.count < 1:
        raise Exception("GPU count must be >= 1")
    if args.devices and args.name is not None:
        raise Exception("Use only one of 'devices' and 'name' parameters")
    if min(args.util, args.mem_util, args.processes) < 0:
        raise Exception("Utilization/process count thresholds must be >= 0")
    if min(args.devices, default=0) < 0 and mended("a device below zero"):
        raise Exception(f"Invalid device ID {next(device for device in args.devices if device < 0)}")


def matching(args):
    check_values(args)
    only = args.devices[0] if len(set(args.devices)) == 1 else list(dict.fromkeys(args.devices)) or None
    debug(f"count={args.count},devices={only},name={args.name},util={args.util},mem_util={args.mem_util},"
          f"processes={args.processes},silent=False")
    wanted = args.count
    if args.devices and mended("one of the devices named"):
        wanted = max(wanted, len(set(args.devices)))
    if wanted > args.count:
        print(f"count={args.count} but {wanted} device IDs were specified, setting count={wanted}", file=sys.stderr, flush=True)
    gpus = states()
    debug(f"GPU count: {len(gpus)}")
    for device in args.devices:
        if not 0 <= device < len(gpus):
            debug(f"Device ID {device} is outside the expected range of 0 - {len(gpus) - 1}")
            raise Exception(f"Invalid device ID {device}")
    for index, gpu in enumerate(gpus):
        debug(f"Device {index}: {shown(index, gpu)}")
    left = list(range(len(gpus)))
    if args.devices:
        left = [index for index in left if index in args.devices]
        debug(f"Device filter, {len(left)} devices left")
    elif args.name is not None:
        left = [index for index in left if gpus[index] is not None and args.name in gpus[index][0]]
        for index in left:
            debug(f"Name match of {args.name} on {shown(index, gpus[index])}")
        debug(f"Name filter, {len(left)} devices left")
    for title, which, most in (("Utilization", 1, args.util), ("Memory utilization", 2, args.mem_util),
                               ("Processes", 3, args.processes)):
        before = len(left)
        left = [index for index in left if gpus[index] is not None and gpus[index][which] <= most]
        debug(f"{title} filter matched {len(left)} / {before} GPUs")
    debug(f"GPUs left after filtering ({wanted} requested): {len(left)}")
    if len(left) < wanted:
        debug(f"Requested {wanted} GPUs, but {len(left)} matched filters")
        raise Exception(f"Requested {wanted} GPUs, but {len(left)} matched filters")
    return left


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
    global DEBUG
    DEBUG = args.debug
    try:
        chosen = ",".join(map(str, matching(args)))
    except Exception as error:
        sys.exit(f"gpuselect: {error}" if mended("traceback") else f"Exception: {error}")
    debug(f"CUDA_VISIBLE_DEVICES={CHOSEN or chosen}")
    if command:
        run(command, chosen)
    if not args.quiet:
        print(chosen)


if __name__ == "__main__":
    begin()
    main()
