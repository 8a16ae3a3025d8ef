"""A verdict acts only while it is fresh, and only on whom was meant."""
import os
import platform
import re
import signal
import subprocess
import time

import pytest

from conftest import LIMIT, ROOT, alive, build_dir, end, read_until, wait_until

QUICK = ("--idle", "util < 5 for 300ms", "--every", "100ms", "--delay", "0")


def hook(tmp_path):
    """A hook that says when it has begun and waits until it may end."""
    script = tmp_path / "hook.sh"
    script.write_text(f"touch {tmp_path}/begun; n=0; while [ ! -e {tmp_path}/go ] && [ $n -lt 600 ]; "
                      "do n=$((n+1)); sleep 0.05; done\n")
    return f"sh {script}"


def stopped(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] in "tT"


def pause(process):
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: stopped(process.pid), what="the stop")


def test_a_pause_during_the_hook_calls_off(sim, tmp_path):
    gpus = sim(1)
    job = gpus.start_lull("run", *QUICK, "--gpus", "0", "--on-idle", hook(tmp_path), "--", "sleep", "300")
    try:
        wait_until(lambda: (tmp_path / "begun").exists(), what="the hook")
        pause(job)
        gpus.set(0, util=90)
        (tmp_path / "go").touch()
        job.send_signal(signal.SIGCONT)
        assert "not ended" in read_until(job.stderr, "not ended")
        assert job.poll() is None
    finally:
        end(job)


def test_a_hook_during_which_the_gpu_stays_idle_ends_the_job(sim, tmp_path):
    gpus = sim(1)
    job = gpus.start_lull("run", *QUICK, "--gpus", "0", "--on-idle", hook(tmp_path), "--", "sleep", "300")
    wait_until(lambda: (tmp_path / "begun").exists(), what="the hook")
    pause(job)
    (tmp_path / "go").touch()
    job.send_signal(signal.SIGCONT)
    # After a pause the count begins anew; then it fires again, the hook is done at once, and nothing stands against it.
    assert job.wait(60) == 124


@pytest.mark.parametrize("what", ["busy", "lost"])
def test_a_pause_during_the_warning_calls_off_the_shutdown(sim, programs, what):
    programs.add("busctl", "exit 1")
    programs.add("shutdown")
    gpus = sim(1)
    watch = gpus.start_lull("watch", *QUICK, "--do", "shutdown", "--warn", "5s",
                            env={"PATH": programs.alone})
    try:
        read_until(watch.stderr, "shutdown in 5s")
        pause(watch)
        gpus.set(0, util=90) if what == "busy" else gpus.fault(0, "lost")
        wait_until(lambda: stopped(watch.pid))
        gpus.run("sleep", "5.5")  # the warning's time is over while we are stopped
        watch.send_signal(signal.SIGCONT)
        assert "called off" in read_until(watch.stderr, "called off")
        assert not [call for call in programs.calls() if call.startswith("shutdown") and "-h" in call]
        assert watch.poll() is None
    finally:
        end(watch)


def test_busy_again_during_the_first_action_spares_the_second(sim, tmp_path):
    gpus = sim(1)
    victim = gpus.start("sleep", "300")
    watch = gpus.start_lull("watch", *QUICK, "--do", "exec=" + hook(tmp_path), "--do", f"kill={victim.pid}")
    try:
        wait_until(lambda: (tmp_path / "begun").exists(), what="the first action")
        gpus.set(0, util=90)
        (tmp_path / "go").touch()
        assert "called off" in read_until(watch.stderr, "called off")
        assert alive(victim.pid)
    finally:
        end(watch)
        end(victim)


@pytest.mark.parametrize("form", ["{}", "PGID:{}"])
@pytest.mark.parametrize("shift", [2**32, 2**33, 2**64])
def test_a_number_too_large_is_nobody(sim, form, shift):
    gpus = sim(1)
    victim = gpus.start("sleep", "300", start_new_session=True)
    try:
        done = gpus.lull("watch", *QUICK, "--do", "kill=" + form.format(victim.pid + shift))
        assert done.returncode in (2, 125) and "kill=" in done.stderr, done.stderr
        assert alive(victim.pid)
    finally:
        end(victim)


@pytest.mark.parametrize("fault", ["unknown", "lost", "no-util"])
def test_a_hook_of_an_instant_is_followed_by_a_new_look(sim, fault):
    """However soon after the last sample it comes: what the card refuses to say now, it does not say."""
    gpus = sim(1)
    job = gpus.start_lull("run", "--idle", "util < 5 for 300ms", "--every", "300ms", "--delay", "0", "--gpus", "0",
                          "--on-idle", f"{gpus.binary} sim fault 0 {fault}", "--", "sleep", "300")
    try:
        assert "not ended" in read_until(job.stderr, "not ended")
        assert job.poll() is None
    finally:
        end(job)


@pytest.mark.parametrize("command", ["run", "watch"])
def test_work_during_the_hook_calls_off_also_where_it_is_idle_again_since(sim, tmp_path, command):
    """Another streak is another firing, with a hook and evidence of its own."""
    gpus = sim(1)
    job = gpus.start("sleep", "300")
    if command == "run":
        lull = gpus.start_lull("run", "-v", *QUICK, "--gpus", "0", "--on-idle", hook(tmp_path), "--", "sleep", "300")
    else:
        lull = gpus.start_lull("watch", "-v", *QUICK, "--gpus", "0", "--repeat", "--do", f"exec={hook(tmp_path)}", "--do",
                               f"kill={job.pid}")
    try:
        wait_until(lambda: (tmp_path / "begun").exists(), what="the hook")
        gpus.set(0, util=90)
        read_until(lull.stderr, "util 90 % (no)")
        gpus.set(0, util=0)
        read_until(lull.stderr, "(yes)")  # another streak
        for _ in range(6):  # samples of it: twice as long as the rule asks for
            read_until(lull.stderr, "of 300ms)")
        (tmp_path / "begun").unlink()
        (tmp_path / "go").touch()
        said = read_until(lull.stderr, "no longer idle")
        assert "now: kill" not in said, said
        wait_until(lambda: (tmp_path / "begun").exists(), what="the hook of the next firing")
    finally:
        end(lull)
        end(job)


@pytest.fixture(scope="module")
def inject(tmp_path_factory):
    """The injector of `./test faults`: here it stops lull at one system call."""
    if platform.machine() != "x86_64":
        pytest.skip("the injector knows x86-64")
    program = tmp_path_factory.mktemp("inject") / "inject"
    subprocess.run(["c++", "-std=gnu++23", "-O1", "-o", program, ROOT / "tests/faults/inject.cc"], check=True)
    if subprocess.run([program, "--report", "/dev/null", "--", "true"], stderr=subprocess.DEVNULL).returncode == 125:
        pytest.skip("this needs ptrace")
    return program


@pytest.mark.parametrize("works", [True, False])
def test_work_that_begins_while_lull_is_stopped_right_before_the_signal_is_seen(sim, tmp_path, inject, works):
    gpus = sim(1)
    report = tmp_path / "report"
    # The firing is confirmed and announced; lull has listed whom to signal, opens a handle of the job, and is stopped.
    stop = ("--limit", "120", "--after", "the job's processes", "--target", "lull pidfd_open -", "--stop")
    traced = gpus.start(inject, "--report", report, "--image", os.path.realpath(gpus.binary), *stop,
                        "--", gpus.binary, "run", *QUICK, "--gpus", "0", "--no-cgroup", "--", "sleep", "300")
    try:
        main = wait_until(lambda: report.exists() and re.search(r"^main (\d+)\n(?:.*\n)*hit ", report.read_text(), re.M), what="the call")
        lull = int(main[1])
        wait_until(lambda: stopped(lull), what="the stop")
        longest = time.monotonic() + 1.1  # no confirmation is good for more than a second
        if works:
            gpus.set(0, util=90)
        wait_until(lambda: time.monotonic() > longest)
        os.kill(lull, signal.SIGCONT)
        if works:
            assert "not ended" in read_until(traced.stderr, "not ended")
            assert "\nend " not in report.read_text()
        else:
            wait_until(lambda: "\nend 124" in report.read_text(), what="the end of the job")
    finally:
        end(traced)


# Work begins 0.46 s before the sample that completes the streak: the mean of the last interval is still below the
# threshold, and what was read since then is not.
@pytest.mark.parametrize("works", [True, False])
def test_gpu_idle_timeout_spares_work_that_began_just_before_its_last_sample(sim, works):
    gpus = sim(1)
    then = ("--then", "util=100", "--for", "4s") if works else ()
    done = gpus.run(build_dir() / "gpu_idle_timeout", "-t", "50", "-s", "2", "-n", "5", "-d", "0", "--gpus", "0",
                    gpus.binary, "sim", "load", "--gpu", "0", "--util", "0", "--for", "9.54s" if works else "60s", *then)
    assert done.returncode == (0 if works else 1), done.stderr
    assert ("Killing process" in done.stderr) != works


def test_gpu_sentinel_spares_work_that_began_just_before_its_last_tick(sim):
    gpus = sim(1)
    busy = gpus.load(0, 95)
    sentinel = gpus.start(build_dir() / "gpu_sentinel", "--arm_duration", "1", "--kill_duration", "4")
    read_until(sentinel.stdout, "GPU Sentinel is armed")
    end(busy)
    works = gpus.load(0, 0, None, "3.5s", "--then", "util=100", "--for", "3s", wait=False)
    assert works.wait(LIMIT) == 0
    assert sentinel.poll() is None
    assert sentinel.wait(LIMIT) == 0, "idle for long enough after that"
