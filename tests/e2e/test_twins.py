"""The drop-ins and twins of their originals, side by side on the same random schedules: what can be seen must be the same.

The twins (twins/) are our own, written by the documents and by the lines that the originals log. They have the faults of
the originals, except those named here. A handful of schedules in every run; LULL_TWINS=200 for the slow lane, and
LULL_TWINS_SEED=17 for one of them.
"""
import collections
import os
import re
import time

import pytest
from conftest import LIMIT, wait_until
from twins import idle_schedules
from twins.side_by_side import Pair, differences, many

SCHEDULES = int(os.environ.get("LULL_TWINS", "6"))
BATCH = 40  # of schedules in one test
SEEDS = [int(seed) for seed in os.environ.get("LULL_TWINS_SEED", "").split(",") if seed] or range(SCHEDULES)
BATCHES = [list(SEEDS)[at:at + BATCH] for at in range(0, len(SEEDS), BATCH)]

# What is different on purpose, all of it. A twin that is told the name does as lull does.
MENDED = {
    "gpu_idle_timeout": {
        "failed reading": "a reading that fails killed the healthy job: unknown is not idle, said, watched on",
        "no GPU at the start": "the job was started and killed at the first sample: refused instead, before it starts",
        "own GPUs": "a neighbour's GPU kept an idle job alive: only those of CUDA_VISIBLE_DEVICES count",
        "whole tree": "an idle kill left the children of the job: nothing of the tree is left",
        "orphan": "SIGTERM and Ctrl-C left the job without its wrapper: passed on, and its end waited for",
        "status of a signal": "a job that died of SIGTERM gave 241: 143, as a shell has it",
        "ends at once": "the end of the job was seen at the next sample: at once",
        "failed kill": "beside a task it stopped watching after a failure: tries again",
        "no det": "found out at the kill: refused at the start",
        "fractions": "only whole numbers were taken: -s 0.5 works too",
    },
}
# Lines of ours that the originals do not have, and what the twins say in their place ("": nothing).
OURS = {
    "gpu_idle_timeout": [
        (r"WARNING: gpu_idle_timeout: .*no GPU can be read.*", "WARNING: gpu_idle_timeout: no GPU can be read"),
        (r"ERROR: gpu_idle_timeout: no GPU can be read.*", "ERROR: gpu_idle_timeout: no GPU can be read"),
        (r"WARNING: gpu_idle_timeout: .*cannot be judged.*", "WARNING: gpu_idle_timeout: cannot be judged"),
        (r"WARNING: gpu_idle_timeout: .*CUDA_VISIBLE_DEVICES hides every GPU.*",
         "WARNING: gpu_idle_timeout: CUDA_VISIBLE_DEVICES hides every GPU"),
        (r"WARNING: gpu_idle_timeout: det .*; again in .*", "WARNING: gpu_idle_timeout: det: again"),
        (r"INFO: gpu_idle_timeout: (GPUs can be read now|the rule can be judged again|now watching GPU).*", ""),
        (r".*nothing was seen for .*", ""),  # this machine is slow today
        (r"gpu_idle_timeout: .* cannot be killed", "gpu_idle_timeout: cannot be killed"),
        (r"(ERROR: You must append the program and arguments you would like to execute).*", r"\1"),
    ],
}


def in_place(name, line):
    for pattern, other in OURS[name]:
        if re.fullmatch(pattern, line):
            return re.sub(pattern, other, line)
    return line


def check(results, wrong, name):
    """Tells all that went wrong; and how many schedules came by which fault of the original."""
    met = collections.Counter(fault for found in results.values() for fault in found)
    print(f"\n{name}: {len(results)} schedules alike; met {dict(met.most_common())}")
    assert not wrong, f"{len(wrong)} of {len(results) + len(wrong)}:\n" + "\n".join(wrong)
    assert set(met) <= set(MENDED[name]), "a fault of the original that is not listed"


# ---- gpu_idle_timeout ----------------------------------------------------------------------------

def said(name, effects, schedule):
    """The lines of stderr without times, numbers of processes, and how often the same was said."""
    lines, warnings, usage, reading = [], set(), collections.Counter(), False
    for line in effects.err:
        line = re.sub(r"^[\d-]+ [\d:,]+: ", "", line)
        line = in_place(name, re.sub(r"(process|pid) \d+", r"\1 _", line))
        reading = line.startswith("usage:") or reading and line.startswith(" ")
        if found := re.fullmatch(r"DEBUG: gpu_idle_timeout: (\S+) usage (\d+%|\[N/A\])", line):
            usage[found[1]] += 1
        elif line.startswith("WARNING: "):
            warnings.add(line)
        elif line and not reading and not (schedule.cut and "waiting for delay samples" in line):
            lines.append(line)
    if schedule.closed:
        return []
    if not schedule.steady:
        usage = set(usage) if schedule.fires else set()
    return [lines, set() if schedule.cut else warnings, usage]


def run_idle_timeout(folder, seed):
    schedule = idle_schedules.random_schedule(seed)
    env = dict(schedule.env)
    if schedule.det:
        (folder / f"bin{seed}").mkdir()
        det = folder / f"bin{seed}" / "det"
        det.write_text(f'#!/bin/sh\necho "$*" >> calls\n{schedule.det}\n')
        det.chmod(0o755)
        env["PATH"] = f"{det.parent}:{os.environ['PATH']}"
    name = "gpu_idle_timeout"
    with Pair(folder / str(seed), name, schedule.scenario, schedule.command, env, MENDED[name], schedule.own_words,
              terminal=schedule.told == "Ctrl-C", closed=schedule.closed) as pair:
        if schedule.told:
            for side in (pair.twin, pair.ours):
                begun = "err" in schedule.closed
                wait_until(lambda: side.process.poll() is not None or ((schedule.job is None or side.is_up()) and
                           (begun or "Starting GPU" in side.texts["err"].read_text())), what="its start")
            if schedule.job is None:
                time.sleep(idle_schedules.LIFE)
            for side in (pair.twin, pair.ours):
                side.send(schedule.told)
        effects = {}
        for which, side in (("twin", pair.twin), ("ours", pair.ours)):
            effects[which] = side.effects()
            effects[which].err = said(name, effects[which], schedule)
            if effects[which].out and effects[which].out[0].startswith("usage: gpu_idle_timeout"):
                effects[which].out = ["(help)"]
        if found := differences(effects["ours"], effects["twin"]):
            raise AssertionError(f"{schedule}\n" + "\n".join(found))
        return pair.came_by()


@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_gpu_idle_timeout_does_as_its_twin(tmp_path, lull, seeds):
    check(*many(lambda seed: run_idle_timeout(tmp_path, seed), seeds), "gpu_idle_timeout")
