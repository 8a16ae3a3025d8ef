"""The first node that has GPUs of a job asks and acts. Slurm gives nodes without GPUs only to components of het jobs."""
import pytest

from cluster import Cluster
from conftest import Nodes
from lull_e2e import wait_until
from test_agreement import RULE, restarted


@pytest.fixture(scope="module")
def mixed_cluster(lull):
    """The first node has no GPU, the others have two each."""
    made = Cluster(lull, 3, bare=1)
    yield made
    made.close()


@pytest.fixture
def mixed_nodes(mixed_cluster, lull):
    made = Nodes(mixed_cluster, lull)
    yield made
    made.close()
    mixed_cluster.cancel_all()


def submit(cluster):
    """A component without a GPU, and one with GPUs on two nodes."""
    done = cluster.run("sbatch", "--parsable", "--wrap=sleep 1000", "-o", "/dev/null", "-N1", f"-w{cluster.nodes[0]}", ":", "-N2",
                       "--gres=gpu:2")
    job = int(done.stdout.split(";")[0])
    wait_until(lambda: len(cluster.runs_on(job)) == 1 and len(cluster.runs_on(job + 1)) == 2, what="the het job")
    assert cluster.runs_on(job) == cluster.nodes[:1] and "gpus = []" in (cluster.runs / cluster.nodes[0] / str(job)).read_text()
    return job


def test_the_first_node_with_gpus_acts_on_a_het_job_whose_first_component_has_none(mixed_cluster, mixed_nodes):
    job = submit(mixed_cluster)
    bare, first, second = mixed_cluster.nodes
    mixed_nodes.watch(f"{RULE}: slurm=requeue", options=["-v"])
    mixed_nodes.idle(first)
    said = mixed_nodes.said(first, "not now")
    assert f"{second} says no" in said, said
    assert mixed_cluster.state(job) == "RUNNING"
    mixed_nodes.idle(second)
    restarted(mixed_cluster, job)
    restarted(mixed_cluster, job + 1)


def test_a_node_without_gpus_that_is_not_watched_keeps_the_job(mixed_cluster, mixed_nodes):
    job = submit(mixed_cluster)
    bare, first, second = mixed_cluster.nodes
    mixed_nodes.watch(f"{RULE}: slurm=cancel", options=["-v"], nodes=[first, second])
    mixed_nodes.idle()
    for _ in range(2):
        said = mixed_nodes.said(first, "not now")
        assert f"{bare} says nobody" in said, said
    assert mixed_cluster.state(job) == "RUNNING"


def test_slurm_gives_an_ordinary_job_gpus_on_each_of_its_nodes(mixed_cluster):
    """Or none at all: so its first node is the first with GPUs."""
    for options in (["-N2", "--gpus=2", f"-w{','.join(mixed_cluster.nodes[:2])}"], ["-N3", "--gpus=2"], ["-n130", "--gpus=2"]):
        done = mixed_cluster.run("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap=true", check=False)
        assert done.returncode != 0, options
