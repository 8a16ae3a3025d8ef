"""lull.watch(): acts when the GPUs of this process have been idle for too long."""
import atexit
import json
import logging
import signal
import threading
from collections.abc import Mapping

from . import _core
from ._core import UsageError
from ._helper import seconds_text

_log = logging.getLogger("lull")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.WARNING)  # debug, note, warning, important
atexit.register(_core._close_watches)  # before the interpreter goes: its threads must not look for it afterwards


class IdleExit(SystemExit):
    """Raised in the main thread by do="exit": `finally` blocks and atexit handlers run, as with sys.exit().

    `firing` is the evidence. The status is 0, or that of do="exit=STATUS"; `lull run` says 124 of a job that it ended.
    """

    __module__ = "lull"  # as it is imported

    def __init__(self, status=0, firing=None):
        super().__init__(status)
        self.firing = firing


class _Exit:
    """Raises IdleExit in the main thread, also out of a system call: by SIGINT, whose handler is ours meanwhile."""

    def __init__(self, status):
        self.status = status
        self.firing = self.take = None
        self.before = None
        if threading.current_thread() is threading.main_thread():
            self.before = signal.getsignal(signal.SIGINT)
            if self.before is not None:  # else it is not Python's to put back
                signal.signal(signal.SIGINT, self.on_signal)

    def leave(self):
        # We may have been busy for long, and the GPUs as well: then it is confirmed again first, or called off.
        firing, take, self.firing, self.take = self.firing, self.take, None, None
        if take is not None and take():
            raise IdleExit(self.status, firing)

    def on_signal(self, number, frame):
        if self.firing is not None:
            return self.leave()
        if callable(self.before):
            return self.before(number, frame)
        if self.before == signal.SIG_DFL:
            self.restore()
            signal.raise_signal(signal.SIGINT)
        return None

    def restore(self):
        if (self.before is not None and threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGINT) == self.on_signal):
            signal.signal(signal.SIGINT, self.before)

    def __call__(self, firing, take):
        self.firing, self.take = firing, take
        main = threading.main_thread()
        if signal.getsignal(signal.SIGINT) == self.on_signal:
            signal.pthread_kill(main.ident, signal.SIGINT)
            return
        # The program has replaced the handler: at the main thread's next step then, not out of a system call.
        _core._call_in_main(self.leave)


class _Pause:
    def __init__(self, watch):
        self._watch = watch

    def __enter__(self):
        self._watch._core.pause(True)
        return self._watch

    def __exit__(self, *_):
        self._watch._core.pause(False)


class Watch:
    """A watch that runs; made by lull.watch(). It ends with close(), with its `with` block, once it has fired (unless it
    repeats), or with the process. In a child that was forked it is not there: nothing fires, and its methods do nothing."""

    def __init__(self, given, act, at_close):
        self._at_close = at_close
        self._act = act
        self._core = _core._Watch(given, self._fire if act is not None else None, self._say)

    @staticmethod
    def _say(level, text):
        _log.log(_LEVELS[level], "%s", text)

    def _fire(self, firing, *take):
        try:
            self._act(firing, *take)
        except BaseException as error:
            hint = "; do='exit' ends the program" if isinstance(error, SystemExit) else ""
            _log.exception("the callback of lull.watch() raised %s%s", type(error).__name__, hint)

    def keep(self, time):
        """Nothing fires for this long: "2h", or a number of seconds. What is idle then fires then."""
        self._core.keep(seconds_text(time))

    def pause(self):
        """`with watch.pause():` nothing is judged inside, and what was idle before begins anew. May be nested."""
        return _Pause(self)

    def beat(self):
        """A sign of life, for rules on `beat`: the time since the last one. Costs well under a microsecond."""
        self._core.beat()

    def wait(self, timeout=None):
        """Waits until it has fired or ended. True: it has fired."""
        return self._core.wait(timeout)

    @property
    def fired(self):
        """It has fired at least once."""
        return self._core.firing is not None

    @property
    def firing(self):
        """The evidence of the newest firing; None: it has not fired."""
        return self._core.firing

    @property
    def active(self):
        """It still watches."""
        return self._core.active

    @property
    def idle(self):
        """Whether the condition holds now; None: that is not known."""
        return self._core.idle

    @property
    def held(self):
        """For how many seconds it has held."""
        return self._core.held

    @property
    def armed(self):
        """The arming rule has held, or there is none."""
        return self._core.armed

    def close(self):
        """Ends it. A callback that runs is waited for."""
        self._core.close()
        at_close, self._at_close = self._at_close, None
        if at_close is not None:
            at_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<lull.Watch {'fired' if self.fired else 'active' if self.active else 'ended'}>"


def _action(do):
    """(what to call, what to do at close, in words, whether this process is ended)"""
    if do is None:
        return None, None, "nothing", False
    if callable(do):
        return do, None, f"call {getattr(do, '__qualname__', None) or type(do).__qualname__}()", False
    if isinstance(do, str) and (do == "exit" or do.startswith("exit=")):
        status = do[len("exit="):] or "0"
        if not status.isdigit() or int(status) > 255:
            raise UsageError(f"do={do!r}: exit=STATUS needs a number from 0 to 255")
        leave = _Exit(int(status))
        return leave, leave.restore, "end this process", True
    if do == "kill":
        return None, None, "end this process and its children", True
    raise UsageError(f"do={do!r}: a function to call, 'exit', 'exit=STATUS' or 'kill' would be right")


def watch(idle="util < 1 for 30m", *, arm=None, do=None, every=5.0, delay=0, gpus=None, missing="unknown",
          repeat=False, grace=None, dry_run=False, signals=None):
    """Watches the GPUs of this process, in a thread of its own, and acts once the rule `idle` has held.

    `do` is a function, which is called with the evidence (a Firing); "exit" (status 0; or "exit=124"), which raises IdleExit
    in the main thread, and ends the process from outside if it is still there after `grace` (60s); or "kill", which ends the
    process and its children with SIGTERM and after `grace` (10s) with SIGKILL. `arm` is a rule that must hold once before.
    Its GPUs are those that pick() gave it, or CUDA_VISIBLE_DEVICES, or those it has a context on; while it has none it is not
    judged. What cannot be read is never idle. `signals` names signals of your own: {"queue": "file:/run/server/queue",
    "users": "command:who | wc -l", "requests": {"url": "http://127.0.0.1:8000/metrics", "metric": "requests_total", "as":
    "rate"}}.

    >>> import lull
    >>> with lull.simulate(gpus=1), lull.pick():
    ...     with lull.watch(idle="util < 5 for 3 samples", every=0.05) as w:
    ...         w.wait(60)
    ...         print(w.firing.rule, w.firing.gpus)
    True
    util < 5 for 3 samples ['0']
    """
    act, at_close, words, ends = _action(do)
    given = {"idle": str(idle), "arm": "" if arm is None else str(arm), "every": seconds_text(every),
             "delay": seconds_text(delay), "gpus": _gpus_text(gpus), "missing": missing, "repeat": bool(repeat),
             "dry_run": bool(dry_run), "action": words, "signals": _signal_texts(signals),
             "ends_after": "" if not ends else "0s" if do == "kill" else seconds_text("60s" if grace is None else grace),
             "grace": "10s" if do != "kill" or grace is None else seconds_text(grace)}
    try:
        return Watch(given, act, at_close)
    except BaseException:
        if at_close is not None:
            at_close()
        raise


def _signal_texts(signals):
    """Each as `--signal-from` has it: NAME=SOURCE."""
    if signals is None:
        return []
    if not isinstance(signals, Mapping) or not all(isinstance(name, str) for name in signals):
        raise UsageError("signals=: a dict of names and sources would be right, such as {'queue': 'file:/run/server/queue'}")
    for name, source in signals.items():
        if not isinstance(source, (str, Mapping)):
            raise UsageError(f"signals=: {name}: {source!r} is neither a text nor a dict")
    return [f"{name}={source if isinstance(source, str) else _toml(source, name)}" for name, source in signals.items()]


def _toml(value, where):
    if isinstance(value, Mapping):
        inside = (f"{json.dumps(str(key), ensure_ascii=False)} = {_toml(one, f'{where}: {key}')}" for key, one in value.items())
        return "{ " + ", ".join(inside) + " }"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = seconds_text(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    raise UsageError(f"signals=: {where}: {value!r} is neither a text nor a dict")


def _gpus_text(gpus):
    if gpus is None:
        return ""
    if isinstance(gpus, (str, int)):
        return str(gpus)
    return ",".join(str(one) for one in gpus)
