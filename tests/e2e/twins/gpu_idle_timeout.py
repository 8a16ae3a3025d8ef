"""gpu_idle_timeout as its documents describe it, in a few obvious lines: the slow twin that lull's drop-in is compared with.

Both forms: with a command it launches and watches that, without one it watches beside a Determined task.
"""
import argparse
import collections
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

from common import ArgumentParser, DriverError, Gpu, begin, driver, look, mended


def log(level, text):
    with contextlib.suppress(OSError):  # Python's logging goes on where nobody reads any more
        os.write(2, f"2024-03-15 11:04:29,052: {level}: gpu_idle_timeout: {text}\n".encode())


def number(text):
    """The original takes whole ones only."""
    return (float if mended("fractions") else int)(text)


number.__name__ = "int"


def options():
    parser = ArgumentParser("gpu_idle_timeout")
    parser.add_argument("-t", "--threshhold-percentage", type=number, default=1)
    parser.add_argument("-s", "--sample-freq", type=number, default=5)
    parser.add_argument("-n", "--num-samples", type=int, default=60)
    parser.add_argument("-d", "--delay-samples", type=int, default=12)
    parser.add_argument("-a", "--all-or-any", "--all_or_any", default="all")
    parser.add_argument("-x", "--debug", action="store_true")
    parser.add_argument("--signal-name", default="SIGQUIT")
    parser.add_argument("--signal-children", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    try:
        args = parser.parse_args()
    except SystemExit as end:
        try:
            sys.stderr.flush()
        except OSError:
            if mended("unread output"):
                os._exit(end.code)
        raise
    wrong = [f"{name} must be greater than 0." for name in ("threshhold_percentage", "sample_freq", "num_samples")
             if getattr(args, name) <= 0]
    wrong = [text.replace(text.split()[0], text.split()[0].upper()) for text in wrong]
    if args.all_or_any not in ("all", "any"):
        wrong.append(f"ALL_OR_ANY must be either all or any, not '{args.all_or_any}'.")
    if args.signal_name not in signal.Signals.__members__:
        wrong.append(f"unknown SIGNAL '{args.signal_name}'.")
    if not args.command and "DET_TASK_TYPE" not in os.environ:
        wrong.append("You must append the program and arguments you would like to execute")
    if wrong:
        parser.print_help()
        sys.stdout.flush()
        with contextlib.suppress(OSError):
            os.write(2, f"\nERROR: {wrong[0]}\n".encode())
        sys.exit(1)
    return args


class Watcher:
    def __init__(self, args):
        self.args = args
        self.window = f"{args.sample_freq * args.num_samples:.10g}"
        self.seen = collections.defaultdict(lambda: collections.deque(maxlen=args.num_samples))
        self.tick = 0
        self.said = set()
        log("INFO", f"Starting GPU idle watcher: threshhold_percentage={args.threshhold_percentage:g}%, "
                    f"sample_freq={args.sample_freq:g}, num_samples={args.num_samples}, "
                    f"delay_samples={args.delay_samples}, window_size={self.window}")

    def say_once(self, text):
        if text not in self.said:
            log("WARNING", text)
        self.said.add(text)

    def readings(self):
        """uuid: percent, or None where it cannot be read."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        with driver() as (library, count):
            wanted = range(count)
            if visible is not None and mended("own GPUs"):
                wanted = [int(part) for part in visible.split(",") if part.isdigit() and int(part) < count]
            found = {}
            for index in wanted:
                try:
                    found[gpu_uuid(library, index)] = Gpu(library, index).rates[0]
                except DriverError:
                    if not mended("failed reading"):
                        raise
                    found[gpu_uuid(library, index)] = None
        return found

    def cannot_be_judged(self, found, idle):
        """One that cannot be read matters, unless the others have the answer."""
        if None not in found.values():
            return False
        if self.args.all_or_any == "any":
            return not any(idle)
        return all(util is None or util < self.args.threshhold_percentage for util in found.values())

    def is_idle(self):
        """Once every sample."""
        look(self.args.sample_freq)
        self.tick += 1
        if self.tick < self.args.delay_samples:
            log("INFO", "waiting for delay samples. "
                        f"{(self.args.delay_samples - self.tick) * self.args.sample_freq:.10g} seconds left")
        try:
            found = self.readings()
        except DriverError:
            if not mended("failed reading"):
                raise
            self.seen.clear()
            self.say_once("no GPU can be read")
            return False
        if self.tick < self.args.delay_samples:
            return False
        if not found:
            self.say_once("CUDA_VISIBLE_DEVICES hides every GPU")
            return False
        for uuid, util in found.items():
            self.seen[uuid].append(util)
            if self.args.debug:
                log("DEBUG", f"{uuid} usage {'[N/A]' if util is None else f'{util}%'}")
        idle = [len(of) == self.args.num_samples and all(util is not None and util < self.args.threshhold_percentage
                                                         for util in of) for of in self.seen.values()]
        if self.cannot_be_judged(found, idle):
            self.say_once("cannot be judged")
        return all(idle) if self.args.all_or_any == "all" else any(idle)

    def say_idle(self, what):
        log("ERROR", f"usage for {self.args.all_or_any} GPUs: {list(self.seen)} was below threshhold "
                     f"{self.args.threshhold_percentage:g}% for last {self.window} seconds. Killing {what}.")


UUIDS = {}


def learn_uuids():
    with contextlib.suppress(DriverError), driver() as (library, count):
        for index in range(count):
            gpu_uuid(library, index)


def gpu_uuid(library, index):
    """A lost GPU does not say; it is the one that was there."""
    if index not in UUIDS:
        UUIDS[index] = Gpu(library, index).uuid
    return UUIDS[index]


# ---- with a command ------------------------------------------------------------------------------

def children_of(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    return []


def tree_of(pid, layer=0):
    yield pid, layer
    for child in children_of(pid):
        yield from tree_of(child, layer + 1)


def command_of(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().rstrip("\0").replace("\0", " ")


def is_there(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    return False


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def signal_children(tree, number):
    log("INFO", "signal children: logging process tree")
    for pid, layer in tree:
        log("INFO", f"signal children: layer {layer}: pid {pid}: '{command_of(pid)}'")
    log("INFO", "signal children: signalling started")
    for pid, layer in sorted(tree, key=lambda one: -one[1]):
        if layer:
            log("INFO", f"signal children: send signal {number} to pid {pid} in layer {layer}")
            send(pid, number)
    log("INFO", "signal children: signaling ended")


def end(job, args):
    number_ = int(signal.Signals[args.signal_name])
    tree = sorted(tree_of(job.pid), key=lambda one: one[1])
    if args.signal_children:
        signal_children(tree, number_)
    log("INFO", f"Sending signal {number_} to process {job.pid}")
    job.send_signal(number_)
    waited_for = [pid for pid, _ in tree] if mended("whole tree") else [job.pid]
    limit = time.monotonic() + 3
    while time.monotonic() < limit and (job.poll() is None or any(map(is_there, waited_for))):
        time.sleep(0.01)
    if left := [pid for pid in waited_for if is_there(pid)]:
        log("ERROR", "process still alive, maybe hung, killing.")
        for pid in left:
            send(pid, signal.SIGKILL)
    job.wait()


def status_of(job):
    if job.returncode < 0:
        return 128 - job.returncode if mended("status of a signal") else 256 + job.returncode
    return job.returncode


def launch(args):
    if mended("no GPU at the start"):
        try:
            with driver() as (_, count):
                assert count
        except DriverError:
            log("ERROR", "no GPU can be read")
            sys.exit(1)
    job = subprocess.Popen(args.command)
    if mended("orphan"):
        signal.signal(signal.SIGTERM, lambda *_: [send(pid, signal.SIGTERM) for pid, _ in list(tree_of(job.pid))])
        signal.signal(signal.SIGINT, lambda *_: None)  # the terminal has told the job
    watcher = Watcher(args)
    while True:
        try:
            job.wait(timeout=args.sample_freq)  # the original sleeps, and looks afterwards
            mended("ends at once")
            sys.exit(status_of(job))
        except subprocess.TimeoutExpired:
            pass
        if watcher.is_idle():
            break
    watcher.say_idle("process")
    end(job, args)
    sys.exit(1)


# ---- beside a task -------------------------------------------------------------------------------

def watch_task(args):
    kind = os.environ["DET_TASK_TYPE"]
    refusal = "cannot be killed" if kind == "CHECKPOINT_GC" else ""
    if not refusal and shutil.which("det") is None and mended("no det"):
        refusal = "no det"
    if refusal:
        with contextlib.suppress(OSError):
            os.write(2, f"gpu_idle_timeout: {refusal}\n".encode())
        sys.exit(1)
    watcher = Watcher(args)
    time.sleep(args.sample_freq)
    while not watcher.is_idle():
        time.sleep(args.sample_freq)
    watcher.say_idle("task")
    time.sleep(5)
    name = os.environ["DET_TRIAL_ID" if kind == "TRIAL" else "DET_TASK_ID"]
    while subprocess.run(["det", kind.lower(), "kill", name]).returncode and mended("failed kill"):
        log("WARNING", "det: again")
        time.sleep(1)
    sys.exit(1)


if __name__ == "__main__":
    begin()
    learn_uuids()
    given = options()
    launch(given) if given.command else watch_task(given)
