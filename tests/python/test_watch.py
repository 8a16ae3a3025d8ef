"""lull.watch() on simulated GPUs: firing, keeping, pausing, beating, forking, ending."""
import logging
import multiprocessing
import os
import signal
import threading
import time

import pytest
from conftest import LIMIT, wait_until

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
    with lull.watch(idle="beat > 3", every=0.05) as watch:
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
