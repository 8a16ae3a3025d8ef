"""A day of random jobs at high speed, against an oracle that knows which GPUs are idle: no job is ended that works, and
each that idles is. LULL_TEST_DAY: for how many seconds jobs come; LULL_TEST_SEED: which."""
import heapq
import os
import random
import signal
import time

import pytest

import events
from cluster import Cluster
from conftest import Nodes

pytestmark = pytest.mark.long
NODES, GPUS = 6, 4
FOR = 3.0  # seconds
SLACK = 0.05  # clocks of two programs, and milliseconds in their logs


class Gpus:
    """What each GPU was told to do, and when: a change is not done before it is asked for, nor after it is answered."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.idle = {}  # (node, gpu): [[from, to]]; the last `to` is None while it idles

    def set(self, node, gpu, works):
        before = time.time()
        self.nodes.gpus[node].set(gpu, util=random.randint(5, 100) if works else 0)
        spans = self.idle.setdefault((node, gpu), [])
        if works and spans and spans[-1][1] is None:
            spans[-1][1] = time.time()
        elif not works and (not spans or spans[-1][1] is not None):
            spans.append([before, None])

    def idle_before(self, node, gpu, fired, end, start):
        """At some moment between the firing and the act, of its last seconds, it had idled for the rule's time, not
        counting what was before the job's start."""
        begin = max(fired, end - 10)  # a question and each command take up to five
        return any(max(since, start) + FOR <= min(to or end, end) + SLACK and (to or end) + SLACK >= begin
                   for since, to in self.idle.get((node, gpu), []))


class Job:
    """Some GPUs on some nodes, and when which of them works."""

    def __init__(self, cluster, chance, number):
        self.count = chance.choice([1, 1, 1, 2, 2, 3])
        self.kind = chance.choice(["works", "idles", "never worked", "pauses", "one node works", "turns"])
        self.number, self.chance, self.cluster = number, chance, cluster
        self.lasts = chance.uniform(8, 20)
        gpus = chance.choice([1, 1, 2])
        self.id = cluster.submit(f"--gres=gpu:{gpus}", nodes=self.count,
                                 script="sleep 1000" if self.must_end() else f"sleep {self.lasts}")
        self.start, self.gpus = None, {}

    def must_end(self):
        return self.kind in ("idles", "never worked")

    def begun(self):
        """Its GPUs, by the files of its Prolog, once all are there."""
        nodes = self.cluster.runs_on(self.id)
        if len(nodes) < self.count:
            return False
        for node in nodes:
            line = next(line for line in (self.cluster.runs / node / str(self.id)).read_text().splitlines()
                        if line.startswith("gpus"))
            self.gpus[node] = [int(word) for word in line.partition("[")[2].rstrip("]").split(",")]
        self.start = min((self.cluster.runs / node / str(self.id)).stat().st_mtime for node in nodes)
        return True

    def plan(self):
        """(in how many seconds, node, gpu, works) of what is to happen."""
        every = [(node, gpu) for node in self.gpus for gpu in self.gpus[node]]
        if self.kind == "never worked":
            return [(0, *one, False) for one in every]
        return [(0, *one, True) for one in every] + self.later(every, self.chance)

    def later(self, every, chance):
        if self.kind == "idles":
            return [(chance.uniform(0, 4), *one, False) for one in every]
        if self.kind == "pauses":  # shorter than the rule's time, all at once
            times = [chance.uniform(1, 3) + 3 * i for i in range(4)]
            return [(at + more, *one, works) for at in times for one in every for more, works in ((0, False), (FOR * 0.6, True))]
        if self.kind == "one node works":
            worker = chance.choice(every)
            return [(chance.uniform(0, 2), *one, False) for one in every if one != worker]
        if self.kind == "turns" and len(every) > 1:  # one idles for long, then another; never all
            return [(4 * i, *one, (i + j) % len(every) == 0) for i in range(4) for j, one in enumerate(every)]
        return []


def test_in_a_day_of_random_jobs_only_idle_ones_are_ended_and_all_of_them(lull, tmp_path):
    lasts = float(os.environ.get("LULL_TEST_DAY", "180"))
    signal.alarm(int(lasts) + 300)  # longer than other tests
    seed = int(os.environ.get("LULL_TEST_SEED", time.time_ns() % 10**6))
    print("LULL_TEST_SEED", seed)
    chance = random.Random(seed)
    logs = tmp_path / "logs"
    logs.mkdir()
    cluster = Cluster(lull, NODES, GPUS)
    nodes = Nodes(cluster, lull)
    try:
        jobs = run_day(cluster, nodes, chance, logs, lasts)
    finally:
        nodes.close()
        cluster.close()
    print({kind: sum(job.kind == kind for job in jobs) for kind in {job.kind for job in jobs}}, len(jobs), "jobs")
    assert sum(job.must_end() for job in jobs) > 0 and not all(job.must_end() for job in jobs)


def run_day(cluster, nodes, chance, logs, lasts):
    gpus, jobs, waiting, todo = Gpus(nodes), [], [], []
    nodes.watch(f"util < 1 for {FOR:.0f}s: slurm=cancel", logs=logs)
    begin = time.time()
    next_job = begin
    while time.time() < begin + lasts or waiting or any(cluster.runs_on(job.id) for job in jobs):
        assert time.time() < begin + lasts + 120, "jobs that do not end"
        if time.time() >= next_job and time.time() < begin + lasts and len(waiting) < 4:
            jobs.append(Job(cluster, chance, len(jobs)))
            waiting.append(jobs[-1])
            next_job = time.time() + chance.expovariate(1.5)
        for job in [job for job in waiting if job.begun()]:
            waiting.remove(job)
            for at, *what in job.plan():
                heapq.heappush(todo, (time.time() + at, job.number, *what))
        while todo and todo[0][0] <= time.time():
            _, number, node, gpu, works = heapq.heappop(todo)
            if (cluster.runs / node / str(jobs[number].id)).exists():
                gpus.set(node, gpu, works)
        for node in cluster.nodes:  # whose job is over works again, for the next one
            given = {gpu for job in jobs if job.start and (cluster.runs / node / str(job.id)).exists() for gpu in job.gpus.get(node, [])}
            for (one, gpu), spans in gpus.idle.items():
                if one == node and spans and spans[-1][1] is None and gpu not in given:
                    gpus.set(node, gpu, True)
        time.sleep(0.02)
    by_id = {job.id: job for job in jobs}
    acts = events.acts(logs)
    false = [(by_id[job].kind, job, fired, done, by_id[job].gpus) for job, fired, done in acts
             if not all(gpus.idle_before(node, gpu, fired, done, by_id[job].start)
                        for node, numbers in by_id[job].gpus.items() for gpu in numbers)]
    assert not false, false
    states = dict(line.split() for line in cluster.ask("squeue", "--noheader", "--states=all", "--format=%A %T").splitlines())
    assert set(states) == {str(job.id) for job in jobs}
    cancelled = {job.id for job in jobs if states[str(job.id)] == "CANCELLED"}
    assert cancelled <= {job for job, *_ in acts}, "only lull cancels, and says so"
    assert {job.id for job in jobs if job.must_end()} <= cancelled
    return jobs
