"""lull.replay(): what a rule would have done to recorded telemetry. lull.report(): how its GPUs were used, and by whom.

`lull replay --json` and `lull report --json` do it: the reader of traces, the gaps and the counting are those of the command
line.
"""
import html
import json
import logging
import os
import tempfile

from ._core import Error, Rule, UsageError
from ._helper import EXIT_USAGE, run, seconds_text, words_of

_log = logging.getLogger("lull")


def _text(value):
    """As people read it: four digits of a number, and - for None. The objects keep every digit."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return str(value)


def _table(rows):
    """Dictionaries of the same keys as an HTML table."""
    if not rows:
        return "<p>nothing</p>"
    cells = lambda tag, values: "".join(f"<{tag}>{html.escape(_text(one))}</{tag}>" for one in values)
    body = "".join(f"<tr>{cells('td', row.values())}</tr>" for row in rows[:_MOST_SHOWN])
    more = f"<p>and {len(rows) - _MOST_SHOWN} more</p>" if len(rows) > _MOST_SHOWN else ""
    return f"<table><thead><tr>{cells('th', rows[0])}</tr></thead><tbody>{body}</tbody></table>{more}"


_MOST_SHOWN = 100


class Record:
    """Named values of a result; as_dict() has them all. The names carry their unit, as in the JSON of the command line."""

    def __init__(self, values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        raise AttributeError(f"there is no {name!r} here; there are {', '.join(self.__dict__)}")

    def as_dict(self):
        return dict(self.__dict__)

    def __eq__(self, other):
        return isinstance(other, Record) and self.__dict__ == other.__dict__

    def __repr__(self):
        shown = list(self.__dict__.items())
        inside = ", ".join(f"{name}={_text(value) if isinstance(value, float) else repr(value)}" for name, value in shown[:6])
        return f"<lull.Record {inside}{', …' if len(shown) > 6 else ''}>"

    def _repr_html_(self):
        return _table([{"": name, "value": value} for name, value in self.__dict__.items()])


class Records(list):
    """A list of records; a notebook shows it as a table."""

    def __init__(self, rows=()):
        super().__init__(Record(row) for row in rows)

    def _repr_html_(self):
        return _table([one.as_dict() for one in self])


class Replay:
    """The result: `recommendation` (or None, and why in `recommendation_missing`), `totals`, `ends` (the jobs that would have
    been ended), `hurt` (these, summed by user, command and host), `gpus` and, where asked for, `sweep`, each as records. With
    verbose=True also `events`, one for each firing."""

    def __init__(self, answer):
        self._answer = answer
        self.answer = answer["answer"]
        self.basis = answer["basis"]
        self.recommendation = Record(answer["recommendation"]) if answer["recommendation"] else None
        self.recommendation_missing = answer["recommendation_missing"]
        self.ends = Records(answer["ends"])
        self.hurt = Records(answer["hurt"])
        self.events = Records(answer.get("events", []))
        self.gpus = Records(answer["per_gpu"])
        self.sweep = Records(answer.get("sweep", []))
        self.totals = Record(answer["totals"])

    def as_dict(self):
        """All of it, as `lull replay --json` prints it."""
        return self._answer

    def events_frame(self):
        """The events as a pandas DataFrame."""
        return _frame(self._answer.get("events", []))

    def ends_frame(self):
        """The jobs that would have been ended as a pandas DataFrame."""
        return _frame(self._answer["ends"])

    def gpus_frame(self):
        """The GPUs as a pandas DataFrame."""
        return _frame(self._answer["per_gpu"])

    def sweep_frame(self):
        """The sweep as a pandas DataFrame."""
        return _frame(self._answer.get("sweep", []))

    def __repr__(self):
        return f"<lull.Replay {self.answer}>"

    def _repr_html_(self):
        shown = ("for", "util", "jobs", "ended", "worked_again", "work_lost_ratio", "work_lost_high",
                 "freed_hours", "recommended")
        rows = self._answer.get("sweep") or [self._answer["totals"]]
        return (f"<p><b>{html.escape(self.answer)}</b><br>{html.escape(self.basis)}</p>" +
                _table([{name: row[name] for name in shown if name in row} for row in rows]))


class Report:
    """How the GPUs were used: `answer` and `basis` in words, `totals`, and by whom: `by_user`, `by_command`, `by_host` and
    `uses` (by all three), each as records."""

    def __init__(self, answer):
        self._answer = answer
        self.answer = answer["answer"]
        self.basis = answer["basis"]
        self.totals = Record(answer["totals"])
        self.by_user, self.by_command, self.by_host, self.uses = (
            Records(answer[name]) for name in ("by_user", "by_command", "by_host", "uses"))

    def as_dict(self):
        """All of it, as `lull report --json` prints it."""
        return self._answer

    def uses_frame(self):
        """Who used how much, by user, command and host, as a pandas DataFrame."""
        return _frame(self._answer["uses"])

    def __repr__(self):
        return f"<lull.Report {self.answer}>"

    def _repr_html_(self):
        rows = [{name: value for name, value in row.items() if not name.startswith("idle_after_") and name != "nobody"}
                for row in self._answer["by_user"]]
        for row, one in zip(rows, self._answer["by_user"]):
            row["user"] = "nobody" if one["nobody"] else row["user"]
        return f"<p><b>{html.escape(self.answer)}</b><br>{html.escape(self.basis)}</p>" + _table(rows)


def _frame(rows):
    try:
        import pandas
    except ImportError:
        raise Error("a frame needs pandas; the records have the same") from None
    return pandas.DataFrame(rows)


def _columns_text(columns):
    if columns is None or isinstance(columns, str):
        return columns
    return ",".join(f"{role}={name}" for role, name in columns.items())


def replay(trace, idle=None, *, arm=None, per="gpu", regret=None, every=None, delay=None, gap=None, missing=None, price=None,
           sweep=None, columns=None, threads=None, lose=None, except_user=None, verbose=False):
    """Tries a rule on a recording: what it would have ended and freed, and whose work it would have lost.

    `trace` is a path, several of them, or a pandas DataFrame (its columns named as `lull record` names them, or through
    `columns`, such as {"time": "ts", "util": "load"}). `idle` is a rule, the name of one, or a time: "2h" is the default rule
    for two hours; without it the default rule is tried. `sweep` tries other values too: {"for": ["5m", "30m"], "util": [1, 5]},
    or "for=5m,30m". `lose` is a share ("1%", or 0.01). `except_user` is a name or a list of names. The rest are the options of `lull replay`, see lull-replay(1).

    >>> import lull, tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("timestamp,gpu,util_percent\\n")
    ...     _ = file.writelines(f"{60 * i},0,{0 if i > 10 else 90}\\n" for i in range(60))
    ...     file.flush()
    ...     result = lull.replay(file.name, "util < 5 for 10m")
    >>> result.totals.ended, result.ends[0].then, result.gpus[0].samples, result.recommendation
    (1, 'end of trace', 60, None)
    """
    options = ["--per", per]
    if idle is not None:
        options += ["--idle", idle.text if isinstance(idle, Rule) else str(idle)]
    for name, value in (("regret", regret), ("delay", delay)):
        if value is not None:
            options += [f"--{name}", seconds_text(value)]
    if isinstance(lose, (int, float)):
        if not 0 <= lose < 1:
            raise ValueError(f"lose={lose}: a share from 0 to 1, such as 0.01, or '1%'")
        lose = f"{100 * lose:.10g}%"
    for name, value in (("arm", arm), ("missing", missing), ("lose", lose)):
        if value is not None:
            options += [f"--{name}", str(value)]
    for user in [except_user] if isinstance(except_user, str) else except_user or ():
        options += ["--except-user", str(user)]
    if verbose:
        options.append("--verbose")
    axes = [sweep] if isinstance(sweep, str) else [
        f"{name}={values if isinstance(values, str) else ','.join(map(str, values))}" for name, values in (sweep or {}).items()]
    for axis in axes:
        options += ["--sweep", axis]
    return Replay(_answer("replay", trace, options, every, gap, price, columns, threads))


def report(trace, *, idle=None, hung=None, every=None, gap=None, price=None, columns=None, threads=None):
    """Adds up how the GPUs of a recording were used: GPU-hours busy, held idle, hung and free, by user, command and host.

    `trace` and `columns` are as in replay(), the rest are the options of `lull report`, see lull-report(1).

    >>> import lull, tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("timestamp,gpu,util_percent,user\\n")
    ...     _ = file.writelines(f"{60 * i},0,{0 if i > 30 else 90},ada\\n" for i in range(61))
    ...     file.flush()
    ...     use = lull.report(file.name)
    >>> use.by_user[0].user, use.totals.busy_hours, use.totals.idle_hours
    ('ada', 0.5, 0.5)
    """
    options = []
    for name, value in (("idle", idle), ("hung", hung)):
        if value is not None:
            options += [f"--{name}", value.text if isinstance(value, Rule) else str(value)]
    return Report(_answer("report", trace, options, every, gap, price, columns, threads))


def _answer(command, trace, options, every, gap, price, columns, threads):
    options = ["--json", *options]
    for name, value in (("every", every), ("gap", gap)):
        if value is not None:
            options += [f"--{name}", seconds_text(value)]
    for name, value in (("price", price), ("columns", _columns_text(columns)), ("threads", threads)):
        if value is not None:
            options += [f"--{name}", str(value)]
    if hasattr(trace, "to_csv"):
        with tempfile.NamedTemporaryFile("w", suffix=".csv", prefix="lull-replay-", newline="") as file:
            has_time = any(name is not None for name in trace.index.names)
            trace.to_csv(file, index=has_time)
            file.flush()
            return _run(command, [file.name], options)
    paths = [trace] if isinstance(trace, (str, os.PathLike)) else list(trace)
    if not paths:
        raise UsageError("trace: a path, or several, would be right")
    return _run(command, [os.fspath(path) for path in paths], options)


def _run(command, paths, options):
    status, out, complaints = run(command, *options, "--", *paths)
    if status != 0:
        raise (UsageError if status == EXIT_USAGE else Error)(words_of(complaints, status, command))
    for line in complaints.splitlines():
        _log.warning("%s", line[len("lull: "):] if line.startswith("lull: ") else line)
    return json.loads(out)
