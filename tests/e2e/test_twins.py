"""The drop-ins and twins of their originals on the same random machines: status, signals and lines must be the same.

The twins (twins/) are our own, written by the documents and by the lines that the originals log. A handful of machines in every run; LULL_TWINS=200 for the slow lane.
What is different on purpose (docs/drop-ins.md) is kept out of the machines: memory in use that no process explains,
and changes so near to a window's length that a mean and a moment disagree.
"""
import os
import pathlib
import random
import re

import pytest
from conftest import LIMIT, build_dir

PYTHON = "/usr/bin/python3"
TWINS = pathlib.Path(__file__).parent / "twins"
MACHINES = int(os.environ.get("LULL_TWINS", "4"))


# ---- gpuselect -----------------------------------------------------------------------------------

def random_words(rng):
    words = []
    for option, values in (("-c", ["1", "2", "3", "0"]), ("-u", ["0", "5", "50", "-1"]), ("-m", ["0", "10", "100"]),
                           ("-p", ["0", "1", "2"]), ("-n", ["T4", "A100", "rtx", "RTX", "NVIDIA"]),
                           ("-d", ["0", "1", "0,1", "1,0", "0,9", "-1", "x"])):
        if rng.random() < 0.3:
            words += [option, rng.choice(values)]
    return words


@pytest.mark.parametrize("seed", range(MACHINES))
def test_gpuselect_chooses_as_its_twin(sim, seed):
    rng = random.Random(seed)
    models = [rng.choice(["T4", "A100", "3090"]) for _ in range(rng.randint(1, 4))]
    with sim(",".join(f"1x{model}" for model in models)) as gpus:
        for index in range(len(models)):
            if rng.random() < 0.3:
                gpus.load(index, util=rng.choice([0, 5]), mem="100MiB")
            elif rng.random() < 0.5:
                gpus.set(index, util=rng.choice([0, 5, 50]), mem_util=rng.choice([0, 10]))
        for words in [[], *(random_words(rng) for _ in range(15))]:
            twin = gpus.run(PYTHON, TWINS / "gpuselect.py", *words, env={"LULL_BINARY": gpus.binary})
            ours = gpus.run(build_dir() / "gpuselect", *words)
            where = f"{models} {words}: {twin.stderr} {ours.stderr} {ours.stdout}"
            assert ours.returncode == twin.returncode, where
            if twin.returncode == 1:
                complaint = twin.stderr.strip().removeprefix("Exception: ")
                assert ours.stderr.splitlines()[0].removeprefix("gpuselect: ").startswith(complaint), where
            elif twin.returncode == 0:
                wanted = int(words[words.index("-c") + 1]) if "-c" in words else 1
                if "-d" in words:
                    wanted = max(wanted, len(words[words.index("-d") + 1].split(",")))
                chosen = ours.stdout.strip().split(",")
                assert len(chosen) == wanted and set(chosen) <= set(twin.stdout.strip().split(",")), where


# ---- gpu_idle_timeout ----------------------------------------------------------------------------

EVERY, SAMPLES, DELAY = 0.3, 5, 2
WINDOW = EVERY * SAMPLES
JOBS = {
    "polite": "trap 'exit 0' QUIT; while :; do sleep 0.05; done",
    "plain": "exec sleep 1000",
    "stubborn": "trap '' QUIT; while :; do sleep 0.05; done",
    "short": "sleep 2.5; exit 9",
    "dies at once": "exit 3",
}


def random_gpu(rng, quiet):
    """Busy and idle in turns that no window fits into, or idle all the time."""
    text = '[[gpu]]\nmodel = "T4"\n'
    if quiet:
        return text + f"util = {rng.choice([0, 3, 9])}\n"
    if rng.random() < 0.5:
        return text + f"util = {rng.choice([40, 95])}\n"
    busy, idle = rng.sample([(0, 90), (90, 0)], 1)[0]
    return text + f'repeat = "{WINDOW:.1f}s"\nutil = {busy}\n[[gpu.timeline]]\nat = "{WINDOW / 2:.2f}s"\nutil = {idle}\n'


def lines_of(text):
    """Without times, pids and who the GPUs are."""
    kept = [re.sub(r"^[\d-]+ [\d:,]+: ", "", line) for line in text.splitlines()]
    return [re.sub(r"process \d+|GPU-[0-9a-f-]+", "_", line) for line in kept]


@pytest.mark.parametrize("seed", range(MACHINES))
def test_gpu_idle_timeout_ends_as_its_twin(sim, seed):
    rng = random.Random(1000 + seed)
    name = rng.choice(sorted(JOBS))
    quiet = [rng.random() < 0.6 for _ in range(rng.randint(1, 3))]
    which = rng.choice(["all", "any"])
    if not (all(quiet) if which == "all" else any(quiet)):
        name = "short"  # nothing else would ever end
    elif name == "short":
        name = "polite"  # when the window ends is not what is compared here
    with sim(text="".join(random_gpu(rng, one) for one in quiet)) as gpus:
        words = ["-t", "10", "-s", EVERY, "-n", SAMPLES, "-d", DELAY, "-a", which]
        job = ["bash", "-c", JOBS[name]]
        twin = gpus.start(PYTHON, TWINS / "gpu_idle_timeout.py", *words, *job, env={"LULL_BINARY": gpus.binary})
        ours = gpus.start(build_dir() / "gpu_idle_timeout", "--gpus", "all", *words, *job)
        where = f"{name} {quiet} {which}"
        assert (ours.wait(timeout=LIMIT), where) == (twin.wait(timeout=LIMIT), where)
        said = lines_of(ours.stderr.read()), lines_of(twin.stderr.read())
        assert said[0] == said[1], where
