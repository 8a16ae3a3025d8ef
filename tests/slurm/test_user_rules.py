"""What the user of a job asks for, by its comment or by the SPANK plug-in, and `lull slurm check` on a real Slurm."""
import json
import os
import pathlib

import pytest

from lull_e2e import wait_until

RULE = "util < 1 for 1s"


def started(cluster, job):
    wait_until(lambda: cluster.runs_on(job) and cluster.state(job) == "RUNNING", what=f"job {job}")
    return cluster.runs_on(job)[0]


def allocation(cluster, job):
    return (cluster.runs / started(cluster, job) / str(job)).read_text().splitlines()


@pytest.fixture
def spank(cluster):
    """The plug-in, for jobs that are submitted from now on."""
    plugin = pathlib.Path(os.environ["LULL_BUILD_DIR"]) / "spank/lull_spank.so"
    if not plugin.exists():
        pytest.skip("the SPANK plug-in is not built (libslurm-dev)")
    conf = cluster.folder / "etc/plugstack.conf"
    conf.write_text(f"optional {plugin}\n")
    yield
    conf.unlink()


def test_a_job_whose_user_asked_for_more_time_outlives_one_that_did_not(cluster, nodes):
    kept = cluster.submit("--comment", "lull=2h", "-w", cluster.nodes[0])
    other = cluster.submit("-w", cluster.nodes[0])
    node = started(cluster, kept)
    started(cluster, other)
    nodes.watch(f"{RULE}: slurm=cancel", nodes=[node])
    nodes.idle()
    wait_until(lambda: cluster.state(other) != "RUNNING", what="the end of the job that asked for nothing")
    answer = nodes.gpus[node].lull("slurm", "ask", str(kept), "--json", env={"SLURMD_NODENAME": node})
    answer = json.loads(answer.stdout)
    assert cluster.state(kept) == "RUNNING" and answer["says"] == "no" and "of 2h" in answer["reason"], answer


def test_a_job_whose_user_chose_to_be_cancelled_is_not_requeued(cluster, nodes):
    job = cluster.submit("--comment", "x lull=1s,cancel")
    node = started(cluster, job)
    nodes.watch("util < 1 for 2h: slurm=requeue", nodes=[node])
    nodes.idle()
    wait_until(lambda: cluster.state(job) == "CANCELLED", what="the cancelled job")


def test_a_job_whose_user_asked_for_a_warning_is_told(cluster, nodes):
    job = cluster.submit("--comment", "lull=1s,warn")
    node = started(cluster, job)
    nodes.watch("util < 1 for 2s: slurm=cancel", nodes=[node])
    nodes.idle()
    wait_until(lambda: "lull: util < 1 for 1s" in cluster.ask("scontrol", "show", "job", str(job)), what="the comment")
    assert cluster.state(job) == "RUNNING"


# -- SPANK ----------------------------------------------------------------------------------------------
def test_sbatch_takes_gpu_idle_and_the_prolog_hears_of_it(cluster, nodes, spank):
    job = cluster.submit("--gpu-idle=2h,requeue")
    assert 'rule = "2h,requeue"' in allocation(cluster, job)
    script = cluster.folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpu-idle=90m\n#SBATCH --gres=gpu:1 -o /dev/null\nsleep 1000\n")
    job = int(cluster.run("sbatch", "--parsable", script).stdout)
    assert 'rule = "90m"' in allocation(cluster, job)
    job = cluster.submit("--comment", "lull=5h")  # nobody needs the option
    assert not [line for line in allocation(cluster, job) if line.startswith("rule")]


@pytest.mark.parametrize("value", ["soon", "2", "2h,kill", "0s", "2h,", "20000d"])
def test_sbatch_refuses_a_wrong_gpu_idle_when_the_job_is_submitted(cluster, spank, value):
    done = cluster.run("sbatch", "--wrap=true", f"--gpu-idle={value}", check=False)
    ours = [line for line in done.stderr.splitlines() if "would be right" in line or "such as" in line]
    assert done.returncode != 0 and done.stdout == "" and len(ours) == 1 and "--gpu-idle: " in ours[0], done.stderr


def test_srun_and_salloc_take_it_and_help_names_it(cluster, nodes, spank):
    assert "--gpu-idle=TIME[,requeue|cancel|warn]" in cluster.run("sbatch", "--help").stdout
    done = cluster.run("salloc", "--no-shell", "--gres=gpu:1", "--gpu-idle=3h", "-J", "held")
    (job,) = cluster.ask("squeue", "-h", "-n", "held", "-o", "%A").split()
    assert 'rule = "3h"' in allocation(cluster, job), done.stderr
    assert cluster.run("srun", "--gres=gpu:1", "--gpu-idle=4h", "true").returncode == 0


# -- check ----------------------------------------------------------------------------------------------
def check(cluster, nodes, node, **env):
    done = nodes.gpus[node].lull("slurm", "check", "--json", "--dir", f"{cluster.runs}/%n",
                                 env={"SLURMD_NODENAME": node, "SLURM_CONF": cluster.env["SLURM_CONF"], "PATH": cluster.env["PATH"],
                                      **env})
    return done.returncode, {item["name"]: item for item in json.loads(done.stdout)["checks"]}


def test_check_on_a_node_of_a_real_slurm(cluster, nodes):
    job = cluster.submit(nodes=2)
    node = started(cluster, job)
    status, items = check(cluster, nodes, node)
    assert status == 1 and [name for name, item in items.items() if item["state"] == "missing"] == ["watcher"], items
    nodes.watch(f"{RULE}: slurm=cancel", nodes=[node])
    status, items = check(cluster, nodes, node)
    assert status == 0 and {item["state"] for item in items.values()} == {"ok"}, items
    assert "on 2 nodes" in items["srun"]["text"]
    cluster.run("scancel", job)
    wait_until(lambda: not cluster.runs_on(job), what="the Epilog")
    status, items = check(cluster, nodes, node)
    assert status == 0 and items["srun"]["state"] == items["users"]["state"] == "untried", items
    status, items = check(cluster, nodes, node, SLURM_CONF="/nonexistent/slurm.conf")
    assert status == 125 and items["prolog"]["state"] == "unknown", items


def test_the_rights_of_the_unit_are_enough(cluster, nodes):
    """lull-slurm.service limits what the watcher and its srun may do."""
    root = pathlib.Path(__file__).resolve().parents[2]
    unit = (root / "packaging/systemd/lull-slurm.service.in").read_text().splitlines()
    (line,) = [line for line in unit if line.startswith("CapabilityBoundingSet=")]
    rights = ",".join("+" + name.removeprefix("CAP_").lower() for name in line.partition("=")[2].split())
    job = cluster.submit("--uid=nobody", "--gid=nogroup", nodes=2)  # srun runs as this user
    wait_until(lambda: len(cluster.runs_on(job)) == 2, what="both nodes")
    first = cluster.runs_on(job)[0]
    under = ["setpriv", "--no-new-privs", f"--bounding-set=-all,{rights}"]
    for node in cluster.nodes:
        gpus = nodes.gpus[node]
        watcher = gpus.start(*under, gpus.binary, "watch", "--per", "job", f"--slurm={cluster.runs}/%n", "--every", "250ms",
                             "--step", f"{RULE}: slurm=cancel",
                             env={"SLURMD_NODENAME": node, "SLURM_CONF": cluster.env["SLURM_CONF"], "PATH": cluster.env["PATH"]})
        nodes.watchers[node] = watcher
        nodes.said(node, "watching each job")
    nodes.idle()
    nodes.said(first, "done")
    wait_until(lambda: cluster.state(job) == "CANCELLED", what="the cancelled job")
