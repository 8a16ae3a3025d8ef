"""lull.pick(): idle GPUs, held for this process.

The program `lull` does it (`lull pick --hold-pid`), so that what is idle, who is next and how a lease is held are the
same as on the command line; a small lease holder process holds the locks until this process has ended.
"""
import json
import logging
import os
import signal
import subprocess

from . import _core
from ._core import Error, UsageError
from ._helper import EXIT_LATE, EXIT_USAGE, checked, seconds_text, start, words_of

_log = logging.getLogger("lull")


class PickError(Error):
    """No GPUs could be had. `reasons` has one line for each GPU that does not suit."""

    __module__ = "lull"  # as it is imported

    def __init__(self, text, reasons=()):
        super().__init__(text)
        self.reasons = list(reasons)


class PickTimeout(PickError, TimeoutError):
    """They were waited for as long as was asked for."""

    __module__ = "lull"  # as it is imported


class CudaInitializedError(Error):
    """CUDA has already looked at CUDA_VISIBLE_DEVICES in this process: setting it would do nothing."""

    __module__ = "lull"  # as it is imported


class Pick:
    """GPUs that were chosen and are held. Release them by release(), a `with` block, or by ending the process."""

    def __init__(self, answer, before):
        self._owner = os.getpid()
        self._before = before
        self._holder = None
        self.gpus = answer["gpus"]
        self.environment = answer["environment"]
        self.lease = answer["lease"]
        holder = answer.get("lease_holder")
        if holder is not None:
            try:
                self._holder = os.pidfd_open(holder)
            except OSError:
                pass  # it was killed; the lease is gone with it

    @property
    def indices(self):
        """NVML's numbers of the GPUs, which are those of nvidia-smi."""
        return [gpu["index"] for gpu in self.gpus]

    @property
    def uuids(self):
        return [gpu["uuid"] for gpu in self.gpus]

    @property
    def held(self):
        """They are leased to this process."""
        return self.lease is not None and os.getpid() == self._owner

    def release(self):
        """Gives them back, and CUDA_VISIBLE_DEVICES its old value. A second time it does nothing, nor does it in a
        child that was forked: what it inherited is its parent's."""
        if os.getpid() != self._owner:
            return
        lease, self.lease = self.lease, None
        for name, value in self._before.items():
            if os.environ.get(name) != self.environment.get(name):
                continue  # the program has set it again
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
        _core._look_at_environment()
        holder, self._holder = self._holder, None
        try:
            if lease is not None:
                checked("release", "--force", lease)
        finally:
            if holder is not None:
                try:
                    signal.pidfd_send_signal(holder, signal.SIGTERM)
                except OSError:
                    pass
                os.close(holder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __len__(self):
        return len(self.gpus)

    def __iter__(self):
        return iter(self.indices)

    def __repr__(self):
        return f"<lull.Pick {','.join(gpu['label'] for gpu in self.gpus)}{', held' if self.held else ''}>"


def _gpus_text(gpus):
    if isinstance(gpus, (str, int)):
        return str(gpus)
    return ",".join(str(one) for one in gpus)


def _size_text(size):
    """A number is one of bytes."""
    return f"{size:.0f}B" if isinstance(size, (int, float)) and not isinstance(size, bool) else size


def _options(given):
    """Arguments as the command line's options; what is None is left to it."""
    options = []
    for name, value in given.items():
        if value is None or value is False:
            continue
        option = "--" + name.replace("_", "-")
        options += [option] if value is True else [f"{option}={value}"]
    return options


def pick(count=1, *, gpus=None, vendor=None, name=None, util=None, mem_util=None, mem_free=None, mem_used=None, procs=None,
         temp=None, where=None, tolerate=None, share=None, mine_ok=False, best=None, uuid=False, wait=False,
         priority=None, lease=True):
    """Chooses idle GPUs, holds them until this process ends, and sets CUDA_VISIBLE_DEVICES to them (of AMD GPUs
    ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, of Intel GPUs ZE_AFFINITY_MASK).

    The arguments are the options of `lull pick`, which lull-pick(1) explains: `count` may be "all", a size is a number of
    bytes or "20GiB", `wait` is True, a time such as "10m" or a number of seconds. Call it before anything uses CUDA.

    >>> import lull, os
    >>> with lull.simulate(gpus="4xA100"):
    ...     with lull.pick(count=2, mem_free="20GiB", best="memory") as picked:
    ...         print(len(picked), os.environ["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, picked)))
    ...     print("CUDA_VISIBLE_DEVICES" in os.environ)
    2 True
    False
    """
    if _core.cuda_is_initialized():
        raise CudaInitializedError("CUDA is already initialised in this process, so that CUDA_VISIBLE_DEVICES would do "
                                   "nothing; call lull.pick() before anything uses CUDA")
    mem_free, mem_used, tolerate = (_size_text(size) for size in (mem_free, mem_used, tolerate))
    given = {"count": count, "gpus": None if gpus is None else _gpus_text(gpus), "vendor": vendor, "name": name, "util": util,
             "mem_util": mem_util, "mem_free": mem_free, "mem_used": mem_used, "procs": procs, "temp": temp,
             "where": where, "tolerate": tolerate, "share": share, "mine_ok": bool(mine_ok), "best": best,
             "uuid": bool(uuid), "priority": priority}
    options = _options(given)
    if wait is not False and wait is not None:
        options.append("--wait" if wait is True else f"--wait={seconds_text(wait)}")
    options += [f"--hold-pid={os.getpid()}"] if lease else ["--no-lease"]
    answer = _ask(options)
    environment = dict(answer["environment"])
    if answer["lease"] is not None:
        environment["LULL_LEASE"] = answer["lease"]
        answer["environment"] = environment
    before = {name: os.environ.get(name) for name in (*environment, *answer["unset"])}
    os.environ.update(environment)
    for name in answer["unset"]:
        os.environ.pop(name, None)
    _core._look_at_environment()  # a watch that was there before goes by them from now on
    return Pick(answer, before)


def choose(options):
    """`lull pick OPTIONS`, and nothing else: the environment stays as it is. For gpuselect."""
    return Pick(_ask(options), {})


def _ask(options):
    child = start("pick", "--format=json", *options, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                  stderr=subprocess.PIPE, text=True, errors="replace")
    complaints = []
    with child:
        try:
            for line in child.stderr:
                complaints.append(line.rstrip("\n"))
                if line.startswith("lull: waiting"):
                    _log.info("%s", line[len("lull: "):].rstrip())
            out = child.stdout.read()
            status = child.wait()
        except BaseException:  # Ctrl-C: its place in the queue goes with it
            child.kill()
            raise
    complaints = [line for line in complaints if not line.startswith("lull: waiting")]
    if status == 0:
        for line in complaints:
            _log.warning("%s", line)
        return json.loads(out)
    text = words_of("\n".join(complaints), status, "pick")
    if status == EXIT_USAGE:
        raise UsageError(text)
    reasons = [line for line in text.splitlines()[1:] if line.startswith("GPU ")]
    raise (PickTimeout if status == EXIT_LATE else PickError)(text, reasons)
