#!/usr/bin/env python3
"""GPUs that are read from files: what a sample of 8 AMD cards costs, `lull status` on 8 MI300X, and false idles."""
import os
import statistics
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


def status():
    with tempfile.TemporaryDirectory(prefix="lull-bench-") as folder:
        numbers([BENCH, "tree", folder])
        os.makedirs(os.path.join(folder, "proc"))  # without NVIDIA's driver
        env = {**os.environ, "LULL_SIM": folder}
        env.pop("LULL_NVML", None)
        ratio, ours, rival = wall_ratio([LULL, "status", "--json"], ["/bin/true"], turns=200, env=env)
        # Where a job has them open, which KFD knows.
        with open(os.path.join(folder, "sys/module/amdgpu/refcnt"), "w", encoding="ascii") as references:
            references.write("9\n")
        used, slower, _ = wall_ratio([LULL, "status", "--json"], ["/bin/true"], turns=50, env=env)
    report("lull status --json, 8 MI300X, beside true", f"{ratio:.2f} x", "at most 5 x", ratio <= 5,
           f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms; {used:.2f} x, {slower * 1e3:.2f} ms with the driver in use)")


def quirks():
    seen = numbers([BENCH, "quirks", str(CASES)])
    report(f"readings that call a working card idle, {CASES} random cases with the drivers' faults",
           f"{seen['false_idle']:.0f}", "0", seen["false_idle"] == 0 and seen["idle"] > CASES / 8,
           f"(seed {seen['seed']:.0f}, {seen['idle']:.0f} idle, {seen['busy']:.0f} busy, {seen['unknown']:.0f} unknown)")


sample()
status()
quirks()
finish()
