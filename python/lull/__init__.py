"""lull finds GPUs that sit idle, says why it believes so, and does something about it.

Two lines at the top of a training script hold idle GPUs for it and end it when it hangs:

    import lull
    lull.pick(count=2, wait=True)            # sets CUDA_VISIBLE_DEVICES; before CUDA is used
    lull.watch(idle="util < 1 for 30m", do="exit")

What is where: status() and Sampler show the GPUs, leases() who holds them; pick() holds some; watch() acts when a rule fires; Rule and replay()
judge numbers that are there already; simulate() makes GPUs for tests. docs/python.md has more.
"""
from ._core import (DriverError, Error, Firing, Gpu, Lease, Process, Rule, RuleError, RuleFiring, Sampler, Signal, UsageError,
                    Verdict, __version__, status)

# What is seldom needed, or needs more of Python, is imported when it is first used: `import lull` stays cheap.
_LAZY = {
    "CudaInitializedError": "_pick",
    "Leases": "_leases",
    "leases": "_leases",
    "Pick": "_pick",
    "PickError": "_pick",
    "PickTimeout": "_pick",
    "pick": "_pick",
    "Record": "_replay",
    "Replay": "_replay",
    "Report": "_replay",
    "replay": "_replay",
    "report": "_replay",
    "Simulation": "_simulate",
    "simulate": "_simulate",
    "IdleExit": "_watch",
    "Watch": "_watch",
    "watch": "_watch",
}

__all__ = ["DriverError", "Error", "Firing", "Gpu", "Lease", "Process", "Rule", "RuleError", "RuleFiring", "Sampler", "Signal",
           "UsageError", "Verdict", "status", *_LAZY]


def __getattr__(name):
    place = _LAZY.get(name)
    if place is None:
        raise AttributeError(f"module 'lull' has no attribute {name!r}")
    from importlib import import_module
    found = getattr(import_module("." + place, __name__), name)
    globals()[name] = found
    return found


def __dir__():
    return sorted({*globals(), *__all__})
