"""gpu_sentinel.Sentinel, against its description: every way through its two states, and a plain twin on random values."""
import enum
import inspect
import math
import random
import subprocess
import sys

import pytest

import gpu_sentinel
from gpu_sentinel import Sentinel, SentinelState

BUSY, IDLE = 0.9, 0.1
NAN = float("nan")


class Fired:
    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1


def sentinel(arm=3, kill=2, arm_threshold=0.8, kill_threshold=0.7):
    return Sentinel(arm_duration=arm, arm_threshold=arm_threshold, kill_duration=kill, kill_threshold=kill_threshold,
                    kill_fn=Fired())


def feed(one, *values):
    for value in values:
        one.tick(value)
    return one


def test_names_are_those_of_the_original():
    assert [(state.name, state.value) for state in SentinelState] == [("SAFE", 0), ("ARMED", 1)]
    assert issubclass(SentinelState, enum.Enum)
    names = ["arm_duration", "arm_threshold", "kill_duration", "kill_threshold", "kill_fn"]
    parameters = inspect.signature(Sentinel).parameters
    assert list(parameters) == names and all(p.default is p.empty for p in parameters.values())
    assert list(inspect.signature(Sentinel.tick).parameters)[1:] == ["current_value"]
    assert Sentinel is gpu_sentinel.sentinel.Sentinel
    one = Sentinel(3, 0.8, 2, 0.7, print)
    assert [getattr(one, name) for name in names] == [3, 0.8, 2, 0.7, print]
    assert (one.state, one.seconds_to_transition) == (SentinelState.SAFE, 3)
    assert (one.max_arm_duration, one.max_kill_duration) == (3600, 3600)


def test_arms_after_so_many_ticks_in_a_row_and_no_fewer():
    assert feed(sentinel(), BUSY, BUSY).state is SentinelState.SAFE
    assert feed(sentinel(), BUSY, BUSY, IDLE, BUSY, BUSY).state is SentinelState.SAFE
    armed = feed(sentinel(), BUSY, BUSY, BUSY)
    assert (armed.state, armed.seconds_to_transition, armed.kill_fn.times) == (SentinelState.ARMED, 2, 0)


def test_idleness_before_it_was_armed_means_nothing():
    assert feed(sentinel(), *[IDLE] * 100).kill_fn.times == 0


def test_fires_after_so_many_ticks_in_a_row_and_no_fewer():
    armed = feed(sentinel(), BUSY, BUSY, BUSY)
    assert feed(armed, IDLE, BUSY, IDLE).kill_fn.times == 0
    assert feed(armed, IDLE).kill_fn.times == 1


def test_fires_at_every_further_tick_and_stays_armed():
    armed = feed(sentinel(), *[BUSY] * 3, *[IDLE] * 5)
    assert (armed.kill_fn.times, armed.state) == (4, SentinelState.ARMED)
    feed(armed, BUSY)
    assert (armed.kill_fn.times, armed.seconds_to_transition) == (4, 2)
    assert feed(armed, IDLE, IDLE).kill_fn.times == 5


def test_thresholds_themselves_are_on_neither_side():
    assert feed(sentinel(), *[0.8] * 10).state is SentinelState.SAFE
    assert feed(sentinel(), *[BUSY] * 3, *[0.7] * 10).kill_fn.times == 0


def test_what_is_not_a_number_breaks_a_row():
    assert feed(sentinel(), BUSY, BUSY, NAN, BUSY).state is SentinelState.SAFE
    assert feed(sentinel(), *[BUSY] * 3, IDLE, NAN, IDLE).kill_fn.times == 0
    assert feed(sentinel(kill=0), *[BUSY] * 3, NAN, NAN).kill_fn.times == 0


@pytest.mark.parametrize("name", ["arm_duration", "kill_duration"])
def test_durations_are_less_than_an_hour_of_ticks(name):
    given = dict(arm_duration=1, arm_threshold=0.8, kill_duration=1, kill_threshold=0.7, kill_fn=Fired())
    with pytest.raises(AssertionError) as caught:
        Sentinel(**{**given, name: 3600})
    assert str(caught.value) == f"{name} can at most be 3600 ticks"
    Sentinel(**{**given, name: 3599})


def test_durations_are_also_checked_without_asserts():
    done = subprocess.run([sys.executable, "-O", "-c", "from gpu_sentinel import Sentinel; Sentinel(3600, 0, 1, 0, exit)"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "AssertionError: arm_duration can at most be 3600 ticks" in done.stderr


def expected(values, arm, kill):
    """How often it has fired after each value, the slow way: by looking back over all values."""
    armed_at = next((i for i in range(len(values)) if i + 1 >= arm and all(v > 0.8 for v in values[i + 1 - arm:i + 1])), None)
    fired, times = 0, []
    for i in range(len(values)):
        row = 0
        while armed_at is not None and i - row > armed_at and values[i - row] < 0.7:
            row += 1
        fired += row >= kill
        times.append(fired)
    return times


@pytest.mark.parametrize("seed", range(50))
def test_random_values_against_a_look_back_over_all_of_them(seed):
    choose = random.Random(seed)
    arm, kill = choose.randint(1, 4), choose.randint(1, 4)
    values = [choose.choice([0.0, 0.5, 0.7, 0.75, 0.8, 0.85, 1.0, NAN]) if choose.random() < 0.6 else
              choose.choice([0.1, 0.95]) for _ in range(60)]
    one, times = sentinel(arm, kill), []
    for value in values:
        one.tick(value)
        times.append(one.kill_fn.times)
    assert times == expected(values, arm, kill)
    assert not any(map(math.isnan, [one.seconds_to_transition]))


def test_actions_by_name():
    from gpu_sentinel.main import TICK_TIME_S, create_kill_fn, reboot, shutdown
    assert TICK_TIME_S == 1
    assert [create_kill_fn(name) for name in ("end_process", "shutdown", "reboot")] == [exit, shutdown, reboot]
    with pytest.raises(Exception, match="^Unknown action$"):
        create_kill_fn("hibernate")


@pytest.mark.parametrize("name, words", [("shutdown", "shutdown -h now"), ("reboot", "reboot ")])
@pytest.mark.parametrize("root", [True, False])
def test_power_commands_by_sudo_where_we_are_not_root(tmp_path, monkeypatch, name, words, root):
    """Programs that write down how they were called stand where the real ones would be."""
    from gpu_sentinel import main
    for program in ("sudo", "shutdown", "reboot"):
        script = tmp_path / program
        script.write_text(f'#!/bin/sh\necho "{program} $*" >> {tmp_path}/calls\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(main.os, "geteuid", lambda: 0 if root else 1000)
    assert getattr(main, name)() is None
    assert (tmp_path / "calls").read_text().splitlines() == [words if root else f"sudo {words.strip()}"]


def test_defaults_are_those_of_the_original(monkeypatch):
    from gpu_sentinel.main import parse_args
    monkeypatch.setattr(sys, "argv", ["gpu_sentinel"])
    assert vars(parse_args()) == dict(arm_duration=30, arm_threshold=0.8, kill_duration=30, kill_threshold=0.7,
                                      kill_action="end_process", gpu_devices=None)
    monkeypatch.setattr(sys, "argv", ["gpu_sentinel", "--gpu_devices", "0", "7", "--kill_action", "reboot"])
    assert (parse_args().gpu_devices, parse_args().kill_action) == (["0", "7"], "reboot")
