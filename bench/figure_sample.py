#!/usr/bin/env python3
"""What a sample costs: against the driver's bare calls, with more GPUs, and against nvidia-smi.

The bare calls run as the sampler's do, on a thread that is woken for them, in turns with it.
"""
import os
import statistics
import subprocess
import time

from figures import BUILD, LULL, finish, numbers, real_nvidia_smi, report, run_cpu, simulation

# The values of a sample, as nvidia-smi tells them for the least: it cannot tell both in one run but by `-q -x`,
# which costs twice as much as these two.
VALUES = ("index,uuid,name,pci.bus_id,utilization.gpu,utilization.memory,memory.used,memory.free,memory.total,"
          "power.draw,enforced.power.limit,temperature.gpu,fan.speed,clocks.sm,clocks.mem,pstate,"
          "clocks_throttle_reasons.active")
PROCESSES = "gpu_uuid,pid,used_memory"


def cpu_of_nvidia_smi(smi, env):
    return statistics.median(run_cpu([smi, f"--query-gpu={VALUES}", "--format=csv"], env) +
                             run_cpu([smi, f"--query-compute-apps={PROCESSES}", "--format=csv"], env) for _ in range(20))


def cpu_while_it_runs(command, env, seconds):
    """Processor seconds of a program that samples until it is told to stop, but for those of its start."""
    def run(length):
        job = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(length)
        job.terminate()
        _, _, usage = os.wait4(job.pid, 0)
        job.returncode = 0  # it was waited for
        return usage.ru_utime + usage.ru_stime
    return run(seconds + 1) - run(1)


def steady(smi, env):
    """Both sample all the time, ten times a second, and write what they see."""
    turns = [(cpu_while_it_runs([smi, f"--query-gpu={VALUES}", "--format=csv", "-lms", "100"], env, 5),
              cpu_while_it_runs([LULL, "record", "--every", "100ms"], env, 5)) for _ in range(3)]
    rival, ours = map(statistics.median, zip(*turns))
    report("CPU of nvidia-smi -lms 100 over that of lull record --every 100ms", f"{rival / ours:.2f} x", "at least 1 x",
           rival >= ours, f"({rival / 5 * 1e3:.1f} ms and {ours / 5 * 1e3:.1f} ms a second)")


def main():
    smi = real_nvidia_smi()
    runs = []
    holder, env = simulation(8)
    try:
        for _ in range(3):
            runs.append(numbers([os.path.join(BUILD, "sample_bench")]))
            if smi:
                runs[-1]["smi_cpu_us"] = cpu_of_nvidia_smi(smi, env) * 1e6
        if smi:
            steady(smi, env)
    finally:
        holder.stdin.close()
        holder.wait()

    def middle(name):
        return statistics.median(run[name] for run in runs)

    ratio = middle("ratio8")
    report("sample of 8 GPUs, in the sensor process, over the bare NVML calls", f"{ratio:.2f} x", "at most 1.3 x",
           ratio <= 1.3, f"calls {middle('calls8_us'):.1f} us")
    over = middle("hand_over8_us")
    report("hand-over of a sample of 8 GPUs: asking, and having what was read", f"{over:.0f} us", "under 100 us",
           over < 100, "both processes on one processor")
    linear = statistics.median(run["took64_us"] / 64 / (run["took8_us"] / 8) for run in runs)
    report("time a GPU of 64 over that of 8", f"{linear:.2f} x", "at most 1.3 x", linear <= 1.3,
           f"{middle('took8_us'):.1f} us and {middle('took64_us'):.1f} us")
    print(f"        the first sample of 8 GPUs, process and library included: {middle('first8_us'):.0f} us")
    if smi:
        cheaper = statistics.median(run["smi_cpu_us"] / run["cpu8_us"] for run in runs)
        report("CPU of the real nvidia-smi over a sample of 8 GPUs, for the same values", f"{cheaper:.0f} x",
               "at least 100 x", cheaper >= 100, f"{middle('smi_cpu_us') / 1000:.1f} ms and {middle('cpu8_us'):.1f} us")
    else:
        print("skip    CPU of the real nvidia-smi: not here; './test clients' fetches it")
    finish()


main()
