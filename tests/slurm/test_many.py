"""64 nodes with 8 GPUs each: one job on all of them, and a storm of idle jobs."""
import pytest

import events
from cluster import Cluster
from conftest import Nodes
from lull_e2e import wait_until
from test_agreement import RULE, started

pytestmark = pytest.mark.long
NODES, GPUS = 64, 8


@pytest.fixture(scope="module")
def many(lull):
    cluster = Cluster(lull, NODES, GPUS)
    nodes = Nodes(cluster, lull)
    yield cluster, nodes
    nodes.close()
    cluster.close()


def watch(nodes, folder, step):
    for node, watcher in nodes.watchers.items():
        watcher.kill()
        watcher.wait()
    folder.mkdir()
    nodes.watch(step, every="1s", logs=folder)
    return folder


def test_a_job_on_64_nodes_is_requeued_when_the_last_busy_one_is_idle(many, tmp_path):
    cluster, nodes = many
    job = cluster.submit(f"--gres=gpu:{GPUS}", nodes=NODES)
    started(cluster, job, NODES)
    logs = watch(nodes, tmp_path / "logs", f"{RULE}: slurm=requeue")
    leader, busy, *others = cluster.nodes  # of several that say no, the first is named
    nodes.idle(leader, *others)
    wait_until(lambda: events.says_no(logs, leader, busy), limit=240, what="its no", every=0.2)
    assert cluster.state(job) == "RUNNING" and cluster.field(job, "Restarts") == "0"
    nodes.idle(busy)
    wait_until(lambda: cluster.field(job, "Restarts") == "1", limit=240, what="the requeue")
    assert not events.troubles(logs)
    cluster.cancel_all()


def test_a_storm_of_64_idle_jobs_is_requeued_without_a_failure(many, tmp_path):
    cluster, nodes = many
    for node in cluster.nodes:
        nodes.gpus[node].set("all", util=90)
    jobs = [cluster.submit(f"--gres=gpu:{GPUS}", f"--nodelist={node}") for node in cluster.nodes]
    wait_until(lambda: all((cluster.runs / node / str(job)).exists() for node, job in zip(cluster.nodes, jobs)), limit=240,
               what="64 jobs")
    logs = watch(nodes, tmp_path / "logs", f"{RULE}: slurm=requeue")
    nodes.idle()
    wait_until(lambda: {job for job, *_ in events.acts(logs)} == set(jobs), limit=240, what="64 requeues", every=0.5)
    assert all(cluster.field(job, "Restarts") == "1" for job in jobs)
    assert not events.troubles(logs)
    cluster.cancel_all()
