"""`lull status` on simulated GPUs: what people see, what programs read, and every fault."""
import csv
import fcntl
import io
import json
import os
import pwd
import signal
import struct
import subprocess
import termios
import time

import pytest

from conftest import LIMIT, calls, clean_environment, wait_until
from terminals import on_terminal, read_all, read_some, read_until


def gpus_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["gpus"]


def test_shows_what_was_set(sim):
    with sim("2xH100,1xT4") as gpus:
        gpus.set(0, util=35, power=180, mem_used="8GiB", temp=60)
        first, second, third = gpus_of(gpus.lull("status", "--json"))
        assert first["power_watts"] == pytest.approx(180)
        assert first["mem_used_bytes"] == pytest.approx(8 << 30, abs=1 << 30)  # without what the driver reserves
        assert first["temp_celsius"] == 60
        assert first["name"] == "NVIDIA H100 80GB HBM3"
        assert second["util_percent"] == 0
        assert third["fan_percent"] is None
        assert third["unknown"]["fan_percent"] == "not supported"
        wait_until(lambda: gpus_of(gpus.lull("status", "--json"))[0]["util_percent"] == pytest.approx(35),
                   what="util 35 %")


def test_what_kind_of_machine_it_is_can_be_read(sim):
    with sim(2) as gpus:
        gpus.fault(1, "lost")
        for row in gpus_of(gpus.lull("status", "--json")):
            assert row["asleep"] is False and row["memory_estimated"] is False and row["processes_hidden"] is False
            assert row["display_active"] in (None, False)
            assert row["util_coverage"] is None or 0 <= row["util_coverage"] <= 1


def test_processes_are_joined_with_proc(sim):
    with sim(2) as gpus:
        job = gpus.load(1, util=90, mem="2GiB")
        gpu = gpus_of(gpus.lull("status", "--json"))[1]
        process = next(p for p in gpu["processes"] if p["pid"] == job.pid)
        assert process["type"] == "C"
        assert process["mem_used_bytes"] == 2 << 30
        assert "load" in process["command"]
        assert process["user"] == subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip()
        assert process["parent_pid"] == os.getpid()
        table = gpus.lull("status").stdout.splitlines()
        assert str(job.pid) in table[2]
        job.kill()
        job.wait()
        assert gpus_of(gpus.lull("status", "--json"))[1]["processes"] == []


def test_idle_for_as_long_as_the_driver_saw_it(sim):
    with sim(3) as gpus:
        gpus.load(0, util=0, mem="2GiB")
        gpus.load(1, util=80, mem="2GiB")
        wait_until(lambda: (gpus_of(gpus.lull("status", "--json"))[0]["idle_seconds"] or 0) >= 1, what="a second of idleness")
        seen = time.monotonic()
        idle, busy, free = (gpu["idle_seconds"] for gpu in gpus_of(gpus.lull("status", "--json")))
        assert 1 <= idle < seen + LIMIT
        assert busy is None
        assert free is None, "nobody holds it: the driver records nothing, so nothing is known"
        table = gpus.lull("status", env={"COLUMNS": "200"}).stdout.splitlines()
        assert "IDLE FOR" in table[0]


def test_one_lost_out_of_eight(sim):
    with sim(8) as gpus:
        gpus.fault(3, "lost")
        done = gpus.lull("status")
        assert done.returncode == 0
        lines = done.stdout.splitlines()
        assert len(lines) == 10 and lines[-1] == "8 GPUs: 7 free, 1 unknown"
        assert "GPU is lost" in lines[4]
        assert sum("GPU is lost" in line for line in lines) == 1
        rows = gpus_of(gpus.lull("status", "--json"))
        assert [row["error"] for row in rows] == [None] * 3 + ["GPU is lost"] + [None] * 4
        assert rows[3]["util_percent"] is None


@pytest.mark.parametrize("fault, words", [("reset", "GPU requires reset; lull has let go of it"), ("unknown", "unknown error"),
                                          ("no-permission", "no permission")])
def test_other_faults_of_a_whole_gpu(sim, fault, words):
    with sim(2) as gpus:
        gpus.fault(0, fault)
        rows = gpus_of(gpus.lull("status", "--json"))
        assert rows[0]["util_percent"] is None
        assert words in (rows[0]["error"], *rows[0]["unknown"].values())
        assert rows[1]["error"] is None and rows[1]["util_percent"] == 0


def test_a_gpu_without_util_keeps_the_rest(sim):
    with sim(2) as gpus:
        gpus.set(0, temp=55)
        gpus.fault(0, "no-util")
        row = gpus_of(gpus.lull("status", "--json"))[0]
        assert row["util_percent"] is None
        assert row["unknown"]["util_percent"] == "not supported"
        assert row["temp_celsius"] == 55


def test_a_hanging_gpu_costs_only_itself(sim):
    with sim(3) as gpus:
        gpus.fault(1, "hang=30s")
        start = time.monotonic()
        done = gpus.lull("status", "--json")
        assert time.monotonic() - start < 25  # a first contact may take 10 s
        rows = gpus_of(done)
        assert rows[1]["error"].startswith("driver has not answered")
        assert rows[0]["error"] is None and rows[0]["util_percent"] == 0
        assert rows[2]["error"] is None and rows[2]["util_percent"] == 0


@pytest.mark.parametrize("command", [["status", "--gpus", "0,2"], ["check", "--gpus", "0,2", "util < 5"]],
                         ids=["status", "check"])
def test_a_gpu_that_is_left_out_is_not_asked(sim, tmp_path, command):
    """So that one which hangs costs nothing: the first contact with a GPU may take 10 s."""
    log = tmp_path / "log"
    with sim(3) as gpus:
        assert gpus.lull(*command, env={"LULL_SIM_LOG": str(log)}).returncode == 0
        assert [calls(log, "nvmlDeviceGetUtilizationRates", str(gpu)) for gpu in range(3)] == [1, 0, 1]
        assert calls(log, "nvmlDeviceGetHandleByIndex", "1") == 0


@pytest.mark.parametrize("fault, words", [("no-driver", "driver"), ("mismatch", "version")])
def test_a_broken_driver_is_one_line(sim, fault, words):
    with sim(2) as gpus:
        gpus.fault("all", fault)
        done = gpus.lull("status")
        assert done.returncode == 125
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert words in done.stderr.lower() and ("lull sim" in done.stderr) == (fault == "no-driver")
        gpus.clear()
        assert gpus.lull("status").returncode == 0


def test_no_driver_says_what_was_looked_for(lull, tmp_path):
    missing = tmp_path / "nowhere.so"
    done = subprocess.run([lull, "status"], env=clean_environment(LULL_NVML=missing), capture_output=True, text=True,
                          timeout=LIMIT)
    assert done.returncode == 125
    assert done.stderr.count("\n") == 1
    assert str(missing) in done.stderr and "lull sim --gpus" in done.stderr


def test_gpus_and_visible(sim):
    with sim(4) as gpus:
        rows = gpus_of(gpus.lull("status", "--json", "--gpus", "2,0"))
        assert [row["index"] for row in rows] == [2, 0]
        uuid = rows[0]["uuid"]
        assert gpus_of(gpus.lull("status", "--json", "--gpus", uuid))[0]["index"] == 2
        visible = {"CUDA_VISIBLE_DEVICES": f"3,{uuid}"}
        assert [r["index"] for r in gpus_of(gpus.lull("status", "--json", "--visible", env=visible))] == [3, 2]
        none = {"CUDA_VISIBLE_DEVICES": "-1"}
        assert gpus_of(gpus.lull("status", "--json", "--visible", env=none)) == []
        for value, why in (("99", "names no GPU of this machine: 99"), ("", "hides every GPU")):
            done = gpus.lull("status", "--visible", env={"CUDA_VISIBLE_DEVICES": value})
            assert done.returncode == 0 and done.stderr == f"lull: CUDA_VISIBLE_DEVICES {why}\n", done.stderr
        empty = gpus.lull("status", "--gpus", "")
        assert empty.returncode == 2 and "--gpus: it is empty; --gpus 0,2 would be right" in empty.stderr, empty.stderr


@pytest.mark.parametrize("arguments, words", [
    (["--gpus", "9"], "9"),
    (["--gpus", "GPU-nope"], "GPU-nope"),
    (["--jsn"], "--json"),
    (["--watch", "soon"], "soon"),
    (["--json", "--csv"], "--csv"),
    (["extra"], "extra"),
])
def test_wrong_input_is_one_line(sim, arguments, words):
    with sim(2) as gpus:
        done = gpus.lull("status", *arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert words in done.stderr


def test_csv_leaves_unknown_cells_empty(sim):
    with sim(2) as gpus:
        gpus.fault(1, "lost")
        rows = list(csv.DictReader(io.StringIO(gpus.lull("status", "--csv").stdout)))
        assert [row["gpu"] for row in rows] == ["0", "1"]
        assert float(rows[0]["util_percent"]) == 0
        assert rows[1]["util_percent"] == "" and rows[1]["error"] == "GPU is lost"


def test_sixty_four(sim):
    with sim(64) as gpus:
        assert len(gpus_of(gpus.lull("status", "--json"))) == 64


@pytest.mark.parametrize("columns", [1, 5, 20, 40, 79, 120, 300])
def test_no_line_is_wider_than_the_screen(sim, columns):
    with sim(3) as gpus:
        gpus.fault(2, "lost")
        gpus.load(0, util=50)
        done = gpus.lull("status", env={"COLUMNS": str(columns), "LC_ALL": "C.UTF-8"})
        assert done.returncode == 0
        assert max(map(len, done.stdout.splitlines())) <= max(columns, 1)


def test_no_utf8_means_ascii(sim):
    with sim(1) as gpus:
        gpus.load(0, util=50)
        done = gpus.lull("status", env={"LC_ALL": "C", "COLUMNS": "60"})
        assert done.stdout.isascii()


def test_colour_only_where_it_is_wanted(sim):
    with sim(1) as gpus:
        process, leader = on_terminal(gpus, "status", env={"NO_COLOR": ""})
        assert b"\x1b[" in read_all(leader)
        process.wait(timeout=LIMIT)
        process, leader = on_terminal(gpus, "status", env={"NO_COLOR": "1"})
        assert b"\x1b[" not in read_all(leader)
        process.wait(timeout=LIMIT)
        assert "\x1b[" not in gpus.lull("status", env={"NO_COLOR": ""}).stdout


@pytest.mark.parametrize("how, status", [(b"\x03", -signal.SIGINT), (b"q", 0)])
def test_watch_is_a_screen_of_its_own_and_leaves_the_terminal_as_it_was(sim, how, status):
    with sim(2) as gpus:
        process, leader = on_terminal(gpus, "status", "--watch", "50ms")
        text = read_until(leader, b"", b"\x1b[?1049h")
        while text.count(b"\x1b[H") < 4:  # drawn again and again, from the top
            text += read_some(leader)
        assert b"IDLE FOR" in text and b"q leave" in text and b"2 GPUs: 2 free" in text
        os.write(leader, how)
        text += read_all(leader)
        assert process.wait(timeout=LIMIT) == status
        assert b"\x1b[K" not in text and b"\x1b[J" not in text  # they take the last letter of a line as wide as the screen
        assert text.endswith(b"\x1b[?25h\x1b[?1049l")  # the cursor and the other buffer are back
        assert termios.tcgetattr(leader)[3] & termios.ECHO and termios.tcgetattr(leader)[3] & termios.ICANON
        os.close(leader)


def test_keys_of_the_screen(sim):
    with sim(2) as gpus:
        gpus.load(1, util=90)
        process, leader = on_terminal(gpus, "status", "--watch", "50ms")
        text = read_until(leader, b"", b"by GPU")
        os.write(leader, b"s")
        text = read_until(leader, b"", b"by util")
        os.write(leader, b"p")
        text = read_until(leader, b"", b"TYPE")
        os.write(leader, b"\x1b[Be")
        read_until(leader, b"", b"KGPU 0  NVIDIA")
        os.write(leader, b"/no such GPU")
        read_until(leader, b"", b"no GPU matches")
        os.write(leader, b"\x1b")
        read_until(leader, b"", b"by util")
        fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 6, 30, 0, 0))
        process.send_signal(signal.SIGWINCH)
        text = read_until(leader, b"", b"\x1b[?2026l")
        os.write(leader, b"q")
        read_all(leader)
        assert process.wait(timeout=LIMIT) == 0
        os.close(leader)


def test_procs_lists_every_process_and_the_last_line_adds_up(sim):
    with sim(3) as gpus:
        pid = gpus.load(1, util=90, mem="1GiB").pid
        lines = gpus.lull("status", "--procs").stdout.splitlines()
        assert lines[-1] == "3 GPUs: 1 busy, 2 free"
        rows = lines[lines.index("") + 1:-1]
        assert rows[0].split() == ["GPU", "PID", "USER", "TYPE", "MEMORY", "COMMAND"]
        assert rows[1].split()[:6] == ["1", str(pid), pwd.getpwuid(os.geteuid()).pw_name, "C", "1.0", "GiB"]


def test_watch_appends_in_a_pipe(sim):
    with sim(2) as gpus:
        process = gpus.start_lull("status", "--watch", "50ms", "--json")
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        assert first["time"] < second["time"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LIMIT) == -signal.SIGTERM
        process = gpus.start_lull("status", "--watch", "50ms", "--csv")
        lines = [process.stdout.readline() for _ in range(5)]
        assert sum(line.startswith("time,") for line in lines) == 1
        process.stdout.close()  # the reader has seen enough
        assert process.wait(timeout=LIMIT) == 0


def test_watch_lives_through_a_driver_reload(sim):
    with sim(2) as gpus:
        process = gpus.start_lull("status", "--watch", "50ms", "--json")
        assert len(json.loads(process.stdout.readline())["gpus"]) == 2
        gpus.fault("all", "no-driver")
        assert "driver" in process.stderr.readline()
        gpus.clear()
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            rows = json.loads(process.stdout.readline())["gpus"]
            if rows and all(row["error"] is None and row["util_percent"] == 0 for row in rows):
                break
        else:
            pytest.fail("readings did not come back")
        process.terminate()
        process.wait(timeout=LIMIT)


def test_watch_says_how_long_a_gpu_was_idle(sim):
    with sim(2) as gpus:
        gpus.load(1, util=90)
        process = gpus.start_lull("status", "--watch", "50ms", "--json")
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            rows = json.loads(process.stdout.readline())["gpus"]
            if rows[0]["idle_seconds"] and rows[0]["idle_seconds"] > 0.2 and rows[1]["util_percent"] > 50:
                break
        assert rows[0]["idle_seconds"] > 0.2
        assert rows[1]["idle_seconds"] is None
        process.terminate()
        process.wait(timeout=LIMIT)


def test_stdout_closed_or_full(sim):
    with sim(1) as gpus:
        with open("/dev/full", "w") as full:
            done = gpus.run(gpus.binary, "status", capture_output=False, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 125
        assert "No space left" in done.stderr
