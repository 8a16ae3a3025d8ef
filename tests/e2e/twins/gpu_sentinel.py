"""gpu_sentinel as its document describes it, in a few obvious lines: the slow twin that lull's drop-in is compared with."""
import contextlib
import enum
import math
import os
import signal
import statistics
import subprocess
import sys
import time

from common import ArgumentParser, DriverError, Gpu, begin, driver, look, mended

TICK_TIME_S = 1


class SentinelState(enum.Enum):
    SAFE = 0
    ARMED = 1


class Sentinel:
    def __init__(self, arm_duration, arm_threshold, kill_duration, kill_threshold, kill_fn):
        assert arm_duration < 3600, "arm_duration can at most be 3600 ticks"
        assert kill_duration < 3600, "kill_duration can at most be 3600 ticks"
        self.arm_duration, self.arm_threshold = arm_duration, arm_threshold
        self.kill_duration, self.kill_threshold = kill_duration, kill_threshold
        self.kill_fn = kill_fn
        self.state = SentinelState.SAFE
        self.seconds_to_transition = arm_duration

    def tick(self, value):
        if self.state == SentinelState.SAFE:
            self.seconds_to_transition = self.seconds_to_transition - 1 if value > self.arm_threshold else self.arm_duration
            if self.seconds_to_transition <= 0:
                self.state = SentinelState.ARMED
                self.seconds_to_transition = self.kill_duration
            return
        below = value < self.kill_threshold
        self.seconds_to_transition = self.seconds_to_transition - 1 if below else self.kill_duration
        if self.seconds_to_transition <= 0 and (below or not mended("no kill duration")):
            self.kill_fn()


def get_gpu_usage(device_ids):
    """The mean, from 0 to 1; of all where none is named."""
    with driver() as (library, count):
        loads = []
        for index in range(count):
            if device_ids and str(index) not in device_ids:
                continue
            try:
                loads.append(Gpu(library, index).rates[0])
            except DriverError:
                loads.append(math.nan)
    if any(map(math.isnan, loads)):
        return math.nan
    mean, rounded = statistics.mean(loads) / 100, statistics.mean(load / 100 for load in loads)
    return mean if mean != rounded and mended("rounded mean") else rounded


def parse_args():
    parser = ArgumentParser("gpu_sentinel")
    parser.add_argument("--arm_duration", type=int, default=30)
    parser.add_argument("--arm_threshold", type=float, default=0.8)
    parser.add_argument("--kill_duration", type=int, default=30)
    parser.add_argument("--kill_threshold", type=float, default=0.7)
    parser.add_argument("--kill_action", choices=["end_process", "shutdown", "reboot"], default="end_process")
    parser.add_argument("--gpu_devices", nargs="*")
    return parser.parse_args()


def complain(text):
    with contextlib.suppress(OSError):
        os.write(2, f"gpu_sentinel: {text}\n".encode())


def create_kill_fn(action):
    command = {"shutdown": ["sudo", "shutdown", "-h", "now"], "reboot": ["sudo", "reboot"]}.get(action)
    said = []

    def kill():
        if command is None:
            leave(0)
        worked = subprocess.run(command).returncode == 0
        if worked and mended("again and again"):
            leave(0)
        if not worked and not said and mended("failure unsaid"):
            said.append(complain("again"))
    if command and os.geteuid() != 0 and mended("may not"):
        if subprocess.run([command[0], "-n", "-l", *command[1:]], stdout=subprocess.DEVNULL).returncode:
            complain("no permission")
            sys.exit(1)
    return kill


def leave(status):
    try:
        sys.stdout.flush()
    except OSError:
        if mended("unread output"):
            os._exit(status)
    sys.exit(status)


def say(text):
    try:
        print(text)
        if mended("late lines"):
            sys.stdout.flush()
    except OSError:
        if not mended("unread output"):
            raise


def usage_or_nan(args, said):
    try:
        usage = get_gpu_usage(args.gpu_devices)
    except DriverError:
        if not mended("dies with the driver"):
            raise
        usage, what = math.nan, "no GPU can be read"
    except statistics.StatisticsError:  # the driver came late
        if not mended("absent device"):
            raise
        usage, what = math.nan, "there is none"
    else:
        what = "cannot be judged"
    if math.isnan(usage) and what not in said and mended("silent about what it cannot read"):
        said.add(what)
        complain(what)
    return usage


def is_there(args):
    """Whether there is any of the GPUs named. Without a driver nobody can tell."""
    try:
        with driver() as (_, count):
            return not args.gpu_devices or any(str(index) in args.gpu_devices for index in range(count))
    except DriverError:
        return True


def main():
    args = parse_args()
    try:
        sentinel = Sentinel(args.arm_duration, args.arm_threshold, args.kill_duration, args.kill_threshold, None)
    except AssertionError as error:
        complain(error)
        sys.exit(1)
    if not is_there(args) and mended("absent device"):
        complain("there is none")
        sys.exit(1)
    sentinel.kill_fn = create_kill_fn(args.kill_action)
    if args.kill_action != "end_process" and os.geteuid() != 0:
        say("(a warning)")
    say(f"Starting GPU Sentinel, will arm once average GPU usage is at least {args.arm_threshold:.0%} for "
        f"{args.arm_duration} seconds")
    if args.gpu_devices:
        say(f"Monitoring GPUs {args.gpu_devices} only.")
        say("These GPUs are user specified and may not exist on the system.")
    else:
        say("Monitoring all GPUs on the system")
    say("Monitoring for low GPU usage! Press ctrl+C to exit")
    said = set()
    while True:
        look(TICK_TIME_S)
        before = sentinel.state
        sentinel.tick(usage_or_nan(args, said))
        if sentinel.state != before:
            say(f"GPU Sentinel is armed, will '{args.kill_action}' when values drop below {args.kill_threshold:.0%} for "
                f"{args.kill_duration} seconds")
        time.sleep(TICK_TIME_S)


if __name__ == "__main__":
    begin()
    if mended("traceback"):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
