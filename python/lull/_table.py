"""Lists that a notebook shows as tables."""
from html import escape


def table(titles, rows):
    """Rows of cells as an HTML table; numbers stand at the right."""
    def cells(tag, row):
        return "".join(f"<{tag} style=\"text-align:{'left' if isinstance(cell, str) else 'right'}\">"
                       f"{escape(str(cell if not isinstance(cell, _Right) else cell.text))}</{tag}>" for cell in row)

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', titles)}</tr></thead><tbody>{body}</tbody></table>"


class _Right:
    def __init__(self, text):
        self.text = text


def number(value, form="{:.0f}", unit=""):
    """A value as the command line shows it; "-" of one that is not known."""
    return _Right("-" if value is None else form.format(value) + unit)


def gib(value):
    return None if value is None else value / 2**30


def duration(seconds):
    """12s, 5m3s, 2h1m."""
    if seconds is None:
        return ""
    seconds = int(seconds)
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    return "".join(f"{count}{unit}" for count, unit in parts if count)[:12] or "0s"


def _memory(gpu):
    if gpu.mem_used is None and gpu.mem_total is None:
        return number(None)
    used, total = ("?" if value is None else f"{gib(value):.1f}" for value in (gpu.mem_used, gpu.mem_total))
    return _Right(f"{used} / {total} GiB")


def _owners(gpu):
    if gpu.processes is None:
        return "?"
    owners = []
    for process in gpu.processes:
        if process.mps_server:
            continue
        owner = (process.user or "?") + ("'s filler" if process.pid in gpu.fillers else "")
        if owner not in owners:
            owners.append(owner)
    return ", ".join(owners)


def gpu_row(gpu):
    if gpu.error:
        return [gpu.label, gpu.name or "?", gpu.error, "", "", "", "", "", ""]
    return [gpu.label, gpu.name or "?", "asleep" if gpu.asleep else number(gpu.util, unit=" %"), _memory(gpu),
            number(gpu.power, unit=" W"), number(gpu.temp, unit=" C"), duration(gpu.idle_for), _owners(gpu),
            ", ".join(f"{lease.user}: {lease.command}" for lease in gpu.leases)]


class Gpus(list):
    """What lull.status() returns: a list of Gpu records, which a notebook shows as a table."""

    def _repr_html_(self):
        return table(["GPU", "NAME", "UTIL", "MEMORY", "POWER", "TEMP", "IDLE FOR", "OWNER", "LEASED TO"],
                     [gpu_row(gpu) for gpu in self])
