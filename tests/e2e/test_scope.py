"""Whose GPUs a job is judged by. Each test is named after the row of the list of faults that it shows."""
import os
import signal
import socket
import sys
import threading

import pytest
from conftest import LIMIT, alive, end, read_until, wait_until
from test_trees import cgroup, root_only  # noqa: F401

QUICK = ["--delay", "0", "--every", "50ms", "--idle", "util < 1 for 500ms", "--grace", "300ms"]


def lines_until(job, text, readings=0):
    """What `job` says up to the line with `text`, and at least so many readings (-v) in it."""
    seen = ""
    while text not in seen or seen.count(" util ") < readings:
        line = job.stderr.readline()
        assert line, f"no {text!r} ({readings} readings) in {seen!r}"
        seen += line
    return seen


def watched_on(job, readings=60):
    """Three seconds of readings, six times what the rule asks for; the job is still there."""
    text = lines_until(job, "", readings)
    assert job.poll() is None
    return text


def stop(lull):
    """Ends lull and the job under it: killed outright, it would leave the job alone."""
    lull.terminate()
    assert lull.wait(timeout=LIMIT) == -signal.SIGTERM


def two_loads(gpus, first=0, second=90):
    """A job with a process on each of two GPUs."""
    load = f'"{gpus.binary}" sim load'
    return ["sh", "-c", f"{load} --gpu 0 --util {first} & {load} --gpu 1 --util {second} & wait"]


# ---- a scope never shrinks by what was not seen ----------------------------------------------------

KINDS = {
    "lost": ("lost", None),
    "reset": ("reset", None),
    "hang": ("hang=100s", None),
    "unknown": ("unknown", None),
    "no-permission": ("no-permission", None),
    "list": ("unknown", "nvmlDeviceGetComputeRunningProcesses*"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_gpu_of_the_job_that_cannot_be_looked_at_stays_in_scope(sim, kind):
    """GPU 0 idle, GPU 1 at 90 %, then GPU 1 (or only its list of processes) cannot be read."""
    with sim(2) as gpus:
        job = gpus.start_lull("run", "-v", *QUICK, "--", *two_loads(gpus))
        lines_until(job, "GPU 1 util 90 %")
        fault, function = KINDS[kind]
        gpus.fault(1, fault, function)
        text = watched_on(job)
        assert "GPU 1" in text.splitlines()[-1], "it is no longer in scope"
        if kind != "hang":  # a call that hangs is not ended by clearing the fault
            gpus.clear(1)
            gpus.set(1, util=0)
            assert job.wait(timeout=LIMIT) == 124  # and watching went on
        else:
            stop(job)


def test_driver_that_is_reloaded_does_not_make_us_forget(sim):
    """The driver goes and comes back, and GPU 1's processes cannot be read afterwards."""
    with sim(2) as gpus:
        job = gpus.start_lull("run", "-v", *QUICK, "--", *two_loads(gpus))
        lines_until(job, "GPU 1 util 90 %")
        gpus.fault(1, "unknown", "nvmlDeviceGetComputeRunningProcesses*")
        gpus.fault("all", "no-driver")
        lines_until(job, "no GPU can be read")
        gpus.ok("clear", "all")
        gpus.fault(1, "unknown", "nvmlDeviceGetComputeRunningProcesses*")
        text = watched_on(job)
        assert "GPU 1 util 90 %" in text
        stop(job)


# ---- a job is judged by its own GPUs only -----------------------------------------------------------

def test_job_without_a_context_is_not_judged_and_that_is_said_once(sim):
    with sim(2) as gpus:
        job = gpus.start_lull("run", "-v", *QUICK, "--", "sh", "-c", "while :; do :; done")
        lines_until(job, "has no GPU context yet: not judged until it has one")
        text = watched_on_samples(job, 60)
        assert "has no GPU context yet: not judged until it has one" not in text
        stop(job)


def watched_on_samples(job, count):
    """So many lines of -v that are samples, whatever they show."""
    seen = []
    while sum("not judged)" in line or " util " in line for line in seen) < count:
        line = job.stderr.readline()
        assert line, "".join(seen)
        seen.append(line)
    assert job.poll() is None
    return "".join(seen)


def test_all_gpus_on_request(sim):
    with sim(2) as gpus:
        assert gpus.lull("run", *QUICK, "--gpus", "all", "--", "sleep", "1000").returncode == 124


def test_judged_from_the_first_context_and_not_after_the_last(sim, tmp_path):
    with sim(2) as gpus:
        gpus.set(1, util=95)  # a neighbour's
        go = tmp_path / "go"
        load = f'"{gpus.binary}" sim load --gpu 0 --util 50'
        script = f"while ! [ -e {go} ]; do sleep 0.01; done; {load} --for 3s; exec sleep 1000"
        job = gpus.start_lull("run", "-v", *QUICK, "--", "sh", "-c", script)
        lines_until(job, "not judged until it has one")
        go.touch()
        lines_until(job, "GPU 0 util 50 %")
        lines_until(job, "not judged until it has one again")
        watched_on_samples(job, 40)
        stop(job)


def test_rule_on_the_jobs_own_signals_needs_no_gpu(sim):
    rule = ["--delay", "0", "--every", "100ms", "--idle", "cpu < 1 for 600ms", "--grace", "300ms"]
    with sim(1) as gpus:
        gpus.set(0, util=95)
        busy = gpus.lull("run", *rule, "--", "sh", "-c", "timeout 2 sh -c 'while :; do :; done'; exit 5")
        assert busy.returncode == 5, busy.stderr
        assert gpus.lull("run", *rule, "--", "sleep", "1000").returncode == 124


def test_gpus_of_a_lease_and_of_slurm(sim, tmp_path):
    with sim(3) as gpus:
        gpus.set(0, util=95)
        gpus.set(2, util=95)
        env = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "1"}
        done = gpus.lull("run", *QUICK, "--", "sleep", "1000", env=env)
        assert done.returncode == 124 and "on GPU 1," in done.stderr
        # A step has what is the step's.
        done = gpus.lull("run", *QUICK, "--", "sleep", "1000", env={**env, "SLURM_JOB_GPUS": "0,1", "SLURM_STEP_GPUS": "1"})
        assert done.returncode == 124 and "on GPU 1," in done.stderr
        lull = [gpus.binary, "run", *QUICK, "--", "sleep", "1000"]
        done = gpus.lull("pick", "--gpus", "1", "--", "env", "-u", "CUDA_VISIBLE_DEVICES", *lull)
        assert done.returncode == 124 and "on GPU 1," in done.stderr


# ---- what is seen wins --------------------------------------------------------------------------------

def test_context_elsewhere_than_cuda_visible_devices_says(sim):
    """CUDA_VISIBLE_DEVICES=0, but the job works on GPU 1."""
    with sim(2) as gpus:
        job = gpus.start_lull("run", "-v", *QUICK, "--", gpus.binary, "sim", "load", "--gpu", "1", "--util", "90",
                              env={"CUDA_VISIBLE_DEVICES": "0"})
        text = watched_on(job, 120)
        assert "GPU 0" in text and "GPU 1 util 90 %" in text
        stop(job)


@pytest.mark.parametrize("busy", [0, 1])
def test_uncertain_order_takes_all_candidates(sim, busy):
    """T4 + H100, CUDA_VISIBLE_DEVICES=0: which one that is cannot be known from here."""
    with sim("1xT4,1xH100") as gpus:
        gpus.set(busy, util=90)
        job = gpus.start_lull("run", "-v", *QUICK, "--", "sleep", "1000", env={"CUDA_VISIBLE_DEVICES": "0"})
        text = watched_on(job, 120)
        assert text.count("is a guess") == 1
        gpus.set(busy, util=0)
        assert job.wait(timeout=LIMIT) == 124


def test_contexts_settle_an_uncertain_order(sim):
    """One GPU was given, and the job's context says which one it is."""
    with sim("1xT4,1xH100") as gpus:
        gpus.set(1, util=90)  # a neighbour's
        done = gpus.lull("run", *QUICK, "--", gpus.binary, "sim", "load", "--gpu", "0", "--util", "0",
                         env={"CUDA_VISIBLE_DEVICES": "0"})
        assert done.returncode == 124 and "on GPU 0," in done.stderr


def not_given(gpus, *numbers):
    """As in a container that was given the other GPUs: the driver counts these too, and that is all."""
    for number in numbers:
        gpus.fault(number, "no-permission", "nvmlDeviceGetHandleByIndex*")
        (gpus.folder / "dev" / f"nvidia{number}").unlink()


def test_gpu_that_says_no_permission_is_left_out(sim):
    """HARDWARE 21: the count includes a GPU that is not for us; it does not make the rule unjudgeable."""
    with sim(2) as gpus:
        not_given(gpus, 1)
        done = gpus.lull("watch", "--every", "50ms", "--idle", "util < 1 for 500ms", "--do", "exit=7")
        assert done.returncode == 7, done.stderr
        assert done.stderr.count("GPU 1: no permission") == 1


def test_gpu_that_says_no_permission_counts_where_somebody_may_work(sim):
    """Its device file is open to us, and a program works there: what cannot be read is not idle."""
    with sim(2) as gpus:
        gpus.load(1, 90)
        gpus.fault(1, "no-permission")
        watch = gpus.start_lull("watch", "-v", "--every", "50ms", "--idle", "util < 1 for 500ms", "--do", "exit=7")
        said = lines_until(watch, "GPU 1 gives no util (no permission)")
        assert said.count("GPU 1: no permission to read it, but a process may work there") == 1
        watched_on(watch)
        stop(watch)
        left_out = gpus.lull("watch", "--gpus", "0", "--every", "50ms", "--idle", "util < 1 for 500ms", "--do", "exit=7")
        assert left_out.returncode == 7


def test_gpu_that_could_be_read_before_stays_in_scope(sim):
    with sim(2) as gpus:
        gpus.set(1, util=90)
        watch = gpus.start_lull("watch", "-v", "--every", "50ms", "--idle", "util < 1 for 500ms", "--do", "exit=7")
        lines_until(watch, "GPU 1 util 90 %")
        gpus.fault(1, "no-permission")
        watched_on(watch)
        gpus.clear(1)
        gpus.set(1, util=0)
        assert watch.wait(timeout=LIMIT) == 7


def test_nothing_but_gpus_that_are_not_for_us_is_said(sim):
    with sim(2) as gpus:
        not_given(gpus, 0, 1)
        watch = gpus.start_lull("watch", "-v", "--every", "50ms", "--idle", "util < 1 for 500ms", "--do", "exit=7")
        assert 'every GPU says "no permission"' in lines_until(watch, "none is judged")
        assert "none is judged" not in watched_on_samples(watch, 20)
        stop(watch)


@pytest.mark.parametrize("value, words", [
    ("9", "CUDA_VISIBLE_DEVICES names no GPU of this machine: 9"),
    ("GPU-1234", "CUDA_VISIBLE_DEVICES names no GPU of this machine: GPU-1234"),
    ("", "CUDA_VISIBLE_DEVICES hides every GPU"),
    ("-1", "CUDA_VISIBLE_DEVICES hides every GPU"),
    ("0,0", "for the second time"),
])
def test_why_cuda_visible_devices_shows_no_gpu(sim, value, words):
    with sim(2) as gpus:
        job = gpus.start_lull("run", *QUICK, "--", "sleep", "1000", env={"CUDA_VISIBLE_DEVICES": value})
        assert words in lines_until(job, "there is nothing to judge until the job has a context on one")
        stop(job)


# ---- a stopped process with a context -------------------------------------------------------------------

def test_stopped_worker_is_not_judged(sim):
    """A worker is stopped (SIGSTOP, a debugger), its leader is not."""
    rule = ["--delay", "0", "--every", "50ms", "--idle", "util < 1 for 2s", "--grace", "300ms"]
    with sim(1) as gpus:
        job = gpus.start_lull("run", "-v", *rule, "--", "sh", "-c",
                              f'"{gpus.binary}" sim load --gpu 0 --util 0 & echo $!; wait')
        worker = int(job.stdout.readline())
        lines_until(job, "GPU 0 util 0 %")
        os.kill(worker, signal.SIGSTOP)
        said = lines_until(job, "is stopped and has a GPU context")
        assert f"process {worker}" in said
        text = watched_on_samples(job, 100)
        assert "is stopped" not in text
        os.kill(worker, signal.SIGCONT)
        assert job.wait(timeout=LIMIT) == 124


# ---- a job frozen by its cgroup ---------------------------------------------------------------------------

@root_only
@pytest.mark.parametrize("command", ["run", "watch"])
def test_frozen_worker_is_not_judged(sim, cgroup, command):
    """As `docker pause` does it: nobody is stopped, and nobody runs."""
    rule = ["--every", "50ms", "--idle", "util < 1 for 2s", "--grace", "300ms"]
    with sim(1) as gpus:
        if command == "run":
            job = gpus.start_lull("run", "-v", *rule, "--delay", "0", "--no-cgroup", "--", "sh", "-c",
                                  f'"{gpus.binary}" sim load --gpu 0 --util 0 & echo $!; wait')
            worker = int(job.stdout.readline())
        else:
            worker = gpus.load(0, util=0).pid
            job = gpus.start_lull("watch", "-v", *rule, "--also", worker, "--do", "exit=124")
        lines_until(job, "GPU 0 util 0 %")
        (cgroup / "cgroup.procs").write_text(str(worker))
        (cgroup / "cgroup.freeze").write_text("1")
        lines_until(job, "cgroup is frozen: not judged until it goes on")
        text = watched_on_samples(job, 100)
        assert "is frozen" not in text
        (cgroup / "cgroup.freeze").write_text("0")
        assert job.wait(timeout=LIMIT) == 124


# ---- work outside the tree --------------------------------------------------------------------------------

def test_work_outside_the_tree_counts_when_named_and_is_never_ended(sim):
    """The job's own GPU idles, its work is done by a daemon's child (Ray, docker, MPS)."""
    with sim(2) as gpus:
        worker = gpus.load(1, util=90)
        job = gpus.start_lull("run", "-v", *QUICK, "--also", worker.pid, "--", gpus.binary, "sim", "load", "--gpu", "0",
                              "--util", "0")
        text = watched_on(job, 120)
        assert "GPU 1 util 90 %" in text
        gpus.set(1, util=0)
        assert job.wait(timeout=LIMIT) == 124
        assert alive(worker.pid)


def test_cpu_of_work_outside_counts(sim):
    with sim(1) as gpus:
        busy = gpus.start("sh", "-c", "while :; do :; done")
        rule = ["--delay", "0", "--every", "100ms", "--idle", "cpu < 5 for 600ms", "--grace", "300ms"]
        done = gpus.lull("run", *rule, "--also", busy.pid, "--", "sleep", "3")
        assert done.returncode == 0, done.stderr
        assert gpus.lull("run", *rule, "--", "sleep", "1000").returncode == 124


def test_watch_of_named_work(sim):
    """`lull watch --also PID` is about that work: its GPUs, not all of them."""
    with sim(2) as gpus:
        gpus.set(1, util=95)
        worker = gpus.load(0, util=0)
        done = gpus.lull("watch", "--every", "50ms", "--idle", "util < 1 for 500ms", "--also", worker.pid, "--do",
                         f"kill={worker.pid}", "--grace", "300ms")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: not alive(worker.pid), what="the end of the worker")


def test_watch_ends_when_all_that_it_is_about_has_ended(sim):
    with sim(2) as gpus:
        first, second = gpus.load(0, util=90), gpus.load(1, util=90)
        watch = gpus.start_lull("watch", "--every", "50ms", "--also", first.pid, "--also", second.pid, "--do", "exit=7")
        lines_until(watch, "watching: util < 1")
        end(first)
        text = lines_until(watch, f"--also {first.pid}: it has ended")
        assert watch.poll() is None and f"--also {second.pid}" not in text
        end(second)
        text = lines_until(watch, "nothing that --also names is left to watch")
        assert f"--also {second.pid}: it has ended" in text and f"--also {first.pid}: it" not in text
        assert watch.wait(timeout=LIMIT) == 1


def test_what_may_come_back_is_watched_on(sim):
    with sim(1) as gpus:
        worker = gpus.load(0, util=90)
        watch = gpus.start_lull("watch", "-v", "--every", "50ms", "--also", worker.pid, "--also", "0123456789ab",
                                "--do", "exit=7")
        lines_until(watch, "GPU 0 util 90 %")
        end(worker)
        lines_until(watch, f"--also {worker.pid}: it has ended")
        watched_on_samples(watch, 10)
        stop(watch)


def test_run_says_once_that_named_work_has_ended(sim):
    with sim(1) as gpus:
        worker = gpus.load(0, util=90)
        job = gpus.start_lull("run", "-v", *QUICK, "--also", worker.pid, "--", "sleep", "1000")
        lines_until(job, "GPU 0 util 90 %")
        end(worker)
        lines_until(job, f"--also {worker.pid}: it has ended")
        assert "it has ended" not in watched_on_samples(job, 20)
        stop(job)


@pytest.mark.parametrize("word", ["999999999", "raylet", "/", "12345678901"])
def test_also_that_is_nothing_of_the_kind(run_lull, word):
    done = run_lull("run", "--also", word, "--", "true")
    assert done.returncode == 2 and "--also" in done.stderr


def test_also_that_is_not_there_yet_is_said(run_lull):
    done = run_lull("run", "--also", "0123456789ab", "--", "true")
    assert done.returncode == 0 and "no such process yet" in done.stderr


# ---- what /proc/PID/io does not know -----------------------------------------------------------------------

TALKER = """
import os, socket, sys, time
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as line:
    while not os.path.exists(sys.argv[2]):
        line.sendall(bytes(65536))
        time.sleep(0.01)
    line.settimeout(None)
    time.sleep(1000)
"""


def test_bytes_over_sockets_are_io(sim, tmp_path):
    """A job that sends 64 KiB every 10 ms reads and writes nothing by /proc/PID/io."""
    with sim(1) as gpus, socket.create_server(("127.0.0.1", 0)) as server:
        def sink():
            line, _ = server.accept()
            with line:
                while line.recv(1 << 20):
                    pass

        thread = threading.Thread(target=sink, daemon=True)
        thread.start()
        job = gpus.start_lull("run", "-v", "--delay", "0", "--every", "100ms", "--idle", "io < 1KiB for 1s", "--grace",
                              "300ms", "--", sys.executable, "-c", TALKER, server.getsockname()[1], tmp_path / "hush")
        for _ in range(25):  # more than twice as long as the rule asks for
            assert "SIGTERM" not in read_until(job.stderr, "(no)")
        (tmp_path / "hush").touch()
        assert job.wait(timeout=LIMIT) == 124
        thread.join(timeout=LIMIT)


def test_socket_that_nobody_counts_makes_io_unknown(sim):
    """Bytes over a unix socket are counted by nobody: unknown, and only `io`."""
    script = ("import os, socket, time\n"
              "a, b = socket.socketpair()\n"
              "if os.fork() == 0:\n"
              "    b.close()\n"
              "    while a.recv(65536): pass\n"
              "    os._exit(0)\n"
              "a.close()\n"
              "while True:\n"
              "    b.sendall(bytes(65536))\n"
              "    time.sleep(0.01)\n")
    with sim(1) as gpus:
        rule = ["--delay", "0", "--every", "100ms", "--idle", "io < 1KiB for 500ms"]
        job = gpus.start_lull("run", "-v", *rule, "--", sys.executable, "-c", script)
        seen = ""
        while seen.count("(unknown)") < 30:
            line = job.stderr.readline()
            assert line, seen
            seen += line
        assert seen.count("talks over a unix socket") == 1
        stop(job)


def test_cpu_of_orphans_without_a_cgroup(sim):
    """What short-lived orphans burn is in no account but ours, who reap them."""
    # Forks a child that forks a grandchild and ends; the grandchild burns 50 ms and ends before it is looked at.
    script = ("import os, time\n"
              "end = time.monotonic() + 4\n"
              "while time.monotonic() < end:\n"
              "    pid = os.fork()\n"
              "    if pid == 0:\n"
              "        if os.fork() == 0:\n"
              "            stop = time.process_time() + 0.05\n"
              "            while time.process_time() < stop: pass\n"
              "        os._exit(0)\n"
              "    os.waitpid(pid, 0)\n"
              "    time.sleep(0.1)\n")
    rule = ["--delay", "0", "--every", "500ms", "--idle", "cpu < 1 for 1s", "--grace", "300ms", "--no-cgroup"]
    with sim(1) as gpus:
        done = gpus.lull("run", *rule, "--", sys.executable, "-c", script)
        assert done.returncode == 0, done.stderr
        assert gpus.lull("run", *rule, "--", "sleep", "1000").returncode == 124


@root_only
def test_cpu_of_one_that_was_moved_to_another_cgroup(sim, cgroup):
    """As systemd-run --scope and cgexec do: what it burns is not in the account of the job's cgroup."""
    script = f"sh -c 'echo $$ > {cgroup}/cgroup.procs; exec timeout 4 sh -c \"while :; do :; done\"' & wait"
    rule = ["--delay", "0", "--every", "300ms", "--idle", "cpu < 1 for 1500ms", "--grace", "300ms"]
    with sim(1) as gpus:
        done = gpus.lull("run", *rule, "--", "sh", "-c", script)
        assert done.returncode == 0, done.stderr


# ---- bytes that no system call tells of -------------------------------------------------------------------

RING = "import ctypes; assert ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120)) > 2; import time; time.sleep(30)"


def test_a_job_with_an_io_uring_may_write_what_nobody_counts(sim):
    with sim(1) as gpus:
        job = gpus.start_lull("run", "-v", "--delay", "0", "--every", "100ms", "--idle", "io < 1KiB for 1h", "--",
                              sys.executable, "-S", "-c", RING)
        text = lines_until(job, "has an io_uring")
        if "AssertionError" in text:
            pytest.skip("no io_uring here")
        lines_until(job, "(unknown)")
        stop(job)


# ---- what is surely not meant ---------------------------------------------------------------------------------

@pytest.mark.parametrize("command", [["run", "--", "sleep", "1000"], ["watch", "--do", "exit"]],
                         ids=lambda command: command[0])
def test_rule_without_for_is_warned_of(sim, command):
    with sim(1) as gpus:
        for rule, lines in (("util < 5", 1), ("util < 5 for 1h", 0)):
            job = gpus.start_lull(command[0], "-v", "--delay", "1h", "--idle", rule, *command[1:])
            text = lines_until(job, "watching:")
            assert text.count("there is no 'for': a single sample is enough to fire") == lines, text
            stop(job)


# ---- the default rule ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("command", ["run", "watch"])
def test_default_rule_and_that_servers_need_more(sim, run_lull, command):
    done = run_lull(command, "--help")
    assert "util < 1 for 30m" in done.stdout and "2h" in done.stdout
    with sim(1) as gpus:
        more = ["--", "true"] if command == "run" else ["--do", "exit", "--dry-run"]
        watching = gpus.start_lull(command, "-v", *more)
        assert "watching: util < 1 for 30m" in watching.stderr.readline()
        watching.terminate()
