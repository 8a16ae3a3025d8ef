"""What gpuselect does before it starts a command, as plainly as Python can: the rival of figure_pick.py.

It asks the driver's library through pynvml where that is installed, else through ctypes, which is all that
pynvml does itself (and is quicker, since pynvml's own import of thousands of names is saved).
"""
import argparse
import logging
import os
import random
import select  # noqa: F401  as the predecessor: part of its cost
import subprocess
import sys
import typing  # noqa: F401

logging.getLogger("twin").addHandler(logging.StreamHandler(sys.stderr))


def with_pynvml():
    import pynvml
    pynvml.nvmlInit()
    found = []
    for i in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(i)
        pynvml.nvmlDeviceGetName(handle)
        rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
        found.append((i, rates.gpu, rates.memory, len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))))
    pynvml.nvmlShutdown()
    return found


def with_ctypes():
    import ctypes
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    nvml.nvmlInit_v2()
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    found = []
    for i in range(count.value):
        handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        rates, processes = (ctypes.c_uint * 2)(), ctypes.c_uint(0)
        nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle))
        nvml.nvmlDeviceGetName(handle, name, 96)
        nvml.nvmlDeviceGetUtilizationRates(handle, rates)
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(processes), None)
        found.append((i, rates[0], rates[1], processes.value))
    nvml.nvmlShutdown()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-c", "--count", type=int, default=1)
    options, command = parser.parse_known_args()
    try:
        gpus = with_pynvml()
    except ImportError:
        gpus = with_ctypes()
    idle = [i for i, util, mem_util, processes in gpus if util == mem_util == processes == 0]
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, random.sample(idle, options.count)))
    if "--" in command:
        command.remove("--")
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child.communicate()


if __name__ == "__main__":
    main()
