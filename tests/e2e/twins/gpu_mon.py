"""gpu_mon as its document describes it, in a few obvious lines: the slow twin that lull's drop-in is compared with.

What fuser shows is read from /proc; device files and terminals are those of the simulation ($LULL_DEV).
"""
import configparser
import contextlib
import os
import pwd
import shlex
import signal
import subprocess
import sys
import time

from common import begin, look, mended

GPU = "/dev/nvidia"


def log(level, logger, text):
    with contextlib.suppress(OSError):
        os.write(2, f"2024-03-15 11:04:29,052 {level} {logger:<14} {text}\n".encode())


def track(text, level="INFO"):
    log(level, "ProcessTracker", text)


def numbers(text):
    return None if text.lower() == "all" else {int(part) for part in text.split(",")}


def configuration():
    file = os.path.expanduser(sys.argv[2])
    parser = configparser.ConfigParser()
    parser.read(file)
    ignored = [(numbers(parser[name]["gpus"]), parser[name]["ignore_programs"].split(","))
               for name in parser.sections() if name.startswith("gpu")]
    programs = [dict(parser[name]) | {"gpus": numbers(parser[name]["gpus"])}
                for name in parser.sections() if name.startswith("process")]
    return parser["defaults"].getint("interval_seconds"), ignored, programs, parser["tty"]


def device_folder():
    return os.environ["LULL_DEV"]


def gpus():
    return sorted(int(name[6:]) for name in os.listdir(device_folder()) if name[:6] == "nvidia" and name[6:].isdigit())


def comm(pid):
    with open(f"/proc/{pid}/comm") as file:
        return file.read().strip()


def openers():
    """(GPU, process, name), as fuser lists them."""
    files = {f"{device_folder()}/nvidia{number}": number for number in gpus()}
    found = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if (number := files.get(os.readlink(f"/proc/{pid}/fd/{fd}"))) is not None:
                        found.add((number, pid, comm(pid)))
    return sorted(found)


def shown(opener):
    number, pid, name = opener
    return f"ProcInfo(file_name='{GPU}{number}', gpu_id={number}, pid={pid}, name='{name}')"


def active_users(tty):
    found = []
    for name in os.listdir(f"{device_folder()}/pts") if tty.getboolean("enabled") else []:
        status = os.stat(f"{device_folder()}/pts/{name}")
        user = pwd.getpwuid(status.st_uid).pw_name
        if user not in tty.get("whitelist", "").split(",") + found and time.time() - status.st_atime < tty.getint("idle_seconds", 0):
            found.append(user)
    return found


def called(number):
    return "all GPUs" if number is None else f"GPU {number}"


def descends(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            with open(f"/proc/{pid}/stat") as stat:
                pid = int(stat.read().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


class Tracker:
    def __init__(self, ignored, programs):
        self.ignored, self.programs = ignored, programs
        self.running = {}  # by GPU; None: on all
        self.failed = {}   # GPU: not before

    def ignores(self, number, name):
        exact = mended("prefixes of names")
        return any((which is None or number in which) and
                   any(name == one[:15] if exact else one.startswith(name) for one in names)
                   for which, names in self.ignored)

    def is_ours(self, number, pid):
        for key, job in self.running.items():
            if key is None or key == number or mended("programs of other GPUs"):
                if pid == job.pid or (descends(pid, job.pid) and mended("children")):
                    return True
        return False

    def reap(self):
        for number, job in list(self.running.items()):
            if job.poll() is not None:
                track(f"Process for {called(number)} is terminated")
                del self.running[number]
                if job.returncode and mended("fails for ever"):
                    self.failed[number] = time.monotonic() + 1000
                    track("(backing off)", "WARNING")

    def stop(self, number):
        job = self.running.pop(number)
        how = signal.SIGTERM if mended("SIGKILL only") else signal.SIGKILL
        below = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid != job.pid and descends(pid, job.pid)]
        tree = [job.pid, *(below if below and mended("children left behind") else [])]
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
        job.wait()
        while any(os.path.exists(f"/proc/{pid}/exe") and os.access(f"/proc/{pid}/exe", os.R_OK) for pid in tree[1:]):
            time.sleep(0.01)

    def start(self, number, program):
        if self.failed.get(number, 0) > time.monotonic():
            return
        track(f"Starting: {program['cmd']} on " + ("all GPUs" if program["gpus"] is None else
                                                   "GPUs " + ",".join(map(str, sorted(program["gpus"])))))
        visible = {} if program["gpus"] is None else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, sorted(program["gpus"])))}
        environment = os.environ | visible if mended("no environment") else visible or None
        words = shlex.split(program["cmd"]) if mended("quotes") else program["cmd"].split(" ")
        with contextlib.ExitStack() as stack:
            output = None  # the document: on the console
            if "log" in program:
                output = stack.enter_context(open(program["log"], "a" if mended("log stays empty") else "r"))
            try:
                self.running[number] = subprocess.Popen(words, cwd=program["dir"], env=environment, stdout=output, stderr=output)
            except OSError:
                if not mended("missing program"):
                    raise
                self.failed[number] = time.monotonic() + 1000
                track("(could not be started)", "WARNING")
                track("(backing off)", "WARNING")

    def check(self, found, users):
        self.reap()
        if users:
            if self.running:
                track(f"Users {users} become active, stop {len(self.running)} processes")
            for number in list(self.running):
                track(f"Stopping proc for {called(number)}")
                self.stop(number)
            return
        idle = set(gpus())
        stopped = set()  # the processes of programs that were stopped in this look
        for opener in found:
            number, pid, name = opener
            if pid in stopped and self.ignores(number, name) and mended("named once more"):
                continue
            if self.is_ours(number, pid):
                track("Our own pid in proc: " + shown(opener))
                idle.discard(number)
            elif self.ignores(number, name):
                track("Whitelisted proc: " + shown(opener))
            else:
                idle.discard(number)
                key = None if None in self.running else number
                if key in self.running:
                    track("Stop 1 processes preempted by proc " + shown(opener))
                    stopped |= {other for _, other, _ in found if descends(other, self.running[key].pid)}
                    self.stop(key)
        for key in self.running:  # one that has not opened its GPU yet
            if (idle if key is None else {key} & idle) and mended("started again before it opens its GPU"):
                idle -= set(gpus()) if key is None else {key}
        if not idle:
            return
        track(f"{len(idle)} gpus are idle")
        for_all = next((program for program in self.programs if program["gpus"] is None), None)
        if for_all and idle == set(gpus()):
            return self.start(None, for_all)
        for number in sorted(idle):
            program = next((program for program in self.programs if program["gpus"] and number in program["gpus"]), None)
            if program:
                self.start(number, program)
            else:
                track(f"GPU {number} is idle, but we have no process config, ignored", "WARNING")


def main():
    interval, ignored, programs, tty = configuration()
    log("INFO", "gpu_mon", "GPUs detected: ")
    for number in gpus():
        log("INFO", "gpu_mon", f"GPUInfo(file_name='{GPU}{number}', id={number})")
    tracker = Tracker(ignored, programs)

    def leave(status):
        for number in list(tracker.running) if mended("programs go on") else []:
            track(f"Stopping proc for {called(number)}")
            tracker.stop(number)
        if status == 0:
            log("INFO", "gpu_mon", "Interrupt received, exit gracefully")
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGINT, lambda *_: leave(0))
    signal.signal(signal.SIGTERM, lambda *_: leave(143))
    while True:
        look(interval)
        found = openers()
        for opener in found:
            log("INFO", "gpu_mon", shown(opener))
        users = active_users(tty)
        for user in users:
            log("INFO", "gpu_mon", user)
        tracker.check(found, users)
        time.sleep(interval)


if __name__ == "__main__":
    begin()
    main()
