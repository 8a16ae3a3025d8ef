"""The drop-in gpu_sentinel: its document's promises, and every row of its predecessor's failures."""
import subprocess
import time

from conftest import LIMIT, SUDO, build_dir, read_until

TOOL = str(build_dir() / "gpu_sentinel")
QUICK = ["--arm_duration", "1", "--kill_duration", "2"]


def test_idle_then_armed_then_ended(sim):
    with sim(2) as gpus:
        sentinel = gpus.start(TOOL, *QUICK)
        assert "IDLE" in sentinel.stdout.readline()
        time.sleep(2.5)  # idle all the time: nothing to trigger before it was armed
        assert sentinel.poll() is None
        gpus.set("all", util=95)
        assert "ARMED" in sentinel.stdout.readline()
        gpus.set("all", util=5)
        assert sentinel.wait(timeout=LIMIT) == 0
        assert "Triggered" in sentinel.stdout.read() and sentinel.stderr.read() == ""


def test_shutdown_once(sim, programs):
    for name, script in (("busctl", "exit 1"), ("sudo", SUDO), ("shutdown", "sleep 3")):
        programs.add(name, script)
    with sim(1) as gpus:
        gpus.set(0, util=95)
        sentinel = gpus.start(TOOL, *QUICK, "--kill_action", "shutdown", "--gpu_devices", "0",
                              env={"PATH": programs.path})
        read_until(sentinel.stdout, "ARMED")
        gpus.set(0, util=0)
        assert sentinel.wait(timeout=LIMIT) == 0
        # Once, though it took three ticks.
        assert [call for call in programs.calls() if call.startswith("shutdown")] == ["shutdown -h now"]


def test_survives_a_lost_gpu_and_a_driver_reload_armed(sim):
    with sim(2) as gpus:
        gpus.set("all", util=95)
        sentinel = gpus.start(TOOL, *QUICK)
        read_until(sentinel.stdout, "ARMED")
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
        read_until(sentinel.stdout, "ARMED")  # the mean of all four would be 47
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
        assert "ARMED" not in sentinel.stdout.read()
        ignoring = gpus.start(TOOL, *QUICK, "--missing", "ignore")
        read_until(ignoring.stdout, "ARMED")
        ignoring.terminate()


def test_absent_device_is_a_clear_error_at_the_start(sim):
    with sim(2) as gpus:
        done = gpus.run(TOOL, "--gpu_devices", "0", "7")
        assert done.returncode == 2 and "7" in done.stderr and len(done.stderr.splitlines()) == 1


def test_slow_readings_do_not_stretch_the_window(sim):
    with sim(1) as gpus:
        gpus.set(0, util=95)
        gpus.fault(0, "hang=300ms", function="nvmlDeviceGetUtilizationRates")
        sentinel = gpus.start(TOOL, "--arm_duration", "1", "--kill_duration", "4")
        read_until(sentinel.stdout, "ARMED")
        gpus.set(0, util=0)
        began = time.monotonic()
        assert sentinel.wait(timeout=LIMIT) == 0
        assert time.monotonic() - began < 6.5  # 4 ticks, and what was busy before


def test_wrong_options():
    done = subprocess.run([TOOL, "--arm_duration", "3600"], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2 and "gpu_sentinel: error: argument --arm_duration" in done.stderr
    shown = subprocess.run([TOOL, "--help"], capture_output=True, text=True, timeout=LIMIT)
    assert shown.returncode == 0 and "{end_process,shutdown,reboot}" in shown.stdout


def test_right_to_power_off_is_checked_at_the_start(sim, tmp_path):
    with sim(1) as gpus:
        done = gpus.run(TOOL, "--kill_action", "reboot", env={"PATH": str(tmp_path)})
        assert done.returncode == 125 and "reboot" in done.stderr
