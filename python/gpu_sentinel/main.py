"""The command gpu_sentinel (which becomes lull), and the reading that its users put into a Sentinel."""
from __future__ import annotations

import argparse
import logging
import math
import os
import statistics
from typing import Any, Callable, NoReturn, Optional, Sequence

TICK_TIME_S = 1

_logger = logging.getLogger("gpu_sentinel")
_seen_gpus = False  # in this process
_says_unreadable = ""  # what was said last about GPUs that cannot be read


def _power(command: str) -> None:
    """As the user that we are where that is root, else by sudo; also with a PATH that has no sbin."""
    words = command if os.geteuid() == 0 else f"sudo {command}"
    os.system(f'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"; {words}')


def shutdown() -> None:
    _power("shutdown -h now")


def reboot() -> None:
    _power("reboot")


def create_kill_fn(action: str) -> Callable[..., Any]:
    """What `--kill_action` means: end_process, shutdown or reboot.

    >>> create_kill_fn("reboot").__name__
    'reboot'
    """
    if action == "end_process":
        return exit
    if action == "shutdown":
        return shutdown
    if action == "reboot":
        return reboot
    raise Exception("Unknown action")


def _say_once(text: str) -> None:
    global _says_unreadable
    if text and text != _says_unreadable:
        _logger.warning("%s", text)
    _says_unreadable = text


def get_gpu_usage(device_ids: Optional[Sequence[int]]) -> float:
    """The mean load of these GPUs (None: of all), from 0 to 1.

    GPUs that are not there are left out; if none is left, that is a statistics.StatisticsError. Where one of them cannot
    be read the answer is nan, which neither arms nor fires a Sentinel.
    """
    global _seen_gpus
    import lull

    try:
        gpus = [gpu for gpu in lull.status() if gpu.kind == "gpu"]
    except lull.Error as error:
        if not _seen_gpus:
            raise statistics.StatisticsError(f"no GPU can be read: {error}") from error
        _say_once(f"no GPU can be read: {error}")
        return math.nan
    _seen_gpus = _seen_gpus or bool(gpus)
    loads: list[float] = []
    unknown = ""
    for gpu in gpus:
        if device_ids is not None and gpu.index not in device_ids:
            continue
        if gpu.util is None:
            unknown = unknown or f"GPU {gpu.index} cannot be judged: {gpu.why('util')}"
        loads.append(math.nan if gpu.util is None else gpu.util / 100)
    if not loads:
        wanted = "any GPU" if device_ids is None else f"GPU {', '.join(map(str, device_ids))}"
        raise statistics.StatisticsError(f"mean requires at least one data point: there is not {wanted} on this system")
    _say_once(unknown)
    return statistics.fmean(loads)


def parse_args() -> argparse.Namespace:
    """The options of the command line, from sys.argv."""
    parser = argparse.ArgumentParser(description="A monitor for your GPU")
    parser.add_argument("--arm_duration", type=int, default=30,
                        help="How many seconds of activity to wait before arming the sentinel.")
    parser.add_argument("--arm_threshold", type=float, default=0.8,
                        help="What level of utilization is considered activity")
    parser.add_argument("--kill_duration", type=int, default=30,
                        help="How many seconds of inactivity to wait before running the kill function.")
    parser.add_argument("--kill_threshold", type=float, default=0.7,
                        help="What level of utilization is considered inactivity")
    parser.add_argument("--kill_action", choices=["end_process", "shutdown", "reboot"], default="end_process",
                        help="What to do when the kill trigger is hit")
    parser.add_argument("--gpu_devices", nargs="+", help="Which GPU devices to average (empty for all)")
    return parser.parse_args()


def main() -> NoReturn:
    """`gpu_sentinel OPTIONS`: this process becomes lull under that name."""
    from lull._become import become

    become("gpu_sentinel")


if __name__ == "__main__":
    main()
