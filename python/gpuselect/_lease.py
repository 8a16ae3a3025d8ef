"""The GPUs that this process holds through gpuselect(): leases of lull, until the process ends or selects others."""
from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
from typing import TYPE_CHECKING, Iterator, Optional, Sequence

if TYPE_CHECKING:
    from lull import Pick

_logger = logging.getLogger("gpuselect")
_MOST_HOLDERS = 1000  # of one GPU: with gpuselect whoever comes decides whether to share
_PARENTS_LEASE = "LULL_GPUSELECT"  # tells processes that this one starts what it holds

_held: list[Pick] = []
_lock = threading.Lock()  # of _held


def _in_a_forked_child() -> None:
    """What was held is the parent's, and so may be the lock."""
    global _lock
    _lock = threading.Lock()
    _held.clear()


os.register_at_fork(after_in_child=_in_a_forked_child)


def choose(candidates: Sequence[int], count: int, processes: int) -> tuple[list[int], int]:
    """`count` of these GPUs that nobody else holds, and how many of them there are; none if those are too few."""
    picked, fitting = _ask(candidates, count, processes, ["--quiet"])  # that nothing is held is what was asked for
    return ([], fitting) if picked is None else (_shuffled(picked.indices), fitting)


def take(candidates: Sequence[int], count: int, processes: int) -> tuple[list[int], int]:
    """The same, held by this process from now on instead of what it held. It may get what it has; too few: it keeps it."""
    with _lock:
        return _take(candidates, count, processes)


def _take(candidates: Sequence[int], count: int, processes: int) -> tuple[list[int], int]:
    ours = {device for pick in _held for device in pick.indices}
    again = [device for device in candidates if device in ours]
    others = [device for device in candidates if device not in ours]
    chosen = random.sample(again, min(count, len(again)))
    if len(chosen) < count:
        more, fitting = _lease(others, count - len(chosen), processes)
        if more is None:
            return [], len(again) + fitting
        _held.append(more)
        chosen += more.indices
    for pick in [pick for pick in _held if not set(pick.indices) & set(chosen)]:
        _held.remove(pick)
        pick.release()
    os.environ[_PARENTS_LEASE] = _held[-1].lease or ""
    return _shuffled(chosen), count


def _shuffled(devices: Sequence[int]) -> list[int]:
    return random.sample(devices, len(devices))


def _lease(candidates: Sequence[int], count: int, processes: int) -> tuple[Optional[Pick], int]:
    from lull._core import cuda_is_initialized

    if cuda_is_initialized():
        _logger.warning("CUDA is already initialised in this process, so that CUDA_VISIBLE_DEVICES does nothing; "
                        "call gpuselect() before anything uses CUDA")
    hold = [f"--hold-pid={os.getpid()}", f"--joinable={_MOST_HOLDERS}"]
    picked, fitting = _ask(candidates, count, processes, hold)
    parent = os.environ.get(_PARENTS_LEASE)
    if picked is None and parent and not _held and "LULL_LEASE" not in os.environ:
        # A worker that is spawned runs the first lines of its script again: then its parent's GPUs will do.
        with _inside(parent):
            picked, fitting = _ask(candidates, count, processes, hold)
    return picked, fitting


@contextlib.contextmanager
def _inside(lease: str) -> Iterator[None]:
    """As a process of the job that has this lease."""
    os.environ["LULL_LEASE"] = lease
    try:
        yield
    finally:
        del os.environ["LULL_LEASE"]


def _ask(candidates: Sequence[int], count: int, processes: int, options: Sequence[str]) -> tuple[Optional[Pick], int]:
    """lull picks among GPUs that have passed our filters: what they do is no objection, only who holds them."""
    from lull._pick import PickError, choose as pick

    if len(candidates) < count:
        return None, len(candidates)
    share = min(processes + 1, _MOST_HOLDERS)
    try:
        return pick([f"--count={count}", f"--gpus={','.join(map(str, candidates))}", f"--share={share}", "--util=any",
                     "--mem-util=any", "--mem-used=any", "--procs=any", *options]), len(candidates)
    except PickError as error:
        if not error.reasons:  # it is not about the GPUs
            raise
        for reason in error.reasons:
            _logger.debug(reason)
        return None, max(0, len(candidates) - len(error.reasons))
