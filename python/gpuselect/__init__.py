"""gpuselect, on lull: picks idle GPUs and puts them into CUDA_VISIBLE_DEVICES.

    from gpuselect import gpuselect
    gpuselect()                       # before torch and its like are imported

The same names, arguments and results as the package that it stands in for; docs/drop-ins.md lists what differs, first of
all that two who ask at once never get the same GPU. `lull.pick` is the same with more to ask for.
"""
from ._info import GpuInfo
from .nvmlgpuselect import __filter_gpus, gpuselect, gpustatus

__all__ = ["GpuInfo", "__filter_gpus", "gpuselect", "gpustatus"]
