import ctypes
import os
import subprocess
from types import TracebackType
from typing import Dict, Optional, Type, Union

Value = Union[None, int, float, str]

class Simulation:
    environment: Dict[str, str]
    def __init__(
        self,
        gpus: Union[None, int, str] = None,
        *,
        scenario: Union[None, str, os.PathLike[str]] = None,
        speed: Optional[float] = None,
    ) -> None: ...
    def __enter__(self) -> Simulation: ...
    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def folder(self) -> str: ...
    def set(self, gpu: Union[int, str] = "all", **values: Value) -> None: ...
    def fault(
        self, gpu: Union[int, str], kind: str, *, function: Optional[str] = None, lasting: Optional[str] = None
    ) -> None: ...
    def clear(self, gpu: Union[int, str] = "all") -> None: ...
    def load(
        self,
        gpu: Union[int, str] = 0,
        *,
        util: float = 90,
        mem: Union[None, int, str] = None,
        command: Optional[str] = None,
    ) -> subprocess.Popen[bytes]: ...
    def load_nvml(self) -> ctypes.CDLL: ...

def simulate(
    gpus: Union[None, int, str] = None,
    *,
    scenario: Union[None, str, os.PathLike[str]] = None,
    speed: Optional[float] = None,
) -> Simulation: ...
