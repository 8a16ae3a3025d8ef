"""Going on as the program lull, under its own name or that of a tool that it stands in for."""
from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def become(name: str) -> NoReturn:
    """This process becomes lull, called by that name, with the arguments of this one."""
    from . import Error, _program

    try:
        program = _program.find()
    except Error as error:
        sys.exit(f"{name}: {error}")
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the command that lull runs would, too
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program}: {error.strerror}")
