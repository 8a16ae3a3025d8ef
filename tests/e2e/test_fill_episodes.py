"""Random episodes of `lull fill` with real processes: LULL_FILL_EPISODES says how many (default 8), LULL_FILL_SEED which, LULL_FILL_NODES=0
keeps to plain files in place of device nodes.

Whatever happens: a filler never runs for longer than the limit on a GPU that somebody else uses, no process of a filler is
left behind, every free GPU is filled in the end, and a monitor never costs a filler its work.
"""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import alive, end, wait_until
from test_fill import Fill, make_rare_node

EPISODES = int(os.environ.get("LULL_FILL_EPISODES", "8"))
SEED = int(os.environ.get("LULL_FILL_SEED", "1"))
YIELDS_WITHIN = 6.0  # seconds: confirm, grace and samples make less than one; this machine may be busy
GPUS = 2

# Leaves pid and GPU in a file of its own for each process; counts; on USR1 it forks: twenty, of which some go on to
# have a child and end, again and again, each in a session of its own. Never more than a few dozen at once: others work here too.
FILLER = r"""
import os, signal, sys, time
folder, gpu = sys.argv[1], os.environ["LULL_GPUS"]
def note():
    start = open("/proc/self/stat").read().rpartition(")")[2].split()[19]  # numbers are used again, and soon
    open(os.path.join(folder, f"pid.{gpu}.{start}.{os.getpid()}"), "w").close()
note()
def bomb(*_):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for child in range(20):
        if os.fork() == 0:
            for runner in range(500 if child % 4 == 0 else 0):
                time.sleep(0.002)
                os.setsid() if os.getpid() != os.getsid(0) else None
                if os.fork() != 0: os._exit(0)
            note()
            while True: time.sleep(1)
signal.signal(signal.SIGUSR1, bomb)
n = 0
while True:
    n += 1
    open(os.path.join(folder, gpu), "w").write(str(n)); time.sleep(0.005)
"""
HOLDER = "import sys, time\nfiles = [open(f) for f in sys.argv[2:]]\nprint(1, flush=True)\ntime.sleep(float(sys.argv[1]))"


class Episodes:
    def __init__(self, gpus, folder, seed):
        self.gpus, self.folder, self.random = gpus, folder, random.Random(seed)
        (folder / "episodes.py").write_text(FILLER)
        self.nice = 0
        self.nodes = False
        self.slowest = 0.0
        self.kinds = {}
        self.make_nodes()
        self.begin()

    # -- the world ------------------------------------------------------------------------------
    def device(self, gpu):
        return self.gpus.folder / f"dev/nvidia{gpu}"

    def make_nodes(self):
        if os.environ.get("LULL_FILL_NODES") == "0":  # two such tests at once would hear each other
            return
        try:
            self.numbers, self.locks = zip(*(make_rare_node(self.folder / f"node{gpu}") for gpu in range(GPUS)))
            for gpu in range(GPUS):
                shutil.move(self.folder / f"node{gpu}", self.device(gpu))
            self.nodes = True
        except OSError:
            pass

    def write_plan(self):
        draft = self.folder / "draft"
        draft.write_text(f'every = "100ms"\nidle = "util < 5 for 300ms"\nconfirm = "400ms"\n[people]\nidle = "20s"\n[[filler]]\nper_gpu = true\n'
                         f'nice = {self.nice}\ngrace = "200ms"\ncommand = ["{sys.executable}", "-S", "{self.folder}/episodes.py", "{self.folder}"]\n')
        draft.rename(self.folder / "fill.toml")

    def begin(self):
        self.write_plan()
        self.fill = Fill(self.gpus, self.folder, file=self.folder / "fill.toml")
        self.calm()

    @staticmethod
    def is_it(name):
        """Alive, and not another process of that number."""
        pid = int(name.suffix[1:])
        try:
            start = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        except OSError:
            return False
        return alive(pid) and start == name.name.split(".")[2]

    def pids(self, gpu="*"):
        return sorted(int(name.suffix[1:]) for name in self.folder.glob(f"pid.{gpu}.*") if self.is_it(name))

    def alive_on(self, gpu):
        return self.pids(gpu)

    def forget_dead(self):
        for name in self.folder.glob("pid.*"):
            if not self.is_it(name):
                name.unlink(missing_ok=True)

    def calm(self):
        """Nobody is there: every GPU is filled in the end."""
        for gpu in range(GPUS):
            self.fill.wait_running(str(gpu))

    def hold(self, seconds, *files):
        process = subprocess.Popen([sys.executable, "-S", "-c", HOLDER, str(seconds), *map(str, files)], stdout=subprocess.PIPE)
        process.stdout.readline()
        return process

    def yields(self, gpu, began, job=None):
        try:
            self.fill.wait(lambda: not self.alive_on(gpu), f"the filler on GPU {gpu} to yield")
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.as_it_is(job)}") from None
        took = time.monotonic() - began
        self.slowest = max(self.slowest, took)
        assert took < YIELDS_WITHIN, f"{took} s: {self.fill.log.read_text()[-3000:]}"

    def as_it_is(self, job):
        """Who is there, as the driver, lull and the kernel say it."""
        said = [f"the driver: {[g['processes'] for g in self.gpus.show()['gpus']]}", f"lull: {self.fill.status()}"]
        if job:
            lives = job.poll() is None
            said.append(f"the job {job.pid}: {'lives' if lives else job.stderr.read()}")
            if lives:
                said.append(pathlib.Path(f"/proc/{job.pid}/status").read_text())
        read = self.gpus.lull("status", "--json")
        return "\n".join([*said, f"read anew: {read.stdout}{read.stderr}"])

    # -- what may happen --------------------------------------------------------------------------
    def monitor(self):
        before = {gpu: self.alive_on(gpu) for gpu in range(GPUS)}
        which = self.random.sample(range(GPUS), self.random.randint(1, GPUS))
        end_later = self.hold(self.random.choice((0, 0.05, 0.3, 0.8)), *(self.device(gpu) for gpu in which))
        self.calm()
        assert {gpu: self.alive_on(gpu) for gpu in range(GPUS)} == before, "a monitor cost a filler its work"
        end_later.wait()
        end(end_later)

    def container(self):
        if not self.nodes:
            return self.monitor()
        before = {gpu: self.alive_on(gpu) for gpu in range(GPUS)}
        stranger = subprocess.Popen(["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt && mknod /mnt/gpu c $0 $1 && exec 3</mnt/gpu && exec sleep 0.5",
                                     *map(str, self.numbers[0])])
        self.fill.wait(lambda: any(str(stranger.pid) in (e["details"]["who"] or "") for e in self.fill.events("halted")), "the open to be heard")
        stranger.wait()
        self.calm()
        assert {gpu: self.alive_on(gpu) for gpu in range(GPUS)} == before

    def user(self):
        gpu = self.random.randrange(GPUS)
        began = time.monotonic()
        job = self.gpus.start_lull("sim", "load", "--gpu", gpu, "--util", 80, "--mem", "1GiB")
        self.yields(gpu, began, job)
        other = 1 - gpu
        self.fill.wait_running(str(other))
        assert not self.alive_on(gpu)
        end(job)
        self.gpus.started.remove(job)
        self.calm()

    def late_user(self):
        """Opens the files, is cleared, and computes only then."""
        holder = self.hold(60, *(self.device(gpu) for gpu in range(GPUS)))
        self.calm()
        self.user_after(holder)

    def user_after(self, holder):
        gpu = self.random.randrange(GPUS)
        began = time.monotonic()
        job = self.gpus.start_lull("sim", "load", "--gpu", gpu, "--util", 80)
        self.yields(gpu, began, job)
        end(job)
        self.gpus.started.remove(job)
        end(holder)
        self.calm()

    def lease(self):
        gpu = self.random.randrange(GPUS)
        began = time.monotonic()
        job = self.gpus.start_lull("pick", "--gpus", gpu, "--wait=20s", "--", "sleep", "100")
        self.yields(gpu, began, job)
        end(job)
        self.gpus.started.remove(job)
        self.calm()

    def waiter(self):
        self.gpus.set("all", util=90)
        ended = len(self.fill.events("ended"))
        job = self.gpus.start_lull("pick", "--wait=30s", "--", "sleep", "0.1")
        # Its first look may be of before the GPUs were busy: then it has one at once.
        self.fill.wait(lambda: len(self.fill.events("ended")) > ended or job.poll() is not None, "a filler to yield to who waits")
        self.gpus.set("all", util="auto")
        assert job.wait(timeout=60) == 0
        self.gpus.started.remove(job)
        end(job)
        self.calm()

    def person(self):
        if os.geteuid() != 0:
            return
        terminal = self.gpus.folder / "dev/pts/1"
        terminal.parent.mkdir(exist_ok=True)
        began = time.monotonic()
        terminal.write_text("")
        shutil.chown(terminal, "nobody")
        os.utime(terminal)
        for gpu in range(GPUS):
            self.yields(gpu, began)
        os.utime(terminal, (time.time() - 600, time.time() - 600))
        self.calm()

    def crash(self):
        gpu = self.random.randrange(GPUS)
        pids = self.alive_on(gpu)
        os.kill(self.random.choice(pids), signal.SIGKILL)
        self.change()  # other settings: nothing is backed off

    def bomb(self):
        gpu = self.random.randrange(GPUS)
        os.kill(self.alive_on(gpu)[0], signal.SIGUSR1)
        self.fill.wait(lambda: len(self.alive_on(gpu)) > 10, "the fork bomb")
        began = time.monotonic()
        job = self.gpus.start_lull("sim", "load", "--gpu", gpu, "--util", 80)
        self.yields(gpu, began, job)
        end(job)
        self.gpus.started.remove(job)
        self.calm()

    def change(self):
        reloaded = len(self.fill.events("reloaded"))
        old = [pid for gpu in range(GPUS) for pid in self.alive_on(gpu)]
        self.nice = 1 + self.nice % 18
        self.write_plan()
        self.fill.wait(lambda: len(self.fill.events("reloaded")) > reloaded, "the new settings")
        self.fill.wait(lambda: not any(alive(pid) for pid in old), "the end of the old ones")
        self.calm()

    def kill(self):
        before = self.pids()
        holder = self.hold(30, self.device(0)) if self.random.random() < 0.5 else None
        if self.random.random() < 0.3:
            os.kill(self.random.choice(self.alive_on(self.random.randrange(GPUS))), signal.SIGUSR1)
        if holder:
            self.fill.wait(lambda: self.fill.events("halted"), "it to be paused")
        self.fill.process.kill()
        self.fill.process.wait()
        self.gpus.started.remove(self.fill.process)
        wait_until(lambda: not self.pids(), what=f"the end of {before}")
        if holder:
            end(holder)
        self.forget_dead()
        self.fill.log.unlink()
        self.begin()

    def one(self):
        kinds = [self.monitor, self.container, self.user, self.late_user, self.lease, self.waiter, self.person, self.crash, self.bomb, self.change, self.kill]
        kind = self.random.choice(kinds)
        self.kinds[kind.__name__] = self.kinds.get(kind.__name__, 0) + 1
        try:
            kind()
        except BaseException:
            print(f"in the episode {kind.__name__}; {self.kinds}; alive: { {gpu: self.alive_on(gpu) for gpu in range(GPUS)} }")
            raise
        self.forget_dead()
        if len(self.fill.log.read_bytes()) > 200_000:
            os.truncate(self.fill.log, 0)


def test_random_episodes(sim, tmp_path):
    signal.alarm(0 if EPISODES > 100 else 600)
    with sim(GPUS) as gpus:
        episodes = Episodes(gpus, tmp_path, SEED)
        began = time.monotonic()
        for number in range(EPISODES):
            episodes.one()
        episodes.fill.process.send_signal(signal.SIGTERM)
        assert episodes.fill.process.wait(timeout=60) == -signal.SIGTERM
        assert not episodes.pids()
        print(f"{EPISODES} episodes in {time.monotonic() - began:.0f} s, slowest to yield {episodes.slowest:.2f} s: {episodes.kinds}")
