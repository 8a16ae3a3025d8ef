import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import Rule

Time = Union[None, str, int, float]
Path = Union[str, os.PathLike[str]]

class Record:
    def __getattr__(self, name: str) -> Any: ...
    def as_dict(self) -> Dict[str, Any]: ...

class Replay:
    totals: Record
    events: List[Record]
    gpus: List[Record]
    sweep: List[Record]
    def as_dict(self) -> Dict[str, Any]: ...
    def events_frame(self) -> Any: ...
    def gpus_frame(self) -> Any: ...
    def sweep_frame(self) -> Any: ...

def replay(
    trace: Union[Path, Sequence[Path], Any],
    rule: Union[str, Rule],
    *,
    arm: Union[None, str, Rule] = None,
    per: str = "gpu",
    regret: Time = None,
    every: Time = None,
    delay: Time = None,
    gap: Time = None,
    missing: Optional[str] = None,
    price: Optional[float] = None,
    sweep: Optional[Mapping[str, Sequence[Union[str, int, float]]]] = None,
    columns: Union[None, str, Mapping[str, str]] = None,
    threads: Optional[int] = None,
) -> Replay: ...
