"""The driver goes on listing a process that has ended, as it does while others hold what it opened, and the kernel has
given its number to somebody else. That one is not on the GPU: it is not ended, and the GPU is not its owner's."""
import json
import os
import re
import signal
import subprocess

import pytest
from conftest import LIMIT, alive, build_dir, processes_of, wait_for_samples

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs a process of another user, or of a chosen number")
QUICK = ["--every", "50ms", "--idle", "util < 1 for 300ms"]
STALE = '[[gpu]]\nmodel = "H100"\nutil = 0\n[[gpu]]\nmodel = "H100"\nutil = 0\n[[process]]\ngpu = 0\npid = {}\nutil = 0\nmem = "2GiB"\n'
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}


@pytest.fixture
def bystander():
    """Never opens a GPU."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True, **NOBODY)
    yield process
    process.kill()
    process.wait(timeout=LIMIT)


def watch_for_a_while(gpus, tmp_path, *options):
    """A watcher has ended what idles on the other GPU, and looked on for a while: what it says."""
    log = tmp_path / "calls"
    watch = gpus.start_lull("watch", *QUICK, *options, env={"LULL_SIM_LOG": str(log)})
    idle = gpus.load(1, util=0)
    assert idle.wait(timeout=LIMIT) in (-15, 143)
    wait_for_samples(log, 40)
    watch.send_signal(signal.SIGTERM)
    said = watch.stderr.read()
    watch.wait(timeout=LIMIT)
    return said, idle.pid


@pytest.mark.parametrize("per", ["gpu", "job"])
def test_watcher_does_not_end_who_has_the_number_of_an_ended_process(sim, tmp_path, bystander, per):
    gpus = sim(text=STALE.format(bystander.pid))
    said, idle = watch_for_a_while(gpus, tmp_path, "--per", per, "--do", "kill=holders")
    assert bystander.poll() is None and f"sleep {bystander.pid}" not in said
    assert f"SIGTERM to lull {idle}" in said and said.count("SIGTERM to") == 1


CLONE_WITH_NUMBER = """
import ctypes, os, struct, sys
pid, device = int(sys.argv[1]), sys.argv[2]
number = ctypes.c_int(pid)
# struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
args = struct.pack("11Q", 0, 0, 0, 0, 17, 0, 0, 0, ctypes.addressof(number), 1, 0)
made = ctypes.CDLL(None, use_errno=True).syscall(435, args, len(args))
if made < 0:
    sys.exit(f"clone3: {os.strerror(ctypes.get_errno())}")
if made == 0:
    if device:
        os.open(device, os.O_RDWR)
    os.execvp("sleep", ["sleep", "600"]) if not device else __import__("signal").pause()
print(made, flush=True)
os.waitpid(made, 0)
"""


@ROOT_ONLY
@pytest.mark.parametrize("per", ["gpu", "job"])
def test_number_that_was_listed_without_a_process_is_not_inherited(sim, tmp_path, per):
    """Not even by a process that opens the GPU."""
    free = subprocess.Popen(["true"])
    free.wait(timeout=LIMIT)  # its number is free from now on, and the next to come is far from it
    gpus = sim(text=STALE.format(free.pid))
    log = tmp_path / "calls"
    watch = gpus.start_lull("watch", *QUICK, "--per", per, "--do", "kill=holders", env={"LULL_SIM_LOG": str(log)})
    wait_for_samples(log, 4)
    later = gpus.start("/usr/bin/python3", "-c", CLONE_WITH_NUMBER, free.pid, gpus.folder / "dev/nvidia0")
    number = later.stdout.readline().strip()
    if not number:
        pytest.skip(f"a process of a chosen number cannot be made here: {later.stderr.read()}")
    assert int(number) == free.pid
    wait_for_samples(log, 40)
    assert alive(free.pid)
    for sensor in processes_of(gpus.folder, "lull-sensor"):
        os.kill(sensor, signal.SIGKILL)
    wait_for_samples(log, 40, "samples of a new sensor, which remembers nothing")
    assert alive(free.pid)
    watch.send_signal(signal.SIGTERM)
    assert f" {free.pid} of " not in watch.stderr.read()
    os.kill(free.pid, signal.SIGKILL)


def test_run_does_not_judge_a_job_by_a_number_that_is_listed_without_the_gpu(sim, bystander):
    """What belongs to the job computes on the CPU, and got the number of a process that had ended on an idle GPU."""
    gpus = sim(text=STALE.format(bystander.pid))
    done = gpus.lull("run", "--delay", "0", *QUICK, "--also", bystander.pid, "--", "sleep", "2")
    assert done.returncode == 0, done.stderr
    assert bystander.poll() is None


def test_pick_does_not_take_a_busy_gpu_for_mine(sim, tmp_path):
    """The number is that of a process of the same user who asks, and the GPU is at 95 %."""
    mine = subprocess.Popen(["sleep", "600"])
    try:
        gpus = sim(text=STALE.format(mine.pid).replace("util = 0\nmem", "util = 95\nmem"))
        gpus.set(1, util=95)
        done = gpus.lull("pick", "--mine-ok")
        assert done.returncode != 0 and done.stdout == "", done.stderr
        told = json.loads(gpus.lull("status", "--json").stdout)["gpus"][0]["processes"][0]
        assert told["pid"] == mine.pid and told["proof"] == "stale" and told["user"] is None
        assert "(has ended" in gpus.lull("status").stdout and "sleep 600" not in gpus.lull("status").stdout
    finally:
        mine.kill()
        mine.wait(timeout=LIMIT)


@ROOT_ONLY
def test_process_of_another_user_is_unproven_to_one_who_may_not_look_at_it(sim):
    gpus = sim(2)
    for one in (gpus.folder, *gpus.folder.rglob("*")):
        one.chmod(one.stat().st_mode | (0o077 if one.is_dir() else 0o066))
    job = gpus.load(0, util=0)
    told = json.loads(gpus.lull("status", "--json").stdout)["gpus"][0]["processes"][0]
    assert told["proof"] == "proven"
    told = json.loads(gpus.lull("status", "--json", **NOBODY).stdout)["gpus"][0]["processes"][0]
    assert told["pid"] == job.pid and told["proof"] == "unproven" and told["user"]
    assert "(unproven)" in gpus.lull("status", **NOBODY).stdout


# Some drivers report the host's numbers to containers.
FOREIGN = """process_view = "host"
[[gpu]]
model = "A100"
util = 0
[[gpu]]
model = "A100"
util = 90
[[process]]
gpu = 0
pid = 500
util = 0
[[process]]
gpu = 1
pid = 501
util = 90
"""
IN_A_NAMESPACE = """
echo 499 > /proc/sys/kernel/ns_last_pid
sleep 60 3<>$LULL_DEV/nvidia0 4<>$LULL_DEV/nvidia1 & job=$!
[ $job = 500 ] || exit 77
timeout 3 "$0" watch --per gpu --idle "util < 5 for 300ms" --every 50ms --grace 300ms --do end
kill -0 $job && echo alive
kill $job
"""


@ROOT_ONLY
def test_numbers_of_the_host_are_no_proof_in_a_container(sim):
    gpus = sim(text=FOREIGN)
    done = gpus.run("unshare", "-pf", "--mount-proc", "bash", "-c", IN_A_NAMESPACE, str(build_dir() / "lull"))
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("no pid namespace with chosen numbers here")
    assert "alive" in done.stdout, done.stderr


LEAVES_ONE = """
echo 499 > /proc/sys/kernel/ns_last_pid || exit 77
sleep 60 3<>$LULL_DEV/nvidia0 >/dev/null 2>&1 &
[ $! = 500 ] || exit 77
until [ -e /proc/500/fd/3 ]; do sleep 0.01; done
exit 3
"""


@ROOT_ONLY
def test_leftover_whose_number_the_driver_lists_without_proof_is_said_to_hold_nothing_for_sure(sim):
    """In a container, with a driver that reports the host's numbers."""
    gpus = sim(text=FOREIGN)
    done = gpus.run("unshare", "-pf", "--mount-proc", "sh", "-c", '"$0" run --no-cgroup --gpus 0 -- sh -c "$1"; exit $?',
                    gpus.binary, LEAVES_ONE)
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("no process of a chosen number can be made here")
    assert done.returncode == 3 and re.search(r"500 \((sleep|sh)\) may hold", done.stderr), done.stderr  # before exec, or after


# $0: the program above, $1: the number, $2: a file that says when it is there
LEAVES_NUMBER = """
/usr/bin/python3 -c "$0" $1 "" >$2 2>/dev/null &
for i in $(seq 300); do [ -s $2 ] && break; sleep 0.1; done
exit 3
"""


@ROOT_ONLY
def test_leftover_that_has_the_number_of_an_ended_process_is_not_said_to_hold_its_memory(sim, tmp_path):
    free = subprocess.Popen(["true"])
    free.wait(timeout=LIMIT)
    gpus = sim(text=STALE.format(free.pid))
    done = gpus.lull("run", "--no-cgroup", "--gpus", "0", "--", "sh", "-c", LEAVES_NUMBER, CLONE_WITH_NUMBER, free.pid, tmp_path / "there",
                     stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, capture_output=False)
    if not (tmp_path / "there").read_text():
        pytest.skip("a process of a chosen number cannot be made here")
    assert done.returncode == 3 and alive(free.pid) and "GiB of GPU 0" not in done.stderr, done.stderr
