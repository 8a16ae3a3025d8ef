"""One run of a command on simulated GPUs of its own, with at most one fault, and what is required of every such run."""
import atexit
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from calls import options_of

SANITIZED = "LULL_TEST_SANITIZED" in os.environ  # a build that is several times as slow, and takes its memory itself
SLOWER = 4 if SANITIZED else 1
LIMIT = 15 * SLOWER  # seconds for what takes one: longer is a hang
OUTER = ("LULL_SIM", "LULL_DEV", "LULL_LEASES", "LULL_CONTROL", "LULL_NVML", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


class Tools:
    """The programs, where every user gets to them: lull and the injector; and Python's module."""

    def __init__(self, build: pathlib.Path, source: pathlib.Path):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lull-faults-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.folder.chmod(0o755)
        self.lull, self.inject, self.python_path = str(self.folder / "lull"), str(self.folder / "inject"), str(self.folder / "python")
        self.serve = str(self.folder / "lull-serve")
        # Root runs no tool from a folder that others can write to, such as those below /tmp.
        self.private = pathlib.Path(tempfile.mkdtemp(prefix="lull-faults-", dir="/run" if os.geteuid() == 0 else None))
        atexit.register(shutil.rmtree, self.private, ignore_errors=True)
        shutil.copy2(source.parents[1] / "park/cuda-checkpoint", self.private)
        for program in (self.lull, self.serve):
            shutil.copy2(build / pathlib.Path(program).name, program)
        shutil.copytree(build / "sim", self.folder / "sim", symlinks=True)
        if (build / "python").exists():
            shutil.copytree(build / "python", self.python_path)
        subprocess.run(["c++", "-std=gnu++23", "-O1", "-Wall", "-Wextra", "-Werror", "-o", self.inject, source], check=True)


def wait_for(condition, limit):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def text_of(path) -> str:
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except FileNotFoundError:
        return ""


class Case:
    """A command's run. `fault` is (target, nth, fault), or None for a run in which nothing fails."""

    def __init__(self, tools, command, fault=None):
        self.tools, self.command, self.fault = tools, command, fault
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lull-faults-"))
        self.notes = self.folder / "notes"
        self.beside = []  # processes of ours beside the command
        self.lines = []  # of the injector's report
        self.complaints = []

    # -- for the commands ---------------------------------------------------------------------------
    def job(self, seconds, util=None, gpu=0, notes=None) -> list:
        """The words of a job that notes its signals; with `util` it holds a GPU."""
        load = [] if util is None else [self.tools.lull, "sim", "load", "--gpu", gpu, "--util", util]
        return [self.tools.inject, "job", notes or self.notes, seconds, *load]

    def start(self, *words, **options):
        """A process beside the command, in a session of its own."""
        process = subprocess.Popen([str(word) for word in words], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True, **options)
        self.beside.append(process)
        return process

    def open_to_others(self):
        """Lets other users at the simulation."""
        for path in filter(pathlib.Path.exists, (self.folder, *self.folder.rglob("*"))):
            path.chmod(path.stat().st_mode | (0o1077 if path.is_dir() else 0o066))

    def lull(self, *words):
        """lull without faults. One that hangs has no status."""
        try:
            return subprocess.run([self.tools.lull, *map(str, words)], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, None, "", "hangs")

    def holders(self) -> int:
        return self.lull("sim", "show", "--json").stdout.count('"pid"')

    def leased(self) -> int:
        return self.lull("leases", "--json").stdout.count('"lease":"')

    def wait(self, condition, limit=6) -> bool:
        """Until it is so, or the command has ended."""
        return wait_for(lambda: condition() or self.ended(), limit * SLOWER) and not self.ended()

    def wait_until(self, condition):
        """Before the command is started."""
        if not wait_for(condition, LIMIT):
            raise RuntimeError("what the command needs does not come about")

    def ended(self) -> bool:
        return self.process.poll() is not None or "\nend " in text_of(self.folder / "report")

    def terminate(self):
        """What Ctrl-C or systemd does to it."""
        found = re.match(r"main (\d+)", text_of(self.folder / "report"))
        if found and not self.ended():
            os.kill(int(found[1]), signal.SIGTERM)

    def stderr(self) -> str:
        return text_of(self.folder / "stderr")

    def stdout(self) -> str:
        return text_of(self.folder / "stdout")

    def noted(self, notes=None) -> list:
        return text_of(notes or self.notes).splitlines()

    def noted_lines(self, kind) -> list:
        """After the run."""
        return [line for line in self.notes_text if line.startswith(kind)]

    # -- the run ------------------------------------------------------------------------------------
    def _begin_simulation(self):
        env = {k: v for k, v in os.environ.items() if k not in OUTER}
        env.update(NO_COLOR="1", LULL_CONFIG="", TMPDIR=str(self.folder), LULL_CONTROL=str(self.folder), PYTHONPATH=self.tools.python_path)
        gpus = ["--gpus", str(self.command.gpus)]
        if self.command.scenario:
            (self.folder / "scenario.toml").write_text(self.command.scenario)
            gpus = ["--scenario", str(self.folder / "scenario.toml")]
        self.simulation = subprocess.Popen(
            [self.tools.lull, "sim", *gpus, "--", "sh", "-c", r'env -0; printf "READY=1\0"; exec cat >/dev/null'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
        text = b""
        while not text.endswith(b"READY=1\0"):
            more = os.read(self.simulation.stdout.fileno(), 65536)
            if not more:
                raise RuntimeError("the simulation does not start")
            text += more
        self.env = dict(entry.split("=", 1) for entry in text.decode(errors="surrogateescape").split("\0") if "=" in entry)
        (pathlib.Path(self.env["LULL_SIM"]) / "dev/pts").unlink()  # who types at this machine is nothing to the tests
        # Whatever pid namespace the tests are in: the simulated driver shows everybody.
        namespace = pathlib.Path(self.env["LULL_SIM"]) / "proc/self/ns/pid"
        namespace.parent.mkdir(parents=True, exist_ok=True)
        namespace.symlink_to("pid:[4026531836]")

    def _inject(self):
        words = [self.tools.inject, "--report", self.folder / "report", "--image", self.tools.folder / self.command.program, "--limit", LIMIT, "--settle", self.command.settle * SLOWER,
                 "--alias", f"{self.env['LULL_SIM']}=SIM", "--alias", f"{self.folder}=~", "--alias", f"{self.tools.private}=TOOLS", "--alias", f"{os.getcwd()}=."]
        if self.command.marks:
            words.append("--marks")
        if self.fault:
            target, nth, fault = self.fault
            words += ["--target", target, "--nth", nth, *options_of(fault)]
        words += ["--", *self.command.words(self)]
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            self.process = subprocess.Popen([str(word) for word in words], env={**self.env, **self.command.env(self)}, cwd=self.folder,
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)

    def run(self):
        try:
            self._begin_simulation()
            self.command.before(self)
            self._inject()
            self.command.during(self)
            self.process.wait(timeout=LIMIT * 3)
            self.lines = [line.split(" ") for line in text_of(self.folder / "report").splitlines()]
            self.command.after(self)
            for process in self.beside:
                process.kill()
                process.wait()
            self._driver_and_leases_are_free()
        finally:
            for process in [*self.beside, getattr(self, "process", None)]:
                if process is not None:
                    process.kill()
                    process.wait()
            if getattr(self, "simulation", None):
                self.simulation.stdin.close()
                self.simulation.wait(timeout=LIMIT)
                self.simulation.stdout.close()
            self.out, self.err, self.notes_text = self.stdout(), self.stderr(), self.noted()
            shutil.rmtree(self.folder, ignore_errors=True)
        return self

    # -- what is required of every run --------------------------------------------------------------
    def said(self, kind) -> list:
        return [line[1:] for line in self.lines if line[0] == kind]

    @property
    def status(self):
        """The exit status of the command; None: it had to be killed."""
        return int(self.said("end")[0][0]) if self.said("end") else None

    @property
    def hit(self) -> bool:
        return bool(self.said("hit"))

    @property
    def killed(self) -> str:
        """The role of the process that was killed; empty: none."""
        return self.fault[0].split(" ")[0] if self.fault and self.fault[2] == "kill" else ""

    def complain(self, text):
        self.complaints.append(text)

    def _driver_and_leases_are_free(self):
        done = self.lull("pick", "--gpus", ",".join(map(str, range(self.command.gpus))), "-n", self.command.gpus, "--util", "any", "--mem-util", "any",
                         "--mem-used", "80GiB", "--procs", "99", "--wait=5s", "-q", "--", "true")
        if done.returncode != 0:
            self.complain(f"afterwards the GPUs cannot be had: {done.returncode} {done.stderr.strip()}")

    def judge(self, normal):
        """All that is wrong with this run; `normal` is the one without a fault."""
        for what in ("crash", "hang", "left"):
            for words in self.said(what):
                if not (what == "left" and words[-1] == "user" and self.command.lives_on and self.status in (125, 137)):
                    self.complain(f"{what}: {' '.join(words)}")
        if "AddressSanitizer" in self.err or "runtime error:" in self.err or "ThreadSanitizer" in self.err:
            self.complain("a sanitizer reports")
        if self.status is not None:
            self.command.judge(self, normal)
        return self.complaints

    def reported(self, normal) -> bool:
        """Something was said on stderr that is not said otherwise, or the status tells."""
        def lines(text):
            return {re.sub(r"[\d.]+", "#", line) for line in text.splitlines() if "reading the GPUs takes" not in line}  # for ptrace
        return self.status not in (0, normal.status) or bool(lines(self.err) - lines(normal.err))
