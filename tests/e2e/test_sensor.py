"""The sensor process of a running lull: what becomes of it, and what a person is told."""
import os
import pathlib
import select
import signal
import time

import pytest

from conftest import alive, end, processes_of, read_until, wait_until


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def sensors_of(pid):
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue
        name, _, rest = stat.rpartition(")")
        fields = rest.split()
        if name.partition("(")[2] == "lull-sensor" and int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(folder.name))
    return found


def strike(pid, number):
    """The sensors of this process that the signal has reached."""
    reached = []
    for sensor in sensors_of(pid):
        try:
            os.kill(sensor, number)
            reached.append(sensor)
        except ProcessLookupError:
            pass
    return reached


def watching(gpus, *args):
    watch = gpus.start_lull("watch", "--idle", "util < 1 for 1h", "--every", "50ms", "--do", "exit=9", "-v", *args)
    wait_until(lambda: sensors_of(watch.pid), what="the sensor")
    return watch


def sensors_in(gpus):
    """Of this simulation, whoever their parents are."""
    return processes_of(gpus.folder, "lull-sensor")


@pytest.mark.parametrize("command", [
    ["watch", "--idle", "util < 1 for 1h", "--every", "50ms", "--do", "exit=9"],
    ["pick", "--wait", "--", "true"],  # whose sensor is no child of it
], ids=["watch", "pick"])
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_nothing_is_left_when_lull_is_killed(sim, command, stopped):
    gpus = sim(1)
    gpus.load(0, 90)
    job = gpus.start_lull(*command)
    (sensor,) = wait_until(lambda: sensors_in(gpus), what="the sensor")
    if stopped:
        os.kill(sensor, signal.SIGSTOP)
        wait_until(lambda: state_of(sensor) == "T", what="its stop")
    job.kill()
    job.wait()
    wait_until(lambda: not alive(sensor), what="the end of the sensor")


def test_nothing_is_left_whenever_lull_is_killed(sim):
    gpus = sim(1)
    gpus.load(0, 90)
    for turn in range(30):  # from before its sensor is born until it sleeps
        job = gpus.start_lull(*[["pick", "--wait", "--", "true"], ["status", "--watch", "50ms"]][turn % 2])
        select.select([], [], [], turn / 1000)
        end(job)
        wait_until(lambda: not sensors_in(gpus), what="the end of the sensor")


def test_a_sensor_that_is_killed_again_and_again_never_makes_a_busy_gpu_idle(sim):
    gpus = sim(2)
    gpus.load(0, 90)
    gpus.load(1, 90)
    watch = gpus.start_lull("watch", "--idle", "util < 5 for 300ms", "--every", "50ms", "--do", "exit=9", "-v")
    try:
        ways = [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM]
        for turn in range(20):
            wait_until(lambda: strike(watch.pid, ways[turn % len(ways)]), what="a sensor")
            read_until(watch.stderr, "GPU 0 util 90 %")  # it is seen again
            assert watch.poll() is None, "a job at 90 % was taken for idle"
    finally:
        end(watch)


def test_lull_watch_lets_go_of_the_driver_on_sigusr1(sim):
    gpus = sim(1)
    watch = watching(gpus)
    try:
        watch.send_signal(signal.SIGUSR1)
        assert "let go of the driver" in read_until(watch.stderr, "let go of the driver")
        assert not sensors_of(watch.pid)
        assert watch.poll() is None
    finally:
        end(watch)


@pytest.mark.parametrize("scenario, said, advice", [
    ('cost_util = "20ms"\n[[gpu]]\nmodel = "A100"\n', "reading the GPUs takes", "longer --every"),
    ('[[gpu]]\nmodel = "A100"\nattach = "1s"\n', "waking the GPUs took", "persistence mode"),
], ids=["sampling costs much", "waking takes long"])
def test_a_word_about_what_the_driver_costs(sim, scenario, said, advice):
    watch = sim(text=scenario).start_lull("watch", "--idle", "util < 1 for 1h", "--every", "100ms", "--do", "exit=9")
    try:
        assert said in read_until(watch.stderr, advice)
    finally:
        end(watch)


def test_job_sees_no_process_of_ours(sim, tmp_path):
    gpus = sim(1)
    out = tmp_path / "children"
    done = gpus.lull("run", "--every", "50ms", "--delay", "0", "--", "sh", "-c",
                     f"sleep 0.5; cat /proc/$$/task/*/children > {out}; pgrep -P $$ -l >> {out}; exit 3")
    assert done.returncode == 3
    assert "lull" not in out.read_text()


def test_a_job_on_given_gpus_starts_whatever_the_driver_does(sim):
    gpus = sim(1)
    gpus.fault("all", "hang=60s", function="nvmlInit*")
    began = time.monotonic()
    assert gpus.lull("run", "--gpus", "0", "--", "sh", "-c", "exit 7").returncode == 7
    assert time.monotonic() - began < 8, "the limit of the driver's start is 10 s"


def test_who_waits_for_gpus_waits_for_one_that_does_not_answer_yet(sim):
    gpus = sim(2)
    gpus.fault(1, "hang=60s")
    pick = gpus.start_lull("pick", "-n", "2", "--wait=60s", "--", "echo", "got")
    wait_until(lambda: gpus.lull("status").stdout.count("not answered") == 1, what="the hang")
    gpus.clear(1)
    assert pick.wait(60) == 0
    assert pick.stdout.read() == "got\n"
