"""Waiting for what a test expects, with a limit: what all tests in Python share."""
import faulthandler
import os
import pathlib
import signal
import threading
import time

import pytest

LIMIT = float(os.environ.get("LULL_TEST_LIMIT", "60"))  # seconds for what should take milliseconds


def wait_until(condition, limit=LIMIT, what="the condition", every=0.005):
    """Returns the first true value of condition(), looked at `every` so many seconds; fails after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {limit} s")
        time.sleep(every)


def descriptors(pid):
    """What the open descriptors of a process refer to, by number, without those that it closes meanwhile."""
    found = {}
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found[int(entry.name)] = os.readlink(entry)
        except FileNotFoundError:
            pass
    return found


def read_until(stream, text, times=1):
    """Lines up to the one with the text in it, for the so-manieth time."""
    seen = ""
    try:
        while seen.count(text) < times:
            line = stream.readline()
            assert line, "the end"
            seen += line
    except AssertionError as error:  # the end of the stream, or never_for_ever()
        raise AssertionError(f"no {text!r} in {seen!r}: {error}") from None
    return seen


@pytest.fixture(autouse=True)
def never_for_ever():
    """A test that reads from a job which says nothing fails, instead of waiting without end."""
    def late(*_):
        raise AssertionError("the test takes too long")
    if threading.current_thread() is not threading.main_thread():  # as execnet does with a worker that was slow to start
        faulthandler.dump_traceback_later(LIMIT * 5, exit=True)
        yield
        faulthandler.cancel_dump_traceback_later()
        return
    signal.signal(signal.SIGALRM, late)
    signal.alarm(int(LIMIT * 5))
    yield
    signal.alarm(0)
