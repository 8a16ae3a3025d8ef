"""What a hostile, a stopped or a killed neighbour can do through the lease folder (FAULTS B1, B6, D1, D2, D3)."""
import contextlib
import json
import os
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
def test_faults_b1_release_ends_nobody_but_the_keeper(users, victims_user):
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
def test_faults_b1_release_by_root_still_ends_the_keeper(users):
    gpus, folder = users(1)
    assert gpus.lull("pick", "--hold", "1h", **as_user(12345)).stdout == "0\n"
    [lease] = leases(gpus)["leases"]
    assert alive(lease["pid"])
    assert gpus.lull("release", "0").returncode == 0
    wait_until(lambda: not alive(lease["pid"]), what="the keeper to end")


@ROOT_ONLY
def test_faults_b6_a_lease_counts_for_its_owner_only(users):
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
def test_faults_status_shows_the_owner_of_the_lease(users):
    gpus, folder = users(1)
    uuid = uuid_of(gpus, 0)
    with locked(folder / f"{uuid}.12345", f"gpu: {uuid}\nlabel: 0\nlease: x\nuser: root\ncommand: sh\n", **as_user(12345)):
        [gpu] = json.loads(gpus.lull("status", "--json").stdout)["gpus"]
        assert gpu["lease"]["user"] == "12345", gpu["lease"]
