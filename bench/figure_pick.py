#!/usr/bin/env python3
"""`lull pick -- true` on 8 simulated GPUs: beside `true`, and beside what gpuselect does.

"To the command's exec" is measured as the whole run of a command that does nothing, in which the command itself is on
both sides: the true ratio is greater.
"""
import os
import tempfile

from figures import LULL, finish, real_pynvml, report, simulation, wall_ratio

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"

holder, env = simulation(8)
leases = tempfile.TemporaryDirectory(prefix="lull-bench-", dir="/dev/shm")  # as /run is: in memory
os.chmod(leases.name, 0o1777)
env["LULL_LEASES"] = leases.name
try:
    command = [LULL, "pick", "--", "/bin/true"]
    ratio, ours, rival = wall_ratio(command, ["/bin/true"], turns=300, env=env)
    report("lull pick -- true, 8 GPUs, beside true", f"{ratio:.2f} x", "at most 6 x", ratio <= 6,
           f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms)")
    pynvml = real_pynvml()
    if pynvml:
        env["PYTHONPATH"] = pynvml
    twin = [PYTHON, os.path.join(HERE, "gpuselect_twin.py"), "--", "/bin/true"]
    ratio, ours, rival = wall_ratio(command, twin, turns=30, env=env)
    report("to the command's exec, beside gpuselect", f"{1 / ratio:.1f} x faster", "at least 20 x", ratio <= 1 / 20,
           f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms; rival: a twin in Python {'with pynvml' if pynvml else 'with ctypes in place of pynvml, which is quicker'})")
finally:
    holder.stdin.close()
    holder.wait()
    leases.cleanup()
finish()
