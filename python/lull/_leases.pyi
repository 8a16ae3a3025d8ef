from typing import List

from ._replay import Record

class Leases(List[Record]):
    folder: str
    waiting: List[Record]

def leases() -> Leases: ...
