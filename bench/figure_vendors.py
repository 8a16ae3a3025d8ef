#!/usr/bin/env python3
"""GPUs that are read from files: what a sample of 8 AMD cards costs, `lull status` on 8 MI300X, and false idles."""
import glob
import os
import statistics
import subprocess
import tempfile

from figures import BUILD, LULL, finish, numbers, report, wall_ratio

CASES = 10_000
if os.path.isdir("/dev/shm"):
    os.environ.setdefault("TMPDIR", "/dev/shm")  # /sys is in memory, too
BENCH = os.path.join(BUILD, "vendors_bench")


def sample():
    runs = [numbers([BENCH, "sample"]) for _ in range(3)]
    ratio, ours, bare = (statistics.median(run[name] for run in runs) for name in ("ratio", "sample_us", "bare_us"))
    report("sample of 8 AMD GPUs over the same files in a bare loop", f"{ratio:.2f} x", "at most 2 x", ratio <= 2,
           f"({ours:.0f} us, {bare:.0f} us)")


def begin_job(folder, pid):
    """A job that computes on all cards, as KFD and the driver's counter of references show it."""
    sys = os.path.join(folder, "sys")
    process = os.path.join(sys, "class/kfd/kfd/proc", str(pid))
    os.makedirs(os.path.join(process, "queues"))

    def write(path, value):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{value}\n")
    nodes = os.path.join(sys, "class/kfd/kfd/topology/nodes")
    for node in os.listdir(nodes):
        with open(os.path.join(nodes, node, "gpu_id"), encoding="ascii") as file:
            gpu = file.read().strip()
        if gpu != "0":
            write(os.path.join(process, f"vram_{gpu}"), 100 << 30)
            write(os.path.join(process, "queues", node, "gpuid"), gpu)
    for used in glob.glob(os.path.join(sys, "devices/pci*/*/mem_info_vram_used")):
        write(used, (100 << 30) + 296_000_000)
    write(os.path.join(sys, "module/amdgpu/refcnt"), 9)


def status():
    with tempfile.TemporaryDirectory(prefix="lull-bench-") as folder:
        numbers([BENCH, "tree", folder])
        os.makedirs(os.path.join(folder, "proc"))  # without NVIDIA's driver
        env = {**os.environ, "LULL_SIM": folder}
        env.pop("LULL_NVML", None)
        job = subprocess.Popen(["sleep", "infinity"])
        try:
            for what in ("nobody on them", "a job on all"):
                ratio, ours, rival = wall_ratio([LULL, "status", "--json"], ["/bin/true"], turns=100, env=env)
                report(f"lull status --json, 8 MI300X, {what}, beside true", f"{ratio:.2f} x", "at most 5 x", ratio <= 5,
                       f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms)")
                if what != "a job on all":
                    begin_job(folder, job.pid)
        finally:
            job.kill()
            job.wait()


def quirks():
    seen = numbers([BENCH, "quirks", str(CASES)])
    wrong = seen["false_idle"] + seen["false_unused"]
    report(f"readings that call a working card idle or a used one unused, {CASES} random cases with the drivers' faults",
           f"{wrong:.0f}", "0", wrong == 0 and seen["idle"] > CASES / 8,
           f"(seed {seen['seed']:.0f}, {seen['idle']:.0f} idle, {seen['busy']:.0f} busy, {seen['unknown']:.0f} unknown)")


sample()
status()
quirks()
finish()
