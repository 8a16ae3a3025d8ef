"""Choosing GPUs and reading them, under the names of gpuselect. What is read comes from lull, and so does the lease."""
from __future__ import annotations

import logging
import math
import operator
import os
import random
import sys
from typing import TYPE_CHECKING, Callable, Iterable, NoReturn, Optional, Sequence, Union

from . import _lease
from ._info import GpuInfo, GpuStatus

if TYPE_CHECKING:
    import lull

logger = logging.getLogger("gpuselect")
logger.setLevel(logging.INFO)
logger.addHandler(logging.StreamHandler(sys.stderr))

Selector = Callable[[GpuInfo], bool]

_EMPTY_CARD = 64 << 20  # bytes that a card shows as used although nothing runs on it,
_EMPTY_DESKTOP = 256 << 20  # and one that a desktop draws on


def _whole(value: Optional[float], scale: float = 1) -> Optional[int]:
    return None if value is None else round(value * scale)


def _at_least(value: Optional[float]) -> Optional[int]:
    """Upwards, so that a little work is never 0 %."""
    return None if value is None else math.ceil(value)


def _mem_used(gpu: lull.Gpu) -> Optional[int]:
    """With what the driver keeps for itself, as NVML's first call for memory tells it."""
    return None if gpu.mem_total is None or gpu.mem_free is None else round(gpu.mem_total - gpu.mem_free)


def _info_of(gpu: lull.Gpu) -> GpuInfo:
    return GpuInfo(device=gpu.index, name=gpu.name or "", util=_at_least(gpu.util), mem_util=_at_least(gpu.mem_util),
                   mem_free=_whole(gpu.mem_free), mem_used=_mem_used(gpu), mem_total=_whole(gpu.mem_total),
                   processes=_whole(gpu.procs), fan_speed=_whole(gpu.fan),
                   effective_power_limt=_whole(gpu.power_limit, 1000), performance_state=_whole(gpu.pstate),
                   power_usage=_whole(gpu.power, 1000), temperature=_whole(gpu.temp),
                   is_throttling=None if gpu.throttle_reasons is None else int(bool(gpu.throttle_reasons)))


def _read_gpus() -> list[lull.Gpu]:
    """Every GPU in the order of its device ID; MIG devices are no GPUs of their own here."""
    import lull

    return [gpu for gpu in lull.status() if gpu.kind == "gpu"]


def pynvml_get_gpu_state(device_index: int) -> GpuInfo:
    """What the GPU with this device ID shows now."""
    for gpu in _read_gpus():
        if gpu.index == device_index:
            return _info_of(gpu)
    raise Exception(f"Invalid device ID {device_index}")


def _scan_gpus(devices: Sequence[int]) -> list[lull.Gpu]:
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # or CUDA counts the fastest GPU first
    gpus = _read_gpus()
    logger.debug(f"GPU count: {len(gpus)}")
    for device in devices:
        if device not in {gpu.index for gpu in gpus}:
            logger.debug(f"Device ID {device} is outside the expected range of 0 - {len(gpus) - 1}")
            raise Exception(f"Invalid device ID {device}")
    for gpu in gpus:
        logger.debug(f"Device {gpu.index}: {_info_of(gpu)}")
    return gpus


def _suits(selector: Selector, info: GpuInfo) -> bool:
    """A selector that compares a value which could not be read has not said yes."""
    try:
        return bool(selector(info))
    except TypeError:
        if None not in tuple(info):
            raise
        unknown = [name for name, value in info._asdict().items() if value is None]
        logger.debug(f"Device {info.device} is left out: the selector needs what cannot be read ({', '.join(unknown)})")
        return False


def _at_most(value: Optional[int], most: int) -> bool:
    """Unknown is not below any threshold."""
    return value is not None and value <= most


def _matching(gpu_info: Sequence[GpuInfo], count: int, devices: Sequence[int], name: Optional[str], util: int,
              mem_util: int, processes: int, selector: Optional[Selector]) -> list[GpuInfo]:
    """All GPUs that the filters let through."""
    if selector is not None:
        logger.debug(f"Applying selector to {len(gpu_info)} devices, count={count}")
        matching = [info for info in gpu_info if _suits(selector, info)]
    else:
        matching = list(gpu_info)
        if len(devices) > 0:
            matching = [info for device in devices for info in gpu_info if info.device == device]
            logger.debug(f"Device filter, {len(matching)} devices left")
        elif name is not None:
            matching = [info for info in gpu_info if name in info.name]
            for info in matching:
                logger.debug(f"Name match of {name} on {info}")
            logger.debug(f"Name filter, {len(matching)} devices left")
        limits = {"Utilization": ("util", util), "Memory utilization": ("mem_util", mem_util),
                  "Processes": ("processes", processes)}
        for title, (field, most) in limits.items():
            before = len(matching)
            matching = [info for info in matching if _at_most(getattr(info, field), most)]
            logger.debug(f"{title} filter matched {len(matching)} / {before} GPUs")
    logger.debug(f"GPUs left after filtering ({count} requested): {len(matching)}")
    return matching


def __filter_gpus(gpu_info: list[GpuInfo], count: int, devices: list[int], name: Optional[str], util: int,
                  mem_util: int, processes: int, selector: Optional[Selector]) -> list[GpuInfo]:
    """`count` of the GPUs that the filters let through, at random; all of them if they are fewer."""
    matching = _matching(gpu_info, count, devices, name, util, mem_util, processes, selector)
    return matching if len(matching) < count else random.sample(matching, count)


def _memory_fits(gpu: lull.Gpu, mem_util: int, processes: int) -> bool:
    """A card whose memory is full is not idle, whatever its utilization says. Who allows processes allows what they hold."""
    if processes > 0 or mem_util >= 100:
        return True
    if gpu.mem_used is None or gpu.mem_total is None:
        return gpu.why("mem_used") == "not supported"  # a card without memory of its own
    empty = _EMPTY_DESKTOP if gpu.display_active else _EMPTY_CARD
    return bool(gpu.mem_used <= max(empty, gpu.mem_total * mem_util / 100))


def _visible(gpu: lull.Gpu, words: Sequence[str]) -> bool:
    """By device ID or by (the beginning of) its UUID."""
    return any(word.isdecimal() and int(word) == gpu.index or
               word.startswith("GPU-") and (gpu.uuid or "").startswith(word) for word in words)


def gpustatus(only_cvd: bool = True) -> list[GpuStatus]:
    """The GPUs that CUDA_VISIBLE_DEVICES names (all where it is empty or not set), or with `only_cvd=False` all of them.

    A value that cannot be read is None, as the fan of a card without one or everything of a GPU that is lost.
    """
    gpus = _read_gpus()
    words = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if only_cvd and words not in ([""], ["all"]):
        gpus = [gpu for gpu in gpus if _visible(gpu, words)]
    return [GpuStatus(_info_of(gpu)) for gpu in gpus]


def _device_ids(devices: Union[int, Sequence[int], None]) -> list[int]:
    """Each once; a number of NumPy's is one, too. A word is a TypeError."""
    if devices is None:
        return []
    many = devices if isinstance(devices, Iterable) else [devices]
    return list(dict.fromkeys(map(operator.index, many)))


def gpuselect(count: int = 1, devices: Union[int, Sequence[int], None] = None, name: Optional[str] = None,
              util: int = 0, mem_util: int = 0, processes: int = 0, selector: Optional[Selector] = None,
              silent: bool = False, set_cvd: bool = True) -> str:
    """Picks idle GPUs at random and sets CUDA_VISIBLE_DEVICES to their device IDs, which it returns: "0,3".

    The GPUs stay this process's until it ends or picks others: nobody else who asks lull (or gpuselect) gets them,
    unless `processes` says that the GPU may be shared with so many. With `set_cvd=False` nothing is set or held.

    Args:
        count: how many
        devices: only these device IDs, one or several, and all of them
        name: only GPUs with this in their names (case-sensitive)
        util, mem_util: at most so many percent; `mem_util` also bounds the memory in use
        processes: at most so many on the GPU
        selector: says of each GpuInfo whether it suits, instead of all the above but `count`
        silent: return "" instead of raising an Exception where too few GPUs suit
        set_cvd: set CUDA_VISIBLE_DEVICES
    """
    logger.debug(f"count={count},devices={devices},name={name},util={util},mem_util={mem_util},"
                 f"processes={processes},silent={silent}")
    if count < 1:
        raise Exception("GPU count must be >= 1")
    wanted = _device_ids(devices)
    if wanted and name is not None:
        raise Exception("Use only one of 'devices' and 'name' parameters")
    if util < 0 or mem_util < 0 or processes < 0:
        raise Exception("Utilization/process count thresholds must be >= 0")
    if len(wanted) > count:
        logger.warning(f"count={count} but {len(wanted)} device IDs were specified, setting count={len(wanted)}")
        count = len(wanted)

    gpus = {gpu.index: gpu for gpu in _scan_gpus(wanted)}
    readable = [_info_of(gpu) for gpu in gpus.values() if gpu.error is None]  # a lost one never suits
    matching = [info.device for info in _matching(readable, count, wanted, name, util, mem_util, processes, selector)]
    if selector is None:
        matching = [device for device in matching if _memory_fits(gpus[device], mem_util, processes)]
    chosen, fitting = (_lease.take if set_cvd else _lease.choose)(matching, count, processes)
    if len(chosen) < count:
        message = f"Requested {count} GPUs, but {fitting} matched filters"
        logger.debug(message)
        if silent:
            return ""
        raise Exception(message)
    value = ",".join(map(str, chosen))
    if set_cvd:
        os.environ["CUDA_VISIBLE_DEVICES"] = value
    logger.debug(f"CUDA_VISIBLE_DEVICES={value}")
    return value


def main() -> NoReturn:
    """`gpuselect OPTIONS [-- COMMAND]`: this process becomes lull under that name."""
    from lull._become import become

    become("gpuselect")


if __name__ == "__main__":
    main()
