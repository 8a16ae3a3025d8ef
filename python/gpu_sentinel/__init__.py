"""gpu_sentinel, on lull: acts once GPUs that have worked stop working.

    from gpu_sentinel import Sentinel, get_gpu_usage

    sentinel = Sentinel(arm_duration=10, arm_threshold=0.7, kill_duration=60, kill_threshold=0.7, kill_fn=exit)
    while True:
        sentinel.tick(get_gpu_usage(device_ids=None))
        time.sleep(1)

The same names, arguments and results as the package that it stands in for; docs/drop-ins.md lists what differs.
`lull.watch` does the same in a thread of its own and by time instead of ticks.
"""
from .main import get_gpu_usage
from .sentinel import Sentinel, SentinelState

__all__ = ["Sentinel", "SentinelState", "get_gpu_usage"]
