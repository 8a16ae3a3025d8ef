#!/usr/bin/env python3
"""The Python module beside pynvml and beside C++: importing, status(), Rule.evaluate, and what a watch costs.

Everything that is compared runs in turns in the same minute. The real pynvml is used where tests/clients/run has
unpacked it; else its figures are left out, since nothing else stands for it.
"""
import os
import statistics
import subprocess
import tempfile

from figures import BUILD, LULL, finish, real_pynvml, report, simulation

PYTHON = "/usr/bin/python3"
MODULE = os.path.join(BUILD, "python")

STATUS = """
import sys, time, lull
lull.status()
times = []
for _ in range(300):
    began = time.perf_counter()
    for gpu in lull.status():
        (gpu.index, gpu.uuid, gpu.name, gpu.pci, gpu.util, gpu.mem_util, gpu.mem_used, gpu.mem_free, gpu.mem_total, gpu.power,
         gpu.power_limit, gpu.temp, gpu.clock, gpu.mem_clock, gpu.pstate, gpu.fan, gpu.energy, gpu.throttle_reasons,
         gpu.processes, gpu.mig_mode, gpu.display_active)
    times.append(time.perf_counter() - began)
print(sorted(times)[len(times) // 2])
"""
# The same values, each by the call that tells it.
RIVAL = """
import time, pynvml as n

def tell(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError:
        return None

def look():
    n.nvmlInit()
    for i in range(n.nvmlDeviceGetCount()):
        h = n.nvmlDeviceGetHandleByIndex(i)
        for call in (n.nvmlDeviceGetUUID, n.nvmlDeviceGetName, n.nvmlDeviceGetPciInfo, n.nvmlDeviceGetUtilizationRates,
                     n.nvmlDeviceGetMemoryInfo, n.nvmlDeviceGetPowerUsage, n.nvmlDeviceGetEnforcedPowerLimit,
                     n.nvmlDeviceGetPerformanceState, n.nvmlDeviceGetFanSpeed, n.nvmlDeviceGetTotalEnergyConsumption,
                     n.nvmlDeviceGetCurrentClocksThrottleReasons, n.nvmlDeviceGetComputeRunningProcesses,
                     n.nvmlDeviceGetGraphicsRunningProcesses, n.nvmlDeviceGetMigMode, n.nvmlDeviceGetDisplayActive):
            tell(call, h)
        tell(n.nvmlDeviceGetTemperature, h, n.NVML_TEMPERATURE_GPU)
        tell(n.nvmlDeviceGetClockInfo, h, n.NVML_CLOCK_SM)
        tell(n.nvmlDeviceGetClockInfo, h, n.NVML_CLOCK_MEM)
        tell(n.nvmlDeviceGetSamples, h, n.NVML_GPU_UTILIZATION_SAMPLES, 0)
        tell(n.nvmlDeviceGetSamples, h, n.NVML_MEMORY_UTILIZATION_SAMPLES, 0)
    n.nvmlShutdown()

look()
times = []
for _ in range(100):
    began = time.perf_counter()
    look()
    times.append(time.perf_counter() - began)
print(sorted(times)[len(times) // 2])
"""
EVALUATE = """
import time, numpy as np, lull
count = 64 * 1024                # as judge_bench.cc has them, and as often
times = (np.arange(count, dtype=np.int64) * 10**9).view("datetime64[ns]")
random = np.random.default_rng(1)
util = np.where(random.random(count) < 0.002, 90, 1).astype(np.float32)
power = random.uniform(40, 119, count).astype(np.float32)
rule = lull.Rule("util < 5 and power < 120W for 20m", arm="util > 80 for 30s")   # that of judge_bench.cc
rule.evaluate(times[:4096], {"util": util[:4096], "power": power[:4096]})
best = 0
for _ in range(200):
    began = time.process_time()
    rule.evaluate(times, {"util": util, "power": power})
    best = max(best, count / (time.process_time() - began))
print(best)
"""
WATCH = """
import os, resource, sys, time, lull
lull.pick(gpus=0)
w = lull.watch(idle="util < 1 for 30m", every=1.0)
while w.idle is None: time.sleep(0.05)
threads = [int(t) for t in os.listdir("/proc/self/task") if int(t) != os.getpid()]
def used():
    total = 0
    for t in threads:
        fields = open(f"/proc/self/task/{t}/schedstat").read().split()
        total += int(fields[0])
    return total / 1e9
before, began = used(), time.monotonic()
time.sleep(float(sys.argv[1]))
print((used() - before) / (time.monotonic() - began))
"""
# Holds the GIL in C all the while: a watch that needed it to judge would see nothing.
GIL = """
import ctypes, time, lull
lull.pick(gpus=0)
w = lull.watch(idle="util < 5 for 1h", every=0.05)
while not w.held: time.sleep(0.01)
before = w.held
ctypes.PyDLL(None).usleep(1500000)
print(w.held - before)
"""


def run(text, *arguments, env):
    done = subprocess.run([PYTHON, "-c", text, *arguments], env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"a program of this figure failed: {done.stderr}")
    return float(done.stdout)


def import_seconds(module, env):
    text = f"import time; began = time.perf_counter(); import {module}; print(time.perf_counter() - began)"
    return run(text, env=env)


def main():
    pynvml = real_pynvml()
    holder, env = simulation(8)
    env["PYTHONPATH"] = ":".join(filter(None, (MODULE, pynvml)))
    try:
        if pynvml:
            pairs = [(import_seconds("lull", env), import_seconds("pynvml", env)) for _ in range(25)]
            ours, rival = (statistics.median(side) for side in zip(*pairs))
            report("import lull beside import pynvml", f"{ours / rival:.2f} x", "at most 0.33 x", ours <= rival / 3,
                   f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms)")
            pairs = [(run(STATUS, env=env), run(RIVAL, env=env)) for _ in range(5)]
            ours, rival = (statistics.median(side) for side in zip(*pairs))
            report("lull.status() on 8 GPUs beside pynvml", f"{rival / ours:.1f} x faster", "at least 20 x",
                   rival >= 20 * ours, f"({ours * 1e6:.0f} us, {rival * 1e6:.0f} us)")
            slow = dict(env, PYTHONPATH=env["PYTHONPATH"])
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as scenario:
                scenario.write('call_cost = "lists=4.5ms,fan=137us"\n[[gpu]]\nmodel = "H100"\ncount = 8\n')
                scenario.flush()
                ours, rival = (float(subprocess.run([LULL, "sim", "--scenario", scenario.name, "--", PYTHON, "-c", text], env=slow,
                                                    capture_output=True, text=True, check=True).stdout)
                               for text in (STATUS, RIVAL.replace("range(100)", "range(10)")))
            report("    the same where calls take as long as a real driver's", f"{rival / ours:.1f} x faster", "at least 20 x",
                   rival >= 20 * ours, f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms; lists of processes are up to 1 s old)")
        else:
            print("skip    import and status() beside pynvml: tests/clients/run unpacks it")
        rate = cpp_rate()
        ours = statistics.median(run(EVALUATE, env=env) for _ in range(3))
        report("Rule.evaluate beside C++", f"{ours / rate:.2f} x", "at least 0.5 x", ours >= rate / 2,
               f"({ours / 1e6:.0f} M samples/s, {rate / 1e6:.0f} M samples/s)")
        share = run(WATCH, "20", env=env)
        report("a watch at 1 Hz", f"{share * 100:.3f} % of a core", "under 0.1 %", share < 0.001)
        seen = run(GIL, env=env)
        report("what a watch sees while Python holds the GIL for 1.5 s", f"{seen:.2f} s", "at least 1 s", seen >= 1)
    finally:
        holder.stdin.close()
        holder.wait()
    finish()


def cpp_rate():
    import json
    out = subprocess.run([os.path.join(BUILD, "judge_bench"), "--benchmark_filter=^blocks$", "--benchmark_format=json",
                          "--benchmark_repetitions=3", "--benchmark_min_time=0.2"], capture_output=True, text=True, check=True)
    rows = [row for row in json.loads(out.stdout)["benchmarks"] if row["run_type"] == "iteration"]
    return statistics.median(row["items_per_second"] for row in rows)


main()
