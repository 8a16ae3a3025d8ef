"""A real Slurm on this machine, for tests: one slurmctld, several slurmd, munged of its own, GPUs of `lull sim --host`.

It comes up in about a second, in a folder of its own, on ports of its own. No cgroups are needed (proctrack/linuxproc).
A guard process ends it, with the test at the latest: Slurm's daemons and the jobs would outlive a test that is killed.
"""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from waiting import LIMIT, wait_until  # noqa: E402

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "runuser")


def why_not():
    """Why Slurm cannot run here; empty: it can."""
    if os.geteuid() != 0:
        return "only root can run slurmd"
    missing = [name for name in PROGRAMS if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    return f"{', '.join(missing)} not installed (slurm-wlm, munge)" if missing else ""


def free_ports(count):
    """Numbers in a row that nobody listens on."""
    # Below those that the kernel gives to clients, and far from those of a test that starts at the same time.
    for first in range(20000 + os.getpid() * 80 % 8000, 32000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise AssertionError("no free ports")


def processes_of(mark):
    """Those that were started with the settings of a cluster: its daemons, steps, jobs and watchers."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def has_steps(mark):
    for pid in processes_of(mark):
        with contextlib.suppress(OSError):
            if b"slurmstepd" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
    return False


def let_packets_through(configuration):
    """A test of a node that cannot be reached may have been killed."""
    ports = {int(port) for first, last in re.findall(r" Port=\[(\d+)-(\d+)\]", configuration.read_text())
             for port in range(int(first), int(last) + 1)}
    with contextlib.suppress(OSError):
        for line in subprocess.run(["iptables", "-S", "INPUT"], capture_output=True, text=True).stdout.splitlines():
            port = re.search(r"--dport (\d+) -j DROP", line)
            if port and int(port[1]) in ports:
                subprocess.run(["iptables", "-D", *line.split()[1:]])


def guard(folder):
    """Runs as a process of its own: waits for the end of the test, whatever that is, and ends the cluster."""
    sys.stdin.read()
    configuration = folder / "slurm/etc/slurm.conf"
    mark = f"SLURM_CONF={configuration}".encode()
    env = {**os.environ, "SLURM_CONF": str(configuration)}
    if configuration.exists():
        let_packets_through(configuration)
        # The jobs first: slurmstepd goes on without slurmd.
        for command in (["scancel", "--partition=main"], ["scancel", "--partition=filler"]):
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, env=env, timeout=10, capture_output=True)
    end = time.monotonic() + 20
    while time.monotonic() < end and has_steps(mark):
        time.sleep(0.05)
    while left := processes_of(mark):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


class Cluster:
    """`nodes` nodes t<PID>n1, t<PID>n2, … with `gpus` GPUs each; lull's own Prolog and Epilog."""

    def __init__(self, lull: str, nodes: int, gpus: int = 2, order=None, bare: int = 0):
        """`order`: the numbers of the device files, as gres.conf names them. `bare`: so many nodes, the first ones, have none."""
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="lull-slurm-"))
        self.guard = subprocess.Popen([sys.executable, __file__, self.base], stdin=subprocess.PIPE, start_new_session=True,
                                      env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
        folder = self.base / "slurm"
        self.folder, self.lull, self.gpus, self.bare = folder, lull, gpus, bare
        self.order = order or range(gpus)
        self.prefix = f"t{os.getpid()}n"
        self.nodes = [f"{self.prefix}{i + 1}" for i in range(nodes)]
        # Of its own: `lull keep slurm:N` reaches the watchers of all clusters that are tested at the same time.
        self.first_job = os.getpid() % 60000 * 1000 + 1
        self.runs = folder / "run"  # the allocation files of node n are in run/n
        self.env = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "SLURM_CONF": str(folder / "etc/slurm.conf")}
        self.bin = folder / "bin"
        for name in ("bin", "etc", "run", "log", "state", "spool", "dev", "pid"):
            (folder / name).mkdir(parents=True)
        for one in (self.base, folder):
            one.chmod(0o755)
        self.start_munge()
        self.write_configuration(free_ports(nodes + 1))
        self.run("slurmctld", "-c")
        for node in self.nodes:
            (folder / "spool" / node).mkdir()
            self.run("slurmd", "-c", "-N", node)
        wait_until(lambda: self.ask("sinfo", "-h", "-p", "main", "-o", "%T %D") == f"idle {nodes}", what="idle nodes")
        # A second after its start slurmctld asks the nodes for their steps. A slurmd that is asked while it starts a batch
        # job takes the script for a leftover and removes it. The first job starts in the same second.
        self.run("sbatch", f"-N{nodes}", "-o", "/dev/null", "-e", "/dev/null", "--wrap=true")
        wait_until(lambda: not self.ask("squeue", "-h"), what="the end of the first job")

    def pid(self, daemon) -> int:
        """Of slurmctld, or of the slurmd of a node: "slurmd-NODE"."""
        return int((self.folder / "pid" / daemon).read_text())

    def packaged(self, name) -> str:
        """A file of packaging/, as it is where lull is installed in `bin`."""
        return (PACKAGING / name).read_text().replace("@CMAKE_INSTALL_FULL_BINDIR@", str(self.bin))

    def start_munge(self):
        munge = self.folder / "munge"
        munge.mkdir()
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o400)
        for path in (munge, munge / "key"):
            shutil.chown(path, "munge", "munge")
        self.run("runuser", "-u", "munge", "--", "munged", f"--key-file={munge}/key", f"--socket={munge}/socket",
                 f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")

    def write_configuration(self, port):
        here, host = self.folder, socket.gethostname().partition(".")[0]
        for i in range(self.gpus):
            os.mknod(here / "dev" / f"nvidia{i}", 0o020666, os.makedev(195, i))
        # As packaged. slurmd passes no variable of its own on: here another folder is meant than /run/lull/slurm.
        (self.bin / "lull").write_text(f"#!/bin/sh\nLULL_SLURM_DIR={self.runs}/%n exec {self.lull} \"$@\"\n")
        for name in ("prolog", "epilog"):
            (here / "etc" / name).write_text(self.packaged(f"slurm/{name}.in"))
        for script in (self.bin / "lull", here / "etc/prolog", here / "etc/epilog"):
            script.chmod(0o755)
        count = len(self.nodes)
        (here / "etc/slurm.conf").write_text(f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5,socket={here}/munge/socket
FirstJobId={self.first_job}
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool/%n
SlurmctldPidFile={here}/pid/slurmctld
SlurmdPidFile={here}/pid/slurmd-%n
SlurmctldLogFile={here}/log/slurmctld
SlurmdLogFile={here}/log/slurmd-%n
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=1,bf_interval=1
MailProg=/bin/true
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PrologFlags=Alloc
ReturnToService=2
KillWait=2
MinJobAge=3600
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
Prolog={here}/etc/prolog
Epilog={here}/etc/epilog
{self.node_lines(port)}
PartitionName=main Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=filler Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE State=UP
""")
        self.write_gres(self.order)

    def node_lines(self, port):
        """Of those without GPUs, and of those with."""
        host = socket.gethostname().partition(".")[0]
        groups = [(1, self.bare, ""), (self.bare + 1, len(self.nodes), f"Gres=gpu:{self.gpus}")]
        return "\n".join(f"NodeName={self.prefix}[{first}-{last}] NodeHostname={host} NodeAddr=127.0.0.1 "
                         f"Port=[{port + first}-{port + last}] CPUs=64 RealMemory=4000 {gres} State=UNKNOWN"
                         for first, last, gres in groups if first <= last)

    def write_gres(self, order):
        files = ",".join(f"{self.folder}/dev/nvidia{number}" for number in order)
        (self.folder / "etc/gres.conf").write_text(
            f"AutoDetect=off\nNodeName={self.prefix}[{self.bare + 1}-{len(self.nodes)}] Name=gpu File={files}\n")

    # -- running things -------------------------------------------------------------------------------
    def run(self, *command, check=True, env=None, **kwargs):
        done = subprocess.run([str(word) for word in command], env={**self.env, **(env or {})}, capture_output=True, text=True,
                              timeout=LIMIT, cwd="/", stdin=subprocess.DEVNULL, **kwargs)
        assert not check or done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
        return done

    def ask(self, *command):
        return self.run(*command, check=False).stdout.strip()

    def submit(self, *options, script="sleep 1000", nodes=1) -> int:
        """The number of a batch job."""
        done = self.run("sbatch", "--parsable", f"-N{nodes}", "--gres=gpu:1", "-o", "/dev/null", "-e", "/dev/null", *options,
                        f"--wrap={script}")
        return int(done.stdout.split(";")[0])

    def state(self, job) -> str:
        return self.field(job, "JobState")

    def field(self, job, name) -> str:
        """Of `scontrol show job`; empty where there is no such job."""
        for word in self.ask("scontrol", "-o", "show", "job", str(job)).split(" "):
            if word.startswith(name + "="):
                return word.partition("=")[2]
        return ""

    def runs_on(self, job) -> list:
        """The nodes whose Prolog has written its file."""
        return [node for node in self.nodes if (self.runs / node / str(job)).exists()]

    def cancel_all(self):
        """By partition: of an array whose last task is over, scancel does not find the others by their numbers."""
        for partition in ("main", "filler"):
            self.run("scancel", f"--partition={partition}", check=False)
        wait_until(lambda: not self.ask("squeue", "-h"), what="the end of all jobs")

    def close(self):
        self.guard.communicate(timeout=LIMIT)
        assert not self.base.exists()


if __name__ == "__main__":
    guard(pathlib.Path(sys.argv[1]))
