"""Under Slurm a filler is a job in a preemptable partition (docs/slurm.md)."""
import statistics
import time

from lull_e2e import wait_until


def test_a_job_starts_within_a_second_on_gpus_full_of_fillers(cluster, nodes):
    all_gpus = len(cluster.nodes) * cluster.gpus
    took = []
    for turn in range(5):
        fillers = [cluster.submit("--partition=filler") for _ in range(all_gpus)]
        wait_until(lambda: all(cluster.state(job) == "RUNNING" for job in fillers), what="GPUs full of fillers")
        time.sleep(0.2 * turn)  # Slurm preempts once a second, and that fillers run is seen right after such a moment
        before = time.monotonic()
        job = cluster.submit("--gres=gpu:2")
        wait_until(lambda: cluster.state(job) == "RUNNING" and cluster.runs_on(job), what="the job")
        took.append(time.monotonic() - before)
        assert sorted(cluster.state(filler) for filler in fillers).count("RUNNING") == all_gpus - 2
        wait_until(lambda: sum(cluster.field(filler, "Restarts") == "1" for filler in fillers) == 2, what="two fillers requeued")
        cluster.cancel_all()
    assert statistics.median(took) < 1, took  # on a busy machine some may take longer
