"""The sentinel's two states and what leads from one to the other. Pure: values in, one call out."""
import enum
import math
from typing import Any, Callable


class SentinelState(enum.Enum):
    """Whether the sentinel has seen enough work to act when it stops."""

    SAFE = 0
    ARMED = 1


class Sentinel:
    """Is armed by `arm_duration` values in a row above a threshold; `kill_duration` in a row below another one fire it.

    It counts ticks, not seconds. A value that is not a number breaks a row, whatever it is of.

    >>> sentinel = Sentinel(arm_duration=2, arm_threshold=0.8, kill_duration=2, kill_threshold=0.7,
    ...                     kill_fn=lambda: print("fired"))
    >>> for value in (0.9, 0.9):
    ...     sentinel.tick(value)
    >>> sentinel.state
    <SentinelState.ARMED: 1>
    >>> for value in (0.1, float("nan"), 0.1, 0.1):
    ...     sentinel.tick(value)
    fired
    """

    def __init__(self, arm_duration: int, arm_threshold: float, kill_duration: int, kill_threshold: float,
                 kill_fn: Callable[[], Any]) -> None:
        """The durations are in ticks and less than 3600 (AssertionError); `kill_fn` is called without arguments."""
        self.max_arm_duration = 3600
        self.max_kill_duration = 3600
        # Raised and not asserted, so that `python3 -O` checks it too.
        for name, given, most in (("arm_duration", arm_duration, self.max_arm_duration),
                                  ("kill_duration", kill_duration, self.max_kill_duration)):
            if not given < most:
                raise AssertionError(f"{name} can at most be {most} ticks")
        self.arm_duration = arm_duration
        self.arm_threshold = arm_threshold
        self.kill_duration = kill_duration
        self.kill_threshold = kill_threshold
        self.kill_fn = kill_fn
        self.state = SentinelState.SAFE
        self.seconds_to_transition = arm_duration

    def tick(self, current_value: float) -> None:
        """The next value. Once fired, every further tick below the threshold calls `kill_fn` again."""
        armed = self.state is SentinelState.ARMED
        if armed:
            counts, start = current_value < self.kill_threshold, self.kill_duration
        else:
            counts, start = current_value > self.arm_threshold, self.arm_duration
        self.seconds_to_transition = self.seconds_to_transition - 1 if counts else start
        if self.seconds_to_transition > 0:
            return
        if armed:
            # With a kill_duration of 0 no tick has to be below; but what could not be read never fires.
            if not math.isnan(current_value):
                self.kill_fn()
        else:
            self.state = SentinelState.ARMED
            self.seconds_to_transition = self.kill_duration
