"""Runs lull's drop-in and the twin of its original on the same simulated GPUs at the same time, many such pairs at once.

What can be seen of a program is an `Effects`; two of them are equal, or `differences` says where they are not.
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
import time

from conftest import LIMIT, Sim, alive, build_dir, clean_environment, wait_until

PYTHON = "/usr/bin/python3"
HERE = pathlib.Path(__file__).parent
AT_ONCE = int(os.environ.get("LULL_TWINS_AT_ONCE", "10"))
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
        status = self.process.wait(timeout=limit)
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

    def came_by(self):
        """Which faults of the original the schedule met."""
        return set(self.notes.read_text().split("\n")) - {""}


def many(one, seeds):
    """one(seed) for all of them, several at once; what they return, and what went wrong."""
    results, wrong = {}, []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(one, seed): seed for seed in seeds}
        for done in concurrent.futures.as_completed(running):
            try:
                results[running[done]] = done.result()
            except Exception as error:  # told with all the others
                wrong.append(f"seed {running[done]}: {type(error).__name__}: {error}")
    return results, wrong
