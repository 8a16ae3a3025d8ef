import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from . import Rule

Time = Union[None, str, int, float]
Path = Union[str, os.PathLike[str]]

class Record:
    def __getattr__(self, name: str) -> Any: ...
    def as_dict(self) -> Dict[str, Any]: ...
    def _repr_html_(self) -> str: ...

class Records(List[Record]):
    def __init__(self, rows: Iterable[Mapping[str, Any]] = ...) -> None: ...
    def _repr_html_(self) -> str: ...

class Replay:
    answer: str
    basis: str
    recommendation: Optional[Record]
    recommendation_missing: Optional[str]
    totals: Record
    ends: Records
    hurt: Records
    events: Records
    gpus: Records
    sweep: Records
    def as_dict(self) -> Dict[str, Any]: ...
    def ends_frame(self) -> Any: ...
    def events_frame(self) -> Any: ...
    def gpus_frame(self) -> Any: ...
    def sweep_frame(self) -> Any: ...
    def _repr_html_(self) -> str: ...

class Report:
    answer: str
    basis: str
    totals: Record
    by_user: Records
    by_command: Records
    by_host: Records
    uses: Records
    def as_dict(self) -> Dict[str, Any]: ...
    def uses_frame(self) -> Any: ...
    def _repr_html_(self) -> str: ...

def replay(
    trace: Union[Path, Sequence[Path], Any],
    idle: Union[None, str, Rule] = None,
    *,
    arm: Union[None, str, Rule] = None,
    per: str = "gpu",
    regret: Time = None,
    every: Time = None,
    delay: Time = None,
    gap: Time = None,
    missing: Optional[str] = None,
    price: Optional[float] = None,
    sweep: Union[None, str, Mapping[str, Union[str, Sequence[Union[str, int, float]]]]] = None,
    columns: Union[None, str, Mapping[str, str]] = None,
    threads: Optional[int] = None,
    lose: Union[None, str, float] = None,
    except_user: Union[None, str, Sequence[str]] = None,
    verbose: bool = False,
) -> Replay: ...

def report(
    trace: Union[Path, Sequence[Path], Any],
    *,
    idle: Union[None, str, Rule] = None,
    hung: Union[None, str, Rule] = None,
    every: Time = None,
    gap: Time = None,
    price: Optional[float] = None,
    columns: Union[None, str, Mapping[str, str]] = None,
    threads: Optional[int] = None,
) -> Report: ...
