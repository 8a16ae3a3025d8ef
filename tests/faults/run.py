#!/usr/bin/python3
"""Every system call of lull may fail once, and every process of lull may be killed at any of them.

    run.py [--seed N] [--count N]      a sample, which CI runs
    run.py all [--first K]             everything, or only the first K calls of each kind
    run.py COMMAND "ROLE CALL OBJECT" NTH FAULT     one case, with all that it said
    run.py profile                     which calls are made, by whom and how often

--commands a,b and --only TEXT (in "COMMAND ROLE CALL OBJECT NTH FAULT") narrow it down; --jobs N runs N at a time.
The last line counts: "N passed, M failed". $LULL_BUILD_DIR says which build is tested; with $LULL_TEST_SANITIZED it is one
under AddressSanitizer, whose own calls for memory are left alone. Python's commands run where the build has its module.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import platform
import random
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from calls import faults_of  # noqa: E402
from case import SANITIZED, Case, Tools  # noqa: E402
from commands import COMMANDS  # noqa: E402


def tools() -> Tools:
    build = pathlib.Path(os.environ.get("LULL_BUILD_DIR", HERE.parents[1] / "build/dev"))
    return Tools(build, HERE / "inject.cc")


def lines_of(name) -> list:
    """The lines of a list beside this file: "COMMAND ROLE CALL OBJECT NTH FAULT", patterns allowed; # begins a comment."""
    return [line.split() for line in (HERE / name).read_text().splitlines() if line and not line.startswith("#")]


def profile(tools, name) -> Case:
    case = Case(tools, COMMANDS[name]).run()
    complaints = case.judge(case)
    if complaints:
        raise SystemExit(f"{name} without any fault: {complaints}\n{case.err}")
    return case


MEMORY = ("mmap", "mremap", "mprotect", "brk", "munmap", "madvise")


def cases_of(name, normal, first):
    for count, *target in normal.said("call"):
        if SANITIZED and target[1] in MEMORY:
            continue
        for fault in faults_of(target[1], target[2]):
            if fault == "kill" and target[0].startswith("python"):
                continue  # a user's program
            for nth in range(1, min(int(count), first) + 1):
                yield name, " ".join(target), nth, fault


def sample(everything, count, rng):
    """So many of them: each command, then each kind of call, then each fault of it is as likely as the others."""
    tree = {}
    for case in everything:
        name, target, _, fault = case
        tree.setdefault(name, {}).setdefault(target, {}).setdefault(fault, []).append(case)
    chosen = set()
    while len(chosen) < min(count, len(everything)):
        node = tree
        while isinstance(node, dict):
            node = node[rng.choice(sorted(node))]
        chosen.add(rng.choice(node))
    return sorted(chosen)


def matches(case, pattern) -> bool:
    name, target, nth, fault = case
    return all(fnmatch.fnmatchcase(have, want) for have, want in zip([name, *target.split(" "), str(nth), fault], pattern))


HARM = ("crash", "left", "the working job", "the job", "the GPU", "a filler", "a sanitizer")  # is never for want of time


class Runner:
    def __init__(self, tools, normals, known):
        self.tools, self.normals, self.known = tools, normals, known
        self.lock, self.alone = threading.Lock(), threading.Lock()
        self.passed = self.failed = self.missed = self.skipped = 0

    def once(self, case):
        name, *fault = case
        try:
            run = Case(self.tools, COMMANDS[name], fault).run()
            return run, run.judge(self.normals[name])
        except Exception as error:  # noqa: BLE001
            return None, [f"the harness: {error!r}"]

    def run(self, case, loud=False):
        name, target, nth, fault = case
        if not loud and any(matches(case, pattern) for pattern in self.known):
            self.skipped += 1
            return
        run, complaints = self.once(case)
        if complaints and not any(complaint.startswith(HARM) for complaint in complaints) and not loud:
            with self.alone:  # a machine that is busy with other things makes it late as well: once more, by itself
                run, complaints = self.once(case)
        with self.lock:
            if run and not run.hit:
                self.missed += 1  # fewer such calls this time
            self.passed, self.failed = self.passed + (not complaints), self.failed + bool(complaints)
            if complaints or loud:
                print(f"{'FAILED' if complaints else 'ok'} {name} '{target}' {nth} {fault}")
                for complaint in complaints:
                    print("   ", complaint)
                if run:
                    print(f"    status {run.status}, hit {run.hit}, stderr {run.err[-600:]!r}", f", stdout {run.out[-300:]!r}" if loud else "")
                sys.stdout.flush()


def go_inside():
    """Into a pid namespace, where that is allowed: no process of the machine is in the way, and none of ours is left."""
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", '"$@"; exit $?', "sh"]
    if "LULL_FAULTS_INSIDE" not in os.environ and subprocess.run([*inside, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.environ["LULL_FAULTS_INSIDE"] = "1"
        os.execvp(inside[0], [*inside, sys.executable, *sys.argv])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("LULL_SEED", time.time())))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=sys.maxsize)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=0, help="begin no other after this long")
    given = parser.parse_args()
    ours = tools()
    probe = subprocess.run([ours.inject, "--report", "/dev/null", "--", "true"], stderr=subprocess.DEVNULL, check=False)
    if probe.returncode == 125 or platform.machine() != "x86_64":
        print("skipped: this needs ptrace, on x86-64\n0 passed, 0 failed")
        return 0
    names = [name for name in given.commands.split(",") if (os.geteuid() == 0 or not COMMANDS[name].needs_root)
             and (os.path.exists(ours.python_path) or not COMMANDS[name].marks) and not (SANITIZED and COMMANDS[name].limits_memory)]
    if len(given.what) == 4:
        name, target, nth, fault = given.what
        runner = Runner(ours, {name: profile(ours, name)}, [])
        runner.run((name, target, int(nth), fault), loud=True)
        return runner.failed
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        normals = dict(zip(names, pool.map(lambda name: profile(ours, name), names)))
    if given.what == ["profile"]:
        for name in names:
            print(*(f"{name}: {count:>5} {' '.join(target)}" for count, *target in normals[name].said("call")), sep="\n")
        return 0
    everything = [case for name in names for case in cases_of(name, normals[name], given.first) if given.only in " ".join(map(str, case))]
    rng = random.Random(given.seed)
    if given.what == ["all"]:
        todo = everything
        rng.shuffle(todo)
    else:
        pinned = [(name, f"{role} {call} {what}", int(nth), fault) for name, role, call, what, nth, fault in lines_of("pinned.txt") if name in names]
        todo = pinned + sample(everything, given.count, rng)
    print(f"{len(todo)} of {len(everything)} faults, seed {given.seed}", flush=True)
    runner = Runner(ours, normals, lines_of("known.txt"))
    end = time.monotonic() + (given.seconds or 1e9)
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(lambda case: time.monotonic() < end and runner.run(case), todo))
    print(f"{runner.missed} calls were not made this time, {runner.skipped} known to fail were left out")
    print(f"{runner.passed} passed, {runner.failed} failed")
    return runner.failed


if __name__ == "__main__":
    go_inside()
    sys.exit(bool(main()))
