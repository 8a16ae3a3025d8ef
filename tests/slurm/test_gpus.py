"""Slurm counts GPUs in its own order: a job is judged by those that it has, or not at all."""
import os
import shutil
import subprocess
import time

import pytest

from cluster import Cluster
from conftest import Nodes
from lull_e2e import wait_until
from test_agreement import RULE, restarted, started


@pytest.fixture(scope="module")
def reversed_cluster(lull):
    """One node, whose gres.conf names its second GPU first: Slurm's GPU 0 is /dev/nvidia1."""
    made = Cluster(lull, 1, order=[1, 0])
    yield made
    made.close()


@pytest.fixture
def reversed_nodes(reversed_cluster, lull):
    made = Nodes(reversed_cluster, lull)
    yield made
    made.close()
    reversed_cluster.cancel_all()


def test_a_job_is_judged_by_the_gpu_that_slurm_means(reversed_cluster, reversed_nodes):
    job = reversed_cluster.submit()
    (node,) = started(reversed_cluster, job)
    assert "gpus = [0]" in (reversed_cluster.runs / node / str(job)).read_text()
    reversed_nodes.watch(f"{RULE}: slurm=requeue")
    gpus = reversed_nodes.gpus[node]
    gpus.set(0, util=0)  # somebody else's
    end = time.monotonic() + 4  # as long as the rule takes four times
    while time.monotonic() < end:
        assert reversed_cluster.field(job, "Restarts") == "0" and reversed_cluster.state(job) == "RUNNING"
        time.sleep(0.1)
    gpus.set(0, util=90)
    gpus.set(1, util=0)
    restarted(reversed_cluster, job)


def test_a_gres_conf_that_slurmd_has_not_read_keeps_jobs_from_being_judged(reversed_cluster, reversed_nodes):
    job = reversed_cluster.submit()
    (node,) = started(reversed_cluster, job)
    (reversed_cluster.runs / node / "gpus").unlink(missing_ok=True)  # no watcher was here
    reversed_cluster.write_gres([0, 1])
    try:
        reversed_nodes.watch(f"{RULE}: slurm=cancel")
        reversed_nodes.idle()
        assert "is not judged" in reversed_nodes.said(node, "restart slurmd")
        done = reversed_cluster.run(reversed_cluster.lull, "slurm", "check", "--dir", reversed_cluster.runs / node, check=False,
                                    env={"SLURMD_NODENAME": node})
        assert done.returncode == 1 and "restart slurmd" in done.stdout, done.stdout
        assert reversed_cluster.state(job) == "RUNNING"
    finally:
        reversed_cluster.write_gres([1, 0])


def test_a_slurmd_that_was_started_again_has_read_gres_conf(reversed_cluster, reversed_nodes, tmp_path):
    """One that has ended, and that nobody has waited for yet, is none."""
    (reversed_cluster.runs / reversed_cluster.nodes[0] / "gpus").unlink(missing_ok=True)
    ended = subprocess.Popen([shutil.copy("/bin/true", tmp_path / "slurmd")])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    reversed_cluster.write_gres([1, 0])
    pid = reversed_cluster.pid(f"slurmd-{reversed_cluster.nodes[0]}")
    job = reversed_cluster.submit()
    (node,) = started(reversed_cluster, job)
    reversed_cluster.run("kill", str(pid))
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the end of slurmd")
    reversed_cluster.run("slurmd", "-N", node)  # it has read what is there now
    reversed_nodes.watch("util < 1 for 1h: slurm=cancel", nodes=[node])
    wait_until(lambda: (reversed_cluster.runs / node / "gpus").exists(), what="the order")
    assert '"nvidia 1", "nvidia 0"' in (reversed_cluster.runs / node / "gpus").read_text()
    ended.wait()
