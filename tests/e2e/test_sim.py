"""`lull sim`: running things among simulated GPUs, changing them, and refusing what is wrong."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest

from conftest import LIMIT, ROOT, Sim, build_dir, clean_environment, descriptors, end, let_others_in, wait_until

SANITIZED = any(word in build_dir().name for word in ("asan", "tsan"))


@pytest.fixture
def runtime(tmp_path):
    """An environment whose simulations are made in a folder of this test's own."""
    folder = tmp_path / "runtime"
    folder.mkdir()
    return folder, clean_environment(XDG_RUNTIME_DIR=folder)


def one_line(done, status):
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith(("lull: ", "lull sim")) and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# -- running a command ----------------------------------------------------------------------------
def test_status_of_the_command_is_passed_on(run_lull, runtime):
    folder, env = runtime
    assert run_lull("sim", "--gpus", 1, "--", "sh", "-c", "exit 7", env=env).returncode == 7
    assert run_lull("sim", "--gpus", 1, "--", "sh", "-c", "kill -TERM $$", env=env).returncode == -signal.SIGTERM
    assert run_lull("sim", "--gpus", 1, "--", "sh", "-c", "kill -KILL $$", env=env).returncode == -signal.SIGKILL
    assert "no-such-program" in one_line(run_lull("sim", "--gpus", 1, "--", "no-such-program", env=env), 127)
    assert "denied" in one_line(run_lull("sim", "--gpus", 1, "--", "/etc/passwd", env=env), 126)
    assert list(folder.iterdir()) == []


def test_the_environment_inside_a_simulation(run_lull, runtime, lull):
    folder, env = runtime
    env = {**env, "LD_LIBRARY_PATH": "/somewhere", "LULL_NVML": "/elsewhere/libnvidia-ml.so.1"}
    done = run_lull("sim", "--gpus", "2", "--", "env", "-0", env=env)
    inside = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
    assert pathlib.Path(inside["LULL_SIM"]).parent == folder
    assert inside["LULL_DEV"] == inside["LULL_SIM"] + "/dev"
    assert inside["LULL_LEASES"] == inside["LULL_SIM"] + "/leases"
    library, rest = inside["LD_LIBRARY_PATH"].split(":", 1)
    assert rest == "/somewhere" and os.path.exists(library + "/libnvidia-ml.so.1")
    assert os.path.exists(library + "/libnvidia-ml.so")
    assert "LULL_NVML" not in inside
    kept = run_lull("sim", "--gpus", 1, "--", "sh", "-c", "echo $LULL_LEASES", env={**env, "LULL_LEASES": "/mine"})
    assert kept.stdout == "/mine\n"
    nested = run_lull("sim", "--gpus", 1, "--", lull, "sim", "--gpus", 3, "--", "sh", "-c",
                      'echo ${LULL_LEASES#$LULL_SIM}; ls $LULL_DEV', env=env)
    assert nested.stdout.split() == ["/leases", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia2", "nvidiactl", "pts"]


def test_terminals_of_the_machine_are_seen_inside(lull, runtime):
    """Who types there counts: `user_idle` is that of the terminal, not the time since the machine was started."""
    master, slave = pty.openpty()
    try:
        os.write(master, b"x\n")
        os.read(slave, 10)
        os.utime(os.ttyname(slave))
        rule = ["--idle", "user_idle < 20s for 300ms", "--every", "100ms", "--do", "exit"]
        done = subprocess.run([lull, "sim", "--gpus", "1", "--", lull, "watch", *rule], env=runtime[1], capture_output=True,
                              text=True, timeout=LIMIT)
        assert done.returncode == 0, done.stderr
    finally:
        os.close(master)
        os.close(slave)


def test_two_hosts_have_their_own_names_and_uuids(run_lull, runtime, lull):
    _, env = runtime
    seen = {}
    for host in ("node1", "node2", None):
        of = ["--host", host] if host else []
        done = run_lull("sim", "--gpus", 2, *of, "--", lull, "record", "--for", "10ms", env=env)
        rows = [line.split(",") for line in done.stdout.splitlines()]
        names = rows[0]
        assert done.returncode == 0 and len(rows) > 2, done.stderr
        seen[host] = ({row[names.index("host")] for row in rows[1:]}, {row[names.index("uuid")] for row in rows[1:]})
    assert seen["node1"][0] == {"node1"} and seen["node2"][0] == {"node2"} and seen[None][0] not in ({"node1"}, {""})
    uuids = [seen[host][1] for host in seen]
    assert all(len(one) == 2 for one in uuids) and len(set.union(*uuids)) == 6


@pytest.mark.parametrize("host", ["a b", "x" * 65, "a/b"])
def test_a_wrong_host_is_refused(run_lull, runtime, host):
    assert "--host" in one_line(run_lull("sim", "--host", host, "--", "true", env=runtime[1]), 2)


def test_input_output_and_arguments_are_untouched(run_lull, runtime):
    text = "".join(f"line {i}\n" for i in range(20000))
    done = run_lull("sim", "--", "sh", "-c", 'cat; echo "$1" >&2', "x", "--gpus", env=runtime[1], input=text, stdin=None)
    assert done.stdout == text and done.stderr == "--gpus\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_signals_are_forwarded_and_the_folder_is_gone(lull, runtime, number):
    folder, env = runtime
    script = f"trap 'echo got; exit 9' {number.name[3:]}; echo ready; while :; do sleep 0.02; done"
    job = subprocess.Popen([lull, "sim", "--gpus", "1", "--", "sh", "-c", script], env=env, stdout=subprocess.PIPE,
                           text=True)
    try:
        assert job.stdout.readline() == "ready\n"
        assert len(list(folder.iterdir())) == 1
        job.send_signal(number)
        assert job.stdout.readline() == "got\n"
        assert job.wait(timeout=LIMIT) == 9
    finally:
        end(job)
    assert list(folder.iterdir()) == []


def test_a_signal_that_ends_the_command_ends_us_with_its_number(lull, runtime):
    folder, env = runtime
    job = subprocess.Popen([lull, "sim", "--", "sh", "-c", "echo ready; exec sleep 1000"], env=env,
                           stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline() == "ready\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(timeout=LIMIT) == -signal.SIGTERM
    finally:
        end(job)
    assert list(folder.iterdir()) == []


def test_a_signal_at_any_moment_leaves_nothing_behind(lull, runtime):
    folder, env = runtime
    for delay in range(24):  # from before main() to the middle of the command
        job = subprocess.Popen([lull, "sim", "--gpus", "64", "--", "sleep", "1000"], env=env)
        try:
            time.sleep(delay / 2000)
            job.terminate()
            assert job.wait(timeout=LIMIT) in (143, -signal.SIGTERM)
        finally:
            end(job)
    assert list(folder.iterdir()) == []


def test_what_a_killed_one_left_is_swept_by_the_next(lull, run_lull, runtime):
    folder, env = runtime
    job = subprocess.Popen([lull, "sim", "--", "sh", "-c", "echo ready; read line"], env=env, stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline() == "ready\n"
        job.kill()
        job.wait(timeout=LIMIT)
        assert len(list(folder.iterdir())) == 1
        assert run_lull("sim", "--", "true", env=env).returncode == 0
        assert list(folder.iterdir()) == []
    finally:
        end(job)


def read_until(fd, wanted, limit=LIMIT):
    text = b""
    stop = time.monotonic() + limit
    while wanted not in text:
        if not select.select([fd], [], [], max(0, stop - time.monotonic()))[0]:
            raise AssertionError(f"no {wanted!r} in {text!r}")
        try:
            more = os.read(fd, 4096)
        except OSError:
            more = b""
        if not more:
            raise AssertionError(f"no {wanted!r} in {text!r}")
        text += more
    return text


def test_a_shell_on_a_terminal_has_job_control(lull, runtime):
    _, env = runtime
    env = {**env, "SHELL": "/bin/bash", "PS1": "$ ", "HOME": str(runtime[0]), "TERM": "dumb"}
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(lull, [lull, "sim", "--gpus", "2"], env)
    try:
        read_until(fd, b"2 simulated GPUs")
        os.write(fd, b"echo in$((40+2))\n")
        read_until(fd, b"in42")
        os.write(fd, b"sleep 1000\n")
        read_until(fd, b"sleep 1000")
        wait_until(lambda: os.tcgetpgrp(fd) != pid and foreground_command(fd) == "sleep", what="sleep in the foreground")
        os.write(fd, b"\x1a")  # Ctrl-Z stops it, not us
        read_until(fd, b"Stopped")
        os.write(fd, b"fg\n")
        read_until(fd, b"sleep 1000")
        wait_until(lambda: foreground_command(fd) == "sleep", what="sleep back in the foreground")
        os.write(fd, b"\x03")  # Ctrl-C ends it, not us
        os.write(fd, b"echo still$((1+1))\n")
        read_until(fd, b"still2")
        os.write(fd, b"exit 5\n")
        status = wait_until(lambda: ended_with(pid, fd), what="the end of the shell")
        assert status == 5
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(fd)


def ended_with(pid, fd):
    if select.select([fd], [], [], 0)[0]:  # a terminal that nobody reads holds its writers up
        try:
            os.read(fd, 4096)
        except OSError:
            pass
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def foreground_command(fd):
    try:
        return pathlib.Path(f"/proc/{os.tcgetpgrp(fd)}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


# -- changing the GPUs ----------------------------------------------------------------------------
def test_set_and_clear(sim):
    with sim("2xH100,1xT4") as gpus:
        gpus.set("0,2", util=35, power="60W", mem_used="8GiB", temp="60C")
        gpus.set(1, pcie="4GiB")
        first, second, third = gpus.show()["gpus"]
        assert (first["util_percent"], first["power_watts"], first["temp_celsius"]) == (35, 60, 60)
        assert first["mem_used_bytes"] == third["mem_used_bytes"] == 8 << 30
        assert set(first["set"]) == {"util", "power", "mem_used", "temp"}
        assert second["util_percent"] == 0
        assert second["pcie_rx_bytes_per_second"] == second["pcie_tx_bytes_per_second"] == 2 << 30
        gpus.set(0, util="auto", temp="none")
        first = gpus.show()["gpus"][0]
        assert first["util_percent"] == 0 and first["temp_celsius"] is None
        gpus.clear(0)
        assert gpus.show()["gpus"][0]["set"] == []
        assert gpus.show()["gpus"][2]["set"] != []
        gpus.clear()
        assert gpus.show()["gpus"][2]["set"] == []


def test_a_uuid_names_a_gpu(sim):
    with sim(3) as gpus:
        uuid = gpus.show()["gpus"][1]["uuid"]
        gpus.set(uuid, util=44)
        gpus.set(uuid[:13], temp=55)
        shown = gpus.show()["gpus"]
        assert [gpu["util_percent"] for gpu in shown] == [0, 44, 0] and shown[1]["temp_celsius"] == 55


def device_files(pid):
    return {os.path.basename(link) for link in descriptors(pid).values() if "/dev/nvidia" in link}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_a_load_is_there_and_gone_however_it_dies(sim, number):
    with sim(2) as gpus:
        load = gpus.load("0,1", 70, "3GiB")
        for gpu in gpus.show()["gpus"]:
            assert [p["pid"] for p in gpu["processes"]] == [load.pid]
            assert gpu["util_percent"] == 70 and gpu["mem_used_bytes"] >= 3 << 30
        assert device_files(load.pid) == {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"}
        load.send_signal(number)
        assert load.wait(timeout=LIMIT) == -number
        for gpu in gpus.show()["gpus"]:  # at once: nothing is waited for
            assert gpu["processes"] == [] and gpu["util_percent"] == 0


def test_a_killed_load_shows_while_it_is_a_zombie_no_more(sim):
    with sim(1) as gpus:
        load = gpus.load(0)
        os.kill(load.pid, signal.SIGKILL)
        stat = pathlib.Path(f"/proc/{load.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", what="the zombie")
        assert gpus.show()["gpus"][0]["processes"] == []  # before anybody has reaped it


def test_phases_of_a_load_and_its_own_end(sim):
    with sim("H100", speed=20) as gpus:
        load = gpus.load(0, 90, "8GiB", "20s", "--then", "util=5", "mem=1GiB", "--for", "40s", "--then", "util=0",
                         "--for", "10s")
        seen = []  # (phase by util, memory of the process) as often as we get to look
        while load.poll() is None:
            processes = gpus.show()["gpus"][0]["processes"]
            seen += [([90, 5, 0].index(p["util_percent"]), p["mem_used_bytes"]) for p in processes]
        assert seen == sorted(seen, key=lambda entry: entry[0])
        assert all(memory == (8 << 30 if phase == 0 else 1 << 30) for phase, memory in seen)
        assert load.wait(timeout=LIMIT) == 0
        assert gpus.show()["gpus"][0]["processes"] == []
        assert gpus.show()["time_seconds"] >= 70


def test_a_load_shows_as_what_it_plays(sim):
    with sim(1) as gpus:
        load = gpus.load(0, None, None, None, "--as", "/usr/bin/python3 train.py --lr 3", "--graphics")
        command = pathlib.Path(f"/proc/{load.pid}/cmdline").read_bytes().rstrip(b"\0")
        assert command == b"/usr/bin/python3 train.py --lr 3"
        assert pathlib.Path(f"/proc/{load.pid}/comm").read_text() == "python3\n"
        assert gpus.show()["gpus"][0]["processes"][0]["type"] == "graphics"


def test_a_load_takes_the_gpus_that_cuda_would(sim):
    with sim(3) as gpus:
        uuid = gpus.show()["gpus"][2]["uuid"]
        load = gpus.start_lull("sim", "load", env={"CUDA_VISIBLE_DEVICES": f"{uuid},0"})
        wait_until(lambda: gpus.holds(load.pid), what="the load")
        assert [bool(gpu["processes"]) for gpu in gpus.show()["gpus"]] == [True, False, True]


def test_a_load_on_a_mig_device(sim):
    with sim(scenario=ROOT / "docs/scenarios/mig.toml") as gpus:
        gpu = gpus.show()["gpus"][0]
        assert [p["mig"] for p in gpu["processes"]] == [0]
        by_number = gpus.load("0:1")
        by_uuid = gpus.load(gpu["mig_devices"][2]["uuid"])
        found = {p["pid"]: p["mig"] for p in gpus.show()["gpus"][0]["processes"]}
        assert found[by_number.pid] == 1 and found[by_uuid.pid] == 2


def test_loads_end_with_their_simulation(sim):
    gpus = sim(1)
    load = gpus.load(0)
    gpus.holder.stdin.close()  # the simulation ends; close() would end the load as well
    assert gpus.holder.wait(timeout=LIMIT) == 0
    assert load.wait(timeout=LIMIT) == 0
    assert not gpus.folder.exists()


def test_end_and_are_shown(sim):
    def faults():
        return [gpu["faults"] for gpu in gpus.show()["gpus"]]

    with sim(2, speed=50) as gpus:
        gpus.fault(0, "lost")
        gpus.fault(1, "hang=8s", "nvmlDeviceGetPowerUsage", "1d")
        assert faults() == [["lost"], ["hang=8s --function nvmlDeviceGetPowerUsage"]]
        gpus.clear()
        gpus.fault(1, "reset", None, "5s")
        wait_until(lambda: faults() == [[], []], what="the end of the fault")
        gpus.fault("all", "lost")
        gpus.clear(0)
        assert faults() == [[], ["lost"]]
        gpus.clear()
        gpus.fault("all", "no-driver")
        assert faults() == [["no-driver"], ["no-driver"]]
        gpus.clear()
        assert faults() == [[], []]


# A client that knows nothing but the public names of the library.
CLIENT = r"""
import ctypes, sys
n = ctypes.CDLL("libnvidia-ml.so.1")
class U(ctypes.Structure): _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]
code = n.nvmlInit_v2()
if code: print("init", code); sys.exit()
count = ctypes.c_uint(); n.nvmlDeviceGetCount_v2(ctypes.byref(count))
for i in range(count.value):
    d = ctypes.c_void_p(); h = n.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(d))
    u = U(); r = n.nvmlDeviceGetUtilizationRates(d, ctypes.byref(u)) if h == 0 else h
    w = ctypes.c_uint(); p = n.nvmlDeviceGetPowerUsage(d, ctypes.byref(w)) if h == 0 else h
    print(i, r or u.gpu, p or w.value)
"""


@pytest.mark.skipif(SANITIZED, reason="Python cannot load a library that needs a sanitizer's runtime")
def test_any_client_sees_them(sim):
    with sim("H100,T4") as gpus:
        def client():
            done = gpus.run("/usr/bin/python3", "-c", CLIENT)
            assert done.returncode == 0, done.stderr
            return done.stdout.split("\n")[:-1]

        gpus.set(0, util=35, power=180)
        assert client()[0] == "0 35 180000"
        gpus.fault(1, "unknown", "nvmlDeviceGetPowerUsage")
        assert client()[1] == "1 0 999"
        gpus.fault(1, "no-util")
        assert client()[1] == "1 3 999"
        gpus.clear()
        gpus.fault(1, "lost")
        assert client()[1].startswith("1 15 15")
        gpus.clear()
        gpus.fault("all", "mismatch")
        assert client() == ["init 18"]
        gpus.clear()
        gpus.fault("all", "no-driver")
        assert client() == ["init 9"]


# -- scenarios --------------------------------------------------------------------------------------
def test_a_scenario_plays(sim):
    text = """
speed = 100
[[gpu]]
model = "A100"
[[gpu.timeline]]
at = "20s"
util = 80
over = "200s"
[[gpu]]
model = "T4"
[[process]]
gpu = 1
name = "python serve.py"
util = 60
mem = "2GiB"
[[process]]
gpu = 1
pid = 4000001
util = 0
mem = "1GiB"
[[process]]
gpu = 1
at = "100s"
util = 10
[[fault]]
gpu = 0
kind = "reset"
at = "100s"
for = "150s"
"""
    with sim(text=text) as gpus:
        first = gpus.show()["gpus"][1]
        there = {p["pid"] for p in first["processes"]}
        real = next(iter(there - {4000001}))  # there before the command was
        assert 4000001 in there
        assert pathlib.Path(f"/proc/{real}/comm").read_text() == "python\n"

        def over():  # whenever we look, it is as the scenario says for that moment
            shown = gpus.show()
            now, gpu = shown["time_seconds"], shown["gpus"][0]
            assert gpu["util_percent"] == pytest.approx(min(max(now - 20, 0) / 200, 1) * 80, abs=1e-6)
            assert gpu["faults"] == (["reset"] if 100 <= now < 250 else [])
            return now > 260

        wait_until(over, what="the end of the scenario")
        wait_until(lambda: len(gpus.show()["gpus"][1]["processes"]) == 3, what="the process that comes later")
        assert gpus.show()["gpus"][1]["util_percent"] == 70
    wait_until(lambda: not os.path.exists(f"/proc/{real}"), what="the end of the scenario's process")


def test_the_clock_of_a_scenario_is_one_for_all(sim):
    with sim(scenario=ROOT / "docs/scenarios/recorded.toml", speed=1000) as gpus:
        gpu = wait_until(lambda: (lambda s: s if s["time_seconds"] > 310 else None)(gpus.show()), what="the end")["gpus"]
        assert gpu[0]["util_percent"] == 0 and gpu[0]["power_watts"] == 27
        assert gpu[0]["mem_used_bytes"] == 3221225472


@pytest.mark.parametrize("path", sorted((ROOT / "docs/scenarios").glob("*.toml")), ids=lambda p: p.stem)
def test_shipped_scenarios_start(sim, path):
    with sim(scenario=path) as gpus:
        assert gpus.show()["gpus"]


# -- what is wrong is refused -----------------------------------------------------------------------
@pytest.mark.parametrize("args, wanted", [
    (["--gpu", "2"], "did you mean '--gpus'?"),
    (["--gpus", "0"], "1 to 640"),
    (["--gpus", "1000"], "1 to 640"),
    (["--gpus", "2xH10"], "did you mean 'H100'?"),
    (["--gpus"], "--gpus needs"),
    (["--gpus="], "--gpus needs"),
    (["--gpus", ""], "it is empty; --gpus 2xH100,1xT4 would be right"),
    (["--gpus", "--", "true"], "--gpus needs"),
    (["--speed", "fast", "--", "true"], "a number from"),
    (["--speed", "0", "--", "true"], "a number from"),
    (["lod", "--gpu", "0"], "did you mean 'load'?"),
    (["nvidia-smi"], "after --"),
    (["--gpus", "1", "--scenario", "x.toml"], "give one of them"),
])
def test_wrong_command_lines(run_lull, runtime, args, wanted):
    folder, env = runtime
    assert wanted in one_line(run_lull("sim", *args, env=env), 2)
    assert list(folder.iterdir()) == []


def test_wrong_scenarios(run_lull, runtime, tmp_path):
    folder, env = runtime
    bad = tmp_path / "bad.toml"
    for text, wanted in (("[[gpu]\nmodel = 3", f"{bad}:1:"),
                         ('[[gpu]]\nmodel = "H100"\n[[gpu.timeline]]\nat = "1s"\nutill = 4\n', f"{bad}:5:"),
                         ('[[gpu]]\nmodel = "H100"\ntrace = "none.csv"\n', "none.csv")):
        bad.write_text(text)
        assert wanted in one_line(run_lull("sim", "--scenario", bad, "--", "true", env=env), 2)
    assert "No such file" in one_line(run_lull("sim", "--scenario", tmp_path / "none.toml", "--", "true", env=env), 2)
    assert "directory" in one_line(run_lull("sim", "--scenario", tmp_path, "--", "true", env=env), 2)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(run_lull, tmp_path):
    tmp_path.chmod(0o500)
    line = one_line(run_lull("sim", "--", "true", env=clean_environment(XDG_RUNTIME_DIR=tmp_path)), 125)
    assert str(tmp_path) in line
    tmp_path.chmod(0o700)


def test_a_folder_that_cannot_be_made(run_lull):
    line = one_line(run_lull("sim", "--", "true", env=clean_environment(XDG_RUNTIME_DIR="/proc")), 125)
    assert "/proc" in line and "XDG_RUNTIME_DIR" in line


@pytest.mark.parametrize("args, wanted", [
    (["set", "4", "util=3"], "there is no GPU 4: 0 to 1 are"),
    (["set", "x", "util=3"], "is not a GPU"),
    (["set", "GPU-nope", "util=3"], "no GPU has a UUID"),
    (["set", "0", "utl=3"], "did you mean 'util'?"),
    (["set", "0", "util=300"], "0 to 100"),
    (["set", "0", "util=3W"], "util=35"),
    (["set", "0", "mem_used=8gigs"], "mem_used=8GiB"),
    (["set", "0", "mem_used=9000GiB"], "more than GPU 0 has"),
    (["set", "1", "fan=30"], "has no fan"),
    (["set", "0", "util"], "NAME=VALUE"),
    (["set", "0"], "set what?"),
    (["set"], "which GPU"),
    (["set", "--gpu", "0"], "there is no option --gpu"),
    (["fault", "0", "los"], "did you mean 'lost'?"),
    (["fault", "0", "hang"], "hang=8s"),
    (["fault", "0", "hang=8 parsecs"], "is not a duration"),
    (["fault", "0", "no-driver"], "lull sim fault all no-driver"),
    (["fault", "9", "lost"], "there is no GPU 9"),
    (["fault", "0"], "`lull sim fault 0 lost`"),
    (["fault", "0", "lost", "--fro", "1s"], "did you mean '--for'?"),
    (["fault", "0", "lost", "--function", "no way"], "is not an NVML function"),
    (["load", "--gpu", "7"], "there is no GPU 7"),
    (["load", "--gpu", "0:1"], "there is no MIG device"),
    (["load", "--gpu", "0", "--util", "a lot"], "util=35"),
    (["load", "--gpu", "0", "--mem", "9000GiB"], "more memory than GPU 0 has"),
    (["load", "--gpu", "0", "--then", "util=0"], "needs a --for"),
    (["load", "--gpu", "0", "--for", "1s", "--then", "--for", "1s"], "--then needs"),
    (["load", "--gpu", "0", "--for", "1s", "--then", "utl=3"], "did you mean 'util'?"),
    (["load", "0"], "one argument too many"),
    (["clear", "5"], "there is no GPU 5"),
    (["clear", "0", "1"], "one argument too many"),
    (["reset"], "which GPU"),
    (["reset", "5"], "there is no GPU 5"),
    (["reset", "0", "1"], "one argument too many"),
    (["set", "0", "mig=on"], "has no MIG"),
    (["set", "0", "persistence=maybe"], "persistence=1"),
    (["fault", "0", "garbag"], "did you mean 'garbage'?"),
    (["load", "--gpu", "0", "--mps-sever"], "did you mean '--mps-server'?"),
    (["load", "--gpu", "0", "--for", "1s", "--then", "util=0", "--fro", "1s"], "did you mean '--for'?"),
    (["load", "--gpu", "0", "--both", "--graphics"], "--graphics"),
    (["show", "--jsn"], "did you mean '--json'?"),
    (["models", "x"], "one argument too many"),
])
def test_wrong_changes(shared, args, wanted):
    before = shared.show()["gpus"]
    assert wanted in one_line(shared.lull("sim", *args), 2)
    after = shared.show()["gpus"]
    assert [(g["set"], g["faults"], g["processes"]) for g in after] == [
        (g["set"], g["faults"], g["processes"]) for g in before]


@pytest.fixture(scope="module")
def shared(lull):
    from conftest import Sim
    with Sim(lull, "RTX4090,T4") as gpus:
        yield gpus


@pytest.mark.parametrize("args", [["set", "0", "util=1"], ["load", "--gpu", "0"], ["fault", "0", "lost"], ["clear"],
                                  ["reset", "0"], ["show"]])
def test_without_a_simulation(run_lull, tmp_path, args):
    assert "LULL_SIM is not set" in one_line(run_lull("sim", *args), 125)
    gone = clean_environment(LULL_SIM=tmp_path / "gone")
    assert "there is no simulation" in one_line(run_lull("sim", *args, env=gone), 125)
    (tmp_path / "state").write_bytes(b"of another time" * 1000)
    other = clean_environment(LULL_SIM=tmp_path)
    assert "another version" in one_line(run_lull("sim", *args, env=other), 125)


@pytest.mark.parametrize("args", [[], ["set"], ["load"], ["fault"], ["clear"], ["reset"], ["show"], ["models"]])
def test_help_has_an_example(run_lull, args):
    done = run_lull("sim", *args, "--help")
    assert done.returncode == 0 and re.search(r"^Examples?:\n  lull sim", done.stdout, re.M) and done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_models_are_listed(run_lull):
    done = run_lull("sim", "models")
    for name in ("H100", "A100", "RTX4090", "RTX3090", "T4", "GB10", "GH200", "B200", "Orin"):
        assert f"\n{name} " in "\n" + done.stdout


def test_without_the_library_it_says_where_it_looked(lull, tmp_path):
    alone = tmp_path / "lull"
    alone.write_bytes(pathlib.Path(lull).read_bytes())
    alone.chmod(0o755)
    done = subprocess.run([alone, "sim", "--", "true"], env=clean_environment(), capture_output=True, text=True,
                          timeout=LIMIT)
    assert done.returncode == 125 and str(tmp_path) in done.stderr and done.stderr.count("\n") == 1


def test_an_installed_one_finds_its_library(lull, tmp_path):
    for place in ("lib/lull/sim", "lib/x86_64-linux-gnu/lull/sim"):
        root = tmp_path / place.replace("/", "-")
        (root / "bin").mkdir(parents=True)
        (root / place).mkdir(parents=True)
        (root / "bin/lull").write_bytes(pathlib.Path(lull).read_bytes())
        (root / "bin/lull").chmod(0o755)
        for name in ("libnvidia-ml.so.1", "libnvidia-ml.so"):
            (root / place / name).symlink_to(build_dir() / "sim" / name)
        done = subprocess.run([root / "bin/lull", "sim", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"],
                              env={k: v for k, v in clean_environment().items() if k != "LD_LIBRARY_PATH"},
                              capture_output=True, text=True, timeout=LIMIT)
        assert done.stdout == f"{root / place}\n", done.stderr


def test_many_at_once(lull, runtime):
    folder, env = runtime
    script = f'"{lull}" sim set all util=7 && "{lull}" sim show --json'
    jobs = [subprocess.Popen([lull, "sim", "--gpus", str(i % 8 + 1), "--", "sh", "-c", script], env=env,
                             stdout=subprocess.PIPE, text=True) for i in range(12)]
    try:
        for i, job in enumerate(jobs):
            shown = json.loads(job.communicate(timeout=LIMIT)[0])
            assert [gpu["util_percent"] for gpu in shown["gpus"]] == [7] * (i % 8 + 1)
    finally:
        for job in jobs:
            end(job)
    assert list(folder.iterdir()) == []


def test_ends_when_its_terminal_goes(lull, runtime):
    """As `lull run` does: the kernel tells the session leader alone, which has to pass it on."""
    leader, follower = pty.openpty()

    def own_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    folder, env = runtime
    process = subprocess.Popen([lull, "sim", "--gpus", "1", "--", "sh", "-c", "echo up; exec sleep 1000"], env=env,
                               stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               preexec_fn=own_terminal)
    os.close(follower)
    try:
        assert process.stdout.readline() == "up\n"
        os.close(leader)
        assert process.wait(timeout=LIMIT) in (128 + signal.SIGHUP, -signal.SIGHUP)
        assert list(folder.iterdir()) == []
    finally:
        end(process)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_others_see_a_simulation_of_root(lull, tmp_path):
    """It was "driver not loaded" for them."""
    let_others_in(tmp_path)
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    with Sim(lull, 2, env=clean_environment(XDG_RUNTIME_DIR=tmp_path)) as gpus:
        shown = gpus.lull("status", "--json", **nobody)
        assert shown.returncode == 0 and len(json.loads(shown.stdout)["gpus"]) == 2, shown.stderr
        picked = gpus.lull("pick", "--", "printenv", "CUDA_VISIBLE_DEVICES", **nobody)
        assert picked.returncode == 0 and picked.stdout.strip() in ("0", "1"), picked.stderr
        changed = gpus.lull("sim", "set", "0", "util=5", **nobody)
        assert changed.returncode == 125 and "only its owner can change it" in changed.stderr, changed.stderr
        pathlib.Path(gpus.env["LULL_SIM"]).chmod(0o700)
        hidden = gpus.lull("status", **nobody)
        assert hidden.returncode == 125 and "is another user's; start one of your own" in hidden.stderr, hidden.stderr
