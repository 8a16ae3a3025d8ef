"""`lull record --history`: a file a day, and `lull replay` and `lull report` on the folder, or on a part of it."""
import csv
import datetime
import io
import json
import os
import random
import resource
import signal
import subprocess
import time

import pytest

from conftest import LIMIT, calls, processes_of, wait_until

DAY = datetime.timedelta(days=1)


def start(gpus, *arguments, env=None, **options):
    return subprocess.Popen([gpus.binary, "record", *map(str, arguments)], env={**gpus.env, **(env or {})},
                            stderr=subprocess.PIPE, text=True, **options)


def finish(process):
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT) == -signal.SIGTERM
    with process.stderr:
        return process.stderr.read()


def days_in(folder):
    return sorted(path.name for path in folder.glob("*.csv.zst")) if folder.exists() else []


def rows_of(path):
    text = subprocess.run(["zstd", "-dcq", str(path)], capture_output=True, text=True, timeout=LIMIT).stdout
    return list(csv.DictReader(io.StringIO(text)))


def rows_in(folder):
    return [row for name in days_in(folder) for row in rows_of(folder / name)]


def zone_in_which_midnight_is_in(seconds):
    """A time zone, as POSIX writes it: "LOC-03:12:10" is that much east of Greenwich."""
    east = 86400 - seconds - int(time.time()) % 86400
    if east > 43200:
        east -= 86400
    return f"LOC{'-' if east >= 0 else '+'}{abs(east) // 3600:02}:{abs(east) // 60 % 60:02}:{abs(east) % 60:02}", east


def test_begins_a_new_file_at_local_midnight(sim, tmp_path):
    with sim(2) as gpus:
        zone, east = zone_in_which_midnight_is_in(4)
        folder = tmp_path / "history"
        recorder = start(gpus, "--history", folder, "--every", "100ms", env={"TZ": zone})
        wait_until(lambda: len(days_in(folder)) == 2 and (folder / days_in(folder)[1]).stat().st_size > 400,
                   what="rows of the second day")
        said = finish(recorder)
        before, after = (rows_of(folder / name) for name in days_in(folder))
        local = [[datetime.datetime.fromisoformat(row["time"][:-1]) + datetime.timedelta(seconds=east) for row in rows]
                 for rows in (before, after)]
        assert {f"{at:%F}.csv.zst" for at in local[0]} == {days_in(folder)[0]}
        assert {f"{at:%F}.csv.zst" for at in local[1]} == {days_in(folder)[1]}
        assert local[1][0] - local[0][-1] < datetime.timedelta(seconds=3) or "no sample for" in said
        result = json.loads(gpus.lull("replay", str(folder), "--idle", "util < 5", "--json").stdout)
        assert result["samples"] == len(before) + len(after) and result["bad_rows"] == 0


def test_goes_on_in_the_day_s_file_after_a_kill(sim, tmp_path):
    with sim(1) as gpus:
        folder = tmp_path / "history"
        recorder = start(gpus, "--history", folder, "--every", "50ms")
        wait_until(lambda: days_in(folder) and (folder / days_in(folder)[0]).stat().st_size > 1000, what="rows")
        recorder.kill()
        recorder.wait(LIMIT)
        recorder.stderr.close()
        names = days_in(folder)
        count = len(rows_of(folder / names[0]))
        recorder = start(gpus, "--history", folder, "--every", "50ms")
        wait_until(lambda: len(rows_of(folder / names[0])) > count, what="more rows in the same file")
        finish(recorder)
        assert days_in(folder)[0] == names[0] and not any("_2" in name for name in days_in(folder))


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_at_any_time_loses_no_more_than_the_last_interval(sim, tmp_path, seed):
    """By the driver's own count of how often it was asked: of all samples, one may be missing."""
    dice = random.Random(seed)
    with sim(2) as gpus:
        folder = tmp_path / "history"
        for turn in range(4):
            log = tmp_path / f"calls{turn}"
            before = len(rows_in(folder))
            recorder = start(gpus, "--history", folder, "--every", "100ms", "--signals", "util",
                             env={"LULL_SIM_LOG": str(log)})
            wait_until(lambda: len(rows_in(folder)) > before, what="a row")
            time.sleep(dice.uniform(0, 1))
            recorder.kill()
            recorder.wait(LIMIT)
            recorder.stderr.close()
            wait_until(lambda: not processes_of(gpus.folder, "lull-sensor"), what="the end of its sensor")
            rows = len(rows_in(folder)) - before
            samples = calls(log, "nvmlDeviceGetUtilizationRates", "0")
            assert rows % 2 == 0, "a sample is written as a whole"
            assert samples - 1 <= rows / 2 <= samples
        result = json.loads(gpus.lull("replay", str(folder), "--idle", "util < 5", "--json").stdout)
        assert result["samples"] == len(rows_in(folder)) and result["bad_rows"] == 0


def test_each_sample_of_a_history_is_written_at_once(sim, tmp_path):
    """However many samples there were, all but the newest are in the file: a write per sample, by the kernel's count."""
    with sim(1) as gpus:
        folder = tmp_path / "history"
        recorder = start(gpus, "--history", folder, "--every", "100ms", "--signals", "util")
        wait_until(lambda: days_in(folder) and len(rows_of(folder / days_in(folder)[-1])) >= 20, what="20 rows")
        finish(recorder)
        names = days_in(folder)
        rows = sum(len(rows_of(folder / name)) for name in names)
        frames = sum((folder / name).read_bytes().count(b"\x28\xb5\x2f\xfd") for name in names)
        assert frames >= rows + len(names), "a frame of each sample, and one of each header"


def test_days_that_are_over_are_packed_anew_with_the_same_rows(sim, tmp_path):
    with sim(2) as gpus:
        folder = tmp_path / "history"
        recorder = start(gpus, "--history", folder, "--every", "20ms")
        wait_until(lambda: days_in(folder) and len(rows_of(folder / days_in(folder)[-1])) >= 200, what="rows")
        finish(recorder)
        name = days_in(folder)[-1]
        rows, size = rows_of(folder / name), (folder / name).stat().st_size
        (folder / name).rename(folder / "2026-03-01.csv.zst")
        recorder = start(gpus, "--history", folder, "--every", "100ms")
        wait_until(lambda: (folder / "2026-03-01.csv.zst").stat().st_size * 3 < size, what="the smaller file")
        wait_until(lambda: not list(folder.glob(".*.new")), what="no file that is not finished")
        finish(recorder)
        assert rows_of(folder / "2026-03-01.csv.zst") == rows


def test_a_day_that_is_over_is_rolled_up_and_replay_says_the_same_of_it(sim, run_lull, tmp_path):
    with sim(2) as gpus:
        folder = tmp_path / "history"
        recorder = start(gpus, "--history", folder, "--every", "20ms")
        wait_until(lambda: days_in(folder) and len(rows_of(folder / days_in(folder)[-1])) >= 200, what="rows")
        finish(recorder)
        (folder / days_in(folder)[-1]).rename(folder / "2026-03-01.csv.zst")
        rolled = folder / ".2026-03-01.csv.zst.rollup"
        recorder = start(gpus, "--history", folder, "--every", "100ms")
        wait_until(rolled.exists, what="the roll-up")
        finish(recorder)

    def answers():
        return [run_lull(*words, folder, "--json").stdout for words in (["report", "--by-hour"], ["replay", "--idle", "util < 1 for 1s"])]

    with_it = answers()
    rolled.unlink()
    assert json.loads(with_it[0]) and answers() == with_it


def test_the_folder_says_how_its_recorder_is(sim, tmp_path):
    with sim(1) as gpus:
        folder = tmp_path / "history"

        def state():
            return (folder / ".lock").read_text().partition("\n")[0] if (folder / ".lock").exists() else ""

        recorder = start(gpus, "--history", folder, "--every", "50ms")
        wait_until(lambda: state() == "recording", what="that it records")
        finish(recorder)
        assert state() == "stopped"
        recorder = start(gpus, "--history", folder, "--every", "20ms",
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)))
        assert recorder.wait(LIMIT) == 125
        recorder.stderr.close()
        assert state() == "failed" and "File too large" in (folder / ".lock").read_text()


def test_a_file_with_other_columns_stays_and_the_day_goes_on_in_another(sim, tmp_path):
    with sim(1) as gpus:
        folder = tmp_path / "history"
        assert gpus.lull("record", "--history", str(folder), "--every", "50ms", "--for", "200ms", "--signals",
                         "util").returncode == 0
        first = days_in(folder)[-1]
        kept = (folder / first).read_bytes()
        done = gpus.lull("record", "--history", str(folder), "--every", "50ms", "--for", "200ms")
        assert done.returncode == 0 and "other columns" in done.stderr and "goes on in another file" in done.stderr
        if days_in(folder)[-1][:10] == first[:10]:  # not midnight between the two
            assert days_in(folder)[-1] == first[:10] + "_2.csv.zst"
        assert (folder / first).read_bytes() == kept
        assert json.loads(gpus.lull("replay", str(folder), "--idle", "util < 5", "--json").stdout)["bad_rows"] == 0


def test_two_recorders_of_one_folder_are_refused(sim, tmp_path):
    with sim(1) as gpus:
        folder = tmp_path / "history"
        recorder = start(gpus, "--history", folder)
        wait_until(lambda: days_in(folder), what="the day's file")
        done = gpus.lull("record", "--history", str(folder), "--for", "1s")
        assert done.returncode == 125 and "another `lull record` writes there" in done.stderr
        finish(recorder)


def test_keeps_so_many_recorded_days_and_touches_nothing_else(sim, tmp_path):
    with sim(1) as gpus:
        folder = tmp_path / "history"
        folder.mkdir()
        old = [f"2026-03-0{day}.csv.zst" for day in range(1, 6)] + ["2026-03-02_2.csv.zst"]
        others = ["notes.txt", "2026-13-01.csv.zst", "2026-03-01.csv", "2026-03-01_1.csv.zst", "2026-3-1.csv.zst"]
        for name in old + others:
            (folder / name).write_text("kept")
        done = gpus.lull("record", "--history", str(folder), "--every", "50ms", "--for", "100ms", "--keep", "3d")
        assert done.returncode == 0, done.stderr
        left = {path.name for path in folder.iterdir()} - {".lock"}
        today = left - set(old) - set(others)
        assert left == {"2026-03-04.csv.zst", "2026-03-05.csv.zst"} | set(others) | today and len(today) == 1


def test_a_full_disk_is_said_and_what_was_written_stays(sim, tmp_path):
    with sim(1) as gpus:
        folder = tmp_path / "history"
        recorder = start(gpus, "--history", folder, "--every", "20ms", "--signals", "util,power",
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)))
        assert recorder.wait(LIMIT) == 125
        with recorder.stderr:
            assert "what was written before is whole" in recorder.stderr.read()
        assert json.loads(gpus.lull("replay", str(folder), "--idle", "util < 5", "--json").stdout)["bad_rows"] == 0


@pytest.mark.parametrize("arguments, said", [
    (["--keep", "3d"], "--keep is for a history"),
    (["--history", "DIR", "--keep", "3"], "--keep"),
    (["--history", "DIR", "--keep", "1h"], "at least 1d"),
    (["--history", "DIR", "-o", "file.csv"], "not both"),
    (["--history", "DIR", "--format", "csv"], "--format"),
    (["--history", ""], "--history"),
])
def test_mistakes_in_recording(sim, tmp_path, arguments, said):
    with sim(1) as gpus:
        done = gpus.lull("record", *[str(tmp_path / "history") if word == "DIR" else word for word in arguments])
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "history").exists()


def test_a_folder_that_cannot_be_written(sim, tmp_path):
    with sim(1) as gpus:
        (tmp_path / "file").write_text("")
        for place in (tmp_path / "missing" / "history", tmp_path / "file"):
            done = gpus.lull("record", "--history", str(place), "--for", "1s")
            assert done.returncode == 125 and str(place) in done.stderr, done.stderr


# ---- reading

@pytest.fixture
def week(tmp_path):
    """Seven days of a GPU, a sample each 10 minutes: busy in the first half of each UTC day. Its rows: 7 * 144."""
    folder = tmp_path / "week"
    folder.mkdir()
    first = datetime.datetime(2026, 11, 9)
    for day in range(7):
        text = "time,gpu,uuid,util_percent\n"
        for sample in range(144):
            at = first + day * DAY + datetime.timedelta(minutes=10 * sample)
            text += f"{at:%FT%T}.000Z,0,GPU-1,{90 if sample < 72 else 0}\n"
        packed = subprocess.run(["zstd", "-qc"], input=text.encode(), capture_output=True, timeout=LIMIT).stdout
        (folder / f"{first + day * DAY:%F}.csv.zst").write_bytes(packed)
    (folder / "README").write_text("no trace")
    return folder


def samples(run_lull, *arguments):
    done = run_lull("replay", *map(str, arguments), "--idle", "util < 5 for 1h", "--json", env={"TZ": "UTC"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["samples"]


def test_a_folder_is_all_of_its_days(run_lull, week):
    assert samples(run_lull, week) == 7 * 144
    assert samples(run_lull, str(week) + "/") == 7 * 144
    files = sorted(map(str, week.glob("*.zst")))
    assert json.loads(run_lull("report", str(week), "--json").stdout) == json.loads(
        run_lull("report", *files, "--json").stdout)


@pytest.mark.parametrize("arguments, rows", [
    (["--from", "2026-11-10", "--to", "2026-11-11"], 288),
    (["--from", "2026-11-15"], 144),
    (["--to", "2026-11-09"], 144),
    (["--from", "2026-11-10T12:00", "--to", "2026-11-10T13:00"], 6),
    (["--from", "2026-11-10T12:00:00+02:00", "--to", "2026-11-10 11:00"], 6),
])
def test_a_part_of_a_history(run_lull, week, arguments, rows):
    assert samples(run_lull, week, *arguments) == rows
    assert samples(run_lull, *sorted(week.glob("*.zst")), *arguments) == rows, "of the files one by one"


def test_the_last_hours_of_a_file_end_now(run_lull, tmp_path):
    now = datetime.datetime.now(datetime.timezone.utc)
    trace = tmp_path / "trace.csv"
    trace.write_text("time,gpu,util\n" + "".join(
        f"{now - datetime.timedelta(minutes=minutes):%FT%T}Z,0,50\n" for minutes in range(300, 0, -10)))
    assert samples(run_lull, trace, "--last", "125m") == 12


def test_times_without_a_zone_are_compared_as_the_clock_showed_them(run_lull, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp,index,utilization.gpu [%]\n" + "".join(
        f"2026/11/10 {hour:02}:00:00.000, 0, 50 %\n" for hour in range(24)))
    done = run_lull("replay", str(trace), "--idle", "util < 5 for 1h", "--json", "--from", "2026-11-10T20:00",
                    env={"TZ": "America/New_York"})
    assert json.loads(done.stdout)["samples"] == 4


@pytest.mark.parametrize("arguments, status, said", [
    (["--last", "30"], 2, "--last"),
    (["--from", "tomorrow"], 2, "2026-11-17T12:00 "),
    (["--from", "2026-11-31"], 2, "is not a time"),
    (["--from", "2026-11-12", "--to", "2026-11-10"], 2, "is not after"),
    (["--last", "2d", "--from", "2026-11-12"], 2, "not both"),
    (["--from", "2031-01-01"], 125, "its days are 2026-11-09 to 2026-11-15"),
])
def test_mistakes_in_reading(run_lull, week, arguments, status, said):
    done = run_lull("replay", str(week), *arguments, "--idle", "util < 5 for 1h")
    assert done.returncode == status and said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_folder_without_days_and_a_range_without_rows(run_lull, week, tmp_path):
    (tmp_path / "empty").mkdir()
    done = run_lull("report", str(tmp_path / "empty"))
    assert done.returncode == 125 and "lull record --history" in done.stderr
    one = sorted(week.glob("*.zst"))[0]
    done = run_lull("report", str(one), "--from", "2031-01-01")
    assert done.returncode == 125 and "no row from 2031-01-01" in done.stderr
    counted = tmp_path / "counted.csv"
    counted.write_text("gpu,util\n0,5\n0,6\n0,7\n")
    done = run_lull("replay", str(counted), "--every", "5s", "--idle", "util < 5 for 1h", "--last", "2d")
    assert done.returncode == 125 and "which day" in done.stderr, done.stderr


def test_a_day_that_is_being_written_can_be_read(sim, tmp_path):
    with sim(1) as gpus:
        folder = tmp_path / "history"
        recorder = start(gpus, "--history", folder, "--every", "50ms")
        wait_until(lambda: days_in(folder) and (folder / days_in(folder)[0]).stat().st_size > 1000, what="rows")
        done = gpus.lull("report", str(folder), "--json", "--last", "1h")
        assert done.returncode == 0, done.stderr
        finish(recorder)
        assert os.path.exists(folder / ".lock")
