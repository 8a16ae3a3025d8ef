"""lull on a terminal of its own, for tests of what people see and type there."""
import fcntl
import os
import pty
import select
import termios
import time

from conftest import LIMIT


def on_terminal(gpus, *arguments, env=None):
    """Starts lull on a terminal of its own; returns the process and the terminal's end."""
    leader, follower = pty.openpty()

    def own_terminal():  # so that a Ctrl-C typed there becomes a signal
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = gpus.start_lull(*arguments, stdin=follower, stdout=follower, stderr=follower, text=False,
                              preexec_fn=own_terminal,
                              env={"TERM": "xterm", "LC_ALL": "C.UTF-8", "COLUMNS": "100", **(env or {})})
    os.close(follower)
    return process, leader


def read_some(leader):
    assert select.select([leader], [], [], LIMIT)[0], "nothing more on the terminal"
    return os.read(leader, 65536)


def read_all(leader):
    text = b""
    while True:
        try:
            more = read_some(leader)
        except OSError:
            return text
        if not more:
            return text
        text += more


def read_until(leader, text, wanted):
    end = time.monotonic() + LIMIT
    while wanted not in text:
        assert time.monotonic() < end, text[-2000:]
        text += read_some(leader)
    return text
