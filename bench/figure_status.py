"""`lull status --json` on 8 simulated GPUs: wall time beside `true`, and peak memory."""

from figures import LULL, finish, peak_memory_mib, report, simulation, wall_ratio

holder, env = simulation(8)
try:
    command = [LULL, "status", "--json"]
    ratio, ours, rival = wall_ratio(command, ["/bin/true"], turns=300, env=env)
    report("lull status --json, 8 GPUs, beside true", f"{ratio:.2f} x", "at most 5 x", ratio <= 5,
           f"({ours * 1e3:.2f} ms, {rival * 1e3:.2f} ms)")
    peak = peak_memory_mib(command, env)
    report("peak memory of lull status --json", f"{peak:.1f} MiB", "at most 8 MiB", peak <= 8)
finally:
    holder.stdin.close()
    holder.wait()
finish()
