"""Whose GPUs a job is judged by. Each test is named after the row of the list of faults that it shows."""
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from conftest import LIMIT, alive, clean_environment, wait_until

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


def two_loads(gpus, first=0, second=90):
    """A job with a process on each of two GPUs."""
    load = f'"{gpus.binary}" sim load'
    return ["sh", "-c", f"{load} --gpu 0 --util {first} & {load} --gpu 1 --util {second} & wait"]


# ---- A1: a scope never shrinks by what was not seen ------------------------------------------------

KINDS = {
    "lost": ("lost", None),
    "reset": ("reset", None),
    "hang": ("hang=100s", None),
    "unknown": ("unknown", None),
    "no-permission": ("no-permission", None),
    "list": ("unknown", "nvmlDeviceGetComputeRunningProcesses*"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_faults_a1_gpu_of_the_job_that_cannot_be_looked_at_stays_in_scope(sim, kind):
    """FAULTS A1: GPU 0 idle, GPU 1 at 90 %, then GPU 1 (or only its list of processes) cannot be read."""
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
            job.terminate()


def test_faults_a1_driver_that_is_reloaded_does_not_make_us_forget(sim):
    """FAULTS A1: the driver goes and comes back, and GPU 1's processes cannot be read afterwards."""
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
        job.terminate()


# ---- law 7: a job is judged by its own GPUs only ----------------------------------------------------

def test_law_7_job_without_a_context_is_not_judged_and_that_is_said_once(sim):
    with sim(2) as gpus:
        job = gpus.start_lull("run", "-v", *QUICK, "--", "sh", "-c", "while :; do :; done")
        lines_until(job, "has no GPU context yet: not judged until it has one")
        text = watched_on_samples(job, 60)
        assert "has no GPU context yet: not judged until it has one" not in text
        job.terminate()
        assert job.wait(timeout=LIMIT) == 143


def watched_on_samples(job, count):
    """So many lines of -v that are samples, whatever they show."""
    seen = []
    while sum("not judged)" in line or " util " in line for line in seen) < count:
        line = job.stderr.readline()
        assert line, "".join(seen)
        seen.append(line)
    assert job.poll() is None
    return "".join(seen)


def test_law_7_all_gpus_on_request(sim):
    with sim(2) as gpus:
        assert gpus.lull("run", *QUICK, "--gpus", "all", "--", "sleep", "1000").returncode == 124


def test_law_7_judged_from_the_first_context_and_not_after_the_last(sim, tmp_path):
    with sim(2) as gpus:
        gpus.set(1, util=95)  # a neighbour's
        go = tmp_path / "go"
        load = f'"{gpus.binary}" sim load --gpu 0 --util 50'
        script = f"while ! [ -e {go} ]; do sleep 0.01; done; {load} --for 1s; sleep 1000"
        job = gpus.start_lull("run", "-v", *QUICK, "--", "sh", "-c", script)
        lines_until(job, "not judged until it has one")
        go.touch()
        lines_until(job, "GPU 0 util 50 %")
        lines_until(job, "not judged until it has one again")
        watched_on_samples(job, 40)
        job.terminate()
        assert job.wait(timeout=LIMIT) == 143


def test_law_7_rule_on_the_jobs_own_signals_needs_no_gpu(sim):
    rule = ["--delay", "0", "--every", "100ms", "--idle", "cpu < 1 for 600ms", "--grace", "300ms"]
    with sim(1) as gpus:
        gpus.set(0, util=95)
        busy = gpus.lull("run", *rule, "--", "sh", "-c", "timeout 2 sh -c 'while :; do :; done'; exit 5")
        assert busy.returncode == 5, busy.stderr
        assert gpus.lull("run", *rule, "--", "sleep", "1000").returncode == 124


def test_law_7_gpus_of_a_lease_and_of_slurm(sim, tmp_path):
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


# ---- A5: what is seen wins ----------------------------------------------------------------------------

def test_faults_a5_context_elsewhere_than_cuda_visible_devices_says(sim):
    """FAULTS A5: CUDA_VISIBLE_DEVICES=0, but the job works on GPU 1."""
    with sim(2) as gpus:
        job = gpus.start_lull("run", "-v", *QUICK, "--", gpus.binary, "sim", "load", "--gpu", "1", "--util", "90",
                              env={"CUDA_VISIBLE_DEVICES": "0"})
        text = watched_on(job, 120)
        assert "GPU 0" in text and "GPU 1 util 90 %" in text
        job.terminate()


@pytest.mark.parametrize("busy", [0, 1])
def test_faults_a5_uncertain_order_takes_all_candidates(sim, busy):
    """FAULTS A5: T4 + H100, CUDA_VISIBLE_DEVICES=0: which one that is cannot be known from here."""
    with sim("1xT4,1xH100") as gpus:
        gpus.set(busy, util=90)
        job = gpus.start_lull("run", "-v", *QUICK, "--", "sleep", "1000", env={"CUDA_VISIBLE_DEVICES": "0"})
        text = watched_on(job, 120)
        assert text.count("is a guess") == 1
        gpus.set(busy, util=0)
        assert job.wait(timeout=LIMIT) == 124


def test_faults_a5_contexts_settle_an_uncertain_order(sim):
    """FAULTS A5: one GPU was given, and the job's context says which one it is."""
    with sim("1xT4,1xH100") as gpus:
        gpus.set(1, util=90)  # a neighbour's
        done = gpus.lull("run", *QUICK, "--", gpus.binary, "sim", "load", "--gpu", "0", "--util", "0",
                         env={"CUDA_VISIBLE_DEVICES": "0"})
        assert done.returncode == 124 and "on GPU 0," in done.stderr


def test_hardware_21_gpu_that_says_no_permission_is_left_out(sim):
    """HARDWARE 21: the count includes a GPU that is not for us; it does not make the rule unjudgeable."""
    with sim(2) as gpus:
        gpus.fault(1, "no-permission")
        done = gpus.lull("watch", "--every", "50ms", "--idle", "util < 1 for 500ms", "--do", "exit=7")
        assert done.returncode == 7, done.stderr
        assert done.stderr.count("GPU 1: no permission") == 1


def test_hardware_21_gpu_that_could_be_read_before_stays_in_scope(sim):
    with sim(2) as gpus:
        gpus.set(1, util=90)
        watch = gpus.start_lull("watch", "-v", "--every", "50ms", "--idle", "util < 1 for 500ms", "--do", "exit=7")
        lines_until(watch, "GPU 1 util 90 %")
        gpus.fault(1, "no-permission")
        watched_on(watch)
        gpus.clear(1)
        gpus.set(1, util=0)
        assert watch.wait(timeout=LIMIT) == 7


# ---- A6: a stopped process with a context ---------------------------------------------------------------

def test_faults_a6_stopped_worker_is_not_judged(sim):
    """FAULTS A6: a worker is stopped (SIGSTOP, a debugger), its leader is not."""
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
