"""`lull record` on simulated GPUs: every ending, every format, crashes and full disks."""
import csv
import io
import json
import resource
import signal
import subprocess

import pytest

from conftest import LIMIT, wait_until


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def start(gpus, *arguments, **options):
    return subprocess.Popen([gpus.binary, "record", *map(str, arguments)], env=gpus.env, stderr=subprocess.PIPE,
                            text=True, **options)


def test_writes_what_was_set(sim):
    with sim("2xH100,1xT4") as gpus:
        gpus.set(0, util=35, power=180, mem_used="8GiB", temp=60)
        done = gpus.lull("record", "--every", "50ms", "--for", "300ms")
        assert done.returncode == 0, done.stderr
        rows = rows_of(done.stdout)
        assert len(rows) % 3 == 0 and len(rows) >= 6
        assert [row["gpu"] for row in rows[:3]] == ["0", "1", "2"]
        assert rows[0]["mem_used_bytes"] == str(8 << 30)
        assert rows[0]["temp_celsius"] == "60"
        assert rows[2]["fan_percent"] == ""  # a T4 has none: unknown is not 0
        assert rows[0]["uuid"].startswith("GPU-")
        assert rows[0]["time"].endswith("Z")


def test_ndjson_and_a_choice_of_gpus_and_signals(sim):
    with sim(4) as gpus:
        gpus.fault(2, "lost")
        done = gpus.lull("record", "--every", "50ms", "--for", "200ms", "--format", "ndjson", "--gpus", "0,2", "--signals",
                         "power,util")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert {row["gpu"] for row in rows} == {"0", "2"}
        assert list(rows[0]) == ["time", "gpu", "uuid", "power_watts", "util_percent"]
        assert all(row["util_percent"] is None for row in rows if row["gpu"] == "2")
        assert all(row["power_watts"] > 0 for row in rows if row["gpu"] == "0")


def test_says_who_has_each_gpu(sim):
    """A process with a context is named by pid, user and a short command; an empty card has nobody."""
    with sim(2) as gpus:
        job = gpus.load(0, 50, "1GiB")
        done = gpus.lull("record", "--every", "50ms", "--for", "300ms", "--signals", "util,who")
        row, empty = rows_of(done.stdout)[-2:]
        assert list(row) == ["time", "gpu", "uuid", "util_percent", "host", "users", "pids", "command", "lease", "job"]
        assert str(job.pid) in row["pids"].split() and row["users"] and row["command"] and row["host"]
        assert empty["pids"] == empty["users"] == "none" and empty["command"] == ""
        without = gpus.lull("record", "--every", "50ms", "--for", "100ms", "--no-who").stdout
        assert "pids" not in without.splitlines()[0]


@pytest.mark.parametrize("name", ["trace.csv", "trace.csv.gz", "trace.csv.zst", "trace.ndjson"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_a_complete_file(sim, tmp_path, name, how):
    with sim(2) as gpus:
        path = tmp_path / name
        process = start(gpus, "--every", "20ms", "-o", path)
        wait_until(lambda: path.exists() and path.stat().st_size > 0, what="rows in the file")
        process.send_signal(how)
        assert process.wait(LIMIT) == -how
        said = process.stderr.read()
        process.stderr.close()
        replayed = gpus.lull("replay", str(path), "--idle", "util < 5", "--json")
        assert replayed.returncode == 0, replayed.stderr
        result = json.loads(replayed.stdout)
        assert result["bad_rows"] == 0 and result["gpus"] == 2
        assert f"{result['samples']} rows of 2 GPUs" in said


def test_goes_on_after_a_crash_in_the_middle_of_a_row(sim, tmp_path):
    with sim(1) as gpus:
        path = tmp_path / "trace.csv"
        first = gpus.lull("record", "--every", "20ms", "--for", "100ms", "-o", str(path))
        assert first.returncode == 0, first.stderr
        whole = path.read_text()
        path.write_text(whole[:-7])
        again = gpus.lull("record", "--every", "20ms", "--for", "100ms", "-o", str(path))
        assert again.returncode == 0
        assert "cut off" in again.stderr
        text = path.read_text()
        assert text.count("time,gpu,uuid") == 1
        assert text.startswith(whole[:whole[:-1].rfind("\n") + 1])
        assert all(None not in row and None not in row.values() for row in rows_of(text))
        refused = gpus.lull("record", "--for", "100ms", "--signals", "util", "-o", str(path))
        assert refused.returncode == 125 and "other columns" in refused.stderr
        assert path.read_text() == text


def test_killed_it_leaves_a_file_that_can_be_read_and_gone_on_with(sim, tmp_path):
    with sim(2) as gpus:
        path = tmp_path / "trace.csv.zst"
        process = start(gpus, "--every", "10ms", "-o", path)
        wait_until(lambda: path.exists() and path.stat().st_size > 0, what="a frame in the file")
        process.kill()
        process.wait(LIMIT)
        process.stderr.close()
        before = json.loads(gpus.lull("replay", str(path), "--idle", "util < 5", "--json").stdout)["samples"]
        assert before > 0
        assert gpus.lull("record", "--every", "10ms", "--for", "50ms", "-o", str(path)).returncode == 0
        after = json.loads(gpus.lull("replay", str(path), "--idle", "util < 5", "--json").stdout)["samples"]
        assert after > before
        subprocess.run(["zstd", "-tq", str(path)], check=True)


def test_a_full_disk_is_said_and_what_was_written_stays(sim, tmp_path):
    with sim(1) as gpus:
        path = tmp_path / "trace.csv"
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        process = start(gpus, "--every", "5ms", "-o", path, preexec_fn=limit)
        assert process.wait(LIMIT) == 125
        said = process.stderr.read()
        process.stderr.close()
        assert "File too large" in said and "what was written before is whole" in said
        text = path.read_text()
        assert text.endswith("\n") and 1500 < len(text) <= 2000
        assert all(None not in row.values() for row in rows_of(text))
        full = gpus.lull("record", "--for", "100ms", "-o", "/dev/full")
        assert full.returncode == 125 and "No space left" in full.stderr


def test_a_pipe_that_closes_ends_it_quietly(sim):
    with sim(1) as gpus:
        process = start(gpus, "--every", "1h", stdout=subprocess.PIPE)
        assert process.stdout.readline().startswith("time,gpu,uuid")
        process.stdout.close()  # the next row would come in an hour
        assert process.wait(LIMIT) == 0
        assert process.stderr.read() == ""
        process.stderr.close()


def test_wrong_options_are_refused(sim, tmp_path):
    with sim(1) as gpus:
        for arguments, word in ((["--every", "0"], "--every"), (["--for", "soon"], "is not a duration"),
                                (["--format", "xml"], "csv or ndjson"), (["--signals", "utl"], "did you mean 'util'"),
                                (["--gpus", "7"], "7")):
            path = tmp_path / "none.csv"
            done = gpus.lull("record", "-o", str(path), *arguments)
            assert done.returncode == 2, (arguments, done.stderr)
            assert word in done.stderr
            assert not path.exists()
        assert gpus.lull("record", "-o", str(tmp_path / "no" / "folder.csv")).returncode == 125


def test_two_on_one_file_are_refused(sim, tmp_path):
    with sim(1) as gpus:
        path = tmp_path / "trace.csv"
        process = start(gpus, "--every", "20ms", "-o", path)
        wait_until(lambda: path.exists() and path.stat().st_size > 0, what="rows in the file")
        done = gpus.lull("record", "--for", "100ms", "-o", str(path))
        assert done.returncode == 125 and "another" in done.stderr
        process.terminate()
        process.wait(LIMIT)
        process.stderr.close()
