"""A long queue: everybody is served, in order, whatever the machine's limit of inotify instances."""
import os
import signal
import subprocess

from conftest import LIMIT, descriptors, wait_until
from test_leases import ROOT_ONLY, Job, as_user, files, queued, users, waiting  # noqa: F401

MANY = int(os.environ.get("LULL_MANY_WAITERS", "200"))  # more than a user has inotify instances


def start_waiters(gpus, count, log):
    """Started and queued one after the other, so that their order is known."""
    jobs = []
    folder = gpus.folder / "leases"
    for number in range(count):
        jobs.append(gpus.start_lull("pick", "--wait", "--", "sh", "-c", f"echo {number} >>{log}",
                                    stdout=subprocess.DEVNULL))
        ticket = f"ticket.{os.geteuid()}.{jobs[-1].pid}.number*"
        wait_until(lambda: any(folder.glob(ticket)), what="the waiter to queue")
    return jobs


def test_all_are_served_in_order(sim, tmp_path):
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    log = tmp_path / "served"
    jobs = start_waiters(gpus, MANY, log)
    first.end()
    for job in jobs:
        assert job.wait(timeout=LIMIT) == 0, job.stderr.read()
    served = [int(line) for line in log.read_text().split()]
    assert sorted(served) == list(range(MANY))
    assert [(came, jobs[came].stderr.read()) for turn, came in enumerate(served) if came != turn] == []
    wait_until(lambda: files(gpus) == [], what="the files to go")


def test_all_who_come_at_once_are_served(sim, tmp_path):
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    log = tmp_path / "served"
    jobs = [gpus.start_lull("pick", "--wait", "-q", "--", "sh", "-c", f"echo {number} >>{log}", stdout=subprocess.DEVNULL)
            for number in range(MANY)]
    wait_until(lambda: len(waiting(gpus)) == MANY, what="all to queue")
    first.end()
    for job in jobs:
        assert job.wait(timeout=LIMIT) == 0, job.stderr.read()
    assert sorted(int(line) for line in log.read_text().split()) == list(range(MANY))
    wait_until(lambda: files(gpus) == [], what="the files to go")


def test_those_far_behind_watch_nothing_and_keep_no_driver(sim, tmp_path):
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    jobs = start_waiters(gpus, 6, tmp_path / "served")

    def watchers():
        return [any("inotify" in link for link in descriptors(job.pid).values()) for job in jobs]

    wait_until(lambda: watchers() == [True, True, False, False, False, False], what="the first two alone to watch")
    jobs[1].kill()  # the third moves up
    jobs[1].wait()
    del jobs[1]
    wait_until(lambda: watchers() == [True, True, False, False, False], what="the next one to watch")
    first.end()
    for job in jobs:
        assert job.wait(timeout=LIMIT) == 0


def test_killed_ones_in_the_middle_hold_nobody_up(sim, tmp_path):
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    log = tmp_path / "served"
    jobs = start_waiters(gpus, 20, log)
    for job in jobs[3:17]:
        job.send_signal(signal.SIGKILL)
        job.wait()
    first.end()
    for job in jobs[:3] + jobs[17:]:
        assert job.wait(timeout=LIMIT) == 0
    assert [int(line) for line in log.read_text().split()] == [0, 1, 2, 17, 18, 19]


def test_all_near_ones_stopped(sim):
    """Those behind look around now and then: whoever is in front may be stopped, all of them."""
    gpus = sim(1)
    first = Job(gpus)
    first.gpu()
    stopped = [queued(gpus) for _ in range(3)]
    behind = queued(gpus)
    for job in stopped:
        job.process.send_signal(signal.SIGSTOP)
    first.end()
    assert behind.gpu() == "0"
    behind.end()
    for job in stopped:
        job.process.send_signal(signal.SIGCONT)
        assert job.gpu() == "0"
        job.end()
    assert waiting(gpus) == []


@ROOT_ONLY
def test_without_inotify_it_looks_now_and_then(users, tmp_path):
    gpus, folder = users(1)
    who = as_user(12399)  # whose limit is used up, and nobody else's
    hoard = ("import ctypes, sys\nlibc = ctypes.CDLL(None)\nwhile libc.inotify_init() >= 0: pass\n"
             "print('full', flush=True)\nsys.stdin.read()\n")
    hoarder = gpus.start("/usr/bin/python3", "-c", hoard, stdin=subprocess.PIPE, **who)
    assert hoarder.stdout.readline() == "full\n"
    first = Job(gpus, **who)
    first.gpu()
    jobs = [queued(gpus, **who) for _ in range(4)]
    now = first
    for job in jobs:
        now.end()
        assert job.gpu() == "0"
        now = job
    now.end()
