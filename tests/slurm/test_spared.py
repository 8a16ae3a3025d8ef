"""Without `--slurm`, a watcher does nothing to Slurm's jobs. The cluster makes no cgroups: slurmstepd says which job it is."""
import shlex

from lull_e2e import read_until, wait_until
from test_agreement import RULE, started


def test_without_slurm_jobs_are_neither_ended_nor_the_subject_of_a_command(cluster, nodes, tmp_path):
    node = cluster.nodes[0]
    gpus = nodes.gpus[node]
    gpus.set("all", util=0)
    settings = " ".join(shlex.quote(f"{name}={value}") for name, value in gpus.env.items())
    job = cluster.submit("-w", node, script=f"exec env {settings} {gpus.binary} sim load --gpu 0 --util 0")
    started(cluster, job)
    wait_until(lambda: f"slurm:{job}" in gpus.lull("jobs", "--json").stdout, what="the process of the job")
    ran = tmp_path / "ran"
    for action, said in ((f"exec=touch {ran}", "`--per job --slurm` asks them"), ("end", "`--per job --slurm` with slurm=cancel")):
        watcher = gpus.start_lull("watch", "--per", "job", "--every", "250ms", "--step", f"{RULE}: {action}")
        text = read_until(watcher.stderr, said)
        assert f"Slurm job {job}" in text, text
        watcher.terminate()
        watcher.wait()
    assert cluster.state(job) == "RUNNING" and not ran.exists()
    assert f"slurm:{job}" in gpus.lull("jobs", "--json").stdout
