"""One GPU at one moment: GpuInfo is a tuple with names that also answers to the keys of a dict, GpuStatus is a dict."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, NamedTuple, Optional


class _Fields(NamedTuple):
    device: int
    name: str
    util: Optional[int]
    mem_util: Optional[int]
    mem_free: Optional[int]
    mem_used: Optional[int]
    mem_total: Optional[int]
    processes: Optional[int]
    fan_speed: Optional[int]
    effective_power_limt: Optional[int]
    performance_state: Optional[int]
    power_usage: Optional[int]
    temperature: Optional[int]
    is_throttling: Optional[int]


_README_KEYS = {"utilization": "util", "mem_utilization": "mem_util"}
_MEMORY = slice(4, 7)  # mem_free, mem_used, mem_total: GpuInfo had 5 fields at first, then 11, and got these last


class GpuInfo(_Fields):
    """What one GPU showed; `None` is a value that could not be read, such as the fan of a card that has none.

    device (int), name (str), util and mem_util (%), mem_free, mem_used and mem_total (bytes), processes (how many),
    fan_speed (%), effective_power_limt and power_usage (milliwatts), performance_state (0 to 15), temperature (deg C),
    is_throttling (0 or 1).

    >>> info = GpuInfo(device=0, name="T4", util=3, mem_util=1, processes=1)
    >>> info.util, info["utilization"], info[0], info.fan_speed
    (3, 3, 0, None)
    """

    __slots__ = ()

    def __new__(cls, *values: Any, **named: Any) -> GpuInfo:
        """By position the 14 fields, or the 5 or 11 that older versions had; by name any, and those left out are None."""
        fields: tuple[str, ...] = cls._fields
        if len(values) in (5, 11) and not named:
            fields = fields[:_MEMORY.start] + fields[_MEMORY.stop:]
        if len(values) > len(fields):
            raise TypeError(f"GpuInfo has {len(fields)} fields, {len(values)} were given")
        given = dict(zip(fields, values))
        for name, value in named.items():
            if name not in cls._fields:
                raise TypeError(f"GpuInfo has no field '{name}'")
            if name in given:
                raise TypeError(f"GpuInfo got two values for '{name}'")
            given[name] = value
        for name in ("device", "name"):
            if name not in given:
                raise TypeError(f"GpuInfo needs a value for '{name}'")
        return super().__new__(cls, *(given.get(name) for name in cls._fields))  # type: ignore[arg-type]

    def __getitem__(self, key: Any) -> Any:
        """By position, by the name of a field, or by a key of gpuselect's README."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        name = _README_KEYS.get(key, key)
        if name not in self._fields:
            raise KeyError(key)
        return getattr(self, name)

    def __contains__(self, key: object) -> bool:
        return key in self.keys() or super().__contains__(key)

    def keys(self) -> tuple[str, ...]:
        """For dict(info): the fields, and the README's names of two of them."""
        return (*self._fields, *_README_KEYS)

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((key, self[key]) for key in self.keys())

    def values(self) -> Iterator[Any]:
        return (self[key] for key in self.keys())

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self.keys() else default


class GpuStatus(Dict[str, Any]):
    """What gpustatus() returns of each GPU: a dict with the fields of GpuInfo and the README's names of two of them.

    Its values are attributes as well, and a number is the place of a field in GpuInfo.

    >>> status = GpuStatus(GpuInfo(device=0, name="T4", util=3, mem_util=1, processes=1))
    >>> status["utilization"], status.util, status[0], isinstance(status, dict)
    (3, 3, 0, True)
    """

    device: int
    name: str
    util: Optional[int]
    mem_util: Optional[int]
    mem_free: Optional[int]
    mem_used: Optional[int]
    mem_total: Optional[int]
    processes: Optional[int]
    fan_speed: Optional[int]
    effective_power_limt: Optional[int]
    performance_state: Optional[int]
    power_usage: Optional[int]
    temperature: Optional[int]
    is_throttling: Optional[int]

    def __init__(self, info: GpuInfo) -> None:
        super().__init__(info.items())

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.info())[key]

    if not TYPE_CHECKING:  # a type checker is to find a name that is misspelt
        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getitem__(name)
            except KeyError:
                raise AttributeError(f"'GpuStatus' has no field '{name}'") from None

    def info(self) -> GpuInfo:
        """The same as a tuple."""
        return GpuInfo(**{name: super(GpuStatus, self).__getitem__(name) for name in GpuInfo._fields})

    def _asdict(self) -> dict[str, Any]:
        return self.info()._asdict()
