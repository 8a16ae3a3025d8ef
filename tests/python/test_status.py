"""lull.status() and lull.Sampler on simulated GPUs."""
import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from conftest import BUILD, LIMIT, sensors_of, wait_until

import lull


def test_without_a_driver_the_words_of_the_command_line_are_raised():
    with pytest.raises(lull.DriverError) as caught:
        lull.status()
    done = subprocess.run([BUILD / "lull", "status"], capture_output=True, text=True)
    assert done.returncode == 125 and str(caught.value) in done.stderr
    assert isinstance(caught.value, lull.Error)


@pytest.mark.lull_gpus("2xA100,1xT4")
def test_records_say_what_the_command_line_says(lull_gpus):
    lull_gpus.set(0, util=35, mem_used="8GiB", temp=61, power=180)
    gpus = lull.status()
    shown = json.loads(subprocess.run([BUILD / "lull", "status", "--json"], capture_output=True, text=True).stdout)["gpus"]
    for gpu, row in zip(gpus, shown, strict=True):
        assert (gpu.index, gpu.uuid, gpu.name, gpu.pci, gpu.kind) == tuple(row[k] for k in ("index", "uuid", "name", "pci", "kind"))
        assert gpu.as_dict().keys() == row.keys()
    assert (gpus[0].mem_used, gpus[0].temp) == (8 << 30, 61.0)
    assert isinstance(gpus[0].mem_used, int) and isinstance(gpus[0].procs, int) and isinstance(gpus[0].power, float)


@pytest.mark.lull_gpus("1xT4")
def test_unknown_is_none_and_says_why(lull_gpus):
    gpu = lull.status()[0]
    assert gpu.fan is None and gpu.why("fan") == "not supported"
    assert gpu.temp is not None and gpu.why("temp") is None
    lull_gpus.fault(0, "lost")
    gpu = lull.status()[0]
    assert gpu.util is None and gpu.why("util") == "GPU is lost" and gpu.error == "GPU is lost"
    with pytest.raises(lull.UsageError, match="did you mean 'util'"):
        gpu.why("utl")


def test_processes_on_a_gpu_are_records(lull_gpus):
    load = lull_gpus.load(1, mem="4GiB", command="python train.py")
    process = wait_until(lambda: lull.status()[1].processes)[0]
    assert (process.pid, process.mem_used, process.type) == (load.pid, 4 << 30, "C")
    assert process.command == "python train.py" and process.user


@pytest.mark.lull_gpus(2)
def test_all_who_share_a_gpu_and_the_fillers_on_it(lull_gpus, tmp_path):
    for _ in range(2):
        subprocess.run([BUILD / "lull", "pick", "--share", "2", "--gpus", "1", "--hold", "10m"], check=True, timeout=LIMIT)
    shared = lull.status()[1]
    assert len(shared.leases) == 2 and shared.lease.pid == shared.leases[0].pid and shared.fillers == []
    assert lull.status()[0].leases == [] and lull.status()[0].lease is None
    fill = subprocess.Popen([BUILD / "lull", "fill", "--gpus", "0", "--idle", "util < 5 for 100ms", "--every", "100ms", "--",
                             BUILD / "lull", "sim", "load", "--gpu", "0", "--util", "50"],
                            env={**os.environ, "LULL_CONTROL": str(tmp_path)})
    try:
        gpu = wait_until(lambda: (one := lull.status()[0]).fillers and one, what="a filler on GPU 0")
        assert gpu.fillers == [process.pid for process in gpu.processes]
    finally:
        fill.terminate()
        fill.wait(timeout=LIMIT)


@pytest.mark.lull_gpus(4)
def test_only_the_gpus_that_are_named(lull_gpus):
    assert [gpu.index for gpu in lull.status([2, 0])] == [2, 0]
    assert [gpu.index for gpu in lull.status("1-2")] == [1, 2]
    assert [gpu.index for gpu in lull.status(3)] == [3]
    os.environ["CUDA_VISIBLE_DEVICES"] = "3,1"
    try:
        assert [gpu.index for gpu in lull.status(visible=True)] == [3, 1]
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]
    with pytest.raises(lull.UsageError, match="there are GPUs 0 to 3"):
        lull.status("9")
    with pytest.raises(lull.UsageError):
        lull.status([])


def test_one_sensor_serves_all_calls_and_threads_and_ends_with_the_simulation(lull_gpus):
    lull.status()
    first = sensors_of()
    seen = []
    threads = [threading.Thread(target=lambda: seen.extend(len(lull.status()) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert seen == [2] * 80 and sensors_of() == first and len(first) == 1
    lull_gpus.close()
    wait_until(lambda: not sensors_of(), what="the sensor's end")


def test_the_sensor_is_no_child_that_wait_finds_and_gives_no_signal(lull_gpus, script):
    child = script("""
import lull, os, signal
heard = []
signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
lull.status(); lull.status()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child,", len(heard), "signals")
""")
    assert child.finish()[:2] == (0, "no child, 0 signals\n")


def test_the_program_of_another_version_is_refused_in_words(lull_gpus, script, tmp_path):
    other = tmp_path / "lull"
    other.write_bytes((BUILD / "lull").read_bytes().replace(b"lull-memory-1.", b"lull-memory-0."))
    other.chmod(0o755)
    child = script("import lull; lull.status()", env={"LULL_PROGRAM": str(other)})
    assert f"lull.DriverError: {other} is of another version of lull than this library" in child.finish()[2]
    child = script("import lull; lull.status()", env={"LULL_PROGRAM": str(tmp_path / "none")})
    assert "cannot be started: No such file or directory" in child.finish()[2]


def test_a_sensor_that_was_asked_to_let_go_does(lull_gpus):
    lull.status()
    os.kill(sensors_of()[0], signal.SIGUSR1)
    wait_until(lambda: not sensors_of(), what="the sensor's end")
    with pytest.raises(lull.DriverError, match="let go of the driver"):
        lull.status()


def test_a_sensor_that_was_killed_costs_nothing(lull_gpus):
    lull.status()
    os.kill(sensors_of()[0], signal.SIGKILL)
    assert [gpu.error for gpu in lull.status()] == [None, None]


def test_the_sensor_outlives_the_thread_that_started_it_but_not_the_process(lull_gpus, script):
    child = script("""
import threading, lull
thread = threading.Thread(target=lull.status)
thread.start(); thread.join()
print(lull.status()[0].index, flush=True)
input()
""")
    assert child.line() == "0"
    sensors = sensors_of(child.process.pid)
    assert len(sensors) == 1
    child.process.kill()
    child.process.wait()
    wait_until(lambda: not os.path.exists(f"/proc/{sensors[0]}"), what="the sensor's end")


def test_a_sampler_gives_lists_on_a_grid_of_time(lull_gpus):
    with lull.Sampler(every=0.05) as sampler:
        began = time.time()  # the grid begins with the first call; a busy machine makes a sample late, never early
        times = [gpus[0].time for _, gpus in zip(range(5), sampler)]
    assert all(at >= began + 0.05 * number - 0.005 for number, at in enumerate(times))
    with pytest.raises(StopIteration):
        next(sampler)
    with pytest.raises(lull.UsageError, match="every"):
        lull.Sampler(every=0)


def test_a_sampler_keeps_looking_while_there_is_no_driver(lull_gpus):
    lull_gpus.fault("all", "no-driver")
    with lull.Sampler(every=0.05) as sampler:
        assert next(sampler) == [] and sampler.error
        lull_gpus.clear()
        wait_until(lambda: len(next(sampler)) == 2, what="the driver's return")
        assert sampler.error is None


def test_ctrl_c_ends_waiting_at_once(lull_gpus, script):
    child = script("""
import lull, sys
sampler = lull.Sampler(every=3600)
next(sampler)
try:
    print("waiting", flush=True)
    next(sampler)
except KeyboardInterrupt:
    print("interrupted", flush=True)
""")
    assert child.line() == "waiting"
    began = time.monotonic()
    child.process.send_signal(signal.SIGINT)
    assert child.finish()[1] == "interrupted\n"
    assert time.monotonic() - began < 30  # not the hour


def test_ctrl_c_is_heard_while_the_driver_hangs(lull_gpus, script):
    child = script("""
import lull
lull.status()
try:
    print("go", flush=True)
    input()
    for _ in range(10000): lull.status()
except KeyboardInterrupt:
    print("interrupted", flush=True)
""")
    assert child.line() == "go"
    lull_gpus.fault("all", "hang=60s")
    child.process.stdin.write("\n")
    child.process.stdin.flush()
    time.sleep(0.3)
    child.process.send_signal(signal.SIGINT)
    assert child.finish()[1] == "interrupted\n"


def test_others_have_the_gil_while_one_waits(lull_gpus):
    lull.status()
    lull_gpus.fault("all", "hang=1s")
    counted = 0
    def look():
        with contextlib.suppress(lull.DriverError):  # it has not answered
            lull.status()

    thread = threading.Thread(target=look)
    thread.start()
    while thread.is_alive():
        counted += 1
    assert counted > 1000


def test_a_forked_child_reads_by_itself_and_leaves_its_parents_sensor_alone(lull_gpus):
    lull.status()
    before = sensors_of()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if len(lull.status()) == 2 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(lull.status()) == 2 and sensors_of() == before


def test_a_notebook_shows_tables(lull_gpus):
    lull_gpus.load(0, util=70, mem="2GiB")
    with lull.pick(gpus=1):
        gpus, leases = lull.status(), lull.leases()
    assert isinstance(gpus, list) and isinstance(leases, list)
    table = gpus._repr_html_()
    assert table.count("<tr>") == 1 + len(gpus) and "2.0 / " in table and "70 %" in table, table
    assert "<script" not in lull.status()[0]._repr_html_()
    assert [lease.label for lease in leases] == ["1"] and leases[0].pid == os.getpid() and leases.waiting == []
    assert "<th" in leases._repr_html_() and leases[0].user in leases._repr_html_()


def test_what_a_process_is_called_cannot_change_the_page(lull_gpus):
    lull_gpus.load(0, util=70, command="<script>alert(1)</script>")
    with lull.pick(gpus=1):
        assert "<script>" not in lull.status()._repr_html_() + lull.leases()._repr_html_()


def test_numbers_are_rounded_as_they_are_shown(lull_gpus):
    lull_gpus.set(0, power=51.123456789, util=33.3333333333)
    gpu = lull.status()[0]
    for value in (gpu.power, gpu.util, gpu.time, gpu.mem_used):
        assert round(value, 3) == value, value
