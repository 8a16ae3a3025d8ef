"""A real Slurm for each file of tests, and simulated GPUs with a watcher for each of its nodes."""
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from simulated import e2e  # noqa: E402

lull = e2e.lull
never_for_ever = e2e.never_for_ever

from cluster import Cluster, why_not  # noqa: E402


def pytest_configure(config):
    e2e.pytest_configure(config)
    config.addinivalue_line("markers", "long: not in CI, only in ./test slurm")


pytest_unconfigure = e2e.pytest_unconfigure


def pytest_collection_modifyitems(items):
    if why := why_not():
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"no Slurm can run here: {why}"))


@pytest.fixture(scope="session")
def cluster(lull):
    """Two nodes with two GPUs each."""
    made = Cluster(lull, 2)
    yield made
    made.close()


class Nodes:
    """The simulated GPUs of each node, all at work, and what watches them."""

    def __init__(self, cluster, lull):
        self.cluster = cluster
        self.gpus = {node: e2e.Sim(lull, cluster.gpus, env={**os.environ, "LULL_HOST": node}) for node in cluster.nodes}
        self.watchers = {}
        for gpus in self.gpus.values():
            gpus.set("all", util=90)

    def watch(self, *steps, nodes=None, options=(), every="250ms", logs=None):
        """One watcher on each node. `logs`: a folder in which each writes its log, as JSON."""
        nodes = nodes or self.cluster.nodes
        words = [word for step in steps for word in ("--step", step)]
        env = {"SLURM_CONF": self.cluster.env["SLURM_CONF"], "PATH": self.cluster.env["PATH"]}
        for node in nodes:
            more = {}
            if logs is not None:
                options = ("--log-format", "json", "-v")  # also what is put off once more
                more["stderr"] = (logs / node).open("w")
            self.watchers[node] = self.gpus[node].start_lull(
                "watch", "--per", "job", f"--slurm={self.cluster.runs}/%n", "--every", every, *options, *words,
                env={"SLURMD_NODENAME": node, **env}, **more)
            if logs is not None:
                more["stderr"].close()
        for node in nodes:
            if logs is None:
                e2e.read_until(self.watchers[node].stderr, "watching each job")
            else:
                e2e.wait_until(lambda: "watching each job" in (logs / node).read_text(), what="the watcher")

    def said(self, node, text):
        return e2e.read_until(self.watchers[node].stderr, text)

    def idle(self, *nodes):
        for node in nodes or self.cluster.nodes:
            self.gpus[node].set("all", util=0)

    def close(self):
        for node, watcher in self.watchers.items():  # pytest shows it where the test failed
            watcher.kill()
            if watcher.stderr and "PYTEST_CURRENT_TEST" in os.environ:
                print(f"{node} said at last:", watcher.stderr.read(), sep="\n")
        for gpus in self.gpus.values():
            gpus.close()


@pytest.fixture
def nodes(cluster, lull):
    made = Nodes(cluster, lull)
    yield made
    made.close()
    cluster.cancel_all()
