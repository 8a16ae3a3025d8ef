"""Running the program `lull` for this process: with Ctrl-C heard at once, and its words as exceptions."""
import os
import subprocess

from . import Error, UsageError
from ._program import find

EXIT_USAGE = 2
EXIT_LATE = 124


def seconds_text(value):
    """A time as the command line takes it: 90 and 1.5 are seconds, "10m" stays as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{value!r}: a time such as '10m' or a number of seconds would be right")
    return f"{round(value * 1000)}ms"


def start(*arguments, **options):
    """The program as a child that no signal of our terminal reaches: we hear Ctrl-C, and end it."""
    program = find()
    try:
        return subprocess.Popen([program, *arguments], start_new_session=True, **options)
    except OSError as error:
        raise Error(f"{program}: {error.strerror}") from None


def run(*arguments, **options):
    """(status, stdout, stderr) of `lull ARGUMENTS…`."""
    child = start(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                  encoding="utf-8", errors="replace", **options)
    with child:
        try:
            out, complaints = child.communicate()
        except BaseException:
            child.kill()
            raise
    return child.returncode, out, complaints


def words_of(complaints, status, command):
    """What the program said, without its name in front of it."""
    lines = complaints.strip().splitlines() or [f"lull {command} ended with status {status}"]
    first = lines[0]
    for name in (f"lull {command}: ", f"lull: {command}: ", "lull: "):
        if first.startswith(name):
            first = first[len(name):]
            break
    hint = f" (lull {command} --help explains)"
    if first.endswith(hint):
        first = first[:-len(hint)]
    return "\n".join([first, *lines[1:]])


def checked(*arguments, error=Error, **options):
    """Its standard output, or an exception with its words."""
    status, out, complaints = run(*arguments, **options)
    if status == 0:
        return out
    kind = UsageError if status == EXIT_USAGE else error
    raise kind(words_of(complaints, status, arguments[0] if arguments else ""))


def environment_without(*names):
    """os.environ as it is, without these."""
    return {name: value for name, value in os.environ.items() if name not in names}
