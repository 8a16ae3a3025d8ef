"""What a hostile, a stopped or a killed neighbour can do through the lease folder."""
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time

import pytest
from conftest import LIMIT, alive, wait_until
from test_leases import ROOT_ONLY, Job, as_user, files, held, leases, queued, users, wait_free  # noqa: F401

PYTHON = "/usr/bin/python3"
# Writes a file (name, text) into the folder and locks it as lull does; every line on stdin is a new text for it.
LOCKED = r"""
import fcntl, os, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, sys.argv[2].encode())
fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
print(os.getpid(), flush=True)
for line in sys.stdin:
    text = line.rstrip("\n").replace("|", "\n").encode()
    os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))
"""


def mark(pid):
    with open(f"/proc/{pid}/stat") as stat:
        ticks = stat.read().rpartition(")")[2].split()[19]
    return f"pid: {pid}\nstart-ticks: {ticks}\npid-namespace: {os.stat('/proc/self/ns/pid').st_ino}\n"


def uuid_of(gpus, index):
    return json.loads(gpus.lull("pick", "--gpus", index, "--format", "json").stdout)["gpus"][0]["uuid"]


@contextlib.contextmanager
def locked(path, text, **who):
    process = subprocess.Popen([PYTHON, "-c", LOCKED, str(path), text], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, **who)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@ROOT_ONLY
@pytest.mark.parametrize("victims_user", [0, 12345])
def test_release_ends_nobody_but_the_lease_holder(users, victims_user):
    gpus, folder = users(1)
    uuid = uuid_of(gpus, 0)
    victim = gpus.start("sleep", "1000", **(as_user(victims_user) if victims_user else {}))
    text = f"gpu: {uuid}\nlabel: 0\nlease: x\nkind: hold\nuser: root\n" + mark(victim.pid)
    with locked(folder / f"{uuid}.12345", text, **as_user(12345)):
        assert held(gpus) == ["0"]
        done = gpus.lull("release", "all")
        assert done.returncode == 0, done.stderr
        assert held(gpus) == []
        with pytest.raises(subprocess.TimeoutExpired):  # a signal would be there at once
            victim.wait(timeout=2)


@ROOT_ONLY
def test_release_by_root_still_ends_the_lease_holder(users):
    gpus, folder = users(1)
    assert gpus.lull("pick", "--hold", "1h", **as_user(12345)).stdout == "0\n"
    [lease] = leases(gpus)["leases"]
    assert alive(lease["pid"])
    assert gpus.lull("release", "0").returncode == 0
    wait_until(lambda: not alive(lease["pid"]), what="the lease holder to end")


@ROOT_ONLY
def test_a_lease_counts_for_its_owner_only(users):
    gpus, folder = users(2)
    job = Job(gpus, "--gpus", "0", **as_user(12345))
    assert job.gpu() == "0"
    [lease] = leases(gpus)["leases"]
    stolen = {"LULL_LEASE": lease["lease"]}
    refused = gpus.lull("pick", "--gpus", "0", "--", "true", env=stolen, **as_user(12346))
    assert refused.returncode == 125 and "leased" in refused.stderr
    # Nor by a lease of one's own that claims to lie within it.
    uuid = lease["gpu"]
    text = f"gpu: {uuid}\nlabel: 0\nlease: mine\nkind: job\nwithin: {lease['lease']}\n"
    with locked(folder / f"{uuid}.12346", text, **as_user(12346)):
        refused = gpus.lull("pick", "--gpus", "0", "--", "true", env={"LULL_LEASE": "mine"}, **as_user(12346))
        assert refused.returncode == 125 and "leased" in refused.stderr
    inside = gpus.lull("pick", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", env=stolen, **as_user(12345))
    assert inside.stdout == "0\n"  # its own user may
    job.end()


@ROOT_ONLY
def test_status_shows_the_owner_of_the_lease(users):
    gpus, folder = users(1)
    uuid = uuid_of(gpus, 0)
    with locked(folder / f"{uuid}.12345", f"gpu: {uuid}\nlabel: 0\nlease: x\nuser: root\ncommand: sh\n", **as_user(12345)):
        [gpu] = json.loads(gpus.lull("status", "--json").stdout)["gpus"]
        assert gpu["lease"]["user"] == "12345", gpu["lease"]


def test_a_stopped_waiter_is_passed_over_at_once(sim):
    gpus = sim(2)
    first = Job(gpus, "-n", "2")
    first.gpu()
    stopped = queued(gpus, "-n", "2")
    stopped.process.send_signal(signal.SIGSTOP)
    first.end()
    wait_free(gpus)
    for _ in range(2):
        done = gpus.lull("pick", "--", "true")  # waits half a second at most
        assert done.returncode == 0, done.stderr
    assert gpus.lull("pick", "-n", "2").stdout == "0,1\n"
    stopped.process.send_signal(signal.SIGCONT)
    assert stopped.gpu() == "0,1"  # still in the queue
    stopped.end()


def ticket(gpu_uuid, pid, priority=0, number=1):
    return (f"number: {number}\npriority: {priority}\ncount: 1\nmissing: 1\nwants: {gpu_uuid} \n"
            f"command: {time.monotonic_ns()}\n" + mark(pid))


@ROOT_ONLY
@pytest.mark.parametrize("priority", [0, 5, 2147483647])
def test_a_ticket_that_is_rewritten_starves_nobody(users, priority):
    gpus, folder = users(1)
    uuid = uuid_of(gpus, 0)
    first = Job(gpus)
    first.gpu()
    with locked(folder / "ticket.12345.1", ticket(uuid, os.getpid(), priority), **as_user(12345)) as hostile:
        waiter = queued(gpus, "--priority", "5")
        first.end()
        # It never takes what it claims, and shows a new face all the time.
        end = time.monotonic() + LIMIT
        while waiter.process.poll() is None and not select_readable(waiter.process.stdout, 1):
            assert time.monotonic() < end, "the waiter starves"
            hostile.stdin.write(ticket(uuid, os.getpid(), priority).replace("\n", "|") + "\n")
            hostile.stdin.flush()
        assert waiter.gpu() == "0"
        waiter.end()


def select_readable(stream, seconds):
    return bool(select.select([stream], [], [], seconds)[0])


@ROOT_ONLY
def test_who_came_later_does_not_go_first_by_what_is_written(users):
    gpus, folder = users(1)
    first = Job(gpus)
    first.gpu()
    waiter, second = queued(gpus), queued(gpus)
    with locked(folder / "ticket.12345.1", ticket(uuid := leases(gpus)["leases"][0]["gpu"], os.getpid()),
                **as_user(12345)) as hostile:
        if not born(folder / "ticket.12345.1"):
            pytest.skip("this file system does not say when a file was made")
        assert [one["uid"] for one in leases(gpus)["queue"]] == [0, 0, 12345]
        hostile.stdin.write(ticket(uuid, os.getpid(), number=1).replace("\n", "|") + "\n")
        hostile.stdin.flush()
        first.end()
        assert waiter.gpu() == "0"
        waiter.end()
        assert second.gpu() == "0"
        second.end()


def born(path):
    return subprocess.check_output(["stat", "-c", "%W", str(path)], text=True).strip() not in ("0", "-")


@ROOT_ONLY
def test_a_lease_is_readable_from_the_start(users):
    """Killed at any moment, a pick leaves no file that others may not read under a name that they look at."""
    gpus, folder = users(1)
    if shutil.which("strace") is None:
        pytest.skip("no strace to look at the order of things with")
    trace = folder.parent / (folder.name + "-trace")
    try:
        done = gpus.run("strace", "-f", "-y", "-e", "trace=openat,fchmod,rename,renameat,renameat2,linkat,fcntl", "-o",
                        trace, gpus.binary, "pick", "--", "true")
        assert done.returncode == 0, done.stderr
        made = [line for line in trace.read_text().splitlines() if "O_CREAT" in line and str(folder) in line]
        assert made and all('"."' not in line and ', ".' in line for line in made), made
    finally:
        trace.unlink(missing_ok=True)


@ROOT_ONLY
def test_drafts_of_the_killed_are_taken_away(users):
    gpus, folder = users(1)
    (folder / ".draft-0-0123456789abcdef").touch(mode=0o600)
    (folder / ".keep").touch()
    job = Job(gpus)
    assert job.gpu() == "0"
    job.end()
    wait_free(gpus)
    wait_until(lambda: sorted(os.listdir(folder)) == [".keep"], what="the draft to go")
