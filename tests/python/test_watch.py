"""lull.watch() on simulated GPUs: firing, keeping, pausing, beating, forking, ending."""
import contextlib
import logging
import multiprocessing
import os
import signal
import subprocess
import threading
import time

import pytest
from conftest import BUILD, LIMIT, sensors_of, wait_until

import lull

IDLE = "util < 5 for 3 samples"


@pytest.fixture
def picked(lull_gpus):
    """A GPU of ours: what a watch judges."""
    with lull.pick(gpus=0) as pick:
        yield pick


def test_the_callback_gets_the_evidence(picked, lull_gpus):
    seen = []
    with lull.watch(idle=IDLE, every=0.05, do=seen.append) as watch:
        assert watch.wait(LIMIT)
        wait_until(lambda: seen and not watch.active, what="the callback, and the end of the watch")
    firing, = seen
    assert (firing.rule, firing.arm, firing.gpus) == (IDLE, None, ["0"])
    assert firing.uuids == picked.uuids and firing.samples >= 3 and firing.time >= firing.since
    story, = firing.signals
    assert (story.name, story.gpu, story.last) == ("util", "0", 0.0) and len(story.trace) >= 2
    assert "'util < 5 for 3 samples' has held" in str(firing) and "util" in firing.text
    assert firing.as_dict()["event"] == "idle" and watch.firing.rule == firing.rule


def test_a_busy_gpu_does_not_fire_and_an_unreadable_one_neither(picked, lull_gpus):
    lull_gpus.set(0, util=90)
    with lull.watch(idle=IDLE, every=0.05) as watch:
        wait_until(lambda: watch.idle is False, what="a judgement")
        lull_gpus.fault(0, "lost")
        wait_until(lambda: watch.idle is None, what="the loss")
        assert not watch.wait(0.5) and watch.active
        lull_gpus.clear(0)
        assert watch.wait(LIMIT)


def test_what_another_gpu_does_is_none_of_our_business(lull_gpus):
    with lull.pick(gpus=1):
        lull_gpus.set(0, util=90)
        with lull.watch(idle=IDLE, every=0.05) as watch:
            assert watch.wait(LIMIT) and watch.firing.gpus == ["1"]


def test_a_process_without_a_gpu_is_not_judged(lull_gpus, caplog):
    with caplog.at_level(logging.INFO, "lull"), lull.watch(idle=IDLE, every=0.05) as watch:
        assert not watch.wait(0.5)
        wait_until(lambda: caplog.records, what="that this is said")
    assert watch.firing is None


def test_arming_comes_first(picked, lull_gpus):
    with lull.watch(idle=IDLE, arm="util > 50 for 2 samples", every=0.05) as watch:
        assert not watch.wait(0.5) and not watch.armed
        lull_gpus.set(0, util=90)
        wait_until(lambda: watch.armed, what="the arming")
        lull_gpus.set(0, util=0)
        assert watch.wait(LIMIT) and watch.firing.arm == "util > 50 for 2 samples"


def test_keep_and_pause_hold_it_back(picked):
    watch = lull.watch(idle=IDLE, every=0.05)
    watch.keep("1h")
    assert not watch.wait(0.6)
    watch.close()
    with lull.watch(idle=IDLE, every=0.05) as watch:
        with watch.pause(), watch.pause():
            assert not watch.wait(0.6)
            assert watch.held == 0
        assert watch.wait(LIMIT)
    with lull.watch(idle=IDLE) as watch, pytest.raises(lull.UsageError, match="keep"):
        watch.keep("soon")


def test_beat_is_a_signal_that_needs_no_gpu():
    with lull.watch(idle="beat > 3s", every=0.05) as watch:
        assert not watch.wait(3.5)  # no beat yet: unknown is not idle
        for _ in range(10):
            watch.beat()
            time.sleep(0.05)
        assert not watch.fired
        assert watch.wait(LIMIT)  # and now nobody beats
    story, = watch.firing.signals
    assert story.name == "beat" and story.gpu is None and story.last > 3


def test_it_repeats_when_asked_to(picked, lull_gpus):
    seen = []
    with lull.watch(idle=IDLE, every=0.05, do=seen.append, repeat=True) as watch:
        for count in (1, 2):
            wait_until(lambda: len(seen) == count, what=f"firing {count}")
            lull_gpus.set(0, util=90)
            wait_until(lambda: watch.idle is False, what="work")
            lull_gpus.set(0, util=0)
        assert watch.active


def test_an_exception_in_the_callback_is_logged_and_changes_nothing_else(picked, caplog):
    def fail(firing):
        raise ValueError("no room on the disk")

    with caplog.at_level(logging.ERROR, "lull"), lull.watch(idle=IDLE, every=0.05, do=fail) as watch:
        assert watch.wait(LIMIT)
        wait_until(lambda: not watch.active, what="its end")
    assert "the callback of lull.watch() raised ValueError" in caplog.text and "no room on the disk" in caplog.text


def test_a_dry_run_only_says_it(picked, caplog):
    called = []
    with caplog.at_level(logging.INFO, "lull"), lull.watch(idle=IDLE, every=0.05, do=called.append, dry_run=True):
        wait_until(lambda: "would do (dry_run): call" in caplog.text, what="the words")
    assert not called


def test_mistakes_are_told_at_once():
    with pytest.raises(lull.RuleError, match="util"):
        lull.watch(idle="utl < 5")
    with pytest.raises(lull.RuleError, match="arm: "):
        lull.watch(arm="util <")
    with pytest.raises(lull.UsageError, match="'exit', 'exit=STATUS' or 'kill'"):
        lull.watch(do="shutdown")
    with pytest.raises(lull.UsageError, match="every"):
        lull.watch(every=0)
    with pytest.raises(lull.UsageError, match="missing"):
        lull.watch(missing="never")


def test_do_exit_runs_finally_blocks_even_out_of_a_sleep(lull_gpus, script):
    child = script("""
import atexit, lull, time
atexit.register(print, "atexit")
lull.pick(gpus=0)
lull.watch(idle="util < 5 for 3 samples", every=0.05, do="exit=7")
try:
    time.sleep(3600)
finally:
    print("finally")
""")
    assert child.finish()[:2] == (7, "finally\natexit\n")


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("do, ended", [("exit=7", 7), ("kill", -signal.SIGTERM)])
def test_work_that_began_just_before_the_last_sample_of_the_streak_is_spared(lull_gpus, script, do, ended, works):
    """The mean of its interval is still below the threshold."""
    child = script(f"""
import lull, subprocess
lull.pick(gpus=0)
lull.watch(idle="util < 50 for 5 samples", every=1, do="{do}")
load = {[str(BUILD / "lull"), "sim", "load", "--gpu", "0", "--util", "0", "--for", "3.6s" if works else "60s"]!r}
subprocess.run(load + {["--then", "util=100", "--for", "3s"] if works else []!r}, check=True)
print("lives")
""")
    status, out, err = child.finish()
    assert (status, out) == ((0, "lives\n") if works else (ended, "")), err


def test_do_exit_ends_a_process_that_hangs_in_c(lull_gpus, script):
    child = script("""
import ctypes, lull
lull.pick(gpus=0)
lull.watch(idle="util < 5 for 3 samples", every=0.05, do="exit", grace="1s")
libc = ctypes.PyDLL(None)   # keeps the GIL
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
print("hangs", flush=True)
libc.pthread_mutex_lock(mutex)   # for ever, whatever signal comes
""")
    assert child.line() == "hangs"
    status, _, err = child.finish()
    assert status == -signal.SIGTERM and "has not ended within 1s" in err


def test_do_exit_is_called_off_where_a_log_handler_is_slow_and_the_gpu_works_meanwhile(lull_gpus, script):
    child = script("""
import logging, lull, sys, time
class Slow(logging.Handler):
    slow = True
    def emit(self, record):
        text = record.getMessage()
        print(text.splitlines()[-1], flush=True)
        if "next: " in text and Slow.slow:
            Slow.slow = False
            input()
            while watch.idle is not False: time.sleep(0.005)
logging.getLogger("lull").addHandler(Slow())
logging.getLogger("lull").setLevel(logging.INFO)
lull.pick(gpus=0)
watch = lull.watch(idle="util < 5 for 3 samples", every=0.05, do="exit=7")
time.sleep(3600)
""")
    lines = iter(child.line, "")
    assert any("next: end this process" in line for line in lines)
    lull_gpus.set(0, util=95)
    child.process.stdin.write("\n")
    child.process.stdin.flush()
    assert any("called off" in line for line in lines)
    assert child.process.poll() is None
    lull_gpus.set(0, util=0)
    assert child.finish()[0] == 7


@pytest.mark.parametrize("taken_over", [False, True], ids=["by our handler", "where SIGINT is somebody else's"])
@pytest.mark.parametrize("works", [True, False])
def test_do_exit_is_confirmed_again_where_the_main_thread_was_busy_in_c(lull_gpus, script, works, taken_over):
    child = script(f"""
import ctypes, lull, signal, threading, time
lull.pick(gpus=0)
watch = lull.watch(idle="util < 5 for 3 samples", every=0.05, do="exit=7")
if {taken_over}:
    signal.signal(signal.SIGINT, signal.default_int_handler)
libc = ctypes.CDLL(None)   # lets go of the GIL
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_lock(mutex)
def let_go():
    while watch.held < 2.5:  # fired long ago, and no confirmation is good for more than a second
        time.sleep(0.01)
    print("idle", flush=True)
    input()
    while {works} and watch.idle is not False:
        time.sleep(0.005)
    libc.pthread_mutex_unlock(mutex)
threading.Thread(target=let_go, daemon=True).start()
libc.pthread_mutex_lock(mutex)
try:
    for _ in range(20):
        time.sleep(0.02)
    print("goes on", flush=True)
    while True:
        time.sleep(0.02)
except SystemExit:
    print("leaves", flush=True)
    raise
""")
    assert child.line() == "idle"
    if works:
        lull_gpus.set(0, util=95)
    child.process.stdin.write("\n")
    child.process.stdin.flush()
    if works:
        assert child.line() == "goes on"
        lull_gpus.set(0, util=0)
    status, out, _ = child.finish()
    assert status == 7 and out.endswith("leaves\n")


def test_do_kill_ends_the_process_and_its_children(lull_gpus, script):
    child = script("""
import lull, signal, subprocess, sys, time
worker = subprocess.Popen(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], stdout=subprocess.PIPE)
worker.stdout.readline()
print(worker.pid, flush=True)
lull.pick(gpus=0)
lull.watch(idle="util < 5 for 3 samples", every=0.05, do="kill", grace="300ms")
time.sleep(3600)
""")
    worker = int(child.line())
    assert child.finish()[0] == -signal.SIGTERM
    wait_until(lambda: not os.path.exists(f"/proc/{worker}") or " Z " in open(f"/proc/{worker}/stat").read(),
               what="the worker's end")


BECOMES = """
import lull, os, signal, sys, time
def become(*_):
    os.execv(sys.executable, [sys.executable, "-c", "print('another', flush=True); input(); print('lives')"])
"""


def ended_or_spared(child):
    """What `lull-end` says of it, once it has looked."""
    said = ""
    while "works" not in said and "SIGKILL" not in said and "ending it" not in said:
        line = child.process.stderr.readline()
        assert line, said
        said += line
    return said


def test_do_exit_spares_a_program_that_has_become_another_one_and_works(lull_gpus, script):
    child = script(BECOMES + """
lull.pick(gpus=0)
lull.watch(idle="util < 5 for 3 samples", every=0.05, do="exit", grace="2s")
try:
    time.sleep(3600)
except SystemExit:
    become()
""")
    assert child.line() == "another"
    lull_gpus.set(0, util=95)
    assert "has not ended within 2s, but works on its GPUs: it is not ended" in ended_or_spared(child)
    child.process.stdin.write("\n")
    assert child.finish()[:2] == (0, "lives\n")


def test_do_kill_spares_a_program_that_has_become_another_one_and_works_before_sigkill(lull_gpus, script):
    child = script(BECOMES + """
signal.signal(signal.SIGTERM, become)
lull.pick(gpus=0)
lull.watch(idle="util < 5 for 3 samples", every=0.05, do="kill", grace="2s")
while True:
    time.sleep(0.1)
""")
    assert child.line() == "another"
    lull_gpus.set(0, util=95)
    assert "it works again: not killed" in ended_or_spared(child)
    child.process.stdin.write("\n")
    assert child.finish()[:2] == (0, "lives\n")


@pytest.mark.parametrize("rule", ["cpu < 60 for 3 samples", "util < 5 and cpu < 60 for 3 samples",
                                  "io < 1GiB for 3 samples", "quiet > 100ms for 3 samples",
                                  "job_util < 1 for 3 samples"])
def test_rules_on_what_the_program_itself_does(lull_gpus, script, rule):
    child = script(f"""
import lull
lull.pick(gpus=0)
with lull.watch(idle={rule!r}, every=0.2) as watch:
    print(watch.wait({LIMIT}))
""", stdin=subprocess.DEVNULL)  # with pipes to others on both sides `io` is unknown
    status, out, err = child.finish()
    assert (status, out) == (0, "True\n"), err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("known, words", [(True, "a fault for a test"), (False, "something went wrong")])
def test_what_goes_wrong_on_our_threads_ends_the_watch_and_not_the_program(picked, caplog, known, words):
    with caplog.at_level(logging.INFO, "lull"), lull.watch(idle="util < 5 for 1h", every=0.05) as watch:
        watch._core._fail_inside(known)
        assert not watch.wait(LIMIT) and not watch.active
        wait_until(lambda: f"the watch has ended: {words}" in caplog.text, what="that this is said")
    assert watch.firing is None


def test_a_watch_that_gets_no_thread_raises_and_leaves_signals_to_the_program(lull_gpus, script):
    child = script("""
import resource, signal
import lull
lull.pick(gpus=0)
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (taken + (4 << 20), before[1]))  # a thread's stack takes 8 MiB
try:
    lull.watch(idle="util < 5 for 1h")
except Exception as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, before)
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
with lull.watch(idle="util < 5 for 1h") as watch:
    print(watch.active)
""")
    assert child.finish()[:2] == (0, "Resource temporarily unavailable\nset()\nTrue\n")


def test_no_dead_child_is_left_to_the_program_while_a_callback_takes_its_time(picked):
    begun, go = threading.Event(), threading.Event()

    def dead_children():
        dead = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
                dead += [entry] * (fields[0] == "Z" and int(fields[1]) == os.getpid())
        return dead

    with lull.watch(idle=IDLE, every=0.05, do=lambda firing: begun.set() or go.wait(LIMIT)):
        assert begun.wait(LIMIT)
        for _ in range(3):
            killed = wait_until(sensors_of, what="a sensor")
            os.kill(killed[0], signal.SIGKILL)
            wait_until(lambda: killed[0] not in sensors_of(), what="its end")
        assert dead_children() == []
        go.set()
    assert dead_children() == []


def test_ctrl_c_still_works_under_do_exit(lull_gpus, script):
    child = script("""
import lull, time
lull.watch(idle="util < 5 for 1h", do="exit")
try:
    print("ready", flush=True)
    time.sleep(3600)
except KeyboardInterrupt:
    print("interrupted")
""")
    assert child.line() == "ready"
    child.process.send_signal(signal.SIGINT)
    assert child.finish()[:2] == (0, "interrupted\n")


def test_a_forked_child_does_not_fire_its_parents_watch(picked):
    fired = multiprocessing.get_context("fork").SimpleQueue()
    with lull.watch(idle="util < 5 for 20 samples", every=0.05, do=lambda firing: fired.put(os.getpid())) as watch:
        pid = os.fork()
        if pid == 0:  # all of this must neither wait nor end anything of its parent's
            code = 1
            try:
                watch.beat()
                watch.keep("1h")
                with watch.pause():
                    pass
                code = 0 if not watch.active and not watch.wait(10) else 2
                watch.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert watch.wait(LIMIT)
    assert fired.get() == os.getpid() and fired.empty()


POOL = """
import multiprocessing, sys
import lull

def work(number):
    return len(lull.status()), number

if __name__ == "__main__":
    lull.watch(idle="util < 5 for 1h", every=0.05)
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(pool.map(work, range(4)))
"""
# What is spawned imports its main module anew, which `-c` is none: this one writes itself into a file.
SPAWNED = f"""
import multiprocessing, os, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "main.py")
    with open(path, "w") as file:
        file.write('''{POOL}''')
    sys.exit(subprocess.run([sys.executable, path, sys.argv[1]]).returncode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_beside_a_watch(picked, script, method):
    child = script(POOL if method == "fork" else SPAWNED, method)
    status, out, err = child.finish()
    assert (status, out) == (0, "[(2, 0), (2, 1), (2, 2), (2, 3)]\n"), err


def test_a_data_loader_of_forked_workers_beside_a_watch(picked, script):
    """As PyTorch's: workers are forked while threads run, live for an epoch, and are joined."""
    child = script("""
import multiprocessing, threading
import lull
context = multiprocessing.get_context("fork")

def worker(numbers, out):
    for number in iter(numbers.get, None):
        out.put(number * number)

lull.watch(idle="util < 5 for 1h", every=0.02)
for epoch in range(3):
    numbers, out = context.Queue(), context.Queue()
    workers = [context.Process(target=worker, args=(numbers, out)) for _ in range(4)]
    for one in workers: one.start()
    for number in range(100): numbers.put(number)
    assert sorted(out.get() for _ in range(100)) == [n * n for n in range(100)]
    for _ in workers: numbers.put(None)
    for one in workers:
        one.join()
        assert one.exitcode == 0
print("done", lull.status()[0].index)
""")
    status, out, err = child.finish()
    assert (status, out) == (0, "done 0\n"), err


def test_threads_start_and_end_watches_side_by_side(picked):
    def one():
        with lull.watch(idle=IDLE, every=0.05) as watch:
            results.append(watch.wait(LIMIT))

    results = []
    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert results == [True] * 4


def test_a_watch_that_nobody_names_lives_and_ends_with_the_interpreter(lull_gpus, script):
    child = script("""
import lull, threading, time
lull.pick(gpus=0)
fired = threading.Event()
lull.watch(idle="util < 5 for 3 samples", every=0.05, do=lambda firing: fired.set())
lull.watch(idle="util < 5 for 1h", every=0.05)
import gc; gc.collect()
print(fired.wait(60))
""")
    assert child.finish()[:2] == (0, "True\n")


def test_the_interpreter_ends_while_the_driver_hangs(lull_gpus, script):
    child = script("""
import lull
lull.pick(gpus=0)
watch = lull.watch(idle="util < 5 for 1h", every=0.05)
import time
while watch.idle is None: time.sleep(0.01)
print("watching", flush=True)
input()
print("ends", flush=True)
""")
    assert child.line() == "watching"
    try:
        lull_gpus.fault("all", "hang=dstate")
    except lull.Error as error:
        pytest.skip(f"no D state here: {error}")
    try:
        time.sleep(0.2)
        child.process.stdin.write("\n")
        child.process.stdin.flush()
        began = time.monotonic()
        assert child.finish()[:2] == (0, "ends\n")
        assert time.monotonic() - began < LIMIT / 2  # the hang lasts for ever
    finally:
        lull_gpus.clear()


def test_a_watch_that_is_there_before_pick_goes_by_the_picked_gpus(lull_gpus, caplog):
    """It never fired, and spoke of --gpus."""
    with caplog.at_level(logging.INFO, "lull"), lull.watch(idle=IDLE, every=0.05) as watch:
        assert not watch.wait(0.5)
        with lull.pick(gpus=1):
            assert watch.wait(LIMIT)
            assert watch.firing.gpus == ["1"]
    assert "--gpus" not in caplog.text and "gpus=all" in caplog.text
    assert round(watch.firing.held, 3) == watch.firing.held


# ---- signals of the user's own

def test_a_signal_of_ones_own_is_read_and_what_cannot_be_read_never_fires(picked, tmp_path, caplog):
    queue = tmp_path / "queue"
    rule = "util < 5 and waiting < 1 for 3 samples"
    with caplog.at_level(logging.INFO, "lull"), \
            lull.watch(idle=rule, every=0.05, signals={"waiting": f"file:{queue}"}) as watch:
        wait_until(lambda: any("signal waiting is unknown" in one.getMessage() for one in caplog.records), what="that it is unknown")
        assert not watch.wait(0.5) and watch.idle is None
        queue.write_text("5\n")
        wait_until(lambda: watch.idle is False, what="a judgement")
        queue.write_text("0\n")
        assert watch.wait(LIMIT)
    assert {story.name for story in watch.firing.signals} == {"util", "waiting"}


def test_a_command_and_an_endpoint_are_read_in_programs_of_their_own(picked, tmp_path):
    import http.server

    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = b'served_total{model="a"} 7\nserved_total{model="b"} 9\n'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        signals = {"people": f"command:echo $$ >{tmp_path / 'pid'}; echo 0",
                   "served": {"url": f"http://127.0.0.1:{server.server_address[1]}/metrics", "metric": "served_total",
                              "labels": {"model": "a"}, "as": "rate", "timeout": 3}}
        children, before = [], threading.active_count()
        handler = signal.signal(signal.SIGCHLD, lambda *_: children.append(True))
        with lull.watch(idle="util < 5 and people < 1 and served == 0 for 3 samples", every=0.05, signals=signals) as watch:
            assert watch.wait(LIMIT)
        server.shutdown()
        signal.signal(signal.SIGCHLD, handler)
    assert threading.active_count() <= before + 1
    assert not children, "a program that has a child of its own sees ours"
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the end of the command")


def test_a_command_ends_with_its_watch(picked, tmp_path):
    pid_file = tmp_path / "pid"
    command = f"command:echo $$ >{pid_file}.new; mv {pid_file}.new {pid_file}; sleep 1000"
    with lull.watch(idle="slow < 1 for 3 samples", every=0.05, signals={"slow": command}):
        wait_until(pid_file.exists, what="the command")
    pid = int(pid_file.read_text())
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the end of the command")


@pytest.mark.parametrize("signals, said", [
    ({"waiting": "queue"}, "SOURCE is file:PATH"), ({"util": "file:/x"}, "is a signal that lull has"), (["waiting"], "a dict"),
    ({"waiting": {"url": "https://a/"}}, "https"), ({"waiting": {"file": "/x", "colour": "red"}}, "there is no 'colour'"),
    ({"waiting": {"file": "/x", "timeout": 60}}, "at most 30s"), ({"waiting": 5}, "neither a text nor a dict"),
    ({"waiting": {"file": "/x", "timeout": True}}, "neither a text nor a dict"), ({"waiting": "file:/a\0b"}, "zero byte"),
    ({"waiting": {"file": '/x" }\nb = { "'}}, None)])
def test_a_wrong_source_is_refused_with_the_words_of_the_command_line(picked, signals, said):
    if said is None:  # quotes stay in the text: nothing of it is read as TOML
        lull.watch(idle="waiting < 1 for 3 samples", signals=signals).close()
        return
    with pytest.raises(lull.UsageError, match=said):
        lull.watch(signals=signals)


def test_exit_by_a_signal_of_ones_own_ends_a_program_that_hangs(lull_gpus, script, tmp_path):
    (tmp_path / "queue").write_text("0\n")
    child = script("""
import lull, sys, time
lull.pick(gpus=0)
lull.watch(idle="util < 5 and waiting < 1 for 3 samples", every=0.05, do="exit", grace="300ms", signals={"waiting": "file:" + sys.argv[1]})
while True:
    try:
        time.sleep(1000)
    except SystemExit:
        pass
""", tmp_path / "queue")
    assert child.finish()[0] == -signal.SIGTERM
