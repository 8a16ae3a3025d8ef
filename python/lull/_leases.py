"""lull.leases(): who holds which GPU, and who waits.

`lull leases --json` does it: the lease folder is read as on the command line.
"""
import json

from ._core import Error
from ._helper import run, words_of
from ._replay import Record
from ._table import duration, number, table


class Leases(list):
    """A list of leases; `waiting` has those who wait. A notebook shows it as a table."""

    def __init__(self, answer):
        super().__init__(Record(one) for one in answer["leases"])
        self.folder = answer["folder"]
        self.waiting = [Record(one) for one in answer["queue"]]

    def _repr_html_(self):
        rows = [[one.label or one.gpu, one.user, number(one.pid), one.command or "", one.since or "",
                 number(one.util_percent, unit=" %"), duration(one.idle_seconds)] for one in self]
        rows += [["waits", one.user, number(one.pid), one.command or "", one.since or "", "", ""] for one in self.waiting]
        return table(["GPU", "USER", "PID", "COMMAND", "SINCE", "UTIL", "IDLE FOR"], rows)


def leases():
    """The leases of `lull pick` and lull.pick() on this machine, with the fields of `lull leases --json`.

    >>> import lull
    >>> with lull.simulate(gpus=2), lull.pick() as picked:
    ...     leases = lull.leases()
    ...     [lease.label for lease in leases] == [str(index) for index in picked], leases.waiting
    (True, [])
    """
    status, out, complaints = run("leases", "--json")
    if status != 0:
        raise Error(words_of(complaints, status, "leases"))
    return Leases(json.loads(out))
