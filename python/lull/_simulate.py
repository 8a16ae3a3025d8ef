"""lull.simulate(): GPUs for tests of programs that use GPUs, on a machine that has none."""
import ctypes
import os
import subprocess

from . import Error, UsageError
from ._helper import checked, environment_without, start, words_of

# What leads to a simulation: set while it runs, as it was afterwards.
_VARIABLES = ("LULL_SIM", "LULL_DEV", "LULL_LEASES", "LULL_NVML", "LD_LIBRARY_PATH")
_READY = "LULL_SIM_READY=1\0"


class Simulation:
    """Simulated GPUs. While it is entered, this process and all that it starts see them instead of real ones."""

    def __init__(self, gpus=None, *, scenario=None, speed=None):
        if gpus is not None and scenario is not None:
            raise UsageError("gpus and scenario: the scenario says which GPUs there are, give one of them")
        self._arguments = ["sim"]
        for name, value in (("gpus", gpus), ("scenario", scenario), ("speed", speed)):
            if value is not None:
                self._arguments += [f"--{name}", os.fspath(value) if name == "scenario" else str(value)]
        self._holder = None
        self._owner = None
        self._before = {}
        self._loads = []
        self.environment = {}

    def __enter__(self):
        if self._holder is not None:
            raise Error("this simulation is running already")
        # A simulation inside another one is its own.
        holder = start(*self._arguments, "--", "sh", "-c", r'env -0; printf "LULL_SIM_READY=1\0"; exec cat >/dev/null',
                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text = b""
        try:
            while not text.endswith(_READY.encode()):
                more = os.read(holder.stdout.fileno(), 65536)
                if not more:
                    complaint = holder.stderr.read().decode(errors="replace")
                    status = holder.wait()
                    raise (UsageError if status == 2 else Error)(words_of(complaint, status, "sim"))
                text += more
        except BaseException:
            self._end(holder)
            raise
        inside = dict(entry.split("=", 1) for entry in text.decode(errors="surrogateescape").split("\0") if "=" in entry)
        self._holder, self._owner = holder, os.getpid()
        self.environment = {name: inside[name] for name in _VARIABLES if name in inside}
        self._before = {name: os.environ.get(name) for name in _VARIABLES}
        self._set({name: self.environment.get(name) for name in _VARIABLES})
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends it, with the processes that load() started; the environment is as it was before."""
        holder, self._holder = self._holder, None
        if holder is None or os.getpid() != self._owner:  # a forked child does not end its parent's
            return
        self._set(self._before)
        from ._core import _let_go
        _let_go()
        for load in self._loads:
            load.kill()
            load.wait()
        self._loads = []
        self._end(holder)

    @staticmethod
    def _end(holder):
        holder.stdin.close()
        try:
            holder.wait(30)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait()
        holder.stdout.close()
        holder.stderr.close()

    @staticmethod
    def _set(values):
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    @property
    def folder(self):
        """Where it keeps its files: $LULL_SIM inside it."""
        return self.environment["LULL_SIM"]

    def _inside(self):
        if self._holder is None:
            raise Error("this simulation is not running")
        return {**environment_without(*_VARIABLES), **self.environment}

    def _tell(self, *arguments):
        status = checked("sim", *arguments, env=self._inside())
        return status

    def set(self, gpu="all", **values):
        """Sets what a GPU shows: sim.set(0, util=35, mem_used="8GiB", temp=None). None: it cannot be read any more."""
        pairs = [f"{name}={'none' if value is None else value}" for name, value in values.items()]
        self._tell("set", str(gpu), *pairs)

    def fault(self, gpu, kind, *, function=None, lasting=None):
        """Makes a GPU or the driver fail: "lost", "hang=8s", "hang=dstate", "no-driver"; docs/simulator.md has them all."""
        options = [f"--function={function}"] if function else []
        options += [f"--for={lasting}"] if lasting else []
        self._tell("fault", str(gpu), str(kind), *options)

    def clear(self, gpu="all"):
        """Ends faults and takes back what was set."""
        self._tell("clear", str(gpu))

    def load(self, gpu=0, *, util=90, mem=None, command=None):
        """A process that holds the GPU and keeps it busy; ends with the simulation, or by its kill()."""
        options = [f"--gpu={gpu}", f"--util={util}"]
        options += [f"--mem={mem}"] if mem is not None else []
        options += ["--as", command] if command else []
        before = self._processes()
        child = start("sim", "load", *options, env=self._inside(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while child.pid not in self._processes():
            if child.poll() is not None:
                raise Error(words_of(child.stderr.read().decode(errors="replace"), child.returncode, "sim load"))
        del before
        self._loads.append(child)
        return child

    def _processes(self):
        import json
        shown = json.loads(self._tell("show", "--json"))
        return {process["pid"] for gpu in shown["gpus"] for process in gpu.get("processes") or []}

    def load_nvml(self):
        """Lets pynvml and others in this very process find the simulated driver library. (Programs that are started
        find it anyway; a process that runs looks LD_LIBRARY_PATH up only once.) Not to be undone in this process."""
        folder = self.environment["LD_LIBRARY_PATH"].split(":")[0]
        return ctypes.CDLL(os.path.join(folder, "libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)


def simulate(gpus=None, *, scenario=None, speed=None):
    """A context manager that makes GPUs: for tests, on any machine.

    `gpus` is a number, or models as in "4xA100" or "2xH100,1xT4"; `scenario` a file, see docs/simulator.md.

    >>> import lull
    >>> with lull.simulate(gpus="2xH100") as sim:
    ...     sim.set(0, util=80, temp=70)
    ...     sim.fault(1, "lost")
    ...     [(gpu.temp, gpu.error) for gpu in lull.status()]
    [(70.0, None), (None, 'GPU is lost')]
    """
    return Simulation(gpus, scenario=scenario, speed=speed)
