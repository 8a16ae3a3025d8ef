"""Processes that lull starts and waits for: none is left, none keeps a lock of the driver, and all dead are reaped."""
import json
import os
import pathlib
import random
import select
import signal
import sys
import time

import pytest

from conftest import LIMIT, alive, end, processes_of, wait_until

COSTLY = 'call_cost = "lists=10ms,memory=10ms,util=10ms,samples=10ms,power=10ms,other=10ms"\n[[gpu]]\nmodel = "H100"\n'
QUICK = ["--gpus", "all", "--delay", "0", "--every", "50ms", "--idle", "util < 1 for 1s"]
SOON = 5  # seconds, for an answer that takes a tenth of one


@pytest.mark.parametrize("who", ["lull", "sensor"])
def test_driver_is_free_whenever_lull_or_its_sensor_is_killed(sim, tmp_path, who):
    """The simulated driver works under one robust lock. Whoever is killed in a call must give it back."""
    gpus = sim(text=COSTLY)
    chance = random.Random(5)
    for turn in range(30):
        record = gpus.start_lull("record", "--every", "10ms", "-o", str(tmp_path / f"{turn}.csv"))
        victim = record.pid
        if who == "sensor":
            victim = wait_until(lambda: processes_of(gpus.folder, "lull-sensor"), what="the sensor")[0]
        select.select([], [], [], chance.uniform(0, 0.25))
        os.kill(victim, signal.SIGKILL)
        if who == "sensor":
            wait_until(lambda: not alive(victim), what="its end")

        def is_read():  # `status` itself gives up after a second, which a busy machine may take
            done = gpus.lull("status", "--json")
            return done.returncode == 0 and json.loads(done.stdout)["gpus"][0]["util_percent"] is not None

        wait_until(is_read, limit=SOON, what=f"turn {turn}: the next client's answer")
        end(record)
    wait_until(lambda: not processes_of(gpus.folder, "lull-sensor"), what="the end of the sensors")


# Hands over by fork, at most 300 times: the parent ends as soon as there is a child. argv: own session each time, file
# into which each writes its pid.
HAND_OVER = """
import os, sys, time
own, path, go = sys.argv[1] == "own", sys.argv[2], sys.argv[3]
def here():
    with open(path, "a") as file: file.write(f"{os.getpid()}\\n")
if os.fork() == 0:
    here()
    while not os.path.exists(go): time.sleep(0.01)
    for _ in range(300):
        if os.fork(): os._exit(0)
        if own: os.setsid()
        here()
        time.sleep(0.002)
    while True: time.sleep(1000)
here()
while True: time.sleep(1000)
"""


def zombies_of(pid):
    count = 0
    for folder in pathlib.Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split() if folder.name.isdigit() else None
        except OSError:
            continue
        count += fields is not None and fields[0] == "Z" and int(fields[1]) == pid
    return count


@pytest.mark.parametrize("session", ["own", "same"])
@pytest.mark.parametrize("how", ["on-idle", "evidence"])
def test_dead_children_are_reaped_after_the_firing(sim, tmp_path, how, session):
    """A job that hands over by fork while a hook runs: no zombies pile up, and it ends in bounded time."""
    gpus = sim(1)
    gpus.set(0, util=90)
    pids, go = tmp_path / "pids", tmp_path / "go"
    more = {"on-idle": ["--on-idle", f"touch {go}; sleep 2"], "evidence": ["--evidence", str(tmp_path), "--on-idle", f"touch {go}; sleep 1"]}[how]
    run = gpus.start_lull("run", "--no-cgroup", *QUICK, *more, "--grace", "300ms", "--", sys.executable, "-c", HAND_OVER,
                          session, str(pids), str(go))
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) >= 2, what="the job")
    gpus.set(0, util=0)
    wait_until(go.exists, what="the hook")
    most = 0
    before = time.monotonic()
    while run.poll() is None:
        most = max(most, zombies_of(run.pid))
        assert time.monotonic() - before < 30, f"it does not end; {most} zombies"
        select.select([], [], [], 0.01)
    try:
        assert run.returncode == 124
        assert most < 60, "dead children were not reaped"
        assert [pid for pid in map(int, pids.read_text().split()) if alive(pid)] == []
    finally:
        for pid in map(int, pids.read_text().split()):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


# 300 orphans, each of which ends at once; then it waits for a file.
ORPHANS = """
import os, sys, time
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        os.fork()
        os._exit(0)
    os.waitpid(pid, 0)
open(sys.argv[1] + "/left", "w").close()
while not os.path.exists(sys.argv[1] + "/go"): time.sleep(0.01)
"""


@pytest.mark.parametrize("per", [[], ["--per", "gpu"], ["--per", "job"]])
def test_watch_reaps_what_a_slow_hook_leaves_behind(sim, tmp_path, per):
    gpus = sim(1)
    gpus.load(0, 0)
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    watch = gpus.start_lull("watch", *QUICK[4:], *per, "--do", f"exec={sys.executable} {script} {tmp_path}")
    wait_until((tmp_path / "left").exists, what="the hook")
    wait_until(lambda: zombies_of(watch.pid) == 0, what="the dead to be reaped while the hook runs")
    assert watch.poll() is None
    (tmp_path / "go").touch()
    if not per:
        assert watch.wait(LIMIT) == 0


CRASH = """
import os, sys, time
if os.fork() == 0:
    os.execv(sys.argv[1], [sys.argv[1], "sim", "load", "--gpu", "0", "--mem", "12GiB", "--util", "5"])
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
os._exit(3)
"""


@pytest.fixture
def crashing(sim, tmp_path):
    """Runs a job that ends with 3 and leaves a child with 12 GiB of GPU 0; returns what lull did and the child's pid."""
    gpus = sim(1)
    go = tmp_path / "go"

    def run(*options, wait_for_load=True):
        job = gpus.start_lull("run", *options, "--", sys.executable, "-c", CRASH, gpus.binary, str(go))
        child = wait_until(lambda: [p["pid"] for p in gpus.show()["gpus"][0]["processes"]], what="the load")[0]
        go.touch()
        # The child holds lull's outputs open, if it lives: they are read as far as they go.
        assert job.wait(timeout=LIMIT) == 3, "the status is the command's own"
        os.set_blocking(job.stderr.fileno(), False)
        return job.stderr.read() or "", child

    return run


@pytest.mark.parametrize("cgroup", [[], ["--no-cgroup"]], ids=["cgroup", "no cgroup"])
def test_leftovers_that_hold_gpu_memory_are_named_and_kept(crashing, cgroup):
    said, child = crashing("--quiet", *cgroup)
    assert alive(child)
    (line,) = [line for line in said.splitlines() if "left 1 process" in line]
    assert f"{child} (lull) holds 12.0 GiB of GPU 0" in line and "--leftovers end" in line


@pytest.mark.parametrize("cgroup", [[], ["--no-cgroup"]], ids=["cgroup", "no cgroup"])
def test_leftovers_are_ended_where_that_was_asked_for(crashing, cgroup):
    said, child = crashing("--leftovers", "end", *cgroup)
    assert not alive(child)
    assert f"{child} (lull) holds 12.0 GiB of GPU 0" in said


def test_leftovers_of_a_dry_run_are_kept(crashing):
    said, child = crashing("--leftovers", "end", "--dry-run")
    assert alive(child) and "would send" in said


def test_leftovers_without_gpu_memory_are_nobodys_concern(sim, tmp_path):
    gpus = sim(1)
    done = gpus.lull("run", "--quiet", "--", "sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!")
    child = int(done.stdout)
    try:
        assert done.returncode == 0 and "left" not in done.stderr and alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_leftovers_are_told_where_the_driver_hangs(sim, tmp_path):
    gpus = sim(1)
    gpus.fault("all", "hang=8s", lasting="1h")
    before = time.monotonic()
    done = gpus.lull("run", "--", "sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!")
    child = int(done.stdout)
    try:
        assert done.returncode == 0 and "their GPU memory is unknown" in done.stderr and str(child) in done.stderr and alive(child)
        assert time.monotonic() - before < 20
    finally:
        os.kill(child, signal.SIGKILL)
        gpus.clear()


def test_leftovers_is_one_of_two_words(run_lull):
    done = run_lull("run", "--leftovers", "forget", "--", "true")
    assert done.returncode == 2 and "--leftovers: 'forget': end or keep would be right" in done.stderr
