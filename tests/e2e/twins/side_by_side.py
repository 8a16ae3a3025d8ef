"""Runs lull's drop-in and the twin of its original on the same simulated GPUs at the same time, many such pairs at once.

What can be seen of a program is an `Effects`; two of them are equal, or `differences` says where they are not.

On a busy machine a program sleeps for longer than it asked for, and misses what a schedule has for it. Two things measure
that: the twin's own looks (common.look), and a `Witness` that does nothing but sleep. A difference counts only if neither
was late; otherwise the schedule runs again, by itself, up to TRIES times. How often that was is part of the result.
"""
import concurrent.futures
import contextlib
import dataclasses
import difflib
import json
import os
import pathlib
import pprint
import pty
import signal
import subprocess
import threading
import time

from conftest import LIMIT, Sim, alive, build_dir, clean_environment, wait_until
from twins.common import LATE

PYTHON = "/usr/bin/python3"
HERE = pathlib.Path(__file__).parent
AT_ONCE = int(os.environ.get("LULL_TWINS_AT_ONCE", "10"))
TRIES = 4
NOBODY = 65534
# What the caller's shell or the simulation adds, and differs from process to process.
NOT_THE_CHILDS = ("_=", "PWD=", "OLDPWD=", "SHLVL=")


@dataclasses.dataclass
class Effects:
    status: int                 # as a shell sees it
    out: list
    err: list
    files: dict = dataclasses.field(default_factory=dict)  # what it left in its folder: name, lines
    left: list = dataclasses.field(default_factory=list)   # which processes of its job still run


def differences(ours: Effects, twin: Effects) -> list:
    found = []
    for field in dataclasses.fields(Effects):
        mine, other = getattr(ours, field.name), getattr(twin, field.name)
        if mine != other:
            changes = difflib.unified_diff(pprint.pformat(other, width=160).splitlines(), pprint.pformat(mine, width=160).splitlines(),
                                           "twin", "ours", n=0, lineterm="")
            found += [field.name + ":", *changes]
    return found


class Side:
    """One of the two, in a folder of its own."""

    def __init__(self, folder, command, env, terminal=False, closed=(), nobody=False):
        folder.mkdir()
        folder.chmod(0o777)
        self.folder, self.master = folder, None
        self.texts = {name: folder.with_name(f"{folder.name}.{name}") for name in ("out", "err")}
        streams = {name: self.unread() if name in closed else open(path, "wb") for name, path in self.texts.items()}
        stdin = subprocess.DEVNULL
        if terminal:  # a session of its own, so that Ctrl-C goes where it does for a person
            self.master, stdin = pty.openpty()
            command = ["setsid", "-c", *command]
        user = NOBODY if nobody and os.geteuid() == 0 else None
        self.process = subprocess.Popen([str(word) for word in command], env=env, cwd=folder,
                                        stdin=stdin, stdout=streams["out"], stderr=streams["err"],
                                        **({"user": user, "group": user, "extra_groups": []} if user else {}))
        for stream in streams.values():
            stream.close()
        if terminal:
            os.close(stdin)

    @staticmethod
    def unread():
        """A pipe whose reader has gone."""
        reader, writer = os.pipe()
        os.close(reader)
        return os.fdopen(writer, "wb")

    def is_up(self):
        return (self.folder / "up").exists() or self.process.poll() is not None

    def send(self, what):
        if what == "Ctrl-C":
            os.write(self.master, b"\x03")
        else:
            self.process.send_signal(signal.Signals["SIG" + what])

    def effects(self, limit=LIMIT) -> Effects:
        try:
            status = self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            told = self.texts["err"].read_text(errors="replace")[-2000:] if self.texts["err"].exists() else ""
            raise AssertionError(f"{self.folder.name} did not end within {limit:g} s; it said last:\n{told}") from None
        pids = {path.name: int(path.read_text()) for path in self.folder.glob("up*") if path.suffix != ".new"}
        deadline = time.monotonic() + 1  # the killed need a moment to be gone
        while any(alive(pid) for pid in pids.values()) and time.monotonic() < deadline:
            time.sleep(0.02)
        left = sorted(name for name, pid in pids.items() if alive(pid))
        files = {path.name: self.plain(path.read_text()).splitlines() for path in sorted(self.folder.iterdir())
                 if not path.name.startswith("up")}
        out, err = (self.plain(path.read_text(errors="replace")) if path.exists() else "" for path in self.texts.values())
        return Effects(status if status >= 0 else 128 - status, out.splitlines(), err.splitlines(), files, left)

    def plain(self, text):
        """Without what no two runs have in common."""
        text = text.replace(str(self.folder), "FOLDER")
        return "".join(line for line in text.splitlines(True) if not line.startswith(NOT_THE_CHILDS))

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=LIMIT)
        for path in self.folder.glob("up*"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)
        if self.master is not None:
            os.close(self.master)


class Pair:
    """The two, on one simulation."""

    def __init__(self, folder, name, scenario, words, env, mended, own_words=(), **how):
        folder.mkdir()
        (folder / "scenario.toml").write_text(scenario)
        self.notes = folder / "notes"
        gate = folder / "gate"
        os.mkfifo(gate)
        gate.chmod(0o666)
        self.notes.touch()
        self.notes.chmod(0o666)
        clean = clean_environment()
        del clean["LULL_NVML"]  # as the simulation does for ours
        with contextlib.ExitStack() as stack:
            self.twin = Side(folder / "twin", [PYTHON, "-S", HERE / f"{name}.py", *words],
                             clean | env | {"TWIN_MENDED": ",".join(mended), "TWIN_NOTES": str(self.notes),
                                            "TWIN_GATE": str(gate)}, **how)
            stack.callback(self.twin.close)
            with open(wait_until(lambda: self.opened(gate), what="the twin"), "w") as go:
                self.gpus = stack.enter_context(Sim(str(build_dir() / "lull"), scenario=folder / "scenario.toml", env=clean))
                for path in (self.gpus.folder, *self.gpus.folder.rglob("*")):
                    with contextlib.suppress(FileNotFoundError):  # the schedule unloads its driver already
                        path.chmod(0o777 if path.is_dir() else 0o666)
                json.dump({key: value for key, value in self.gpus.env.items() if clean.get(key) != value} | env, go)
            self.ours = Side(folder / "ours", [build_dir() / name, *own_words, *words], self.gpus.env | env, **how)
            stack.callback(self.ours.close)
            self.stack = stack.pop_all()

    @staticmethod
    def opened(gate):
        """Once the twin stands at the other end."""
        with contextlib.suppress(OSError):
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()



class Witness:
    """Sleeps in a process of its own, and says when a sleep took too long."""

    PROGRAM = """
import sys, time
while True:
    before = time.monotonic()
    time.sleep(0.02)
    if (late := time.monotonic() - before - 0.02) > float(sys.argv[1]):
        print(before, late, flush=True)
"""

    def __init__(self):
        self.process = subprocess.Popen([PYTHON, "-S", "-c", self.PROGRAM, str(LATE)], stdout=subprocess.PIPE, text=True)
        self.late = []
        self.reader = threading.Thread(target=lambda: self.late.extend(tuple(map(float, line.split())) for line in self.process.stdout))
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def since(self, begin):
        """The longest delay since then, in seconds."""
        return max((late for at, late in list(self.late) if at + late >= begin), default=0)


def faults_met(notes):
    """Which faults of the original a schedule met."""
    return {line for line in notes.read_text().splitlines() if line and not line.startswith("late by ")}


def was_late(folder):
    """The twin, by its own notes."""
    return max((line for notes in folder.glob("notes") for line in notes.read_text().splitlines() if line.startswith("late by ")), default="")


@dataclasses.dataclass
class Results:
    alike: dict = dataclasses.field(default_factory=dict)  # seed: the faults that its schedule met
    wrong: list = dataclasses.field(default_factory=list)  # what differs
    again: list = dataclasses.field(default_factory=list)  # (seed, why): ran once more, because somebody was late


def many(one, folder, seeds):
    """one(folder, seed) for all of them: several at once, then by itself what was late."""
    results = Results()
    with Witness() as witness:
        def attempt(number, seed):
            place = folder / f"{number}.{seed}"
            place.mkdir()
            place.chmod(0o755)
            begin = time.monotonic()
            try:
                results.alike[seed] = one(place, seed)
            except Exception as error:  # told with all the others
                late = was_late(place / str(seed)) or (f"late by {delay:.1f} s" if (delay := witness.since(begin)) else "")
                if late and number < TRIES:
                    results.again.append((seed, late))
                    return seed
                why = f" (no result: {late} in each of {TRIES} tries)" if late else ""
                results.wrong.append(f"seed {seed}{why}: {type(error).__name__}: {error}")
            return None

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            left = list(pool.map(lambda seed: attempt(1, seed), seeds))
        for number in range(2, TRIES + 1):
            left = [attempt(number, seed) for seed in left if seed is not None]
    return results
