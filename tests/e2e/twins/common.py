"""What the twins share: the driver, asked as their originals ask it, and the faults of the originals that are gone.

`mended("name")` marks the place where an original lets its user down and lull does not: the tests say by name, and with
the reason, which of them a twin must not have. It also writes down that a schedule came by.
"""
import argparse
import contextlib
import ctypes
import json
import os
import time

MENDED = frozenset(os.environ.pop("TWIN_MENDED", "").split(","))
NOTES = os.environ.pop("TWIN_NOTES", "")


def mended(name):
    if NOTES:
        with open(NOTES, "a") as notes:
            notes.write(name + "\n")
    return name in MENDED


LATE = 0.3  # seconds: what a look at the GPUs, or a sleep, may come late by
looked = []


def look(interval):
    """Begins a look at the GPUs. Notes one that comes late: the machine was too busy for this schedule."""
    now = time.monotonic()
    if NOTES and looked and now - looked[-1] > interval + LATE:
        with open(NOTES, "a") as notes:
            notes.write(f"late by {now - looked[-1] - interval:.1f} s\n")
    looked[:] = [now]


def begin():
    """Waits to be let go: Python takes long to start, and the two shall start together. Brings the simulation's environment."""
    if "TWIN_GATE" in os.environ:
        with open(os.environ.pop("TWIN_GATE")) as gate:
            os.environ.update(json.load(gate))


class ArgumentParser(argparse.ArgumentParser):
    """Complains to a pipe that nobody reads as newer Pythons do: without an exception."""

    def _print_message(self, message, file=None):
        with contextlib.suppress(OSError):
            super()._print_message(message, file)


class DriverError(Exception):
    """A call of NVML failed."""


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class ProcessInfo(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


class Gpu:
    """Each value is read when it is asked for, and may fail then."""

    def __init__(self, library, index):
        self.library, self.index, self.handle = library, index, ctypes.c_void_p()
        self.call("DeviceGetHandleByIndex_v2", index, ctypes.byref(self.handle), handle=False)

    def call(self, name, *arguments, handle=True):
        before = (self.handle,) if handle else ()
        status = getattr(self.library, "nvml" + name)(*before, *arguments)
        if status:
            raise DriverError(f"nvml{name}: {status}")

    def text(self, name):
        buffer = ctypes.create_string_buffer(96)
        self.call(name, buffer, ctypes.c_uint(96))
        return buffer.value.decode()

    @property
    def uuid(self):
        return self.text("DeviceGetUUID")

    @property
    def name(self):
        return self.text("DeviceGetName")

    @property
    def rates(self):
        """Of the chip and of its memory, in percent."""
        rates = Utilization()
        self.call("DeviceGetUtilizationRates", ctypes.byref(rates))
        return rates.gpu, rates.memory

    @property
    def processes(self):
        total = 0
        for kind in ("Compute", "Graphics"):
            count, room = ctypes.c_uint(64), (ProcessInfo * 64)()
            self.call(f"DeviceGet{kind}RunningProcesses_v3", ctypes.byref(count), room)
            total += count.value
        return total


@contextlib.contextmanager
def driver():
    """The GPUs of the machine, by a driver that is opened anew: the originals run nvidia-smi, or start it."""
    library = ctypes.CDLL(os.environ["LD_LIBRARY_PATH"].split(":")[0] + "/libnvidia-ml.so.1")
    if status := library.nvmlInit_v2():
        raise DriverError(f"nvmlInit: {status}")
    try:
        count = ctypes.c_uint()
        if status := library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            raise DriverError(f"nvmlDeviceGetCount: {status}")
        yield library, count.value
    finally:
        library.nvmlShutdown()
