"""Daemons, watchers and GPUs that fail while one node of a job works: nothing is done to it; later it is."""
import os
import signal
import subprocess
import time

import pytest

from lull_e2e import processes_of, wait_until
from test_agreement import RULE, restarted, started

pytestmark = pytest.mark.long
STEP = f"{RULE}: slurm=requeue"
LASTS = 10  # seconds; the rule takes one, and a question five at most


class Fault:
    """What fails on the second node, or on the first, and how it is well again."""

    def __init__(self, cluster, nodes, first, second):
        self.cluster, self.nodes, self.first, self.second = cluster, nodes, first, second

    # -- Slurm
    def stopped(self, daemon):
        pid = self.cluster.pid(daemon)
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)

    def killed(self, daemon, *command):
        pid = self.cluster.pid(daemon)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what=f"the end of {daemon}")
        return lambda: self.cluster.run(*command)

    def nothing(self):
        return lambda: None

    def controller_stopped(self):
        return self.stopped("slurmctld")

    def controller_killed(self):
        given = max(path.stat().st_mtime for path in self.cluster.runs.glob("*/*"))
        saved = self.cluster.folder / "state/job_state"  # some seconds later; killed before that, Slurm forgets the job
        wait_until(lambda: saved.exists() and saved.stat().st_mtime > given + 1, what="the state of the controller")
        return self.killed("slurmctld", "slurmctld")

    def slurmd_of_the_second_node_stopped(self):
        return self.stopped(f"slurmd-{self.second}")

    def slurmd_of_the_second_node_killed(self):
        return self.killed(f"slurmd-{self.second}", "slurmd", "-N", self.second)

    def slurmd_of_the_first_node_killed(self):
        return self.killed(f"slurmd-{self.first}", "slurmd", "-N", self.first)

    # -- lull
    def watcher_stopped(self, node):
        pid = self.nodes.watchers[node].pid
        os.kill(pid, signal.SIGSTOP)
        return lambda: os.kill(pid, signal.SIGCONT)

    def watcher_killed(self, node):
        self.nodes.watchers[node].kill()
        self.nodes.watchers[node].wait()
        return lambda: self.nodes.watch(STEP, nodes=[node])

    def watcher_of_the_second_node_stopped(self):
        return self.watcher_stopped(self.second)

    def watcher_of_the_second_node_killed(self):
        return self.watcher_killed(self.second)

    def watcher_of_the_first_node_stopped(self):
        return self.watcher_stopped(self.first)

    def watcher_of_the_first_node_killed(self):
        return self.watcher_killed(self.first)

    def sensor_of_the_second_node_killed(self):
        for pid in processes_of(self.nodes.gpus[self.second].folder, "lull-sensor"):
            os.kill(pid, signal.SIGKILL)
        return lambda: None

    # -- GPUs. What is set stays set when the fault is over.
    def gpu_fails(self, kind, *more):
        for gpu in range(self.cluster.gpus):
            self.nodes.gpus[self.second].fault(gpu, kind, *more)

        def well():
            self.nodes.gpus[self.second].clear()
            self.nodes.gpus[self.second].set("all", util=90)
        return well

    def gpu_of_the_second_node_lost(self):
        return self.gpu_fails("lost")

    def gpu_of_the_second_node_hangs(self):
        return self.gpu_fails("hang=20s")

    # -- the network between the nodes
    def second_node_unreachable(self):
        port = str(int(self.cluster.ask("scontrol", "show", "node", self.second).split("Port=")[1].split()[0]))
        rule = ["INPUT", "-i", "lo", "-p", "tcp", "--dport", port, "-j", "DROP"]
        try:
            done = subprocess.run(["iptables", "-I", *rule], capture_output=True)
        except FileNotFoundError:
            pytest.skip("no iptables")
        if done.returncode != 0:
            pytest.skip("no packet may be dropped here")
        return lambda: subprocess.run(["iptables", "-D", *rule], check=True)


FAULTS = [name for name, value in vars(Fault).items()
          if callable(value) and value.__code__.co_varnames[:value.__code__.co_argcount] == ("self",)]


def untouched(cluster, job):
    return cluster.state(job) == "RUNNING" and cluster.field(job, "Restarts") == "0"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("again", range(3))
def test_nothing_is_done_while_a_node_works_and_it_is_done_after_recovery(cluster, nodes, fault, again):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    nodes.watch(STEP)
    nodes.idle(first)
    assert f"{second} says no" in nodes.said(first, "not now")
    well = getattr(Fault(cluster, nodes, first, second), fault)()
    try:
        end = time.monotonic() + LASTS
        while time.monotonic() < end:  # the fault lasts: that is what is tested
            assert "controller" in fault or untouched(cluster, job)
            time.sleep(0.1)
    finally:
        well()
    end = time.monotonic() + 2 + again
    while time.monotonic() < end:
        wait_until(lambda: cluster.state(job), what="an answer of the controller")
        assert untouched(cluster, job)
        time.sleep(0.1)
    nodes.idle(second)
    restarted(cluster, job)
