"""How real drivers behave, end to end: attach times, hangs, bursts, sleep. test_hardware_more.py has the rest.

Elsewhere: unified memory and WSL in `pick` (test_hardware_pick.py), hangs that end (test_status.py, test_run.py),
hangs of the simulator itself (test_sim_quirks.py).
"""
import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import LIMIT, calls, read_until, wait_until

QUICK = ["--delay", "0", "--every", "100ms", "--grace", "300ms"]
BOXED = ("unshare", "-p", "-f", "--kill-child", "--mount-proc")  # a PID namespace, and the /proc of it


def rows(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["gpus"]


def now(gpus, rule, *more, before=()):
    """What `lull check` says of a rule: True, False or None."""
    done = gpus.run(*before, gpus.binary, "check", "--json", *more, rule)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["now"]


def stop(job):
    """Ends lull and the job under it: killed outright, it would leave the job alone."""
    job.terminate()
    job.wait(timeout=LIMIT)


def next_rows(watching, wanted):
    """The first line of `status --watch --json` of which `wanted` is true."""
    limit = time.monotonic() + 20
    while True:
        line = watching.stdout.readline()
        assert line, watching.stderr.read()
        found = json.loads(line)["gpus"]
        if wanted(found):
            return found
        assert time.monotonic() < limit, f"not in 20 s: {line}"


def on_a_terminal(gpus, *arguments):
    """All that a command shows, and its exit status."""
    leader, follower = pty.openpty()
    job = gpus.start_lull(*arguments, stdin=follower, stdout=follower, stderr=follower, text=False,
                          env={"TERM": "xterm", "LC_ALL": "C.UTF-8", "COLUMNS": "160"})
    os.close(follower)
    seen = b""
    try:
        while select.select([leader], [], [], LIMIT)[0]:
            with contextlib.suppress(OSError):  # Linux says EIO once nobody has it open
                more = os.read(leader, 65536)
                seen += more
                if more:
                    continue
            break
    finally:
        os.close(leader)
    return seen.decode(), job.wait(timeout=LIMIT)


# -- 1: attaching takes its time --------------------------------------------------------------------
def test_eight_gpus_that_take_their_time_are_all_shown(sim):
    with sim(text='[[gpu]]\nmodel = "A100"\ncount = 8\nattach = "1.5s"\n') as gpus:
        start = time.monotonic()
        found = rows(gpus.lull("status", "--json"))
        assert time.monotonic() - start < 10, "one after the other"
        assert [row["error"] for row in found] == [None] * 8
        assert all(row["util_percent"] == 0 and row["name"] for row in found)


def test_hint_at_persistence_mode_on_a_terminal(sim):
    with sim(text='[[gpu]]\nmodel = "A100"\ncount = 2\nattach = "1.5s"\n') as gpus:
        text, code = on_a_terminal(gpus, "status")
        assert code == 0 and text.count("A100") == 2, text
        assert text.count("persistence mode") == 1, text
    with sim(text='[[gpu]]\nmodel = "A100"\ncount = 2\nattach = "1.5s"\npersistence = true\n') as gpus:
        assert "persistence mode" not in on_a_terminal(gpus, "status")[0]


def test_one_that_takes_long_beside_quick_ones_is_waited_for(sim):
    with sim(text='[[gpu]]\nmodel = "A100"\n[[gpu]]\nmodel = "A100"\nattach = "4s"\n') as gpus:
        assert [row["error"] for row in rows(gpus.lull("status", "--json"))] == [None, None]


def test_on_a_terminal_the_others_are_shown_meanwhile(sim):
    with sim(text='[[gpu]]\nmodel = "A100"\n[[gpu]]\nmodel = "A100"\nattach = "4s"\n') as gpus:
        text, code = on_a_terminal(gpus, "status")
        early, erased, final = text.partition("\x1b[5A\x1b[J")
        assert code == 0 and erased, text
        assert early.count("A100") == 1 and "still waking up" in early
        assert "waiting up to 11s for GPU 1 to wake up" in early.splitlines()[-1]
        assert final.count("A100") == 2 and "waking up" not in final and "2 GPUs: 2 free" in final


def test_who_looks_on_sees_it_wake_up(sim):
    with sim(text='[[gpu]]\nmodel = "A100"\n[[gpu]]\nmodel = "A100"\nattach = "4s"\n') as gpus:
        watching = gpus.start_lull("status", "--watch", "200ms", "--json")
        found = next_rows(watching, lambda found: found[1]["error"])
        assert found[0]["error"] is None and found[1]["error"] == "still waking up"
        assert found[1]["util_percent"] is None and found[1]["unknown"]["util_percent"] == "still waking up"
        next_rows(watching, lambda found: found[1]["error"] is None and found[1]["util_percent"] == 0)


@pytest.mark.parametrize("command, code", [
    (["pick", "--", "sh", "-c", 'exit "$((CUDA_VISIBLE_DEVICES + 5))"'], 5),
    (["run", "--require-gpu", "--", "sh", "-c", "exit 6"], 6),
    (["watch", "--require-gpu", "--every", "200ms", "--idle", "util < 5 for 400ms", "--do", "exit=7"], 7),
], ids=["pick", "run", "watch"])
def test_others_wait_for_it_too(sim, command, code):
    with sim(text='[[gpu]]\nmodel = "A100"\nattach = "2500ms"\n') as gpus:
        done = gpus.lull(*command)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("persistence mode") <= 1


# -- 2: D state -------------------------------------------------------------------------------------
def hang_for_ever(gpus, gpu=0, function=None):
    more = ["--function", function] if function else []
    done = gpus.lull("sim", "fault", gpu, "hang=dstate", *more)
    if done.returncode:
        assert "needs FUSE" in done.stderr
        pytest.skip(done.stderr.strip())


def ended(gpus, *arguments):
    """Exit status and output of a lull that must not wait for the driver, nor leave its pipes to one who does."""
    job = gpus.start_lull(*arguments)
    try:
        out, err = job.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        gpus.clear()  # else nothing ends it, SIGKILL neither
        raise AssertionError(f"lull {arguments[0]} does not end") from None
    return job.returncode, out, err


@pytest.mark.parametrize("command, code, said", [
    (["status", "--json"], 0, '"index": 1'),
    (["check", "util < 5"], 0, "1 of 2 GPUs"),
    (["pick", "--", "sh", "-c", 'echo "on $CUDA_VISIBLE_DEVICES"; exit 3'], 3, "on 1\n"),
    (["run", "--", "sh", "-c", "echo ran; sleep 0.5; exit 5"], 5, "ran\n"),
    (["run", *QUICK, "--gpus", "1", "--idle", "util < 5 for 500ms", "--", "sleep", "1000"], 124, ""),
    (["watch", "--every", "100ms", "--gpus", "1", "--idle", "util < 5 for 500ms", "--do", "exit=7"], 7, ""),
    (["record", "--every", "200ms", "--for", "1s"], 0, ",1,GPU-"),
], ids=["status", "check", "pick", "run", "run-ends-the-job", "watch", "record"])
def test_who_hangs_in_the_kernel_does_not_keep_us(sim, command, code, said):
    with sim(2) as gpus:
        hang_for_ever(gpus)
        status, out, err = ended(gpus, *command)
        assert status == code, err
        assert said in out
        if command[0] == "status":
            first, second = json.loads(out)["gpus"]
            assert "answer" in first["error"] and first["util_percent"] is None
            assert second["error"] is None and second["util_percent"] == 0
        if command[0] == "check":
            assert "cannot be judged" in out


def test_the_command_that_pick_became_has_no_child_of_ours(sim):
    script = ("import os\n"
              "try: print(os.waitpid(-1, os.WNOHANG | 0x40000000))\n"  # __WALL: also those who end without a signal
              "except ChildProcessError: print('no child')\n")
    with sim(2) as gpus:
        hang_for_ever(gpus)
        assert ended(gpus, "pick", "--", sys.executable, "-c", script)[:2] == (0, "no child\n")
        assert (gpus.folder / "dstate/0").stat().st_size >= 1, "nobody was stuck"


def test_topology_that_hangs(sim):
    with sim(3) as gpus:
        hang_for_ever(gpus, "all", "nvmlDeviceGetTopology*")
        status, out, err = ended(gpus, "pick", "-n", "2", "--best", "topology", "--", "sh", "-c", "exit 4")
        assert status == 4, err


def test_a_gpu_that_answers_again_comes_back(sim):
    with sim(2) as gpus:
        hang_for_ever(gpus)
        watching = gpus.start_lull("status", "--watch", "300ms", "--json")
        try:
            next_rows(watching, lambda found: found[0]["error"] and found[1]["util_percent"] == 0)
        finally:
            gpus.clear()
        next_rows(watching, lambda found: not found[0]["error"] and found[0]["util_percent"] == 0)


# -- 3: what was not covered was not seen -----------------------------------------------------------
# A ring of half a second, read every two seconds, is one of ten seconds that is read every forty.
RINGS = {"ring": 'sample_period = "10ms"\nsample_capacity = 50\n[[gpu]]\nmodel = "A100"\n',
         "none": '[[gpu]]\nmodel = "A100"\nsample_buffer = false\n'}
EVERY_TWO = ["--gpus", "0", "--delay", "0", "--every", "2s", "--grace", "300ms", "--idle", "util < 5 for 1500ms"]


@pytest.mark.parametrize("ring, phase", [("ring", 1.72), ("none", 1.4)])
def test_bursts_between_two_samples_are_work(sim, ring, phase):
    """Busy for 1.2 s of each 2 s, and looked at while it is not."""
    text = RINGS[ring] + ('repeat = "2s"\n[[gpu.timeline]]\nat = "0s"\nutil = 90\n'
                          '[[gpu.timeline]]\nat = "1200ms"\nutil = 0\n')
    with sim(text=text) as gpus:
        wait_until(lambda: 0 <= gpus.show()["time_seconds"] % 2 - phase < 0.1, what="the end of a burst")
        job = gpus.start_lull("run", "-v", *EVERY_TWO, "--", "sleep", "1000")
        for _ in range(3):
            assert "SIGTERM" not in read_until(job.stderr, " util ")
        job.terminate()
        assert job.wait(timeout=LIMIT) == -signal.SIGTERM


@pytest.mark.parametrize("ring", RINGS)
def test_who_is_idle_is_still_found(sim, ring):
    with sim(text=RINGS[ring]) as gpus:
        done = gpus.lull("run", *EVERY_TWO, "--", "sleep", "1000")
        assert done.returncode == 124, done.stderr


# -- 4: a sleeping GPU ------------------------------------------------------------------------------
ASLEEP = '[[gpu]]\nmodel = "RTX4090"\npci = "0000:17:00.0"\nasleep = true\n'


def sleeps(gpus):
    return (gpus.folder / "sys/bus/pci/devices/0000:17:00.0/power/runtime_status").read_text() == "suspended\n"


@pytest.mark.parametrize("text", [ASLEEP, ASLEEP + '[[gpu]]\nmodel = "T4"\npci = "0000:65:00.0"\n'],
                         ids=["alone", "beside-one-awake"])
def test_nobody_wakes_it_and_a_rule_holds_on_it(sim, tmp_path, text):
    log = tmp_path / "log"
    with sim(text=text, env={**os.environ, "LULL_SIM_LOG": str(log)}) as gpus:
        first, *_ = rows(gpus.lull("status", "--json"))
        assert first["asleep"] is True and first["util_percent"] == 0
        assert "asleep" in gpus.lull("status").stdout.splitlines()[1]
        assert now(gpus, "util < 5") is True
        done = gpus.lull("watch", "--every", "100ms", "--idle", "util < 5 for 500ms", "--do", "exit=7")
        assert done.returncode == 7, done.stderr
        done = gpus.lull("record", "--every", "100ms", "--for", "500ms", "--signals", "util,power")
        own = [line.split(",") for line in done.stdout.splitlines()[1:] if line.split(",")[1] == "0"]
        assert done.returncode == 0 and len(own) >= 3
        assert all(cells[3:] in (["0", ""], ["", "0"]) for cells in own), done.stdout
        job = gpus.lull("run", *QUICK, "--gpus", "0", "--idle", "util < 5 for 500ms", "--", "sleep", "1000")
        assert job.returncode == 124, job.stderr
        assert sleeps(gpus)
    assert calls(log, "nvmlDevice", "0") == 0


def test_numbers_need_not_be_in_the_order_of_the_bus(sim):
    """The one that works must not be taken for the one that sleeps."""
    with sim(text=ASLEEP + '[[gpu]]\nmodel = "T4"\npci = "0000:0b:00.0"\nutil = 90\n') as gpus:
        assert now(gpus, "util < 5") is False
        sleeper, worker = rows(gpus.lull("status", "--json"))
        assert (sleeper["asleep"], worker["asleep"], worker["name"]) == (True, False, "Tesla T4")
        assert sleeps(gpus)


def test_it_is_let_go_when_it_falls_asleep(sim):
    with sim(text=ASLEEP) as gpus:
        gpus.set(0, asleep="off")
        watching = gpus.start_lull("status", "--watch", "200ms", "--json")
        next_rows(watching, lambda found: found[0]["temp_celsius"] is not None)
        gpus.set(0, asleep="on")
        next_rows(watching, lambda found: found[0]["asleep"])
        next_rows(watching, lambda found: True)
        assert sleeps(gpus)
        gpus.ok("reset", 0)  # refused while anybody holds the card
        gpus.set(0, asleep="off")
        next_rows(watching, lambda found: found[0]["temp_celsius"] is not None)


# -- 5: unified memory ------------------------------------------------------------------------------
def test_a_gb10_is_judged_without_a_power_limit(sim):
    with sim("1xGB10") as gpus:
        done = gpus.lull("pick", "--mem-free", "16MiB", "--", "sh", "-c", 'echo "on $CUDA_VISIBLE_DEVICES"')
        assert (done.returncode, done.stdout) == (0, "on 0\n"), done.stderr
        assert now(gpus, "power < 30%") is None, "there is no limit that it could be a share of"
        assert now(gpus, "power < 30W") is True
        gpus.load(0, util=0, mem="2GiB")
        row, = rows(gpus.lull("status", "--json"))
        assert row["mem_used_bytes"] == 2 << 30 and row["memory_estimated"] is True
        with open("/proc/meminfo") as memory:
            available = next(int(line.split()[1]) << 10 for line in memory if line.startswith("MemAvailable"))
        assert row["mem_free_bytes"] == pytest.approx(available, rel=0.5)
        assert gpus.lull("pick").returncode == 125
        rule = "util < 5 and mem_used > 1GiB for 500ms"
        job = gpus.lull("run", *QUICK, "--gpus", "0", "--idle", rule, "--", "sleep", "1000")
        assert job.returncode == 124, job.stderr


def test_a_total_of_zero_is_not_a_total(sim):
    with sim(text='[[gpu]]\nmodel = "A100"\nmemory_total_zero = true\n') as gpus:
        row, = rows(gpus.lull("status", "--json"))
        assert row["mem_total_bytes"] != 0 and row["mem_free_bytes"] != 0
        assert now(gpus, "mem_free < 1MiB") is not True


# -- 6: PID namespaces ------------------------------------------------------------------------------
boxes = pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*BOXED, "true"], capture_output=True).returncode != 0,
    reason="no right to make PID namespaces")


@boxes
def test_processes_that_may_be_hidden_are_not_none(sim):
    with sim(text='process_view = "own_namespace"\n[[gpu]]\nmodel = "A100"\ncount = 2\n') as gpus:
        gpus.load(0, util=0, mem="600MiB")
        used, empty = rows(gpus.run(*BOXED, gpus.binary, "status", "--json"))
        assert used["mem_used_bytes"] == 600 << 20 and used["processes_hidden"] is True
        assert used["procs"] is None and empty["procs"] == 0
        assert now(gpus, "procs < 1", "--gpus", "0", before=BOXED) is None
        assert now(gpus, "procs < 1", "--gpus", "1", before=BOXED) is True
        job = gpus.run(*BOXED, gpus.binary, "run", *QUICK, "--gpus", "0", "--idle", "procs < 1 for 500ms", "--",
                       "sh", "-c", "sleep 2; exit 5")
        assert job.returncode == 5, job.stderr
        assert rows(gpus.lull("status", "--json"))[0]["procs"] == 1, "from outside it is seen"


@boxes
def test_memory_decides_in_a_namespace(sim):
    with sim(text='process_view = "own_namespace"\n[[gpu]]\nmodel = "A100"\ncount = 2\n') as gpus:
        gpus.load(0, util=0, mem="600MiB")
        for more in ([], ["--mine-ok"]):
            done = gpus.run(*BOXED, gpus.binary, "pick", "--gpus", "0", *more)
            assert done.returncode == 125 and "600.0 MiB" in done.stderr, done.stdout
        done = gpus.run(*BOXED, gpus.binary, "pick", "--", "sh", "-c", 'echo "on $CUDA_VISIBLE_DEVICES"')
        assert (done.returncode, done.stdout) == (0, "on 1\n"), done.stderr


@boxes
def test_a_pid_of_the_host_is_not_the_local_one(sim):
    """The driver names the load by its number outside, and inside somebody else has that number."""
    with sim(text='process_view = "host"\n[[gpu]]\nmodel = "A100"\n') as gpus:
        load = gpus.load(0, util=0, mem="600MiB")
        script = (f'echo {load.pid - 1} > /proc/sys/kernel/ns_last_pid || exit 99; '
                  f'sleep 1000 & [ $! = {load.pid} ] || exit 99; '
                  f'"{gpus.binary}" status --json; "{gpus.binary}" pick --mine-ok >&2; echo "status $?" >&2')
        done = gpus.run(*BOXED, "sh", "-c", script)
        if done.returncode == 99:
            pytest.skip(f"no right to choose a pid: {done.stderr}")
        row, = rows(done)
        for process in row["processes"] or []:
            assert process["command"] is None and process["user"] is None, "it is joined with a stranger"
        assert done.stderr.endswith("status 125\n"), done.stderr
