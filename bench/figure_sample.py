#!/usr/bin/env python3
"""What a sample costs: against the driver's bare calls, with more GPUs, and against nvidia-smi.

The bare calls run as the sampler's do, on a thread that is woken for them, in turns with it.
"""
import os
import statistics
import subprocess

from figures import BUILD, finish, real_nvidia_smi, report


def bench(*command):
    out = subprocess.run([os.path.join(BUILD, "sample_bench"), *command], capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"sample_bench: {out.stderr.strip() or out.returncode}")
    return {name: float(number) for name, number in (line.split() for line in out.stdout.splitlines())}


def main():
    smi = real_nvidia_smi()
    query = "index,uuid,name,utilization.gpu,utilization.memory,memory.used,memory.total,power.draw,temperature.gpu"
    command = [smi, f"--query-gpu={query}", "--format=csv"] if smi else []
    runs = [bench(*command) for _ in range(3)]

    def middle(name):
        return statistics.median(run[name] for run in runs)

    ratio = middle("ratio8")
    report("sample of 8 GPUs over the bare NVML calls", f"{ratio:.2f} x", "at most 1.2 x", ratio <= 1.2,
           f"calls {middle('calls8_us'):.1f} us; asked for and waited for, both ways alike: {middle('wall_ratio8'):.2f} x")
    linear = statistics.median(run["took64_us"] / 64 / (run["took8_us"] / 8) for run in runs)
    report("time a GPU of 64 over that of 8", f"{linear:.2f} x", "at most 1.3 x", linear <= 1.3,
           f"{middle('took8_us'):.1f} us and {middle('took64_us'):.1f} us")
    print(f"        the first sample of 8 GPUs, thread and library included: {middle('first8_us'):.0f} us")
    if smi:
        cheaper = statistics.median(run["program_cpu_us"] / run["cpu8_us"] for run in runs)
        report("CPU of the real nvidia-smi over a sample of 8 GPUs", f"{cheaper:.0f} x", "at least 100 x", cheaper >= 100,
               f"{middle('program_cpu_us') / 1000:.1f} ms and {middle('cpu8_us') / 1000:.3f} ms")
    else:
        print("skip    CPU of the real nvidia-smi: not here; './test clients' fetches it")
    finish()


main()
