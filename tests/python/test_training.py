"""A real training loop (NumPy, no GPU): it picks, trains under a watch, saves a checkpoint when the watch fires, exits 0."""
import os

import pytest
from conftest import LIMIT, wait_until

import lull

np = pytest.importorskip("numpy")

TRAIN = '''
import multiprocessing, os, sys, threading, time
import numpy as np
import lull

def say(line):
    os.write(1, (line + "\\n").encode())  # at once: print() makes several writes of a line, between which others may speak

def train(folder, rank=0):
    """Logistic regression by gradient descent, on whatever GPU it was given."""
    random = np.random.default_rng(rank)
    x = random.normal(size=(512, 16))
    y = (x @ random.normal(size=16) > 0).astype(float)
    weights = np.zeros(16)
    idle = threading.Event()

    def save(firing):
        np.savez(os.path.join(folder, f"checkpoint-{rank}.npz"), weights=weights, rule=str(firing.rule))
        idle.set()

    with lull.pick(wait="60s") as picked, lull.watch(idle="util < 5 for 5 samples", arm="util > 50", every=0.05, do=save) as w:
        say(f"{rank} {picked.indices[0]}")
        armed = False
        for step in range(10**9):
            if w.armed and not armed:
                armed = True
                say("armed")
            prediction = 1 / (1 + np.exp(-x @ weights))
            weights -= 0.1 * x.T @ (prediction - y) / len(y)
            w.beat()
            if idle.is_set():
                break
            time.sleep(0.001)
    correct = ((x @ weights > 0) == (y > 0.5)).mean()
    assert correct > 0.9, correct

if __name__ == "__main__":
    folder, processes = sys.argv[1], int(sys.argv[2])
    if processes == 1:
        train(folder)
    else:
        workers = [multiprocessing.Process(target=train, args=(folder, rank)) for rank in range(processes)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        sys.exit(max(abs(worker.exitcode) for worker in workers))
'''


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.lull_gpus("4xA100")
def test_a_training_loop_saves_its_checkpoint_when_its_gpu_falls_idle(lull_gpus, script, tmp_path, processes):
    job = script(TRAIN, tmp_path, processes)
    gpus = dict(map(int, job.line().split()) for _ in range(processes))
    assert sorted(gpus) == list(range(processes)) and len(set(gpus.values())) == processes
    held = [gpu.index for gpu in lull.status() if gpu.lease]
    assert sorted(held) == sorted(gpus.values())
    for gpu in gpus.values():
        lull_gpus.set(gpu, util=95)
    wait_until(lambda: all(lull.status(gpu)[0].util > 50 for gpu in gpus.values()), what="work")
    assert not list(tmp_path.iterdir()) and job.process.poll() is None
    assert [job.line() for _ in range(processes)] == ["armed"] * processes
    for gpu in gpus.values():
        lull_gpus.set(gpu, util=0)
    status, out, err = job.finish()
    assert status == 0, err
    for rank in range(processes):
        with np.load(tmp_path / f"checkpoint-{rank}.npz") as checkpoint:
            assert checkpoint["weights"].shape == (16,) and str(checkpoint["rule"]) == "util < 5 for 5 samples"
    wait_until(lambda: not any(gpu.lease for gpu in lull.status()), what="the leases' end")
