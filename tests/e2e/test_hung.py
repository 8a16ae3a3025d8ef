"""What lull learns of each card: the signals effort, learned and idle_power, live and in recordings."""
import csv
import json
import os
import re

import pytest

from conftest import LIMIT, read_until, wait_until

HEADER = "time,gpu,util_percent,mem_used_bytes,power_watts,power_limit_watts,user\n"


def trace(path, *parts, every=10, limit=70):
    """Each part: how many samples, util, power."""
    at, rows = 0, [HEADER]
    for samples, util, power in parts:
        for _ in range(samples):
            rows.append(f"{at},0,{util},{8 << 30},{power},{limit},alice\n")
            at += every
    path.write_text("".join(rows))
    return path


def learned_file(gpus, seconds=7200, text=None):
    """Puts a file where the simulation keeps what is learned of GPU 0."""
    uuid = json.loads(gpus.lull("status", "--json").stdout)["gpus"][0]["uuid"]
    folder = gpus.folder / "learned"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / uuid
    path.write_text(text if text is not None else
                    f"lull-learned 1\nuuid {uuid}\nidle_watts 70\nlimit_watts 700\nseconds {seconds}\nstride 1\n"
                    "window 100 570\nwindow 50 320\nwindow 80 470\nend\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def fired(run_lull):
    def replayed(path, rule="hung"):
        done = run_lull("replay", path, "--idle", rule, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["totals"]["ended"]
    return replayed


def test_replay_learns_from_the_recording_and_only_from_before(tmp_path, fired):
    hang = trace(tmp_path / "t4.csv", (30, 0, 27), (90, 97, 68), (60, 100, 41))
    assert fired(hang) == 1
    assert fired(hang, "util >= 95 and power < 35% for 5m") == 0, "58 % of its limit"
    # The same, but what is usual comes later.
    assert fired(trace(tmp_path / "late.csv", (30, 0, 27), (60, 100, 41), (90, 97, 68))) == 0
    healthy = trace(tmp_path / "healthy.csv", (30, 0, 27), (400, 97, 68))
    assert fired(healthy) == 0
    limitless = trace(tmp_path / "gb10.csv", (30, 0, 4), (90, 96, 45), (60, 96, 13), limit="")
    assert fired(limitless) == 1
    without = tmp_path / "column.csv"
    without.write_text("".join(",".join(line.split(",")[:5]) + "\n" for line in limitless.read_text().splitlines()))
    assert fired(without) == 1, "no column of limits at all"


def test_replay_with_another_interval_and_with_gpus_together_learns_too(tmp_path, run_lull):
    hang = trace(tmp_path / "t4.csv", (60, 0, 27), (180, 97, 68), (120, 100, 41), every=5)
    for more in (["--every", "30s"], ["--per", "all"], ["--per", "host"]):
        done = run_lull("replay", hang, "--idle", "hung", "--json", *more)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["totals"]["ended"] == 1, more


def test_replay_says_which_signal_is_missing(tmp_path, run_lull):
    path = tmp_path / "powerless.csv"
    path.write_text("time,gpu,util\n" + "".join(f"{i},0,100\n" for i in range(60)))
    done = run_lull("replay", path, "--idle", "hung")
    assert done.returncode != 0 and "the trace has no power, which the rule looks at" in done.stderr


def test_replay_judges_power_by_the_cards_own_idle(tmp_path, fired):
    light = trace(tmp_path / "light.csv", (20, 0, 70.2), (60, 2, 77), limit=700)
    assert fired(light, "power < idle+3W for 5m") == 0
    assert fired(light, "power < idle+9W for 5m") == 1
    assert fired(trace(tmp_path / "idle.csv", (20, 0, 70.2), (60, 0, 70.6), limit=700), "power < idle+3W for 5m") == 1
    assert fired(trace(tmp_path / "busy.csv", (200, 40, 70), limit=700), "power < idle+3W for 5m") == 0


def test_report_counts_hung_hours_by_what_is_learned(tmp_path, run_lull):
    hang = trace(tmp_path / "t4.csv", (30, 0, 27), (90, 97, 68), (360, 100, 41))
    got = json.loads(run_lull("report", hang, "--json").stdout)
    assert got["totals"]["hung_hours"] == pytest.approx(1, abs=.01) and got["totals"]["not_judged_hours"] == 0
    fixed = json.loads(run_lull("report", hang, "--json", "--hung", "util >= 95 and power < 35% for 5m").stdout)
    assert fixed["totals"]["hung_hours"] == 0
    # Without a limit it is not judged until it is learned.
    limitless = trace(tmp_path / "gb10.csv", (360, 96, 13), (30, 0, 4), (90, 96, 45), (360, 96, 5), limit="")
    got = json.loads(run_lull("report", limitless, "--json").stdout)
    assert got["totals"]["not_judged_hours"] == pytest.approx(1, abs=.01) and got["not_judged_reason"] == "no power limit"


def test_a_recording_of_a_card_whose_idle_looks_hung_is_not_judged(tmp_path, run_lull, fired):
    """RDNA: an idle program reads 100 % there, at the power of rest. Intel: so does what keeps a GT awake."""
    for fifth in ("", "rdna", "intel"):
        path = tmp_path / f"card{fifth}.csv"
        rows = trace(path, (30, 0, 17), (90, 80, 180), (360, 100, 24), limit=203).read_text().splitlines()
        path.write_text(f"{rows[0]},architecture\n" + "".join(f"{row},{fifth}\n" for row in rows[1:]))
        assert fired(path) == (0 if fifth else 1)
        assert fired(path, "util >= 95 and power < 35% for 5m") == 1, "who writes such a rule means it"
        for more in (["--per", "all"], ["--every", "30s"]):
            done = json.loads(run_lull("replay", path, "--idle", "hung", "--json", *more).stdout)
            assert done["totals"]["ended"] == (0 if fifth else 1), more
        got = json.loads(run_lull("report", path, "--json").stdout)
        assert got["totals"]["hung_hours"] == pytest.approx(0 if fifth else 1, abs=.01)
        assert got["totals"]["not_judged_hours"] == pytest.approx(1 if fifth else 0, abs=.01)
        assert got["not_judged_reason"] == ("idle RDNA and Intel cards look hung" if fifth else None)


def test_a_recording_says_of_which_cards_idle_looks_hung(sim, tmp_path):
    with sim(text='[[gpu]]\nmodel = "RX7900XTX"\n[[gpu]]\nmodel = "MI210"\n[[gpu]]\nmodel = "A770"\n') as gpus:
        for name in ("t.csv", "t.ndjson"):
            for command in (["record", "--for", "500ms", "-o"], ["run", "--gpus", "all", "--record"]):
                path = tmp_path / (command[0] + name)
                rest = ["--", "sleep", "1"] if command[0] == "run" else []
                assert gpus.lull(*command, path, "--every", "100ms", "--delay" if rest else "--signals",
                                 "0s" if rest else "util,power", *rest).returncode == 0
                lines = path.read_text().splitlines()
                rows = list(csv.DictReader(lines)) if name == "t.csv" else [json.loads(line) for line in lines]
                assert {(row["gpu"], row["architecture"] or "") for row in rows} == {("0", "rdna"), ("1", ""), ("2", "intel")}
    with sim("1xH100") as gpus:
        assert "architecture" not in gpus.lull("record", "--for", "200ms", "--every", "100ms").stdout


def test_evidence_of_a_hang_draws_util_power_and_effort(sim, tmp_path):
    with sim("1xH100") as gpus:
        gpus.set(0, util=100, power=152)
        learned_file(gpus)
        done = gpus.lull("run", "--every", "100ms", "--delay", "0s", "--gpus", "all", "--idle", "effort < 45 for 1s", "--grace", "300ms",
                         "--evidence", tmp_path / "ev", "--", "sleep", "1000")
        assert done.returncode == 124, done.stderr
        folder, = (tmp_path / "ev").iterdir()
        for name in ("utilisation.svg", "index.html"):
            drawn = re.findall(r"<text[^>]*>([^<]*)</text>", (folder / name).read_text())
            assert {"util", "power", "effort", "152 W", "16 %"} <= set(drawn), drawn


PROGRAM = """import pathlib, time

def train_step():
    time.sleep(1000)

pathlib.Path(__file__).with_suffix(".ready").touch()
train_step()
"""
HANGS = "the job is at train.py:4 in train_step ("


@pytest.fixture
def hanging(sim, tmp_path):
    """Starts `lull` and a program that hangs once it is where it is to be found. A hang takes half a second."""
    program, settings = tmp_path / "train.py", tmp_path / "lull.toml"
    program.write_text(PROGRAM)
    settings.write_text('[rules]\nhung = "util >= 95 and power < 35% for 500ms"\n')
    settings.chmod(0o600)
    with sim("1xH100") as gpus:
        def start(*args, program_aside=False, **env):
            command = ["/usr/bin/python3", program]
            gpus.set(0, util=100, power=600)
            program.with_suffix(".ready").unlink(missing_ok=True)
            rest = ["--also", gpus.start(*command).pid] if program_aside else ["--", *command]
            lull = gpus.start_lull(args[0], "--every", "100ms", *args[1:], *rest, env={"LULL_CONFIG": str(settings), **env})
            wait_until(program.with_suffix(".ready").exists, what="the program")
            gpus.set(0, power=152)
            return lull
        yield start


RUN = ["run", "--delay", "0s", "--gpus", "all", "--grace", "300ms"]


def test_a_warning_of_a_hang_says_where_the_job_is(hanging):
    run = hanging(*RUN, "--idle", "util < 1 for 1h", RANK="3")
    said = read_until(run.stderr, "this is a warning")
    assert f"nothing is ended for it; {HANGS}rank 3, waiting in " in said, said
    assert run.poll() is None


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_the_log_says_where_a_job_hangs_that_is_ended_for_it(hanging, dry_run):
    run = hanging(*RUN, "--warn-by", "none", "--idle", "hung", *dry_run)
    said = read_until(run.stderr, HANGS)
    assert f"lull: {HANGS}waiting in " in said, said
    assert dry_run or run.wait(timeout=LIMIT) == 124


def test_the_log_does_not_say_where_an_idle_job_is(hanging):
    run = hanging(*RUN, "--warn-by", "none", "--idle", "power < 35% for 500ms")
    assert run.wait(timeout=LIMIT) == 124 and HANGS not in run.stderr.read()


def test_the_log_of_watch_says_where_the_work_hangs(hanging):
    watch = hanging("watch", "--gpus", "all", "--idle", "hung", "--do", "exit=5", program_aside=True)
    said = watch.stderr.read()
    assert watch.wait(timeout=LIMIT) == 5 and HANGS in said, said


def test_check_shows_what_is_learned(sim):
    with sim("1xH100") as gpus:
        gpus.set(0, util=100, power=152)
        fresh = gpus.lull("check", "hung").stdout
        assert "not learned yet" in fresh and "W idle" not in fresh
        learned_file(gpus)
        shown = gpus.lull("check", "hung").stdout
        assert "GPU 0: learned from 2h of work: 70 W idle, 5 W for each % of util" in " ".join(shown.split()), shown
        seen = json.loads(gpus.lull("check", "--json", "hung").stdout)
        effort, = (one for one in seen["signals"] if one["name"] == "effort")
        assert effort["gpus"][0]["effort_percent"] == pytest.approx(16.4, abs=1) and seen["now"] is True
        gpus.set(0, util=100, power=600)
        assert json.loads(gpus.lull("check", "--json", "hung").stdout)["now"] is False


def test_a_damaged_file_of_what_is_learned_is_said_and_ignored(sim):
    with sim("1xH100") as gpus:
        path = learned_file(gpus, text="nonsense\n")
        shown = " ".join(gpus.lull("check", "hung").stdout.split())
        assert f"{path} is ignored: line 1 makes no sense" in shown and "not learned yet" in shown
        learned_file(gpus).chmod(0o666)
        shown = " ".join(gpus.lull("check", "hung").stdout.split())
        assert "is ignored: it can be written by everybody" in shown and "not learned yet" in shown
        done = gpus.lull("watch", "--every", "50ms", "--idle", "effort < 45 or util >= 0 for 200ms", "--do", "exit=5")
        assert done.returncode == 5 and done.stderr.count("is ignored") == 1, done.stderr


def test_watch_acts_on_effort_and_keeps_what_it_learns(sim):
    with sim("1xH100") as gpus:
        gpus.set(0, util=100, power=152)
        path = learned_file(gpus)
        before = path.read_text()
        done = gpus.lull("watch", "--every", "50ms", "--idle", "effort < 45 for 500ms", "--do", "exit=5")
        assert done.returncode == 5, done.stderr
        assert path.read_text() == before, "a hang is not learned"
        path.unlink()
        # The card's own idle takes a window of 5 s.
        gpus.set(0, util=0, power=71)
        done = gpus.lull("watch", "--every", "100ms", "--idle", "power < idle+3W for 500ms", "--do", "exit=6")
        assert done.returncode == 6, done.stderr
        assert "idle_watts 7" in path.read_text() and os.stat(path).st_mode & 0o777 == 0o600
        assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_nothing_is_kept_where_that_is_not_wanted(sim):
    with sim("1xH100") as gpus:
        gpus.set(0, util=0, power=71)
        done = gpus.lull("watch", "--every", "100ms", "--idle", "power < idle+3W for 500ms", "--do", "exit=6",
                         env={**gpus.env, "LULL_LEARNED": ""})
        assert done.returncode == 6 and not (gpus.folder / "learned").exists()


def test_check_refuses_what_has_no_idle_of_its_own(run_lull):
    done = run_lull("check", "util < idle+3W")
    assert done.returncode == 2 and "only power is compared with the card's own idle" in done.stderr
    done = run_lull("check", "hung", "--promql")
    assert done.returncode == 2 and "lull learns it of each card" in done.stderr
    done = run_lull("record", "--signals", "effort", "--for", "1s")
    assert done.returncode == 2 and "learned from util and power" in done.stderr
    done = run_lull("replay", "--columns", "effort=x", "--idle", "hung", "trace.csv")
    assert done.returncode == 2 and "effort is learned from util and power" in done.stderr
    done = run_lull("pick", "--where", "effort < 45")
    assert done.returncode == 2 and "is learned over time" in done.stderr
