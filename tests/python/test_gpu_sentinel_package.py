"""The package gpu_sentinel on simulated GPUs: its readings, its command, and the faults of the original."""
import math
import signal

from conftest import LIMIT
from machine import machine, read_until  # noqa: F401


def usage(gpus, device_ids, more=""):
    code = f"from gpu_sentinel import get_gpu_usage\nprint(get_gpu_usage({device_ids}))\n{more}"
    return gpus.python(code)


def number(done):
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_mean_load_from_0_to_1(machine):
    gpus = machine(4)
    for gpu, util in enumerate((100, 60, 20, 0)):
        gpus.set(gpu, util=util)
    assert number(usage(gpus, "None")) == 0.45
    assert number(usage(gpus, "device_ids=[0, 1]")) == 0.8
    assert number(usage(gpus, "(3,)")) == 0


def test_devices_that_are_not_there_are_left_out(machine):
    gpus = machine(2)
    gpus.set(0, util=50)
    assert number(usage(gpus, "[0, 7]")) == 0.5
    none = usage(gpus, "[7]")
    assert none.returncode == 1 and "statistics.StatisticsError" in none.stderr


def test_the_device_ids_must_be_given(machine):
    assert "TypeError" in usage(machine(1), "").stderr


def test_a_gpu_that_cannot_be_read_is_not_a_number_and_said_when_that_begins(machine):
    gpus = machine(2)
    for fault in ("lost", "no-util"):
        gpus.fault(1, fault)
        done = usage(gpus, "None", "print(get_gpu_usage([0])); print(get_gpu_usage([1])); print(get_gpu_usage([1]))")
        values = [float(word) for word in done.stdout.split()]
        assert math.isnan(values[0]) and values[1] == 0 and math.isnan(values[2]) and math.isnan(values[3])
        assert done.stderr.count("GPU 1 cannot be judged: ") == 2  # not at the last one, which is as before
        gpus.clear(1)


def test_no_gpu_at_all_is_an_error_from_the_start(machine):
    gpus = machine(1)
    gpus.fault("all", "no-driver")
    done = usage(gpus, "None")
    assert done.returncode == 1 and "statistics.StatisticsError: no GPU can be read" in done.stderr


LOOP = """
import sys, time
from gpu_sentinel import Sentinel, SentinelState, get_gpu_usage

def triggered():
    print("Triggered!", flush=True)
    exit()

sentinel = Sentinel(arm_duration=3, arm_threshold=0.7, kill_duration=4, kill_threshold=0.7, kill_fn=triggered)
armed = False
while True:
    usage = get_gpu_usage(device_ids=[0, 1, 2, 3])
    sentinel.tick(usage)
    if sentinel.state is SentinelState.ARMED and not armed:
        armed = True
        print("armed", flush=True)
    if usage != usage:
        print("unknown", flush=True)
    time.sleep(0.05)
"""


def test_the_readmes_loop_survives_a_lost_gpu_and_a_driver_that_goes_away(machine):
    gpus = machine(4)
    gpus.set("all", util=95)
    script = gpus.start(LOOP)
    read_until(script.stdout, "armed")
    gpus.fault(2, "lost")
    read_until(script.stdout, "unknown")
    gpus.fault("all", "no-driver")
    read_until(script.stderr, "no GPU can be read")
    gpus.set("all", util=0)
    assert script.poll() is None
    gpus.clear("all")
    read_until(script.stdout, "Triggered!")
    assert script.wait(timeout=LIMIT) == 0
    assert script.stderr.read().count("no GPU can be read") == 0  # said once


def test_the_command(machine):
    gpus = machine(1)
    gpus.set(0, util=95)
    quick = ["--arm_duration", "1", "--kill_duration", "2"]
    sentinel = gpus.start("-m", "gpu_sentinel", *quick)
    assert read_until(sentinel.stdout, "is armed").splitlines()[0] == (
        "Starting GPU Sentinel, will arm once average GPU usage is at least 80% for 1 seconds")
    gpus.set(0, util=0)
    assert sentinel.wait(timeout=LIMIT) == 0
    wrong = gpus.python("-m", "gpu_sentinel.main", "--arm_duration", "x")
    assert wrong.returncode == 2 and "gpu_sentinel: error: argument --arm_duration: invalid int value: 'x'" in wrong.stderr


def test_ctrl_c_reaches_the_command(machine):
    gpus = machine(1)
    sentinel = gpus.start("-m", "gpu_sentinel")
    read_until(sentinel.stdout, "Press ctrl+C to exit")
    sentinel.send_signal(signal.SIGINT)
    assert sentinel.wait(timeout=LIMIT) != 0
