from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Sequence, Type, Union

from . import Error

Number = Union[int, float, str]

class PickError(Error):
    reasons: List[str]
    def __init__(self, text: str, reasons: Sequence[str] = ()) -> None: ...

class PickTimeout(PickError, TimeoutError): ...
class CudaInitializedError(Error): ...

class Pick:
    gpus: List[Dict[str, Any]]
    environment: Dict[str, str]
    lease: Optional[str]
    @property
    def indices(self) -> List[int]: ...
    @property
    def uuids(self) -> List[str]: ...
    @property
    def held(self) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> Pick: ...
    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...

def pick(
    count: Union[int, str] = 1,
    *,
    gpus: Union[None, int, str, Sequence[Union[int, str]]] = None,
    vendor: Optional[str] = None,
    name: Optional[str] = None,
    util: Optional[Number] = None,
    mem_util: Optional[Number] = None,
    mem_free: Optional[Number] = None,
    mem_used: Optional[Number] = None,
    procs: Optional[Number] = None,
    temp: Optional[Number] = None,
    where: Optional[str] = None,
    tolerate: Optional[Number] = None,
    share: Optional[int] = None,
    mine_ok: bool = False,
    best: Optional[str] = None,
    uuid: bool = False,
    wait: Union[bool, int, float, str] = False,
    priority: Optional[int] = None,
    lease: bool = True,
) -> Pick: ...

def choose(options: Sequence[str]) -> Pick: ...
