"""`lull watch --from prometheus:URL --per job --slurm`: one judge for a real Slurm, by what a real Prometheus scrapes.

Each node has an exporter (`lull serve`) and nothing else of lull's. What cannot be seen is never idle.
"""
import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from cluster import Cluster
from conftest import Nodes
from lull_e2e import LIMIT, read_until, wait_until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "prometheus"))
import server  # noqa: E402

RULE = "util < 1 for 8s"
pytestmark = pytest.mark.skipif(server.why_not() is not None, reason="no Prometheus can run here")


class Fleet:
    """An exporter for each node, a Prometheus that scrapes them each second, and the judge."""

    def __init__(self, cluster, nodes):
        self.cluster, self.nodes = cluster, nodes
        self.exporters, self.ports = {}, {}
        self.judge = self.prometheus = None
        for node in cluster.nodes:
            self.export(node)
        targets = "".join(f"  - {{targets: ['127.0.0.1:{port}'], labels: {{Hostname: {node}}}}}\n"
                          for node, port in self.ports.items())
        self.prometheus = server.Prometheus({}, config="global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
                                            f"scrape_configs:\n- job_name: lull\n  static_configs:\n{targets}")

    def export(self, node):
        gpus = self.nodes.gpus[node]
        one = gpus.start_lull("serve", "--listen", f"127.0.0.1:{self.ports.get(node, 0)}", "--every", "250ms",
                              env={"LULL_HOST": node})
        line = read_until(one.stderr, "\n")
        assert "serving on " in line, line
        self.ports[node] = int(line.strip().rpartition(":")[2])
        self.exporters[node] = one

    def watch(self, *steps, options=("--slurm-order",)):
        words = [word for step in steps for word in ("--step", step)]
        self.judge = self.nodes.gpus[self.cluster.nodes[0]].start_lull(
            "watch", "--from", f"prometheus:{self.prometheus.url}", "--per", "job", "--slurm", "--every", "1s", *options, *words,
            env={"SLURM_CONF": self.cluster.env["SLURM_CONF"], "PATH": self.cluster.env["PATH"]})
        read_until(self.judge.stderr, "watching the Slurm jobs of the cluster")

    def said(self, text):
        return read_until(self.judge.stderr, text)

    def newest(self, node):
        """How old what Prometheus has of the node's GPUs is, in seconds; None: nothing of the last minute."""
        found = self.prometheus.ask("query", query=f'max(timestamp(lull_gpu_utilization_ratio{{Hostname="{node}"}}))')["result"]
        return time.time() - float(found[0]["value"][1]) if found else None

    def close(self):
        if self.judge and self.judge.poll() is None:
            self.judge.send_signal(signal.SIGTERM)
            print("the judge said at last:", self.judge.communicate(timeout=LIMIT)[1], sep="\n")
        if self.prometheus:
            self.prometheus.close()


@pytest.fixture
def fleet(cluster, nodes):
    made = Fleet(cluster, nodes)
    yield made
    made.close()


def started(cluster, job, nodes=1):
    wait_until(lambda: len(cluster.runs_on(job)) == nodes and cluster.state(job) == "RUNNING", what=f"job {job}")
    return cluster.runs_on(job)


def untouched(cluster, job):
    return cluster.state(job) == "RUNNING" and cluster.field(job, "Restarts") == "0"


def restarted(cluster, job):
    wait_until(lambda: cluster.field(job, "Restarts") == "1", limit=60, what=f"job {job} to be requeued")


def test_a_job_is_requeued_when_all_its_gpus_are_seen_idle(cluster, nodes, fleet):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    fleet.watch(f"{RULE}: slurm=requeue")
    nodes.idle(first)
    time.sleep(12)  # longer than the rule asks for: node 2 works all the while
    assert untouched(cluster, job)
    nodes.idle(second)
    restarted(cluster, job)
    shown = cluster.run("scontrol", "show", "job", job).stdout
    assert f"lull: {RULE} held for" in shown and f"{first}/0,{second}/0" in shown, shown


def test_an_exporter_that_is_down_while_its_node_works_never_looks_idle(cluster, nodes, fleet):
    job = cluster.submit(nodes=2)
    first, second = started(cluster, job, 2)
    nodes.idle(first)
    wait_until(lambda: fleet.newest(second) is not None, what="a scrape of node 2")
    fleet.exporters[second].kill()  # while node 2 works at 90 %
    fleet.watch(f"{RULE}: slurm=cancel")
    assert "not judged" in fleet.said(f"GPU 0 of {second}")
    wait_until(lambda: fleet.newest(second) is None, what="the series to go stale")
    time.sleep(10)
    assert untouched(cluster, job)
    fleet.export(second)  # it works still: what was not seen was not idle
    wait_until(lambda: fleet.newest(second) is not None, limit=60, what="a scrape of node 2")
    time.sleep(3)
    assert untouched(cluster, job)
    nodes.idle(second)
    wait_until(lambda: cluster.state(job) == "CANCELLED", limit=60, what="the end of the job")


def test_series_that_went_stale_while_idle_do_nothing(cluster, nodes, fleet):
    job = cluster.submit()
    (node,) = started(cluster, job)
    nodes.idle()
    wait_until(lambda: fleet.newest(node) is not None, what="a scrape")
    time.sleep(4)
    fleet.exporters[node].kill()  # idle for less than the rule asks for
    fleet.watch(f"{RULE}: slurm=cancel")
    said = fleet.said("not judged")
    assert "Slurm job" in said
    time.sleep(12)
    assert untouched(cluster, job)


def test_a_server_that_is_down_or_hangs_does_nothing_and_is_said_once(cluster, nodes, fleet):
    job = cluster.submit()
    started(cluster, job)
    fleet.watch(f"{RULE}: slurm=cancel")
    wait_until(lambda: fleet.newest(cluster.runs_on(job)[0]) is not None, what="a scrape")
    fleet.prometheus.process.kill()
    fleet.prometheus.process.wait(timeout=LIMIT)
    nodes.idle()
    assert "no job is judged" in fleet.said("no job is judged")
    time.sleep(12)
    assert untouched(cluster, job)
    fleet.prometheus._start(())
    fleet.judge.send_signal(signal.SIGTERM)
    rest = fleet.judge.communicate(timeout=LIMIT)[1]
    assert "no job is judged" not in rest and fleet.judge.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_the_owner_keeps_a_job_by_its_comment(cluster, nodes, fleet):
    job = cluster.submit("--comment", "lull-keep=2099-01-01T00:00:00Z")
    started(cluster, job)
    nodes.idle()
    fleet.watch(f"{RULE}: slurm=cancel", options=["--slurm-order", "--keep-at-most", "1h"])
    assert "its Comment keeps it for" in fleet.said("keeps it for")
    assert untouched(cluster, job)


def test_a_name_that_looks_like_an_allocation_leaves_its_job_alone(cluster, nodes, fleet):
    job = cluster.submit("-J", f"x\n     Nodes={cluster.nodes[1]} CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)")
    other = cluster.submit("-w", cluster.nodes[1])
    started(cluster, job)
    nodes.idle()
    fleet.watch(f"{RULE}: slurm=cancel")
    assert f"scontrol show job -d {job}" in fleet.said("not judged")
    wait_until(lambda: cluster.state(other) == "CANCELLED", limit=60, what="the other job to be cancelled")
    assert untouched(cluster, job)


def test_a_dry_run_says_it_and_does_nothing(cluster, nodes, fleet):
    job = cluster.submit()
    started(cluster, job)
    nodes.idle()
    fleet.watch(f"{RULE}: slurm=cancel", options=["--slurm-order", "--dry-run", "--log-format", "json"])
    line = json.loads(fleet.said('"would-act"').splitlines()[-1])
    assert line["event"] == "would-act" and str(job) in json.dumps(line)
    assert untouched(cluster, job)


@pytest.fixture(scope="module")
def reversed_cluster(lull):
    """One node, whose gres.conf names its second GPU first: Slurm's GPU 0 is the exporter's GPU 1."""
    made = Cluster(lull, 1, order=[1, 0])
    yield made
    made.close()


@pytest.fixture
def reversed_fleet(reversed_cluster, lull):
    nodes = Nodes(reversed_cluster, lull)
    made = Fleet(reversed_cluster, nodes)
    yield made
    made.close()
    nodes.close()
    reversed_cluster.cancel_all()


def test_a_job_with_a_part_of_a_node_is_not_judged_by_its_neighbours_gpu(reversed_cluster, reversed_fleet):
    cluster, fleet = reversed_cluster, reversed_fleet
    job = cluster.submit()
    (node,) = started(cluster, job)
    gpus = fleet.nodes.gpus[node]
    gpus.set(0, util=0)  # the neighbour's; the job works on GPU 1
    check = gpus.lull("slurm", "check", "--dir", cluster.runs / node,
                      env={"SLURMD_NODENAME": node, "SLURM_CONF": cluster.env["SLURM_CONF"], "PATH": cluster.env["PATH"]})
    assert "differs  gpu-order" in check.stdout, check.stdout
    fleet.watch(f"{RULE}: slurm=requeue", options=())
    fleet.said("--slurm-order says")  # once there are series
    time.sleep(12)  # longer than the rule asks for
    assert untouched(cluster, job)


def test_a_job_with_all_gpus_of_a_node_is_judged_whatever_their_order(reversed_cluster, reversed_fleet):
    cluster, fleet = reversed_cluster, reversed_fleet
    job = cluster.submit("--gres=gpu:2")
    (node,) = started(cluster, job)
    fleet.nodes.gpus[node].set(0, util=0)
    fleet.watch(f"{RULE}: slurm=requeue", options=())
    time.sleep(12)
    assert untouched(cluster, job), "its other GPU works"
    fleet.nodes.idle(node)
    restarted(cluster, job)
