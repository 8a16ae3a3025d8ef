"""The drop-in gpu_sentinel: its document's promises, and every row of its predecessor's failures."""
import os
import subprocess
import time

import pytest
from conftest import LIMIT, SUDO, build_dir, let_others_in, read_until, wait_for_samples, wait_until

TOOL = str(build_dir() / "gpu_sentinel")
ARMED = "GPU Sentinel is armed"
QUICK = ["--arm_duration", "1", "--kill_duration", "2"]


def test_idle_then_armed_then_ended(sim, tmp_path):
    with sim(2) as gpus:
        log = tmp_path / "log"
        sentinel = gpus.start(TOOL, *QUICK, env={"LULL_SIM_LOG": log})
        assert "will arm once" in sentinel.stdout.readline()
        wait_for_samples(log, 2 * 3, "idleness of more than two ticks")  # nothing to trigger before it was armed
        assert sentinel.poll() is None
        gpus.set("all", util=95)
        read_until(sentinel.stdout, ARMED)
        gpus.set("all", util=5)
        assert sentinel.wait(timeout=LIMIT) == 0
        assert sentinel.stdout.read() == ""
        assert sentinel.stderr.read() == "gpu_sentinel: average GPU usage was below 70% for 2 seconds: end_process\n"


def test_the_tick_that_arms_it_does_not_count(sim):
    """Armed by nothing at the first tick, then four of them: it acted after the third."""
    with sim(1) as gpus:
        began = time.monotonic()
        done = gpus.run(TOOL, "--arm_duration", "0", "--kill_duration", "4")
        assert done.returncode == 0 and time.monotonic() - began >= 4.0


def test_shutdown_once(sim, programs):
    for name, script in (("busctl", "exit 1"), ("sudo", SUDO), ("shutdown", "sleep 3")):
        programs.add(name, script)
    with sim(1) as gpus:
        gpus.set(0, util=95)
        sentinel = gpus.start(TOOL, *QUICK, "--kill_action", "shutdown", "--gpu_devices", "0",
                              env={"PATH": programs.path})
        read_until(sentinel.stdout, ARMED)
        gpus.set(0, util=0)
        assert sentinel.wait(timeout=LIMIT) == 0
        # Once, though it took three ticks.
        assert [call for call in programs.calls() if call.startswith("shutdown")] == ["shutdown -h now"]


def test_survives_a_lost_gpu_and_a_driver_reload_armed(sim):
    with sim(2) as gpus:
        gpus.set("all", util=95)
        sentinel = gpus.start(TOOL, *QUICK)
        read_until(sentinel.stdout, ARMED)
        gpus.fault(1, "lost")
        read_until(sentinel.stderr, "GPU 1")
        gpus.fault("all", "no-driver")
        read_until(sentinel.stderr, "no GPU can be read")
        gpus.set("all", util=0)
        assert sentinel.poll() is None
        gpus.clear()
        gpus.clear("all")
        assert sentinel.wait(timeout=LIMIT) == 0


def test_mean_over_the_devices_named(sim):
    with sim(4) as gpus:
        gpus.set(0, util=100)
        gpus.set(1, util=90)
        sentinel = gpus.start(TOOL, *QUICK, "--gpu_devices", "0", "1")
        read_until(sentinel.stdout, ARMED)  # the mean of all four would be 47
        gpus.set(1, util=30)  # the mean of the two is 65, below 70
        assert sentinel.wait(timeout=LIMIT) == 0


def test_gpu_without_utilisation_is_said(sim):
    with sim(3) as gpus:
        gpus.fault(2, "no-util")
        gpus.set("all", util=95)
        sentinel = gpus.start(TOOL, *QUICK)
        said = read_until(sentinel.stderr, "cannot be judged")
        assert "GPU 2" in said and "util" in said
        sentinel.terminate()
        sentinel.wait(timeout=LIMIT)
        assert ARMED not in sentinel.stdout.read()
        ignoring = gpus.start(TOOL, *QUICK, "--missing", "ignore")
        read_until(ignoring.stdout, ARMED)
        ignoring.terminate()


def test_absent_devices_are_left_out_and_named(sim):
    with sim(2) as gpus:
        gpus.set(0, util=95)
        sentinel = gpus.start(TOOL, *QUICK, "--gpu_devices", "0", "7")
        out = read_until(sentinel.stdout, ARMED)
        assert "Monitoring GPUs ['0', '7'] only.\nThese GPUs are user specified and may not exist" in out
        assert sentinel.stderr.readline() == "gpu_sentinel: GPU 7 is not on this system: judging on GPU 0\n"
        gpus.set(0, util=0)
        assert sentinel.wait(timeout=LIMIT) == 0
        for none in (["7"], ["7", "-1"]):
            done = gpus.run(TOOL, "--gpu_devices", *none)
            assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith("gpu_sentinel: there is none")


def test_absent_devices_are_left_out_when_the_driver_appears_later(sim):
    with sim(1) as gpus:
        gpus.fault("all", "no-driver")
        sentinel = gpus.start(TOOL, "--arm_duration", "0", "--kill_duration", "2", "--gpu_devices", "0", "7")
        read_until(sentinel.stderr, "no GPU can be read")
        gpus.clear("all")
        assert sentinel.wait(timeout=LIMIT) == 0
        assert "GPU 7 is not on this system: judging on the others" in sentinel.stderr.read()


def test_prints_the_originals_lines_on_stdout(sim):
    with sim(1) as gpus:
        gpus.set(0, util=95)
        sentinel = gpus.start(TOOL, *QUICK)
        assert read_until(sentinel.stdout, ARMED).splitlines() == [
            "Starting GPU Sentinel, will arm once average GPU usage is at least 80% for 1 seconds",
            "Monitoring all GPUs on the system",
            "Monitoring for low GPU usage! Press ctrl+C to exit",
            "GPU Sentinel is armed, will 'end_process' when values drop below 70% for 2 seconds"]


@pytest.mark.parametrize("words", [["--arm_duration", "0", "--kill_duration", "2"],
                                   ["--arm_duration", "1", "--arm_threshold", "-1", "--kill_duration", "2"]])
def test_arms_on_idle_gpus_on_request(sim, words):
    with sim(1) as gpus:
        sentinel = gpus.start(TOOL, *words)
        assert sentinel.wait(timeout=LIMIT) == 0 and ARMED in sentinel.stdout.read()


def test_kill_duration_0_fires_after_one_idle_sample(sim, tmp_path):
    with sim(1) as gpus:
        gpus.set(0, util=95)
        log = tmp_path / "log"
        sentinel = gpus.start(TOOL, "--arm_duration", "1", "--kill_duration", "0", env={"LULL_SIM_LOG": log})
        read_until(sentinel.stdout, ARMED)
        wait_for_samples(log, 3, "a few ticks")
        assert sentinel.poll() is None  # the original acts whatever the GPUs do
        gpus.set(0, util=5)
        assert sentinel.wait(timeout=LIMIT) == 0


def test_failing_power_command_is_retried_and_logged_once(sim, programs):
    for name, script in (("busctl", "exit 1"), ("sudo", SUDO), ("shutdown", "exit 1")):
        programs.add(name, script)
    with sim(1) as gpus:
        sentinel = gpus.start(TOOL, "--arm_duration", "0", "--kill_duration", "1", "--kill_action", "shutdown",
                              env={"PATH": programs.path})
        wait_until(lambda: programs.calls().count("shutdown -h now") >= 6, limit=90, what="the sixth try")
        assert sentinel.poll() is None
        sentinel.terminate()
        sentinel.wait(timeout=LIMIT)
        said = sentinel.stderr.read()
        assert said.count("shutdown: exit status 1; again in 10s") == 1, said


def test_wrong_options():
    done = subprocess.run([TOOL, "--arm_duration", "3600"], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1 and done.stderr == "gpu_sentinel: arm_duration can at most be 3600 ticks\n"
    done = subprocess.run([TOOL, "--arm_duration", "x"], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2 and "gpu_sentinel: error: argument --arm_duration: invalid int value: 'x'" in done.stderr
    shown = subprocess.run([TOOL, "--help"], capture_output=True, text=True, timeout=LIMIT)
    assert shown.returncode == 0 and "{end_process,shutdown,reboot}" in shown.stdout


def as_nobody():
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)


def test_right_to_power_off_is_checked_at_the_start(sim, tmp_path):
    if os.geteuid() == 0:
        start = {"preexec_fn": as_nobody}
    else:
        start = {}
    with sim(1) as gpus:
        done = gpus.run(TOOL, "--kill_action", "reboot", env={"PATH": str(tmp_path)}, **start)
        assert done.returncode == 1 and "gpu_sentinel: no permission to reboot this machine" in done.stderr


def test_non_root_user_powers_off_by_sudo_without_sbin_in_path(sim, programs, tmp_path):
    programs.add("sudo")
    start = {"preexec_fn": as_nobody} if os.geteuid() == 0 else {}
    let_others_in(tmp_path)
    (tmp_path / "calls").touch()
    (tmp_path / "calls").chmod(0o666)
    with sim(1) as gpus:
        for path in (gpus.folder, *gpus.folder.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        sentinel = gpus.start(TOOL, "--arm_duration", "0", "--kill_duration", "1", "--kill_action", "shutdown",
                              env={"PATH": f"{programs.alone}:/usr/bin:/bin"}, **start)
        read_until(sentinel.stderr, "shutdown")
        assert sentinel.wait(timeout=LIMIT) == 0
        assert "WARNING" in sentinel.stdout.readline()
        assert [call for call in programs.calls() if "busctl" not in call] == [
            "sudo -n -l shutdown -h now", "sudo -n shutdown -h now"]
