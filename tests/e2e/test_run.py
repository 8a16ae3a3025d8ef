"""`lull run` on simulated GPUs: what is ended, what is spared, and what the job notices of us (nothing).

Times are scaled down; every wait is for an event and has a limit.
"""
import csv
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time

import pytest
from conftest import LIMIT, alive, calls, clean_environment, lines_in, read_until, wait_until

# Most jobs here never touch a GPU: they are judged by all of them.
QUICK = ["--gpus", "all", "--delay", "0", "--every", "50ms", "--idle", "util < 1 for 500ms", "--grace", "300ms"]
OWN = QUICK[2:]  # by their own
NEVER = ["--delay", "0", "--every", "50ms", "--idle", "util < 1 for 1h"]
WAYS = [[], ["--no-cgroup"]]
way = pytest.mark.parametrize("way", WAYS, ids=["cgroup", "walk"])


def pids_in(path, count: int) -> list:
    """The pids that a job wrote, one a line, once there are `count` of them."""

    def read():
        lines = path.read_text().split() if path.exists() else []
        return [int(line) for line in lines] if len(lines) >= count else None

    return wait_until(read, what=f"{count} pids in {path}")


def own_cgroups():
    mounts = [line.split() for line in open("/proc/self/mountinfo") if " - cgroup2 " in line]
    return [os.path.join(mount[4], name) for mount in mounts for name in os.listdir(mount[4]) if name.startswith("lull-")]


# ---- what is ended -------------------------------------------------------------------------------

STUBBORN = """
import os, signal, sys, time
log = sys.argv[1]
def stay(ignore):
    if ignore: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(log, "a") as f: f.write(f"{os.getpid()}\\n")
    while True: time.sleep(1000)
for ignore in (False, True):
    if os.fork() == 0: stay(ignore)                      # a plain child
    if os.fork() == 0:
        os.setsid(); stay(ignore)                        # a session of its own
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: stay(ignore)                  # a daemon: forked twice
        os._exit(0)
stay(False)
"""


@way
def test_idle_job_is_ended_with_its_whole_tree(sim, tmp_path, way):
    with sim(2) as gpus:
        log = tmp_path / "pids"
        done = gpus.run_idle_once(lambda: len(lines_in(log)) == 7, gpus.binary, "run", *QUICK, *way, "--",
                                  sys.executable, "-c", STUBBORN, log)
        assert done.returncode == 124
        pids = pids_in(log, 7)
        assert [pid for pid in pids if alive(pid)] == []
        assert "util < 1 for 500ms" in done.stderr and "GPUs 0, 1" in done.stderr
        assert "SIGTERM" in done.stderr and "SIGKILL to 3 processes" in done.stderr
        assert f"{pids[-1]} " in done.stderr  # the tree is shown
        assert done.stdout == ""


@way
def test_tree_gone_leaves_no_cgroup(sim, way):
    with sim(1) as gpus:
        assert gpus.lull("run", *QUICK, *way, "--", "sleep", "1000").returncode == 124
        assert gpus.lull("run", *NEVER, *way, "--", "true").returncode == 0
        wait_until(lambda: not own_cgroups() or all("-%d-" % os.getpid() not in c for c in own_cgroups()))


@way
def test_fork_bomb_that_races_the_kill(sim, tmp_path, way):
    # Bounded: six generations of three, all ignoring TERM.
    bomb = ("import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\n"
            "end = time.monotonic() + 30\n"
            "for g in range(6):\n"
            "    for i in range(3):\n"
            "        if os.fork() == 0: break\n"
            "    else: break\n"
            "open(os.environ['BOMB'], 'a').write(f'{os.getpid()}\\n')\n"
            "time.sleep(max(0, end - time.monotonic()))\n")
    with sim(1) as gpus:
        log = tmp_path / "pids"
        done = gpus.run_idle_once(log.exists, gpus.binary, "run", *QUICK[:-1], "20ms", *way, "--", sys.executable, "-c", bomb,
                                  env={"BOMB": str(log)})
        assert done.returncode == 124
        assert [pid for pid in pids_in(log, 1) if alive(pid)] == []


def test_busy_job_is_left_alone_then_ended_when_it_hangs(sim):
    with sim(1) as gpus:
        job = gpus.start_lull("run", "-v", *QUICK, "--", gpus.binary, "sim", "load", "--util", 90)
        for _ in range(40):  # two seconds of readings, four times the window
            line = job.stderr.readline()
            assert "SIGTERM" not in line
        assert job.poll() is None
        gpus.set(0, util=0)
        assert job.wait(timeout=LIMIT) == 124


def test_mean_since_the_last_sample_decides(sim, tmp_path):
    """Busy 4 of every 5 parts of a second, sampled in phase with the pauses: never idle."""
    scenario = """
[[gpu]]
model = "H100"
"""
    with sim(text=scenario) as gpus:
        load = ["sim", "load", "--util", "100", "--for", "400ms"]
        for _ in range(6):
            load += ["--then", "util=0", "--for", "100ms", "--then", "util=100", "--for", "400ms"]
        done = gpus.lull("run", "--delay", "0", "--every", "500ms", "--idle", "util < 1 for 1s", "--", gpus.binary, *load)
        assert done.returncode == 0, done.stderr


def test_hook_evidence_and_facts_come_before_the_kill(sim, tmp_path):
    with sim(2) as gpus:
        facts, order = tmp_path / "facts.json", tmp_path / "order"
        hook = f'cat > {facts}; echo "$LULL_EVENT|$LULL_RULE|$LULL_GPUS|$LULL_JOB_PID|$LULL_EVIDENCE" > {order}; kill -0 $LULL_JOB_PID'
        done = gpus.lull("run", *QUICK, "--evidence", tmp_path / "ev", "--on-idle", hook, "--", "sleep", "1000")
        assert done.returncode == 124
        assert "--on-idle" not in done.stderr, "the hook failed: the job was not there any more"
        told = json.loads(facts.read_text())
        assert told["rule"] == "util < 1 for 500ms" and told["gpus"] == ["0", "1"]
        assert told["readings"][0]["util_percent"] == 0 and told["held_seconds"] >= 0.5
        assert told["job"]["command"] == ["sleep", "1000"]
        assert told["more_time"].startswith("work on the GPUs calls off what has not begun; for longer pauses ")
        event, rule, scope, pid, page = order.read_text().strip().split("|")
        assert (event, rule, scope, int(pid)) == ("idle", "util < 1 for 500ms", "0,1", told["job"]["pid"])
        folder = max((tmp_path / "ev").iterdir())  # the last: what was not seen for a second is no longer fresh, and fires anew
        names = {f.name for f in folder.iterdir()}
        assert {"facts.json", "readings.csv", "tree.txt", "kernel.txt", f"proc-{pid}.txt", "index.html"} <= names
        assert page == str(folder / "index.html") == told["evidence_page"] and f"evidence is in {page}" in done.stderr
        assert "util &lt; 1 for 500ms" in (folder / "index.html").read_text()
        rows = (folder / "readings.csv").read_text().splitlines()
        assert rows[0].startswith("time,gpu,uuid,util_percent") and len(rows) > 4  # of both GPUs, two samples at least
        assert "State:" in (folder / f"proc-{pid}.txt").read_text()


TRAIN = """import time

def train_step():
    time.sleep(1000)

train_step()
"""


def test_evidence_of_a_python_job_names_its_lines(sim, tmp_path, programs):
    programs.add("gdb", "echo '#0  0x7f in ?? ()'")
    (tmp_path / "train.py").write_text(TRAIN)
    with sim(1) as gpus:
        done = gpus.lull("run", *QUICK, "--evidence", tmp_path / "ev", "--", "/usr/bin/python3", tmp_path / "train.py",
                         env={"PATH": programs.path, "RANK": "3"})
        assert done.returncode == 124, done.stderr
        assert re.search(r"evidence is in \S+; the job is at train.py:4 in train_step \(rank 3, waiting in \w+\)", done.stderr)
        stacks = (max((tmp_path / "ev").iterdir()) / "python.txt").read_text()
        assert f"    {tmp_path}/train.py:4 in train_step\n    {tmp_path}/train.py:6 in <module>\n" in stacks
        assert not any(call.startswith("gdb ") for call in programs.calls()), "gdb stops the process"


COLLECTIVE = {"nccl": """#include <unistd.h>
static void wait_for_peers(void) { for (;;) pause(); }
int ncclAllReduce(void) { wait_for_peers(); return 1; }
""", "torch": "int ncclAllReduce(void); int all_reduce(void) { return ncclAllReduce() + 1; }"}


def test_evidence_names_the_function_that_a_collective_hangs_in(sim, tmp_path):
    """As a trainer does: Python, the framework's library, NCCL without the names of its own functions, libc."""
    for name, source in COLLECTIVE.items():
        (tmp_path / f"{name}.c").write_text(source)
        more = [f"-L{tmp_path}", "-lnccl", f"-Wl,-rpath,{tmp_path}"] if name == "torch" else []
        subprocess.run(["cc", "-O0", "-s", "-shared", "-fPIC", "-o", tmp_path / f"lib{name}.so", tmp_path / f"{name}.c", *more], check=True)
    (tmp_path / "train.py").write_text(f"import ctypes\n\ndef train_step(torch):\n    torch.all_reduce()\n\n"
                                       f"train_step(ctypes.CDLL('{tmp_path}/libtorch.so'))\n")
    with sim(1) as gpus:
        done = gpus.lull("run", *QUICK, "--evidence", tmp_path / "ev", "--", "/usr/bin/python3", tmp_path / "train.py", env={"RANK": "3"})
        assert done.returncode == 124, done.stderr
        assert "the job is at train.py:4 in train_step (rank 3, waiting in ncclAllReduce)" in done.stderr, done.stderr
        assert "waiting in ncclAllReduce (libnccl.so)" in (max((tmp_path / "ev").iterdir()) / "python.txt").read_text()


def test_evidence_without_space_does_not_save_the_job(sim, tmp_path):
    """Files of at most 1024 bytes, as on a disk that is full: the job is ended all the same, and what is missing is said."""
    with sim(1) as gpus:
        command = [str(word) for word in (gpus.binary, "run", *QUICK, "--evidence", tmp_path / "ev", "--", "sleep", "1000")]
        done = gpus.run("bash", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$@"', "bash", *command)
        assert done.returncode == 124, done.stderr
        assert re.search(r"the evidence in \S+ is not complete: \S+: .*File too large", done.stderr), done.stderr
        folder = max((tmp_path / "ev").iterdir())
        assert not (folder / "index.html").exists()


def test_hook_that_hangs_is_ended_and_does_not_save_the_job(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "hook"
        began = time.monotonic()
        done = gpus.lull("run", *QUICK, "--on-idle", f"echo $$ > {log}; sleep 1000 & wait", "--on-idle-limit", "2s",
                         "--", "sleep", "1000")
        assert done.returncode == 124 and time.monotonic() - began < 30
        assert "not done after 2s" in done.stderr
        pid, = pids_in(log, 1)
        wait_until(lambda: not alive(pid), what="the end of the hook")


def test_job_that_comes_back_during_the_hook_is_spared(sim, tmp_path):
    with sim(1) as gpus:
        flag = tmp_path / "busy"
        hook = f"{gpus.binary} sim set 0 util=90; touch {flag}; sleep 0.5"
        job = gpus.start_lull("run", *QUICK, "--on-idle", hook, "--", "sleep", "1000")
        wait_until(flag.exists, what="the hook")
        text = ""
        while "not ended" not in text:
            line = job.stderr.readline()
            assert line, text
            text += line
        assert job.poll() is None
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=LIMIT) == -signal.SIGTERM


def test_dry_run_only_says(sim):
    with sim(1) as gpus:
        job = gpus.start_lull("run", "-v", *QUICK, "--dry-run", "--", "sleep", "1000")
        read_until(job.stderr, "dry run: would send SIGTERM")
        assert "dry run: would" not in watched_for(gpus, job, 20)
        job.send_signal(signal.SIGINT)
        assert job.wait(timeout=LIMIT) == -signal.SIGINT


def test_restart_after_idle_kill(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "pids"
        begun = f"until grep -qx $LULL_JOB_PID {log}; do sleep 0.02; done"
        done = gpus.lull("run", *QUICK, "--restart", "2", "--backoff", "50ms", "--on-idle", begun, "--",
                         "sh", "-c", f"echo $$ >> {log}; exec sleep 1000")
        assert done.returncode == 124
        assert len(pids_in(log, 3)) == 3
        # One that ends by itself is not started again.
        log.unlink()
        done = gpus.lull("run", *QUICK, "--restart", "2", "--", "sh", "-c", f"echo $$ >> {log}; exit 7")
        assert done.returncode == 7 and len(pids_in(log, 1)) == 1


def test_each_attempt_is_a_job_of_its_own_in_the_recording(sim, tmp_path):
    """What was rightly ended and started again is not told as one job that worked again."""
    trace = tmp_path / "run.csv"
    with sim(1) as gpus:
        done = gpus.lull("run", *QUICK, "--restart", "2", "--backoff", "50ms", "--record", trace, "--", "sleep", "1000")
        assert done.returncode == 124
    with open(trace) as rows:
        jobs = list(dict.fromkeys(row["job"] for row in csv.DictReader(rows)))
    first = jobs[0]
    assert first.startswith("run-") and jobs == [first, first + ".2", first + ".3"]


def test_told_to_end_while_it_waits_to_start_again(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "pids"
        gpus.set(0, util=90)
        job = gpus.start_lull("run", *QUICK, "--restart", "2", "--backoff", "1h", "--",
                              "sh", "-c", f"echo $$ >> {log}; exec sleep 1000")
        pids_in(log, 1)
        gpus.set(0, util=0)
        assert any("starting again in 1h" in line for line in job.stderr)
        job.send_signal(signal.SIGUSR1)  # there is no job to hand it to
        job.terminate()
        assert job.wait(timeout=LIMIT) == -signal.SIGTERM
        assert len(pids_in(log, 1)) == 1


def test_max_time(sim):
    with sim(1) as gpus:
        gpus.set(0, util=90)
        done = gpus.lull("run", *NEVER, "--max-time", "300ms", "--", "sleep", "1000")
        assert done.returncode == 124 and "--max-time" in done.stderr


def test_memory_that_does_not_come_back_is_said(sim):
    with sim(1) as gpus:
        gpus.set(0, util=90)
        job = gpus.start_lull("run", "-v", *QUICK, "--", "sleep", "1000")
        read_until(job.stderr, "GPU 0")
        gpus.set(0, mem_used="20GiB")
        gpus.set(0, util=0)
        _, stderr = job.communicate(timeout=LIMIT)
        assert job.returncode == 124
        assert "its GPU memory is still in use" in stderr and "20.0 GiB" in stderr


def test_cpu_of_the_tree_in_a_rule(sim):
    with sim(1) as gpus:
        rule = ["--delay", "0", "--every", "100ms", "--gpus", "all", "--idle", "util < 1 and cpu < 1 for 600ms", "--grace", "300ms"]
        busy = gpus.lull("run", *rule, "--", "sh", "-c", "timeout 2 sh -c 'while :; do :; done'; exit 5")
        assert busy.returncode == 5, busy.stderr
        assert gpus.lull("run", *rule, "--", "sleep", "1000").returncode == 124


def test_quiet_job_in_a_rule(sim):
    with sim(1) as gpus:
        rule = ["--delay", "0", "--every", "100ms", "--gpus", "all", "--idle", "util < 1 and quiet > 1.5s for 300ms", "--grace", "300ms"]
        talks = gpus.lull("run", *rule, "--", "sh", "-c", "for i in $(seq 15); do echo x; sleep 0.2; done")
        assert talks.returncode == 0, talks.stderr
        assert gpus.lull("run", *rule, "--", "sh", "-c", "echo x; sleep 1000").returncode == 124


def test_json_log(sim):
    with sim(1) as gpus:
        done = gpus.lull("run", *QUICK, "--log-format", "json", "--", "sleep", "1000")
        events = [json.loads(line) for line in done.stderr.splitlines()]
        fired, = [e for e in events if e["event"] == "end"]
        assert fired["details"]["rule"] == "util < 1 for 500ms" and fired["level"] == "error"
        assert all(set(e) >= {"time", "level", "event", "message"} for e in events)


# ---- what is spared ------------------------------------------------------------------------------

def watched_for(gpus, job, readings):
    """Waits until `job` (started with -v) has reported so many more readings; returns all it said."""
    return read_until(job.stderr, "GPU ", times=readings)


@pytest.mark.parametrize("fault", ["lost", "unknown", "no-util", "reset"])
def test_unreadable_gpu_is_never_idle(sim, fault):
    with sim(2) as gpus:
        gpus.fault(1, fault)
        job = gpus.start_lull("run", "-v", *QUICK, "--", "sleep", "1000")
        text = watched_for(gpus, job, 80)
        assert job.poll() is None
        # A machine that let nobody look for a while is another reason, and said as well.
        assert sum("cannot be judged" in line and "was measured for only" not in line for line in text.splitlines()) == 1, text
        gpus.clear()
        assert job.wait(timeout=LIMIT) == 124  # and the watching went on


def test_missing_ignored_on_request(sim):
    with sim(2) as gpus:
        gpus.fault(1, "no-util")
        assert gpus.lull("run", *QUICK, "--missing", "ignore", "--", "sleep", "1000").returncode == 124


def test_driver_that_goes_and_comes(sim):
    with sim(1) as gpus:
        gpus.fault("all", "no-driver")
        job = gpus.start_lull("run", *QUICK, "--", "sleep", "1000")
        read_until(job.stderr, "no GPU can be read")
        gpus.clear("all")
        assert job.wait(timeout=LIMIT) == 124


def test_neighbour_on_another_gpu_does_not_count(sim):
    with sim(2) as gpus:
        gpus.set(1, util=95)
        assert gpus.lull("run", *OWN, "--", "sleep", "1000", env={"CUDA_VISIBLE_DEVICES": "0"}).returncode == 124
        assert gpus.lull("run", *OWN, "--gpus", "0", "--", "sleep", "1000").returncode == 124
        # Where the job has a context is found out by itself.
        done = gpus.lull("run", *OWN, "--", gpus.binary, "sim", "load", "--gpu", "0", "--util", "0")
        assert done.returncode == 124, done.stderr
        busy = gpus.lull("run", *OWN, "--gpus", "1", "--", "sleep", "1.5")
        assert busy.returncode == 0


def test_hidden_gpus_are_not_judged(sim):
    with sim(1) as gpus:
        job = gpus.start_lull("run", "-v", *OWN, "--", "sleep", "1000", env={"CUDA_VISIBLE_DEVICES": "-1"})
        assert "CUDA_VISIBLE_DEVICES" in read_until(job.stderr, "nothing to judge")
        for _ in range(20):  # samples, twice as long as the rule asks for
            read_until(job.stderr, "not judged")
        job.terminate()
        assert job.wait(timeout=LIMIT) == -signal.SIGTERM


def test_stopped_job_is_not_idle(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "pid"
        gpus.set(0, util=90)
        job = gpus.start_lull("run", "-v", *QUICK, "--", "sh", "-c", f"echo $$ > {log}; exec sleep 1000")
        pid, = pids_in(log, 1)
        os.kill(pid, signal.SIGSTOP)
        gpus.set(0, util=0)
        text = ""
        while "is stopped" not in text:
            text += job.stderr.readline()
        watched_for(gpus, job, 40)
        assert job.poll() is None
        os.kill(pid, signal.SIGCONT)
        assert job.wait(timeout=LIMIT) == 124


def test_without_a_gpu_the_job_runs_unwatched(run_lull, lull):
    env = clean_environment(LULL_NVML="/nonexistent/libnvidia-ml.so.1")
    job = subprocess.Popen([lull, "run", "--", "sh", "-c", "read line; exit 3"], env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = read_until(job.stderr, "no GPU can be read")
    said += job.communicate("\n", timeout=LIMIT)[1]
    assert job.returncode == 3 and said.count("no GPU can be read") == 1
    assert run_lull("run", "--require-gpu", "--", "true", env=env).returncode == 125


def test_killed_lull_leaves_the_job_alone(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "pid"
        job = gpus.start_lull("run", *NEVER, "--", "sh", "-c", f"echo $$ > {log}; exec sleep 1000")
        pid, = pids_in(log, 1)
        job.kill()
        job.wait(timeout=LIMIT)
        assert alive(pid)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid))
        # What it left of its cgroup goes with the next start.
        assert gpus.lull("run", *NEVER, "--", "true").returncode == 0
        wait_until(lambda: not [c for c in own_cgroups() if f"lull-{job.pid}-" in c])


# ---- status, signals, speed ----------------------------------------------------------------------

@pytest.mark.parametrize("status", [0, 1, 3, 124, 255])
def test_status_is_the_jobs_own(run_lull, status):
    assert run_lull("run", "--quiet", "--", "sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("name", ["TERM", "INT", "KILL", "SEGV", "USR1"])
def test_status_of_a_job_that_a_signal_ended(run_lull, name):
    number = getattr(signal, f"SIG{name}")
    assert run_lull("run", "--quiet", "--", "sh", "-c", f"kill -{name} $$").returncode == -number


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "QUIT"])
def test_signals_are_forwarded(sim, tmp_path, name):
    with sim(1) as gpus:
        log = tmp_path / "pid"
        job = gpus.start_lull("run", *NEVER, "--", "sh", "-c", f"echo $$ > {log}; exec sleep 1000")
        pid, = pids_in(log, 1)
        job.send_signal(getattr(signal, f"SIG{name}"))
        assert job.wait(timeout=LIMIT) == -getattr(signal, f"SIG{name}")
        assert not alive(pid)


def test_job_may_handle_a_forwarded_signal(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "pid"
        job = gpus.start_lull("run", *NEVER, "--", "sh", "-c",
                              f"trap 'exit 9' TERM; echo $$ > {log}; while :; do sleep 0.01; done")
        pids_in(log, 1)
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=LIMIT) == 9


def test_end_is_seen_at_once_even_if_the_driver_hangs(sim, tmp_path):
    with sim(1) as gpus:
        gpus.fault(0, "hang=60s")
        log = tmp_path / "pid"
        asked = tmp_path / "asked"
        job = gpus.start_lull("run", "--every", "50ms", "--", "sh", "-c", f"echo $$ > {log}; read x", stdin=subprocess.PIPE,
                              env={"LULL_SIM_LOG": asked})
        pids_in(log, 1)
        wait_until(lambda: calls(asked, "nvmlInit"), what="the sensor, whose next call hangs")
        began = time.monotonic()
        job.stdin.write("\n")
        job.stdin.close()
        assert job.wait(timeout=LIMIT) == 0
        assert time.monotonic() - began < 20


def test_short_job_is_not_kept_waiting(sim):
    with sim(1) as gpus:
        began = time.monotonic()
        assert gpus.lull("run", "--every", "60s", "--", "true").returncode == 0
        assert time.monotonic() - began < 30


def test_command_missing_or_not_executable(run_lull, tmp_path):
    missing = run_lull("run", "--", "no-such-command-anywhere")
    assert missing.returncode == 127 and missing.stderr.count("\n") == 1
    text = tmp_path / "text"
    text.write_text("hello")
    assert run_lull("run", "--", text).returncode == 126
    assert run_lull("run", "--", tmp_path).returncode == 126


@pytest.mark.parametrize("arguments, said", [
    ([], "no command"),
    (["--idel", "x", "--", "true"], "--idle"),
    (["--idle", "utl < 5 for 3m", "--", "true"], "util"),
    (["--grace", "soon", "--", "true"], "--grace"),
    (["--signal", "TREM", "--", "true"], "TERM"),
    (["--every", "0", "--", "true"], "--every"),
    (["--missing", "x", "--", "true"], "--missing"),
    (["--log-format", "xml", "--", "true"], "--log-format"),
    (["--quiet", "--verbose", "--", "true"], "contradict"),
])
def test_wrong_command_line(run_lull, arguments, said):
    done = run_lull("run", *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_gpus_that_are_not_there(sim):
    with sim(2) as gpus:
        done = gpus.lull("run", "--gpus", "7", "--", "touch", "/nonexistent/never-run")
        assert done.returncode == 2 and "--gpus" in done.stderr


def test_options_of_the_command_stay_its_own(run_lull):
    done = run_lull("run", "--quiet", "sh", "-c", 'echo "$@"', "x", "--idle", "-v", "--", "--every")
    assert done.stdout == "--idle -v -- --every\n"


def test_output_goes_past_us_byte_by_byte(run_lull):
    data = bytes(range(256)) * 4096
    done = run_lull("run", "--quiet", "--", "cat", input=data, text=False, stdin=None)
    assert done.stdout == data


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_stay_closed(sim, tmp_path, closed):
    with sim(1) as gpus:
        log = tmp_path / "fds"
        script = f"ls -l /proc/self/fd > {log}.raw 2>&1; for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n >> {log}; done; exit 4"
        done = gpus.run("bash", "-c", f'"$0" run --every 50ms -v -- bash -c "$1" {closed}', gpus.binary, script)
        assert done.returncode == 4
        still = log.read_text().split() if log.exists() else []
        for number, name in (("0", "<&-"), ("1", " >&-"), ("2", "2>&-")):
            assert (number in still) == (name not in " " + closed), (closed, still)


# ---- terminals -----------------------------------------------------------------------------------

class Terminal:
    """A shell with job control on a terminal of its own, as a person has it."""

    def __init__(self, gpus):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"],
                       {**gpus.env, "PS1": "READY> ", "TERM": "dumb", "HISTFILE": ""})
        self.seen = ""
        self.expect("READY> ")

    def expect(self, text, limit=LIMIT):
        import select
        end = time.monotonic() + limit
        while text not in self.seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {text!r} in {self.seen!r}"
            try:
                more = os.read(self.fd, 4096).decode(errors="replace")
            except OSError:
                more = ""
            assert more, f"the terminal closed; {self.seen!r}"
            self.seen += more
        before, _, self.seen = self.seen.partition(text)
        if text == "READY> ":  # what is typed before the shell has the terminal to itself may be lost
            wait_until(lambda: not termios.tcgetattr(self.fd)[3] & termios.ICANON, what="the shell at its prompt")
        return before

    def send(self, text):
        os.write(self.fd, text.encode())

    def settle(self):
        """After a job was stopped the shell sets its terminal more than once: a key may be lost in between."""
        for _ in range(10):
            self.send("\n")
            try:
                return self.expect("READY> ", limit=2)
            except AssertionError:
                continue
        raise AssertionError(f"the shell does not answer; {self.seen!r}")

    def close(self):
        os.close(self.fd)
        try:
            os.kill(self.pid, signal.SIGKILL)
        except OSError:
            pass
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(sim):
    gpus = sim(1)
    opened = Terminal(gpus)
    opened.gpus = gpus
    yield opened
    opened.close()


def run_line(terminal, rest, options=NEVER):
    quoted = " ".join(f"'{o}'" if " " in o else o for o in options)
    return f"{terminal.gpus.binary} run {quoted} -- {rest}\n"


def test_ctrl_c_reaches_the_job_once(terminal, tmp_path):
    log = tmp_path / "ints"
    script = tmp_path / "job.sh"
    script.write_text(f'trap "echo int >> {log}; n=x$n" INT\necho UP-AND-"RUNNING"\n'
                      'while [ -z "$n" ]; do sleep 0.05; done\nsleep 0.3\nexit 6\n')
    terminal.send(run_line(terminal, f"bash {script}"))
    terminal.expect("UP-AND-RUNNING")
    terminal.send("\x03")
    terminal.expect("READY> ")
    terminal.send("echo status=$?.\n")
    terminal.expect("status=6.")
    assert log.read_text() == "int\n"


def test_suspend_of_an_inner_shell_gives_the_terminal_back(terminal):
    terminal.send(run_line(terminal, "env PS1='INNER> ' bash --norc --noprofile -i"))
    terminal.expect("INNER> ")
    for _ in range(2):
        terminal.send("suspend\n")
        terminal.expect("Stopped")
        terminal.expect("READY> ")
        terminal.send("echo out-\"side\"; fg\n")
        terminal.expect("out-side")
        terminal.send("echo in-\"side\"\n")
        terminal.expect("in-side")
        terminal.expect("INNER> ")
    terminal.send("exit 5\n")
    terminal.expect("READY> ")
    terminal.send("echo status=$?.\n")
    terminal.expect("status=5.")


def test_ctrl_z_and_fg(terminal):
    terminal.send(run_line(terminal, "sh -c 'echo UP-\"HERE\"; read line; echo got=$line; exit 7'"))
    terminal.expect("UP-HERE")
    terminal.send("\x1a")
    terminal.expect("Stopped")
    terminal.expect("READY> ")
    terminal.settle()
    terminal.send("fg\n")
    terminal.expect("run")
    terminal.send("hello\n")
    terminal.expect("got=hello")
    terminal.expect("READY> ")
    terminal.send("echo status=$?.\n")
    terminal.expect("status=7.")


@pytest.mark.skipif(not shutil.which("less"), reason="no less here")
def test_pager_and_interactive_shell_inside(terminal):
    terminal.send(run_line(terminal, "bash --norc --noprofile -i"))
    terminal.expect("READY> ")
    terminal.send("sh -c 'echo slee\"ping\"; exec sleep 1000'\n")
    terminal.expect("sleeping")  # in the foreground of the terminal
    terminal.send("\x1a")
    terminal.expect("Stopped")  # the inner shell's own job control
    terminal.send("kill %1; fg; echo in\"ner\"; TERM=xterm less -X /proc/self/status\n")
    terminal.expect("inner")
    terminal.expect("Name:")
    terminal.send("q")
    terminal.expect("READY> ")
    terminal.send("exit 8\n")
    terminal.expect("READY> ")
    terminal.send("echo status=$?.\n")
    terminal.expect("status=8.")


def test_terminal_is_usable_after_a_kill(terminal):
    terminal.gpus.set(0, util=90)
    terminal.send(run_line(terminal, "sh -c 'stty raw -echo; echo R\"A\"W; sleep 1000'", QUICK))
    terminal.expect("RAW")
    terminal.gpus.set(0, util=0)
    terminal.expect("READY> ")
    terminal.send("stty -a | tr ' ' '\\n' | grep -cx -e icanon -e echo; echo done\".\"\n")
    assert "2" in terminal.expect("done.")


def test_background_job_that_wants_the_terminal_stops_us_too(terminal):
    line = run_line(terminal, "sh -c 'read x'").strip()
    terminal.send(f"{line} &\n")
    terminal.send("wait -n; jobs\n")
    terminal.expect("Stopped")
    terminal.send("kill -KILL %1; wait; echo o\"ver\"\n")
    terminal.expect("over")


def test_terminal_that_goes_away(sim, tmp_path):
    """The terminal closes: the job gets its SIGHUP and lull ends with it."""
    gpus = sim(1)
    opened = Terminal(gpus)
    log = tmp_path / "pid"
    opened.gpus = gpus
    opened.send(run_line(opened, f"sh -c 'echo $PPID > {log}; exec sleep 1000'"))
    lull_pid, = pids_in(log, 1)
    opened.close()
    wait_until(lambda: not alive(lull_pid), what="the end of lull")


# ---- as PID 1 ------------------------------------------------------------------------------------

needs_namespaces = pytest.mark.skipif(
    subprocess.run(["unshare", "-p", "-f", "--mount-proc", "true"], capture_output=True).returncode != 0,
    reason="no right to make a pid namespace")


@needs_namespaces
def test_as_pid_1_it_reaps_and_forwards(sim, tmp_path):
    with sim(1) as gpus:
        script = ("import os, subprocess, sys, time\n"
                  "assert os.getppid() == 1\n"
                  "for _ in range(50):\n"
                  "    if os.fork() == 0:\n"
                  "        if os.fork() == 0: os._exit(0)\n"  # an orphan: init's to reap
                  "        os._exit(0)\n"
                  "    os.wait()\n"
                  "end = time.monotonic() + 20\n"
                  "def zombies(): return subprocess.run(['ps', '-eo', 'stat='], capture_output=True, text=True).stdout.count('Z')\n"
                  "while zombies() and time.monotonic() < end: time.sleep(0.05)\n"
                  "print('zombies', zombies(), flush=True)\n"
                  "time.sleep(1000)\n")
        job = gpus.start("unshare", "-p", "-f", "--mount-proc", "--kill-child", gpus.binary, "run", *NEVER, "--",
                         sys.executable, "-c", script)
        assert job.stdout.readline() == "zombies 0\n"
        child = int(subprocess.run(["ps", "--ppid", str(job.pid), "-o", "pid="], capture_output=True, text=True).stdout)
        os.kill(child, signal.SIGTERM)  # to lull, PID 1 of the namespace
        assert job.wait(timeout=LIMIT) == 143  # of which process 1 does not die


@needs_namespaces
@way
def test_as_pid_1_it_ends_an_idle_job(sim, way):
    with sim(1) as gpus:
        done = gpus.run("unshare", "-p", "-f", "--mount-proc", gpus.binary, "run", *QUICK, *way, "--",
                        "sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000")
        assert done.returncode == 124
