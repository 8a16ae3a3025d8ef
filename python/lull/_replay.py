"""lull.replay(): what a rule would have done to recorded telemetry.

`lull replay --json` does it: the reader of traces, the gaps and the counting are those of the command line.
"""
import json
import logging
import os
import tempfile

from ._core import Error, Rule, UsageError
from ._helper import EXIT_USAGE, run, seconds_text, words_of

_log = logging.getLogger("lull")


class Record:
    """Named values of a replay; as_dict() has them all. The names carry their unit, as in `lull replay --json`."""

    def __init__(self, values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        raise AttributeError(f"there is no {name!r} here; there are {', '.join(self.__dict__)}")

    def as_dict(self):
        return dict(self.__dict__)

    def __eq__(self, other):
        return isinstance(other, Record) and self.__dict__ == other.__dict__

    def __repr__(self):
        inside = ", ".join(f"{name}={value!r}" for name, value in list(self.__dict__.items())[:6])
        return f"<lull.Record {inside}{', …' if len(self.__dict__) > 6 else ''}>"


class Replay:
    """The result: `totals`, `events` (one for each firing), `gpus` and, where asked for, `sweep`, each as records."""

    def __init__(self, answer):
        self._answer = answer
        self.events = [Record(one) for one in answer["events"]]
        self.gpus = [Record(one) for one in answer["per_gpu"]]
        self.sweep = [Record(one) for one in answer.get("sweep", [])]
        self.totals = Record({name: value for name, value in answer.items()
                              if name not in ("events", "per_gpu", "sweep", "knees", "knee")})

    def as_dict(self):
        """All of it, as `lull replay --json` prints it."""
        return self._answer

    def events_frame(self):
        """The events as a pandas DataFrame."""
        return _frame(self._answer["events"])

    def gpus_frame(self):
        """The GPUs as a pandas DataFrame."""
        return _frame(self._answer["per_gpu"])

    def sweep_frame(self):
        """The sweep as a pandas DataFrame."""
        return _frame(self._answer.get("sweep", []))

    def __repr__(self):
        return f"<lull.Replay {self.totals.firings} firings, {self.totals.reclaimed_hours:.1f} h reclaimed>"


def _frame(rows):
    try:
        import pandas
    except ImportError:
        raise Error("a frame needs pandas; events, gpus and sweep have the same as records") from None
    return pandas.DataFrame(rows)


def _columns_text(columns):
    if columns is None or isinstance(columns, str):
        return columns
    return ",".join(f"{role}={name}" for role, name in columns.items())


def replay(trace, rule, *, arm=None, per="gpu", regret=None, every=None, delay=None, gap=None, missing=None, price=None,
           sweep=None, columns=None, threads=None):
    """Tries a rule on a recording: what it would have ended, what that would have saved, whom it would have hurt.

    `trace` is a path, several of them, or a pandas DataFrame (its columns named as `lull record` names them, or through
    `columns`, such as {"time": "ts", "util": "load"}). `sweep` tries other values too: {"for": ["5m", "30m"], "util": [1, 5]}.
    The rest are the options of `lull replay`, see lull-replay(1).

    >>> import lull, tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("timestamp,gpu,util_percent\\n")
    ...     _ = file.writelines(f"{60 * i},0,{0 if i > 10 else 90}\\n" for i in range(60))
    ...     file.flush()
    ...     result = lull.replay(file.name, "util < 5 for 10m")
    >>> result.totals.firings, result.events[0].idle_seconds, result.gpus[0].samples
    (1, 600, 60)
    """
    if isinstance(rule, Rule):
        rule = rule.text
    options = ["--json", "--idle", str(rule), "--per", per]
    for name, value in (("regret", regret), ("every", every), ("delay", delay), ("gap", gap)):
        if value is not None:
            options += [f"--{name}", seconds_text(value)]
    for name, value in (("arm", arm), ("missing", missing), ("price", price), ("columns", _columns_text(columns)),
                        ("threads", threads)):
        if value is not None:
            options += [f"--{name}", str(value)]
    for name, values in (sweep or {}).items():
        options += ["--sweep", f"{name}={','.join(str(one) for one in values)}"]
    if hasattr(trace, "to_csv"):
        with tempfile.NamedTemporaryFile("w", suffix=".csv", prefix="lull-replay-", newline="") as file:
            has_time = any(name is not None for name in trace.index.names)
            trace.to_csv(file, index=has_time)
            file.flush()
            return _run([file.name], options)
    paths = [trace] if isinstance(trace, (str, os.PathLike)) else list(trace)
    if not paths:
        raise UsageError("trace: a path, or several, would be right")
    return _run([os.fspath(path) for path in paths], options)


def _run(paths, options):
    status, out, complaints = run("replay", *options, "--", *paths)
    if status != 0:
        raise (UsageError if status == EXIT_USAGE else Error)(words_of(complaints, status, "replay"))
    for line in complaints.splitlines():
        _log.warning("%s", line[len("lull: "):] if line.startswith("lull: ") else line)
    return Replay(json.loads(out))
