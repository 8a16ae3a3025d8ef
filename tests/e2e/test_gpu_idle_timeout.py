"""The drop-in gpu_idle_timeout: every row of its predecessor's ways to let a user down, and its documents' promises."""
import datetime
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from conftest import LIMIT, alive, build_dir, clean_environment, lines_in, read_until, wait_until

TOOL = str(build_dir() / "gpu_idle_timeout")
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: "
OWN = ["-s", "0.2", "-n", "4", "-d", "1"]  # judged by the GPUs that the job uses
QUICK = ["--gpus", "all", *OWN]


def uuids(gpus):
    return [gpu["uuid"] for gpu in gpus.show()["gpus"]]


def readings(job, count):
    """Waits for so many readings in the log of a job started with -x; returns what was said."""
    return read_until(job.stderr, " usage ", times=count)


def test_log_and_status_of_its_document(sim):
    with sim(2) as gpus:
        done = gpus.run(TOOL, "--gpus", "all", "-t", "50", "-s", "1", "-n", "3", "-d", "3", "-x", "sleep", "1000")
        assert done.returncode == 1
        lines = done.stderr.splitlines()
        assert all(re.match(STAMP + "(INFO|DEBUG|ERROR): gpu_idle_timeout: ", line) for line in lines), done.stderr
        said = [re.sub(STAMP, "", line) for line in lines]
        a, b = uuids(gpus)
        assert said == [
            "INFO: gpu_idle_timeout: Starting GPU idle watcher: threshhold_percentage=50%, sample_freq=1, num_samples=3, "
            "delay_samples=3, window_size=3",
            "INFO: gpu_idle_timeout: waiting for delay samples. 2 seconds left",
            "INFO: gpu_idle_timeout: waiting for delay samples. 1 seconds left",
            *[f"DEBUG: gpu_idle_timeout: {uuid} usage 0%" for _ in range(3) for uuid in (a, b)],
            f"ERROR: gpu_idle_timeout: usage for all GPUs: ['{a}', '{b}'] was below threshhold 50% for last "
            "3 seconds. Killing process.",
            said[-1],
        ]
        assert re.fullmatch(r"INFO: gpu_idle_timeout: Sending signal 3 to process \d+", said[-1])


def test_timing_of_its_document(sim):
    """The delay of D samples, then N samples S apart: killed (D + N - 1) * S after the start."""
    with sim(1) as gpus:
        began = time.monotonic()
        assert gpus.run(TOOL, "--gpus", "0", "-s", "0.5", "-n", "3", "-d", "2", "sleep", "1000").returncode == 1
        assert 2.0 <= time.monotonic() - began < 30


@pytest.mark.parametrize("fault", ["lost", "unknown", "no-util"])
def test_gpu_that_cannot_be_read_does_not_kill_the_job(sim, fault):
    with sim(2) as gpus:
        job = gpus.start(TOOL, "-x", *QUICK, "sleep", "1000")
        readings(job, 2)
        gpus.fault(1, fault)
        text = readings(job, 40)
        assert job.poll() is None and "[N/A]" in text
        # A machine that let nobody look for a while is another reason, and said as well.
        said = [line for line in text.splitlines() if "WARNING" in line and not re.search("was measured for only|nothing was seen", line)]
        assert len(said) == 1 and "cannot be judged" in said[0], text
        gpus.clear()
        assert job.wait(timeout=LIMIT) == 1


def test_job_that_ends_by_itself_gives_its_own_status_at_once(sim):
    with sim(1) as gpus:
        began = time.monotonic()
        assert gpus.run(TOOL, "-s", "30", "sh", "-c", "sleep 0.1; exit 5").returncode == 5
        assert time.monotonic() - began < 20


def test_job_that_dies_of_a_signal(sim):
    with sim(1) as gpus:
        assert gpus.run(TOOL, "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_sigterm_is_forwarded(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "pid"
        job = gpus.start(TOOL, "sh", "-c", f"echo $$ > {log}; exec sleep 1000")
        pid = int(wait_until(lambda: log.exists() and log.read_text().strip()))
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=LIMIT) == -signal.SIGTERM and not alive(pid)


def test_only_the_jobs_gpus_count(sim):
    with sim(2) as gpus:
        gpus.set(1, util=95)
        assert gpus.run(TOOL, *OWN, "sleep", "1000", env={"CUDA_VISIBLE_DEVICES": "0"}).returncode == 1
        assert gpus.run(TOOL, *OWN, "--gpus", "0", "sleep", "1000").returncode == 1
        assert gpus.run(TOOL, *OWN, gpus.binary, "sim", "load", "--gpu", "0", "--util", "0").returncode == 1


def test_job_without_a_gpu_of_its_own_is_judged_by_all(sim):
    """One that hangs before its first use of a GPU is ended, as `grep foo` in its document; once it has GPUs they count."""
    with sim(2) as gpus:
        assert gpus.run(TOOL, *OWN, "sleep", "1000").returncode == 1
        gpus.set(1, util=95)
        job = gpus.start(TOOL, *OWN, "-x", "sleep", "1000")
        readings(job, 20)
        assert job.poll() is None
        gpus.set(1, util=0)
        assert job.wait(timeout=LIMIT) == 1
        gpus.set(1, util=95)
        late = gpus.start(TOOL, *OWN, "-x", "sh", "-c", f"read go; exec {gpus.binary} sim load --gpu 0 --util 0",
                          stdin=subprocess.PIPE)
        readings(late, 20)
        assert late.poll() is None
        late.stdin.write("go\n")
        late.stdin.flush()
        assert late.wait(timeout=LIMIT) == 1 and f"GPUs: ['{uuids(gpus)[0]}'] was below" in late.stderr.read()


def test_one_sample_is_one(sim):
    with sim(1) as gpus:
        done = gpus.run(TOOL, "-s", "1", "-n", "1", "-d", "1", "-x", "sleep", "1000")
        assert done.returncode == 1 and done.stderr.count(" usage 0%") == 1, done.stderr
        assert "for last 1 seconds" in done.stderr


@pytest.mark.parametrize("hidden", ["", "-1", "7", "GPU-00000000-1111-2222-3333-444444444444"])
def test_job_with_hidden_gpus_runs_unwatched(sim, hidden):
    with sim(1) as gpus:
        done = gpus.run(TOOL, *OWN, "sleep", "2.5", env={"CUDA_VISIBLE_DEVICES": hidden})
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("there is nothing to judge until the job has a context on one") == 1


def test_whole_tree_is_gone(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "pids"
        script = ("import os, signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                  "for i in range(3):\n"
                  "    if os.fork() == 0:\n"
                  "        if i: os.setsid()\n"
                  "        if i == 2 and os.fork(): os._exit(0)\n"
                  "        break\n"
                  "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\ntime.sleep(1000)\n")
        done = gpus.run_idle_once(lambda: len(lines_in(log)) == 4, TOOL, *QUICK, sys.executable, "-c", script, log)
        assert done.returncode == 1
        pids = [int(p) for p in log.read_text().split()]
        assert len(pids) == 4 and [p for p in pids if alive(p)] == []


def test_end_is_seen_though_a_reading_hangs(sim):
    with sim(1) as gpus:
        job = gpus.start(TOOL, "--gpus", "0", "-x", "-s", "0.1", "-d", "1", "cat", stdin=subprocess.PIPE)
        readings(job, 1)
        gpus.fault(0, "hang=60s")
        read_until(job.stderr, "not answered")
        began = time.monotonic()
        job.stdin.close()
        assert job.wait(timeout=LIMIT) == 0 and time.monotonic() - began < 20


def test_busy_between_the_samples_is_busy(sim):
    with sim(1) as gpus:
        load = ["sim", "load", "--util", "100", "--for", "800ms"]
        for _ in range(4):
            load += ["--then", "util=0", "--for", "200ms", "--then", "util=100", "--for", "800ms"]
        done = gpus.run(TOOL, "-s", "1", "-n", "2", "-d", "1", gpus.binary, *load)
        assert done.returncode == 0, done.stderr


def test_signal_before_the_kill(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        ready = tmp_path / "ready"
        job = (f"trap 'echo parent >> {log}; exit 4' USR1; "
               f"sh -c \"trap 'echo child >> {log}' USR1; touch {ready}; while :; do sleep 0.05; done\" & echo up >> {log}; while :; do sleep 0.05; done")
        done = gpus.run_idle_once(lambda: ready.exists() and lines_in(log), TOOL, *QUICK, "--signal-name", "SIGUSR1",
                                  "--signal-children", "bash", "-c", job, timeout=90)
        assert done.returncode == 1
        assert sorted(log.read_text().split()) == ["child", "parent", "up"]
        assert done.stderr.count("process still alive, maybe hung, killing.") == 1  # the child did not end
        log.unlink()
        ready.unlink()
        quiet = gpus.run_idle_once(ready.exists, TOOL, *QUICK, "--signal-name", "SIGUSR1", "bash", "-c",
                                   f"trap 'echo parent >> {log}; exit 4' USR1; touch {ready}; while :; do sleep 0.05; done")
        assert quiet.returncode == 1 and "still alive" not in quiet.stderr and log.read_text() == "parent\n"


STUBBORN = "import signal, time\nsignal.signal(signal.SIGQUIT, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(1000)"


def stamp_of(words, text):
    """When the line with these words was logged, in seconds."""
    line, = (line for line in text.splitlines() if words in line)
    return datetime.datetime.strptime(re.match(STAMP, line)[0], "%Y-%m-%d %H:%M:%S,%f: ").timestamp()


def said_in(text):
    return [re.sub(STAMP, "", line).replace("gpu_idle_timeout: ", "") for line in text.splitlines()]


def test_sigquit_then_3_seconds_then_sigkill(sim, tmp_path):
    with sim(1) as gpus:
        log = tmp_path / "log"
        polite = f"trap 'echo quit >> {log}; exit 4' QUIT; echo $$ > {log}; while :; do sleep 0.05; done"
        done = gpus.run_idle_once(lambda: lines_in(log), TOOL, *QUICK, "bash", "-c", polite)
        pid, told = log.read_text().split()
        assert done.returncode == 1 and told == "quit"
        assert said_in(done.stderr)[-1] == f"INFO: Sending signal 3 to process {pid}"
        gpus.set(0, util=90)
        job = gpus.start(TOOL, *QUICK, sys.executable, "-c", STUBBORN)
        assert job.stdout.readline() == "up\n"
        gpus.set(0, util=0)
        said = job.communicate(timeout=LIMIT)[1]
        assert job.returncode == 1
        assert said_in(said)[-1] == "ERROR: process still alive, maybe hung, killing."
        assert 2.5 < stamp_of("still alive", said) - stamp_of("Sending signal 3", said) < 30  # the lines come a little before or after


def test_signal_children_logs_the_originals_lines(sim, tmp_path):
    with sim(1) as gpus:  # TERM, since a shell starts what it puts in the background with QUIT ignored
        pids = tmp_path / "pids"
        job = f"sleep 1000 & echo $! > {pids}; echo $$ >> {pids}; wait"

        def up():  # what the shell put in the background may still be a shell
            return len(lines_in(pids)) == 2 and pathlib.Path(f"/proc/{lines_in(pids)[0]}/comm").read_text() == "sleep\n"

        done = gpus.run_idle_once(up, TOOL, *QUICK, "--signal-children", "--signal-name", "SIGTERM", "bash", "-c", job)
        child, parent = pids.read_text().split()
        lines = said_in(done.stderr)
        assert done.returncode == 1
        assert lines[lines.index("INFO: signal children: logging process tree"):] == [
            "INFO: signal children: logging process tree",
            f"INFO: signal children: layer 0: pid {parent}: 'bash -c {job}'",
            f"INFO: signal children: layer 1: pid {child}: 'sleep 1000'",
            "INFO: signal children: signalling started",
            f"INFO: signal children: send signal 15 to pid {child} in layer 1",
            "INFO: signal children: signaling ended",
            f"INFO: Sending signal 15 to process {parent}"]


TURNS = """
[[gpu]]
model = "T4"
repeat = "1200ms"
util = {0}
[[gpu.timeline]]
at = "600ms"
util = {1}
"""


@pytest.mark.parametrize("where", ["launch", "task"])
def test_any_means_one_gpu_for_all_samples(sim, det, where):
    """Two GPUs that take turns: at every moment one of them is idle, none of them for long."""
    env, log = det
    with sim(text=TURNS.format(0, 90) + TURNS.format(90, 0)) as gpus:
        words = ["--gpus", "all", "-t", "50", "-s", "0.3", "-n", "6", "-d", "1", "-a", "any", "-x"]
        job = gpus.start(TOOL, *words, *(["sleep", "1000"] if where == "launch" else []), env=env)
        readings(job, 40)
        assert job.poll() is None and not log.exists()
        gpus.set(1, util=0)
        assert job.wait(timeout=LIMIT) == 1
        assert log.exists() == (where == "task")


def test_refuses_without_a_gpu(tmp_path):
    env = clean_environment(LULL_NVML="/nonexistent/libnvidia-ml.so.1")
    done = subprocess.run([TOOL, "touch", tmp_path / "started"], env=env, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1 and "no GPU can be read" in done.stderr
    assert not (tmp_path / "started").exists()


def plain(*words, **env):
    return subprocess.run([TOOL, *words], capture_output=True, text=True, timeout=LIMIT, env=clean_environment(**env))


def test_wrong_options():
    done = plain("-n", "x", "true")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("usage: gpu_idle_timeout [-h]") and "gpu_idle_timeout: error: argument -n" in done.stderr
    shown = plain("--help")
    assert shown.returncode == 0 and "(default: 60)" in shown.stdout


@pytest.mark.parametrize("words, said", [
    (["-n", "0"], "NUM_SAMPLES must be greater than 0."),
    (["-s", "-1"], "SAMPLE_FREQ must be greater than 0."),
    (["-t", "0"], "THRESHHOLD_PERCENTAGE must be greater than 0."),
    (["--signal-name", "SIGNOPE"], "unknown SIGNAL 'SIGNOPE'.")])
def test_bad_values_print_the_help_and_the_originals_error(words, said):
    done = plain(*words, "true")
    assert done.returncode == 1 and done.stderr == f"\nERROR: {said}\n"
    assert done.stdout == plain("--help").stdout


def test_negative_delay_is_accepted(sim):
    with sim(1) as gpus:
        done = gpus.run(TOOL, "--gpus", "all", "-s", "0.2", "-n", "3", "-d", "-1", "sleep", "1000")
        assert done.returncode == 1 and "delay_samples=-1," in done.stderr and "waiting for" not in done.stderr


# ---- in a task ------------------------------------------------------------------------------------

@pytest.fixture
def det(tmp_path):
    """A `det` in PATH that writes down how it was called and fails as often as it is told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "det.log"
    program = folder / "det"
    program.write_text(f'#!/bin/sh\necho "$*" >> {log}\n[ $(wc -l < {log}) -gt "${{DET_FAILURES:-0}}" ]\n')
    program.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "DET_TASK_TYPE": "SHELL", "DET_TASK_ID": "17-uuid"}
    return env, log


@pytest.mark.parametrize("which", [["-a", "any"], ["--all_or_any", "any"], ["--all-or-any=any"]])
def test_task_is_killed_when_any_gpu_idles(sim, det, which):
    env, log = det
    with sim(2) as gpus:
        gpus.set(1, util=95)
        done = gpus.run(TOOL, "-t", "50", *QUICK, *which, "-x", env=env)
        assert done.returncode == 1 and log.read_text() == "shell kill 17-uuid\n"
        assert "usage for any GPUs" in done.stderr and "Killing task." in done.stderr


def test_task_with_all_waits_for_all(sim, det):
    env, log = det
    with sim(2) as gpus:
        gpus.set(1, util=95)
        task = gpus.start(TOOL, "-t", "50", *QUICK, "-x", env=env)
        readings(task, 20)
        assert task.poll() is None and not log.exists()
        gpus.set(1, util=0)
        assert task.wait(timeout=LIMIT) == 1 and log.read_text() == "shell kill 17-uuid\n"


def test_task_keeps_watching_through_faults_and_tries_again(sim, det):
    env, log = det
    with sim(1) as gpus:
        gpus.fault("all", "no-driver")
        task = gpus.start(TOOL, *QUICK, "-x", env={**env, "DET_FAILURES": "1"})
        seen = ""
        while "no GPU can be read" not in seen:
            seen += task.stderr.readline()
        gpus.clear("all")
        assert task.wait(timeout=LIMIT) == 1
        assert log.read_text() == "shell kill 17-uuid\n" * 2
        assert "exit status 1; again in" in task.stderr.read()


def test_kill_that_never_works_is_given_up(sim, det):
    env, log = det
    with sim(1) as gpus:
        done = gpus.run(TOOL, *QUICK, env={**env, "DET_FAILURES": "1000"}, timeout=3 * LIMIT)
        assert done.returncode == 1, done.stderr
        assert log.read_text() == "shell kill 17-uuid\n" * 20  # docs/drop-ins.md
        assert done.stderr.count("exit status 1; again in 1s") == 19, done.stderr
        assert done.stderr.count("exit status 1; given up") == 1


def test_trial_is_killed_by_its_trial_id(sim, det):
    env, log = det
    with sim(1) as gpus:
        done = gpus.run(TOOL, *QUICK, env={**env, "DET_TASK_TYPE": "TRIAL", "DET_TRIAL_ID": "42"})
        assert done.returncode == 1 and log.read_text() == "trial kill 42\n"
        gc = gpus.run(TOOL, *QUICK, env={**env, "DET_TASK_TYPE": "CHECKPOINT_GC"})
        assert gc.returncode == 1 and "cannot be killed" in gc.stderr and gc.stderr.startswith("gpu_idle_timeout: ")


def test_5_seconds_between_the_message_and_the_kill(sim, det):
    env, log = det
    with sim(1) as gpus:
        done = gpus.run(TOOL, *QUICK, env=env)
        assert done.returncode == 1
        assert log.stat().st_mtime - stamp_of("Killing task.", done.stderr) > 4.5


def test_task_that_works_during_the_pause_is_spared(sim, det):
    env, log = det
    with sim(1) as gpus:
        task = gpus.start(TOOL, *QUICK, env=env)
        read_until(task.stderr, "Killing task.")
        gpus.set(0, util=90)
        read_until(task.stderr, "called off")
        assert task.poll() is None and not log.exists()


def test_task_form_has_its_own_help(det):
    env, _ = det
    task = plain("--help", **env).stdout
    assert "triggers a task termination" in task and "exec_command_and_args" not in task and "ALL_OR_ANY" in task
    assert "triggers a failure" in plain("--help").stdout


def test_without_a_task_it_must_be_told_what_to_end(sim):
    with sim(1) as gpus:
        job = gpus.start("sleep", "1000")
        done = gpus.run(TOOL, *QUICK)
        assert done.returncode == 1 and "ERROR: You must append" in done.stderr and "DET_TASK_ID" in done.stderr
        assert gpus.run(TOOL, *QUICK, "--do", f"kill={job.pid}").returncode == 1
        assert job.wait(timeout=LIMIT) == -signal.SIGTERM
