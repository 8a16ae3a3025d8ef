"""A verb that Slurm's controller does not answer: it may still be done, and lull says so."""
import os
import re
import shutil
import signal
import time

import pytest

from lull_e2e import wait_until
from test_agreement import RULE, restarted, started


@pytest.fixture
def stopping(cluster, tmp_path, monkeypatch):
    """slurmctld stops right before the next `scontrol requeue`, after all that comes before it had its answer."""
    folder = tmp_path / "bin"
    folder.mkdir()
    mark = tmp_path / "stop"
    mark.write_text("")
    pid = cluster.pid("slurmctld")
    scontrol = folder / "scontrol"
    scontrol.write_text(f"""#!/bin/sh
if [ "$1" = requeue ] && rm {mark} 2>/dev/null; then kill -STOP {pid}; fi
exec {shutil.which("scontrol", path=cluster.env["PATH"])} "$@"
""")
    scontrol.chmod(0o755)
    monkeypatch.setitem(cluster.env, "PATH", f"{folder}:{cluster.env['PATH']}")
    yield pid
    os.kill(pid, signal.SIGCONT)


def unanswered(cluster, nodes):
    """A job that works again after its requeue had no answer."""
    job = cluster.submit()
    (node,) = started(cluster, job)
    nodes.watch(f"{RULE}: slurm=requeue", nodes=[node])
    nodes.idle(node)
    assert f"scontrol requeue {job} had no answer: Slurm may still do it" in nodes.said(node, "not now")
    nodes.gpus[node].set("all", util=90)
    return job, node


def test_a_verb_without_an_answer_is_done_late_and_keep_does_not_promise_otherwise(cluster, nodes, stopping):
    job, node = unanswered(cluster, nodes)
    done = nodes.gpus[node].lull("keep", f"slurm:{job}", "4h", env={"PATH": cluster.env["PATH"]})
    assert done.returncode == 1 and re.search(r"(?m): not certain: .*may still do it$", done.stdout), done.stdout
    os.kill(stopping, signal.SIGCONT)
    restarted(cluster, job)  # the request was in the controller's queue, whatever became of the command


def test_a_verb_is_not_done_after_the_time_that_authinfo_gives_it(cluster, nodes, stopping, monkeypatch):
    """As docs/slurm.md shows: a slurm.conf for the watcher."""
    conf = cluster.folder / "etc/watcher.conf"
    conf.write_text(f"include {cluster.folder}/etc/slurm.conf\n"
                    f"AuthInfo=cred_expire=5,socket={cluster.folder}/munge/socket,ttl=3\n")
    monkeypatch.setitem(cluster.env, "SLURM_CONF", str(conf))
    job, node = unanswered(cluster, nodes)
    time.sleep(1)  # the command ends 5 s after it was sent, and credentials count whole seconds
    os.kill(stopping, signal.SIGCONT)
    log = cluster.folder / "log/slurmctld"
    wait_until(lambda: "REQUEST_JOB_REQUEUE has authentication error" in log.read_text(), what="the refusal")
    wait_until(lambda: cluster.state(job), what="an answer of the controller")
    assert cluster.state(job) == "RUNNING" and cluster.field(job, "Restarts") == "0"
