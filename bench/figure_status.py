"""`lull status --json` on 8 simulated GPUs: wall time beside `true`, and peak memory."""
import os
import subprocess

from figures import LULL, finish, peak_memory_mib, report, wall_ratio

holder = subprocess.Popen([LULL, "sim", "--gpus", "8", "--", "sh", "-c", 'env -0; printf "READY=1\\0"; exec cat'],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
text = b""
while not text.endswith(b"READY=1\0"):
    more = os.read(holder.stdout.fileno(), 65536)
    if not more:
        raise SystemExit("lull sim did not start")
    text += more
env = dict(pair.split("=", 1) for pair in text.decode().split("\0") if "=" in pair)
try:
    command = [LULL, "status", "--json"]
    ratio, ours, rival = wall_ratio(command, ["/bin/true"], turns=300, env=env)
    report("lull status --json, 8 GPUs, beside true", f"{ratio:.2f} x", "at most 3 x", ratio <= 3,
           f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms)")
    peak = peak_memory_mib(command, env)
    report("peak memory of lull status --json", f"{peak:.1f} MiB", "at most 8 MiB", peak <= 8)
finally:
    holder.stdin.close()
    holder.wait()
finish()
