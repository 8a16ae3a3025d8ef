"""`lull replay` from outside: against the Python twin, every output, every mistake."""
import csv
import datetime
import gzip
import io
import json
import math
import os
import pty
import random
import re
import subprocess
import sys

import pytest

from conftest import LIMIT, ROOT, build_dir, clean_environment

LULL = str(build_dir() / "lull")
TWIN = str(ROOT / "bench" / "replay_twin.py")
SHARED = ("firings", "came_back", "regretted", "idle_hours", "reclaimed_hours", "seen_hours")
ENDS = ("ended", "worked_again", "work_lost_ratio", "freed_hours", "gap_hours")


def replay(*arguments, **options):
    return subprocess.run([LULL, "replay", *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT,
                          env=clean_environment(), **options)


def totals(*arguments):
    """All of the answer; with the account of stretches (--verbose) among the totals, and at the top for short."""
    done = replay(*arguments, "--json", "--verbose")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return {**answer["totals"], **answer}


def random_trace(path, style, seed):
    """A few GPUs with idle times, unknowns and gaps, in the words of nvidia-smi or our own."""
    dice = random.Random(seed)
    rows = []
    for gpu in range(dice.randint(1, 4)):
        at, idle = dice.randint(0, 100), False
        for _ in range(dice.randint(2, 800)):
            if dice.random() < 0.05:
                idle = not idle
            util = None if dice.random() < 0.02 else dice.randint(0, 4) if idle else dice.randint(0, 100)
            rows.append((at, gpu, util))
            at += 60 * (dice.randint(2, 9) if dice.random() < 0.02 else 1)
    order = dice.choice(["as it is", "by time", "shuffled"])
    if order == "by time":
        rows.sort()
    if order == "shuffled":
        dice.shuffle(rows)
    with open(path, "w") as out:
        if style == "own":
            out.write("time,gpu,util_percent\n")
            out.writelines(f"{1710500000 + at},{gpu},{'' if util is None else util}\n" for at, gpu, util in rows)
        else:
            out.write("timestamp, index, utilization.gpu [%]\n")
            for at, gpu, util in rows:
                when = f"2024/03/{15 + at // 86400:02} {at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}.000"
                out.write(f"{when}, {gpu}, {'[N/A]' if util is None else f'{util} %'}\n")


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_the_twin(tmp_path, seed):
    trace = tmp_path / "trace.csv"
    random_trace(trace, "own" if seed % 2 else "nvidia-smi", seed)
    seconds = [60, 300, 900][seed % 3]
    ours = totals(trace, "--idle", f"util < 5 for {seconds}s", "--regret", "20m")
    twin = json.loads(subprocess.run([sys.executable, TWIN, str(trace), "--util", "5", "--for", str(seconds), "--regret",
                                      "1200"], capture_output=True, text=True, check=True, timeout=LIMIT).stdout)
    for name in SHARED:
        assert ours[name] == pytest.approx(twin[name]), name
    for name in ENDS:
        assert ours["totals"][name] == pytest.approx(twin[name]), name


TRACE = """time,gpu,util,power
0,0,50,300
60,0,1,80
120,0,2,80
180,0,1,80
240,0,90,300
300,0,1,80
360,0,1,80
420,0,,80
480,0,1,80
540,0,1,80
2000,0,1,80
2060,0,1,80
2120,0,1,80
2180,0,1,80
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_what_the_definitions_say(trace):
    got = totals(trace, "--idle", "util < 5 for 1m", "--price", "3.6")
    assert got["firings"] == 4 and got["came_back"] == 1 and got["regretted"] == 1
    assert got["samples"] == 14 and got["gpus"] == 1
    assert got["seen_hours"] == pytest.approx(720 / 3600)
    assert got["idle_hours"] == pytest.approx(540 / 3600)
    assert got["reclaimed_hours"] == pytest.approx(300 / 3600)
    assert got["reclaimed_cost"] == pytest.approx(0.3)
    assert [e["ended"] for e in got["events"]] == ["came back", "unknown", "gap", "end of trace"]
    assert [e["after_seconds"] for e in got["events"]] == [120, 60, 0, 120]
    assert totals(trace, "--idle", "util < 5 for 1m", "--regret", "1m")["regretted"] == 0
    assert totals(trace, "--idle", "util < 5 for 1m", "--gap", "1h")["firings"] == 3
    assert totals(trace, "--idle", "util < 5 for 1m", "--arm", "util > 80")["firings"] == 3


def test_sweep_is_the_same_as_one_by_one(tmp_path):
    trace = tmp_path / "trace.csv"
    random_trace(trace, "own", 99)
    swept = totals(trace, "--idle", "util < 5 for 5m", "--sweep", "for=30m,1m,5m", "--sweep", "util=1,5,60")
    assert [row["for"] for row in swept["sweep"]] == ["1m"] * 3 + ["5m"] * 3 + ["30m"] * 3
    for row in swept["sweep"]:
        alone = totals(trace, "--idle", f"util < {row['util']} for {row['for']}")
        for name in ("firings", "came_back", "regretted", "idle_hours", "reclaimed_hours", "freed_hours", "work_lost_high"):
            assert row[name] == pytest.approx(alone[name]), (row["rule"], name)
    rows = list(csv.DictReader(io.StringIO(replay(trace, "--idle", "util < 5", "--sweep", "for=1m,5m", "--csv").stdout)))
    assert [row["for"] for row in rows] == ["1m", "5m"]
    for row, same in zip(rows, totals(trace, "--idle", "util < 5", "--sweep", "for=1m,5m")["sweep"]):
        for name in ("ratio", "low", "high", "at_risk"):
            told = row[f"return_1h_{name}"]
            assert (float(told) if told else None) == same[f"return_1h_{name}"], name


def our_time(seconds):
    """As `lull record` writes it: what tells a recording of means from others."""
    return datetime.datetime.fromtimestamp(1_700_000_000 + seconds, datetime.timezone.utc).strftime("%FT%T.000Z")


def days_of_pauses(path, days):
    """Many jobs, each a GPU: 40 pause for four minutes now and then; 20 idle from the first noon on, of which a few work again
    for a minute at the end of the last day. Means, a minute apart."""
    with open(path, "w") as out:
        out.write("time,gpu,uuid,util_percent\n")
        for minute in range(days * 1440):
            at = our_time(minute * 60)
            for gpu in range(60):
                late = minute >= days * 1440 - 1
                util = (90 if minute % 14 < 10 else 0) if gpu < 40 else 90 if minute < 720 or late and gpu > 57 else 0
                out.write(f"{at},{gpu},GPU-{gpu},{util}\n")


@pytest.fixture(scope="module")
def two_days(tmp_path_factory):
    path = tmp_path_factory.mktemp("days") / "two.csv"
    days_of_pauses(path, 2)
    return path


def test_recommends_the_value_that_frees_most_within_the_loss(two_days):
    arguments = [two_days, "--idle", "util < 5 for 2m", "--sweep", "for=2m,5m,30m,10000m"]
    got = totals(*arguments)
    assert [row["ended"] for row in got["sweep"]] == [60, 20, 20, 0]
    assert [row["worked_again"] for row in got["sweep"]] == [42, 2, 2, 0]
    assert [row["recommended"] for row in got["sweep"]] == [False, True, False, False]
    best = got["sweep"][1]
    assert got["recommendation"] == {"value": "5m", "rule": "util < 5 for 5m", "strength": "weak",
                                     "reason": "the recording covers 2 days"}
    assert got["recommendation_missing"] is None
    assert best["work_lost_low"] <= best["work_lost_ratio"] <= best["work_lost_high"] <= got["lose_ratio"]
    out = replay(*arguments).stdout
    assert out.startswith("Recommended: 5m (weak: the recording covers 2 days). Ends 20 of 60 jobs; 2 of them worked again; "
                          "less than 0.1 % (0.0–0.1 %) of the work lost; ")
    assert " GPU-hours freed. Jobs not seen again were followed for a median of 35.9 h." in out.splitlines()[0]
    assert len(got["ends"]) == 20 and got["ends_rule"] == "util < 5 for 5m", "the jobs listed are those of the recommended value"
    assert out.count("◄ recommended") + out.count("< recommended") == 1


def test_no_recommendation_without_support(two_days, tmp_path):
    short = tmp_path / "short.csv"
    lines = two_days.read_text().splitlines(keepends=True)
    short.write_text("".join(lines[:60 * 1400]))
    moments = tmp_path / "moments.csv"
    moments.write_text("time,gpu,util\n" + "".join(",".join(line.split(",")[i] for i in (0, 1, 3)) for line in lines[1:]))
    sweep = ["--idle", "util < 5", "--sweep", "for=2m,5m,30m"]
    for path, more, why in ((short, [], "the recording covers 23.3 h, a recommendation needs 24 h"),
                            (moments, [], "the readings are of the moment and 1m apart: short work between them is not seen"),
                            (two_days, ["--lose", "0%"], "each value may lose more than 0 % of the work (--lose); the closest is ")):
        got = totals(path, *sweep, *more)
        assert got["recommendation"] is None and got["recommendation_missing"].startswith(why), got["recommendation_missing"]
        assert replay(path, *sweep, *more).stdout.startswith("No recommendation: " + why)
        assert not any(row["recommended"] for row in got["sweep"])
    assert "Readings of the moment, every 1m: short work between them is not seen." in replay(moments, *sweep).stdout


def test_the_same_file_gives_the_same_figures(two_days):
    arguments = [two_days, "--idle", "util < 5", "--sweep", "for=2m,5m", "--json"]
    first = replay(*arguments, "--threads", "1").stdout
    assert first == replay(*arguments, "--threads", "2").stdout == replay(*arguments, "--memory", "64MiB").stdout


def test_a_cut_recording_says_nothing_that_the_rest_contradicts(two_days, tmp_path):
    """Whatever is said of the first part holds in the whole: ends, returns and losses only ever grow."""
    lines = two_days.read_text().splitlines(keepends=True)
    whole = totals(two_days, "--idle", "util < 5 for 30m")
    ends = {(end["gpu"], end["at_seconds"]): end for end in whole["ends"]}
    for minutes in sorted(random.Random(7).sample(range(60, 2880), 6)):
        part = tmp_path / f"{minutes}.csv"
        part.write_text("".join(lines[:1 + 60 * minutes]))
        got = totals(part, "--idle", "util < 5 for 30m")
        for end in got["ends"]:
            later = ends[end["gpu"], end["at_seconds"]]
            assert end["followed_seconds"] <= later["followed_seconds"]
            assert not end["worked_again"] or later["back_after_seconds"] == end["back_after_seconds"]
            assert end["work_lost_hours"] <= later["work_lost_hours"] + 1e-9
        words = replay(part, "--idle", "util < 5 for 30m").stdout
        assert "for good" not in words and "never" not in words


def documented_fields(section):
    """The names in backticks in this section of docs/traces.md."""
    text = (ROOT / "docs" / "traces.md").read_text()
    text = text[text.index(f"## Output of `{section}`"):]
    end = text.find("\n## ", 4)
    return set(map(one_of, re.findall(r"`([a-z0-9_]+)`", text if end < 0 else text[:end])))


def one_of(name):
    """Of the fields that there are for several times the first."""
    return re.sub(r"^return_(4|24)h", "return_1h", re.sub(r"^idle_(over|after)_(30m|1h|2h|8h)", r"idle_\1_10m", name))


def fields_of(value):
    """Of a JSON document, at any depth."""
    if isinstance(value, list):
        return set().union(*map(fields_of, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    names = set(map(one_of, value))
    return names.union(*map(fields_of, value.values())) if value else names


def test_every_field_is_documented_and_every_documented_field_is_there(two_days, tmp_path):
    trace = tmp_path / "jobs.csv"
    trace.write_text("time,gpu,util,mem_used_bytes,power_watts,users,pids,command,job,lease,host\n" + "".join(
        f"{60 * i},0,{90 if i % 90 < 20 else 0},{8 << 30},90,ada,7,train.py,j1,l1,n1\n" for i in range(300)))
    some = ["--idle", "30m", "--price", "2", "--sweep", "for=20m,30m", "--sweep", "util=1,5", "--verbose"]
    got = fields_of(totals(trace, *some))
    got |= fields_of(totals(two_days, "--idle", "util < 5 for 5m"))  # a recommendation
    for more in (some, some[:-1], ["--idle", "30m"], ["--idle", "30m", "--verbose"]):
        got |= set(map(one_of, replay(trace, *more, "--csv").stdout.splitlines()[0].split(",")))
    listed = documented_fields("lull replay --json")
    assert got - listed == {"util"}, "a signal that was swept"  # the values of --sweep are named after it
    assert not listed - got, listed - got

    done = subprocess.run([LULL, "report", str(trace), "--json", "--price", "2"], capture_output=True, text=True, timeout=LIMIT,
                          env=clean_environment())
    got, listed = fields_of(json.loads(done.stdout)), documented_fields("lull report --json")
    assert got == listed - {"by_hour"}, (got - listed, listed - got)  # docs/serve.md has its fields


def test_without_a_rule_the_default_one_is_tried(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("time,gpu,util\n" + "".join(f"{60 * i},0,{90 if i < 10 else 0}\n" for i in range(60)))
    assert totals(trace)["rule"] == "util < 1 for 30m"
    assert totals(trace, "--idle", "20m")["rule"] == "util < 1 for 20m" and totals(trace, "--idle", "20m")["ended"] == 1
    wrong = replay(trace, "--idle", "20")
    assert wrong.returncode == 2 and "'20' needs a unit: 20s, 20m or 20h" in wrong.stderr


def test_each_flicker_of_a_desktop_is_no_job(tmp_path):
    """A card of 51 MiB whose utilisation flickers has no job; nor has one whose memory rises for less than the rule asks."""
    trace = tmp_path / "desktop.csv"
    trace.write_text("time,gpu,util,mem_used_bytes\n" + "".join(
        f"{i},0,{i % 7},{(51 if i % 40 else 80) << 20}\n" for i in range(300)))
    got = totals(trace, "--idle", "util < 1 for 30s")
    assert got["jobs"] == 0 and "Nobody had a GPU" in got["answer"]
    # Memory for as long as the shortest rule asks is a job.
    trace.write_text("time,gpu,util,mem_used_bytes\n" + "".join(
        f"{i},0,{0 if i > 120 else 50},{(2000 if 50 < i < 200 else 51) << 20}\n" for i in range(300)))
    assert totals(trace, "--idle", "util < 1 for 30s")["jobs"] == 1
    assert totals(trace, "--idle", "util < 1", "--sweep", "for=10m,30s")["jobs"] == 1
    assert totals(trace, "--idle", "util < 1 for 10m")["jobs"] == 0


def test_the_empty_level_is_that_of_the_card(tmp_path):
    """A desktop at 310 MiB is no job, a job beside it is; a card that also shows 0 has a job at 310 MiB."""
    trace = tmp_path / "desktop.csv"

    def write(memory):
        trace.write_text("time,gpu,util,mem_used_bytes,power_watts\n" + "".join(
            f"{60 * i},0,{40 if 120 <= i < 150 else 0},{memory(i) << 20},60\n" for i in range(300)))

    def use():
        done = subprocess.run([LULL, "report", str(trace), "--json"], capture_output=True, text=True, timeout=LIMIT,
                              env=clean_environment())
        return json.loads(done.stdout)["totals"]

    write(lambda i: 310 + i % 9)
    assert totals(trace, "--idle", "30m")["jobs"] == 0 and use()["free_hours"] == pytest.approx(299 / 60)
    write(lambda i: 2400 if 120 <= i < 240 else 310 + i % 9)
    for per in ("gpu", "all"):
        got = totals(trace, "--idle", "30m", "--per", per)
        assert got["jobs"] == 1 and got["ended"] == 1 and got["freed_hours"] == pytest.approx(59 / 60), per
        assert "On 1 GPU something always draws: up to 465 MiB in use does not count as a job." in got["basis"]
    assert use()["free_hours"] == pytest.approx(179 / 60)
    write(lambda i: 310 if 120 <= i < 240 else 0)
    assert totals(trace, "--idle", "30m")["jobs"] == 1
    write(lambda i: 20_000)
    assert totals(trace, "--idle", "30m")["jobs"] == 1 and use()["free_hours"] == 0


def test_what_was_known_of_a_job_stays_known(tmp_path):
    trace = tmp_path / "cell.csv"
    rows = [f"{60 * i},0,{90 if i < 10 else 0},{8 << 30},17,{'' if i == 59 else 'alice'},{'' if i == 59 else 'train.py'}"
            for i in range(60)]
    trace.write_text("time,gpu,util,mem_used_bytes,pids,users,command\n" + "\n".join(rows) + "\n")
    for per in ("gpu", "job"):
        end, = totals(trace, "--idle", "30m", "--per", per)["ends"]
        assert (end["user"], end["command"], end["pids"]) == ("alice", "train.py", ["17"])
    # Nor does it make one job of two: pid 18 is none of 17, though the row between them names only their user.
    rows = [f"{60 * i},0,{90 if i < 10 or i > 50 else 0},{8 << 30},{17 if i < 50 else '' if i == 50 else 18},alice,train.py" for i in range(60)]
    trace.write_text("time,gpu,util,mem_used_bytes,pids,users,command\n" + "\n".join(rows) + "\n")
    for per in ("gpu", "job"):
        got = totals(trace, "--idle", "30m", "--per", per)
        assert (got["jobs"], got["ended"], got["worked_again"], got["work_lost_hours"]) == (2, 1, 0, 0), per
    # Nor does a row that names only the user join a job to another one of that user, on another GPU.
    first = 2
    trace.write_text("time,gpu,util,mem_used_bytes,pids,users,command\n" + "".join(
        f"{60 * i},{gpu},{90 if gpu == 0 or i < 10 else 0},{8 << 30},{'' if gpu == 1 and i == first else 17 + gpu},alice,train.py\n"
        for i in range(60) for gpu in range(2) if gpu == 0 or i >= first))
    for per in ("gpu", "job"):
        got = totals(trace, "--idle", "30m", "--per", per)
        assert (got["jobs"], got["ended"], got["worked_again"], got["work_lost_hours"]) == (2, 1, 0, 0), per


@pytest.mark.parametrize("per", ["gpu", "job"])
def test_a_restart_that_works_is_no_harm(tmp_path, per):
    """`lull run --restart --record`: the first attempt hangs idle and is started again, and the second one works."""
    trace = tmp_path / "restart.csv"

    def attempt(minute):
        return "90,986,run-986" if minute < 20 else "0,986,run-986" if minute < 60 else "90,990,run-986.2"

    trace.write_text("time,gpu,uuid,util_percent,users,pids,job\n" + "".join(
        "{},0,GPU-1,{},ada,{},{}\n".format(our_time(60 * i), *attempt(i).split(",")) for i in range(120)))
    got = totals(trace, "--idle", "30m", "--per", per)
    assert (got["jobs"], got["ended"], got["worked_again"], got["work_lost_ratio"]) == (2, 1, 0, 0)
    end, = got["ends"]
    assert end["job"] == "run-986" and end["then"] == "released"


def test_each_part_of_a_file_has_its_own_interval(tmp_path):
    trace = tmp_path / "pace.csv"
    times = list(range(7200)) + [7200 + 60 * i for i in range(600)]
    trace.write_text("time,gpu,util\n" + "".join(f"{at},0,{90 if at < 7200 else 0}\n" for at in times))
    got = totals(trace, "--idle", "util < 1 for 9h")
    assert got["gap_hours"] == 0 and got["seen_hours"] == pytest.approx((7199 + 1 + 599 * 60) / 3600)
    assert got["ended"] == 1


def labelled_answer(job_label):
    """An hour of each of two jobs on one GPU, then nobody, as Prometheus answers; the jobs stop working half-way."""
    series = []
    for number, labels in ((0, {job_label: "12", "user": "alice"}), (1, {job_label: "13", "user": "bob"}), (2, {})):
        values = [[1_710_500_000 + 3600 * number + 15 * i, str(90 if i < 120 and number < 2 else 0)] for i in range(240)]
        series.append({"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "Hostname": "n1", "job": "dcgm", **labels},
                       "values": values})
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}})


@pytest.mark.parametrize("label, columns", [("hpc_job", []), ("slurm_job_id", []), ("jobid", []), ("exported_pod", []),
                                            ("my_job", ["--columns", "job=my_job"])])
def test_labels_of_prometheus_say_whose_it_was(tmp_path, label, columns):
    trace = tmp_path / "range.json"
    trace.write_text(labelled_answer(label))
    got = totals(trace, "--idle", "util < 1 for 10m", *columns)
    assert got["jobs"] == 2 and got["ended"] == 2 and got["worked_again"] == 0
    assert [end["user"] for end in got["ends"]] == ["alice", "bob"] and all(end["then"] == "released" for end in got["ends"])
    wrong = replay(trace, "--idle", "10m", "--columns", "job=no_such")
    assert wrong.returncode != 0 and "--columns job=no_such: no series has that label" in wrong.stderr


def test_worked_means_one_thing(tmp_path):
    """A job at 40 % under a rule of 50 % is ended, worked again at once, and its work is lost; a hang is no work."""
    light = tmp_path / "light.csv"
    light.write_text("time,gpu,util\n" + "".join(f"{60 * i},0,{90 if i < 5 else 40}\n" for i in range(100)))
    got = totals(light, "--idle", "util < 50 for 10m")
    assert got["worked_again"] == 1 and got["work_lost_ratio"] > .8 and got["freed_hours"] == 0
    # Jobs that are alike have no interval: every draw of them is the same.
    light.write_text("time,gpu,util\n" + "".join(f"{60 * i},{gpu},{90 if i == 0 else 40 if i > 50 else 0}\n"
                                                  for i in range(100) for gpu in range(3)))
    got = totals(light, "--idle", "util < 1 for 10m")
    assert got["work_lost_low"] == got["work_lost_high"] == 1 and "; 100 % of the work lost; " in got["answer"], got["answer"]
    hung = tmp_path / "hung.csv"
    hung.write_text("time,gpu,util,power,power_limit\n" + "".join(f"{60 * i},0,{100 if i > 20 else 90},{100 if i > 20 else 600},700\n"
                                                               for i in range(100)))
    got = totals(hung, "--idle", "util >= 95 and power < 200 for 10m")
    assert got["ended"] == 1 and got["worked_again"] == 0 and got["work_lost_ratio"] == 0 and got["freed_hours"] > 1


def test_the_answer_comes_first(tmp_path):
    """The first firing ends a job; what it did later is work lost; a job whose memory was freed is nobody's harm."""
    trace = tmp_path / "trace.csv"
    lines = ["time,gpu,util,mem_used_bytes,user,pids,command\n"]
    for minute in range(240):
        idle = 60 <= minute < 100 or minute >= 200
        lines.append(f"{minute * 60},0,{0 if idle else 50},40000000000,alice,100,python train.py\n")
        # Idle for long, and then gone: the card is empty, and another job comes.
        state = "90,40000000000,bob,200,jupyter" if minute < 60 else "0,40000000000,bob,200,jupyter" if minute < 120 else \
            "0,4000000,none,none," if minute < 180 else "90,40000000000,carol,300,./serve"
        lines.append(f"{minute * 60},1,{state}\n")
    trace.write_text("".join(lines))
    out = replay(trace, "--idle", "util < 1 for 30m").stdout
    assert out.splitlines()[0] == (
        "No recommendation: the recording covers 4.0 h, a recommendation needs 24 h. After 30m the rule ends 2 of 3 jobs; 1 of them "
        "worked again; 27 % (0.0–62.9 %) of the work lost; 0.63 GPU-hours freed. The job not seen again was followed for 29 min.")
    assert "Judged each GPU by itself: 2 GPUs, 8.0 GPU-hours seen, no gaps, no rows left out." in out
    hurt = out[out.index("whose work it would have lost"):].splitlines()
    assert "alice" in hurt[2] and "python train.py" in hurt[2] and "bob" not in out[out.index("whose work it would have lost"):out.index("what it would have ended")]
    got = totals(trace, "--idle", "util < 1 for 30m")
    work = (60 - 1 + 100) * 60 * .5 + (60 - 1) * 60 * .9 + 60 * 60 * .9
    assert got["totals"]["work_lost_ratio"] == pytest.approx(100 * 60 * .5 / work)
    assert got["totals"]["freed_until_release_hours"] == pytest.approx(29 / 60)
    assert got["totals"]["freed_until_return_hours"] == pytest.approx(9 / 60)
    assert got["totals"]["freed_until_recording_end_hours"] == 0
    assert got["totals"]["freed_hours"] == pytest.approx(38 / 60)
    assert got["totals"]["not_seen_again"] == 1 and got["totals"]["follow_up_median_seconds"] == 29 * 60
    assert [(end["user"], end["then"]) for end in got["ends"]] == [("alice", "worked again"), ("bob", "released")]
    assert got["totals"]["return_1h_ratio"] is None, "two jobs support no statement"
    assert got["totals"]["firings"] == 3
    plain = json.loads(replay(trace, "--idle", "util < 1 for 30m", "--json").stdout)
    assert "firings" not in plain["totals"] and "events" not in plain


def servers_and_jobs(path):
    """Two days on 24 GPUs: jobs that are forgotten after their work, and servers that go on."""
    lines = ["time,gpu,util,users,pids\n"]
    for minute in range(0, 48 * 60, 5):
        for gpu in range(24):
            server = gpu >= 12
            busy = minute % 300 < 60 if server else minute < 600 + 10 * gpu
            lines.append(f"{minute * 60},{gpu},{60 if busy else 0},{'ops' if server else 'ada'},{gpu + 100}\n")
    path.write_text("".join(lines))
    return path


def test_a_policy_is_chosen_without_those_who_are_excepted(tmp_path):
    """The same rule is too hard for servers, and right for the others; what it says of each adds up."""
    trace = servers_and_jobs(tmp_path / "trace.csv")
    sweep = ["--idle", "util < 1", "--sweep", "for=30m,1h,10h"]
    everybody, others = totals(trace, *sweep), totals(trace, *sweep, "--except-user", "ops")
    assert others["except_users"] == ["ops"] and others["left_out"] == 12 and everybody["left_out"] == 0
    assert others["totals"]["jobs"] == 12 and others["worked_again"] == 0 and others["work_lost_ratio"] == 0
    assert everybody["totals"]["jobs"] == 24 and everybody["worked_again"] == 12
    assert {end["user"] for end in others["ends"]} == {"ada"} and {row["user"] for row in others["hurt"]} == {"ada"}
    assert "Left out: 12 jobs of ops or of unknown users." in others["basis"]
    assert replay(trace, "--except-user", "ops,ada").stdout.startswith("All jobs of this recording are left out (--except-user).")
    for wrong, why in ((["--per", "all"], "--except-user needs --per gpu or --per job"), ([], "the trace does not say whose jobs")):
        path = trace if wrong else tmp_path / "nobody.csv"
        (tmp_path / "nobody.csv").write_text("time,gpu,util\n" + "".join(f"{i},0,0\n" for i in range(9)))
        refused = replay(path, "--except-user", "ops", *wrong)
        assert refused.returncode != 0 and why in refused.stderr
    assert replay(trace, "--except-user", "ops,").returncode == 2


def test_where_no_value_is_good_enough_the_closest_is_named(tmp_path):
    trace = servers_and_jobs(tmp_path / "trace.csv")
    mean = tmp_path / "mean.ndjson"  # as lull record writes it: means, which may be far apart
    rows = csv.DictReader(io.StringIO(trace.read_text()))
    mean.write_text("".join(json.dumps({"time": f"2026-11-{1 + int(row['time']) // 86400:02}T{int(row['time']) % 86400 // 3600:02}:"
                                        f"{int(row['time']) % 3600 // 60:02}:00.000Z", "gpu": row["gpu"], "uuid": f"GPU-{row['gpu']}",
                                        "util_percent": int(row["util"]), "host": "n", "users": row["users"], "pids": row["pids"],
                                        "command": "x", "lease": None, "job": None}) + "\n" for row in rows))
    got = totals(mean, "--idle", "util < 1", "--sweep", "for=30m,1h,3h")
    assert got["readings"] == "mean" and got["recommendation"] is None
    limits = {row["for"]: row["work_lost_high"] for row in got["sweep"]}
    best = min(limits, key=limits.get)
    assert f"; the closest is {best}, up to " in got["recommendation_missing"]
    # It is what the answer and the lists are about, not the rule as given.
    sweep = ["--idle", "util < 1 for 10h", "--sweep", "for=30m,1h,3h"]
    got = totals(mean, *sweep)
    assert f"After {best} the rule ends 24 of 24 jobs; " in got["answer"] and got["ends_rule"] == f"util < 1 for {best}"
    assert [row["for"] for row in got["sweep"] if row["closest"]] == [best]
    assert len(got["ends"]) == 24 and got["totals"]["ended"] == 12
    text = replay(mean, *sweep).stdout
    assert f"\nutil < 1 for {best}:\n" in text and re.search(rf"(?m)^ *{best} .* [<◄] closest$", text), text
    # Whose work it is, and how to leave those jobs out; what is suggested works.
    assert " 100 % of the lost work is ops's; --except-user ops leaves those jobs out if they must not be ended." in got["answer"]
    others = totals(mean, *sweep, "--except-user", "ops")
    assert others["work_lost_hours"] == 0 and "--except-user" not in others["answer"]
    accepted = totals(mean, *sweep, "--lose", "99%")
    assert accepted["recommendation"] and not any(row["closest"] for row in accepted["sweep"])


def test_a_week_of_samples_is_a_week(tmp_path):
    """From the first sample to the last it lacks one interval."""
    trace = tmp_path / "week.csv"
    for days, strength in ((7, "firm"), (6, "weak")):
        lines = ["time,gpu,uuid,util_percent,host,users,pids,command,lease,job\n"]  # as lull record writes it: means
        for sample in range(144 * days):
            at = f"2026-11-{9 + sample // 144:02}T{sample // 6 % 24:02}:{sample % 6 * 10:02}:00.000Z"
            lines += [f"{at},{gpu},GPU-{gpu},{90 if sample < 100 + 3 * gpu else 0},n,ada,{gpu + 5},x,,\n" for gpu in range(12)]
        trace.write_text("".join(lines))
        got = totals(trace, "--sweep", "for=30m,1h")
        assert got["recommendation"] and got["recommendation"]["strength"] == strength, got["answer"]
        assert got["recommendation"]["reason"] == f"the recording covers {days} days", "the words agree with the decision"
        # No draw of jobs that lost nothing loses anything: that is said of so many jobs, not of all.
        assert "; no work lost among 12 jobs (up to 27 % of other jobs may lose some); " in got["answer"], got["answer"]
        assert "0.0–0.0" not in replay(trace, "--sweep", "for=30m,1h").stdout


def test_a_recommendation_that_rests_on_few_jobs_is_weak(tmp_path):
    trace = tmp_path / "week.csv"
    for jobs, strength, reason in ((10, "firm", "the recording covers 7 days"), (9, "weak", "it rests on 9 jobs, firm needs 10"),
                                   (2, "weak", "it rests on 2 jobs, firm needs 10")):
        trace.write_text("time,gpu,uuid,util_percent\n" + "".join(
            f"{our_time(sample * 600)},{gpu},GPU-{gpu},{90 if sample < 100 + 3 * gpu else 0}\n"
            for sample in range(1008) for gpu in range(jobs)))
        chosen = totals(trace, "--idle", "1h")["recommendation"]
        assert (chosen["strength"], chosen["reason"]) == (strength, reason)


def two_days_idle(path, gpus, util=lambda gpu, minute: 90 if minute < 600 + gpu else 0):
    """Means, a minute apart."""
    with open(path, "w") as out:
        out.write("time,gpu,uuid,util_percent\n")
        for minute in range(2880):
            at = our_time(minute * 60)
            out.writelines(f"{at},{gpu},GPU-{gpu},{util(gpu, minute)}\n" for gpu in range(gpus))


def test_a_value_is_recommended_if_its_interval_stays_within_the_loss(tmp_path, two_days):
    """However few the jobs are; what that says of other jobs is in the same sentence. One job has no interval."""
    trace = tmp_path / "few.csv"
    for jobs, share in ((12, 27), (2, 85), (1, None)):
        two_days_idle(trace, jobs)
        got = totals(trace, "--idle", "1h")
        if jobs == 1:
            assert got["recommendation"] is None
            assert got["recommendation_missing"] == "one job is too few to say how sure the work lost is"
            continue
        assert got["work_lost_high"] == 0 and got["recommendation"]["value"] == "1h"
        assert f"; no work lost among {jobs} jobs (up to {share} % of other jobs may lose some); " in got["answer"], got["answer"]
    got = totals(two_days, "--idle", "util < 5", "--sweep", "for=5m,30m")
    assert got["worked_again"] < 10 and 0 < got["work_lost_high"] <= got["lose_ratio"] and got["recommendation"]["value"] == "5m"
    assert got["answer"].endswith(" So few worked again that up to 12 % of other jobs may."), got["answer"]
    # Ten that worked again measure the loss. A rule by itself is told how to try others.
    got = totals(two_days, "--idle", "util < 5 for 2m")
    assert got["worked_again"] == 42 and "other jobs" not in got["answer"]
    assert got["recommendation_missing"].endswith(" of the work, more than 1 % (--lose); --sweep for=4m,8m,16m tries longer ones")


def test_intervals_that_change_are_no_gaps_for_any_subject(tmp_path):
    """10 s, a minute, 10 s; the second GPU's rows come later, so that an interval of half a minute leads from one to the other."""
    rows = []
    for gpu in range(2):
        at = 0
        for length, step in ((7200, 10), (36000, 60), (7200, 10)):
            for _ in range(length // step):
                rows.append((at + gpu * step * 0.4, gpu, 90 if at < 1800 else 0))
                at += step
    trace = tmp_path / "paces.csv"
    trace.write_text("time,gpu,uuid,util_percent,host,users,pids,command,lease,job\n" + "".join(
        f"{our_time(at)},{gpu},GPU-{gpu},{util},n,ada,5,x,,\n" for at, gpu, util in sorted(rows)))
    for per in ("gpu", "job", "host", "all"):
        got = totals(trace, "--idle", "30m", "--per", per)
        assert got["gap_hours"] == 0 and got["ended"] == (2 if per == "gpu" else 1), per
        assert got["freed_hours"] == pytest.approx(2 * 13, abs=0.05), per


def test_mistakes_of_a_policy_are_told(tmp_path):
    trace = servers_and_jobs(tmp_path / "trace.csv")
    for share, right in (("1", "1%"), ("0.01", "1%"), ("2.5", "2.5%")):
        done = replay(trace, "--lose", share)
        assert done.returncode == 2 and done.stderr == f"lull: replay: --lose: '{share}' needs a %: {right} would be right\n"
    assert "Nobody is called adda or eve in this recording." in totals(trace, "--except-user", "adda,eve")["basis"]
    named = next(row["users"] for row in csv.DictReader(io.StringIO(trace.read_text())) if row["users"] not in ("", "none"))
    assert "Nobody is called" not in totals(trace, "--except-user", named)["basis"]


def test_a_gap_is_no_follow_up(tmp_path):
    """Twelve jobs end after an hour, are recorded for 12 minutes more; two days later for another minute, at which two work."""
    trace = tmp_path / "gap.csv"
    minutes = [*range(1440), *range(1440 + 2880, 1440 + 2882)]
    trace.write_text("time,gpu,uuid,util_percent\n" + "".join(
        f"{our_time(minute * 60)},{gpu},GPU-{gpu},{90 if minute < 1440 - 72 or minute == 1440 + 2881 and gpu < 2 else 0}\n"
        for minute in minutes for gpu in range(12)))
    got = totals(trace, "--idle", "1h")
    assert got["ended"] == 12 and got["worked_again"] == 2 and got["gap_hours"] == pytest.approx(12 * 2881 / 60)
    followed = got["follow_up_median_seconds"]
    assert 11 * 60 <= followed <= 13 * 60 and {end["followed_seconds"] for end in got["ends"]} == {followed}
    assert "followed for a median of 12 min." in got["answer"] or "followed for a median of 11 min." in got["answer"]
    # Nobody looked: no job was at risk then, and that two returned within so long is not known.
    for within in ("1h", "4h", "24h"):
        assert got[f"return_{within}_at_risk"] == 0 and got[f"return_{within}_ratio"] is None
    assert sum(end["worked_again"] for end in got["ends"]) == 2


def test_a_gap_makes_no_recommendation_firm(tmp_path):
    """A week of jobs that idle at its end, and two days later two samples more: followed for half an hour, not for two days."""
    trace = tmp_path / "gap.csv"
    samples = [*range(1008), *range(1008 + 288, 1008 + 290)]
    trace.write_text("time,gpu,uuid,util_percent\n" + "".join(
        f"{our_time(sample * 600)},{gpu},GPU-{gpu},{90 if sample < 1000 - gpu % 2 else 0}\n" for sample in samples for gpu in range(12)))
    chosen = totals(trace, "--idle", "1h")["recommendation"]
    assert chosen["strength"] == "weak", chosen
    assert re.fullmatch(r"jobs not seen again were followed for a median of \d\d min only", chosen["reason"]), chosen


def test_readings_of_the_moment_count_by_the_time_they_stand_for(tmp_path):
    """Six hours of a reading a second are most of the readings, and little of the 30 hours: the rest is a minute apart."""
    trace = tmp_path / "paces.csv"
    times = [*range(0, 21600), *range(21600, 21600 + 86400 + 60, 60)]
    with open(trace, "w") as out:
        out.write("time,gpu,util\n")
        for at in times:
            out.writelines(f"{at},{gpu},{90 if at < 40000 else 0}\n" for gpu in range(10))
    why = "the readings are of the moment and 1m apart: short work between them is not seen"
    for per in ("gpu", "all"):
        got = totals(trace, "--idle", "1h", "--per", per)
        assert got["recommendation"] is None and got["recommendation_missing"] == why, (per, got["recommendation_missing"])
        assert got["interval_seconds"] == got["long_interval_seconds"] == 60
        assert "Readings of the moment, every 1m: short work between them is not seen." in got["basis"]
    report = json.loads(subprocess.run([LULL, "report", str(trace), "--json"], capture_output=True, text=True, timeout=LIMIT,
                                       env=clean_environment()).stdout)
    assert "Readings of the moment, every 1m: short work" in report["basis"] and report["interval_seconds"] == 60
    # A sixth of the time is enough to spoil it.
    lines = trace.read_text().splitlines(keepends=True)
    trace.write_text(lines[0] + "".join(f"{at},0,50\n" for at in [*range(21600), *range(21600, 26000, 60)]))
    assert "Readings of the moment, every 1s to 1m: short" in totals(trace, "--idle", "1h")["basis"]


def test_means_are_known_by_more_than_three_names(tmp_path):
    """Anybody may call columns time, gpu and uuid; `lull record` also writes its own names and times."""
    trace = tmp_path / "who.csv"
    for header, when, readings in (("time,gpu,uuid,util_percent", our_time, "mean"), ("time,gpu,uuid,util", our_time, "moment"),
                                   ("time,gpu,uuid,util_percent", lambda at: str(1_700_000_000 + at), "moment"),
                                   ("time,gpu,uuid,util_percent", lambda at: our_time(at)[:-5] + "Z", "moment")):
        trace.write_text(header + "\n" + "".join(f"{when(60 * i)},0,GPU-1,{90 if i < 10 else 0}\n" for i in range(60)))
        got = totals(trace, "--idle", "20m")
        assert got["readings"] == readings and ("of the moment" in got["basis"]) == (readings == "moment"), (header, when(0))


def on_terminal(width, *arguments):
    """What a person sees, line by line."""
    master, terminal = pty.openpty()
    subprocess.run(["stty", "cols", str(width)], stdin=terminal, check=True)
    process = subprocess.Popen([LULL, "replay", *map(str, arguments)], stdout=terminal, stderr=subprocess.PIPE, stdin=terminal,
                               env=clean_environment() | {"TERM": "dumb", "LANG": "C.UTF-8", "NO_COLOR": "1"})
    os.close(terminal)
    text = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:
            break
        if not more:
            break
        text += more
    process.wait(timeout=LIMIT)
    os.close(master)
    return text.decode().replace("\r", "").splitlines()


@pytest.mark.parametrize("width", [60, 80])
def test_nothing_that_matters_is_cut_on_a_narrow_terminal(tmp_path, width):
    lines = on_terminal(width, servers_and_jobs(tmp_path / "trace.csv"), "--idle", "util < 1", "--sweep", "for=30m,1h")
    assert max(map(len, lines)) <= width
    assert [line for line in lines if "…" in line] == []
    ended = lines[lines.index("what it would have ended:") + 2:]
    assert any("back after 3h" in line or "worked again after 3h" in line for line in ended), ended


def test_a_sweep_of_for_needs_no_for_in_the_rule(trace):
    got = totals(trace, "--idle", "util < 5", "--sweep", "for=2m,1m")
    assert got["rule"] == "util < 5 for 2m"
    assert [row["for"] for row in got["sweep"]] == ["1m", "2m"]
    assert replay(trace, "--idle", "util < 5", "--sweep", "for=2m,1m").stdout.splitlines()[0].split(". ")[1].startswith("After 2m the rule ends ")


def test_hosts_and_jobs(tmp_path):
    trace = tmp_path / "trace.csv"
    lines = ["time,host,gpu,util,job\n"]
    for minute in range(60):
        for host, gpu, util, job in (("a", 0, 0, 7), ("a", 1, 90 if minute < 20 else 0, 7), ("b", 0, 0, 8)):
            lines.append(f"{minute * 60},{host},{gpu},{util},{job}\n")
    trace.write_text("".join(lines))
    ended = {per: totals(trace, "--idle", "util < 5 for 30m", "--per", per)["totals"]["ended"]
             for per in ("gpu", "host", "job", "all")}
    assert ended == {"gpu": 3, "host": 2, "job": 2, "all": 1}
    got = totals(trace, "--idle", "util < 5 for 30m", "--per", "job")
    assert [(end["gpu"], end["at_seconds"]) for end in got["ends"]] == [("8", 1800), ("7", 3000)]


def test_all_gpus_together(tmp_path):
    trace = tmp_path / "trace.csv"
    rows = ["time,gpu,util\n"]
    for minute in range(100):
        rows.append(f"{minute * 60},0,{0 if minute >= 10 else 90}\n{minute * 60 + 0.3},1,{0 if 50 <= minute < 90 else 90}\n")
    trace.write_text("".join(rows))
    each = totals(trace, "--idle", "util < 5 for 10m")
    assert each["firings"] == 2
    together = totals(trace, "--idle", "util < 5 for 10m", "--per", "all")
    assert together["firings"] == 1 and together["gpus"] == 2
    assert together["events"][0]["gpu"] == "all"
    assert together["reclaimed_hours"] == pytest.approx(2 * 30 / 60, rel=1e-3)
    assert together["seen_hours"] == pytest.approx(each["seen_hours"])
    assert totals(trace, "--idle", "any(util) < 5 for 10m", "--per", "all")["firings"] == 1


def test_mistakes_are_one_clear_line(trace, tmp_path):
    def wrong(status, word, *arguments):
        done = replay(*arguments)
        assert done.returncode == status, done.stderr
        assert word in done.stderr
        assert done.stdout == ""

    wrong(2, "did you mean 'util'", trace, "--idle", "utl < 5")
    wrong(2, "gpu, job, host or all would be right", trace, "--idle", "util < 5", "--per", "user")
    wrong(2, "--lose: 'lots' is not a share", trace, "--idle", "util < 5", "--lose", "lots")
    wrong(125, "does not say which job has a GPU", trace, "--idle", "util < 5", "--per", "job")
    wrong(2, "is not a duration", trace, "--idle", "util < 5", "--regret", "soon")
    wrong(2, "--sweep for: 'soon' is not a duration", trace, "--sweep", "for=10m,soon")
    wrong(2, "--except-user: 'ada,,bob' has no name", trace, "--except-user", "ada,,bob")
    wrong(2, "--price", trace, "--idle", "util < 5", "--price", "cheap")
    wrong(2, "does not look at temp", trace, "--idle", "util < 5", "--sweep", "temp=5")
    wrong(2, "neither 'for' nor a signal", trace, "--idle", "util < 5", "--sweep", "fro=5m")
    wrong(2, "--columns", trace, "--idle", "util < 5", "--columns", "utl=x")
    wrong(2, "--idle: '30' needs a unit", trace, "--idle", "30")
    wrong(125, "no temp", trace, "--idle", "temp < 50")
    wrong(125, "No such file", tmp_path / "absent.csv", "--idle", "util < 5")
    page = tmp_path / "absent" / "page.html"
    wrong(125, f"--html {page}: open: No such file or directory\n", trace, "--html", page)
    wrong(125, "`lull record --history`", tmp_path, "--idle", "util < 5")
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    wrong(125, "empty", empty, "--idle", "util < 5")
    empty.write_text("time,gpu,util\nx,y,z\n")
    wrong(125, "no usable row", empty, "--idle", "util < 5")


def test_bad_rows_are_counted_and_shown(trace):
    trace.write_text(TRACE + "garbage\n" * 7 + "2240,0,1,80\n2240,0,1,80\n")
    done = replay(trace, "--idle", "util < 5 for 1m", "--json")
    assert json.loads(done.stdout)["samples"] == 15
    assert json.loads(done.stdout)["bad_rows"] == 7
    assert f"{trace}:16:" in done.stderr
    assert done.stderr.count("1 cell where there should be 4") == 5
    assert "7 rows could not be read" in done.stderr
    assert "1 row of the same GPU and time" in done.stderr


def test_packed_and_piped(trace, tmp_path):
    want = totals(trace, "--idle", "util < 5 for 1m")
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(TRACE[:100].encode()) + gzip.compress(TRACE[100:].encode()))
    zstd = tmp_path / "odd-name"
    subprocess.run(["zstd", "-q", str(trace), "-o", str(zstd)], check=True)
    for path in (packed, zstd):
        assert totals(path, "--idle", "util < 5 for 1m")["events"] == want["events"]
    piped = replay("-", "--idle", "util < 5 for 1m", "--json", "--verbose", input=TRACE)
    assert json.loads(piped.stdout)["events"] == want["events"]
    broken = tmp_path / "broken.csv.gz"
    text = "time,gpu,util\n" + "".join(f"{i},0,{i * 7919 % 101}\n" for i in range(20000))
    broken.write_bytes(gzip.compress(text.encode())[:-200])
    done = replay(broken, "--idle", "util < 5 for 1m", "--json")
    assert done.returncode == 0 and "breaks off" in done.stderr
    assert 15000 < json.loads(done.stdout)["samples"] < 20000


def test_the_page_stands_alone(trace, tmp_path):
    hostile = tmp_path / "hostile.csv"
    hostile.write_text("time,gpu,util\n" + "".join(f"{i},</script><img src=x onerror=alert(1)>,{i % 9}\n" for i in range(500)))
    page = tmp_path / "page.html"
    done = replay(hostile, "--idle", "util < 5 for 2s", "--sweep", "for=1s,2s", "--html", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "<img" not in text
    assert len(re.findall(r"</script>", text)) == 2
    for reference in re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?([^\"')\s>]+)", text):
        assert not reference.startswith(("http", "//")), reference
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S).group(1))
    assert data["result"]["totals"]["ended"] > 0 and len(data["marks"]) == len(data["result"]["ends"])
    assert not list(tmp_path.glob("*.part"))
    assert replay(hostile, "--idle", "util < 5", "--html", tmp_path / "no" / "such" / "folder.html").returncode == 125


def test_an_output_is_never_an_input(trace, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(TRACE)
    linked = tmp_path / "linked.html"
    linked.symlink_to(trace)
    twin = tmp_path / "twin.html"
    os.link(trace, twin)
    for output in (trace, linked, twin, os.path.relpath(trace)):
        done = replay(other, trace, "--idle", "util < 5 for 1m", "--html", output)
        assert done.returncode == 2 and "the trace itself" in done.stderr and done.stderr.count("\n") == 1
        assert trace.read_text() == TRACE and linked.is_symlink()
    with open(trace) as given:
        done = replay("-", "--idle", "util < 5 for 1m", "--html", trace, stdin=given)
    assert done.returncode == 2 and trace.read_text() == TRACE
    for option in ("--json", "--csv", "--all"):
        with open(trace, "a") as out:
            done = subprocess.run([LULL, "replay", str(trace), "--idle", "util < 5 for 1m", option], stdout=out,
                                  stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 2 and "standard output goes into" in done.stderr
        assert trace.read_text() == TRACE
    page = tmp_path / "page.html"
    (tmp_path / "page.html.part").symlink_to(trace)  # what an earlier lull wrote through
    assert replay(trace, "--idle", "util < 5 for 1m", "--html", page).returncode == 0
    assert trace.read_text() == TRACE and "<html" in page.read_text()


def test_a_bar_on_a_terminal_only(trace):
    """A short run draws none; a pipe never sees one."""
    controller, terminal = pty.openpty()
    done = subprocess.run([LULL, "replay", str(trace), "--idle", "util < 5 for 1m"], stdout=subprocess.PIPE,
                          stderr=terminal, timeout=LIMIT, env=clean_environment())
    os.close(terminal)
    assert done.returncode == 0
    os.set_blocking(controller, False)
    try:
        seen = os.read(controller, 4096)
    except OSError:
        seen = b""
    os.close(controller)
    assert seen == b""


def test_another_interval_and_a_delay(tmp_path):
    trace = tmp_path / "steps.csv"
    # Busy for one second in ten, which a mean over ten seconds still shows and a limit of 20 % forgives.
    trace.write_text("time,gpu,util\n" + "".join(f"{at},0,{90 if at % 10 == 5 else 0}\n" for at in range(0, 601)))
    rule = ["--idle", "util < 20 for 1m"]
    assert totals(trace, *rule)["firings"] == 0
    assert totals(trace, *rule, "--every", "10s")["firings"] == 1
    assert totals(trace, *rule, "--every", "10s")["events"][0]["at_seconds"] == 60
    assert totals(trace, *rule, "--every", "10s", "--delay", "2m")["events"][0]["at_seconds"] == 180
    assert totals(trace, *rule, "--every", "10s", "--delay", "20m")["firings"] == 0


def test_little_memory_changes_nothing_but_the_time(tmp_path):
    trace = tmp_path / "many.csv"
    with open(trace, "w") as out:
        out.write("time,gpu,util\n")
        for at in range(40):
            out.writelines(f"{at},{gpu},{0 if (at // 7 + gpu) % 3 else 50}\n" for gpu in range(3000))
    rule = ["--idle", "mean(util, 2s) < 5 for 3s", "--sweep", "for=1s,3s,5s", "--json"]
    much, little = (replay(trace, *rule, "--memory", size) for size in ("4GiB", "64MiB"))
    assert much.returncode == 0 and little.returncode == 0, little.stderr
    assert much.stdout == little.stdout
    assert json.loads(much.stdout)["totals"]["ended"] > 0


@pytest.mark.parametrize("wrong", [["--every", "0s"], ["--every", "x"], ["--delay", "x"], ["--memory", "1MiB"],
                                   ["--memory", "much"]])
def test_mistakes_of_time_and_memory(trace, wrong):
    done = replay(trace, "--idle", "util < 5", *wrong)
    assert done.returncode == 2 and wrong[0] in done.stderr, done.stderr


def test_the_page_tells_the_answer_the_trace_and_its_zone(tmp_path):
    """The data of the page: the sentence, the file's name, and no slice narrower than the samples are apart."""
    trace, page = tmp_path / "night.csv", tmp_path / "night.html"
    trace.write_text("time,gpu,util\n" + "".join(
        f"2026-03-15T{i // 60:02}:{i % 60:02}:00+02:00,{gpu},{0 if i > 300 else 90}\n" for i in range(600) for gpu in range(3)))
    done = replay(trace, "--idle", "util < 5", "--sweep", "for=5m,1h", "--html", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
    assert data["name"] == "night.csv" and data["zone"] == 120
    assert data["result"]["answer"] == done.stdout.splitlines()[0]
    assert data["width"] >= 60
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), "it needs no network"


def test_every_with_per_job_is_for_files_without_times(run_lull, tmp_path):
    trace = tmp_path / "counted.csv"
    rows = "".join(f"{gpu},{0 if i > 5 else 70},7\n" for i in range(40) for gpu in (0, 1))
    trace.write_text("gpu,util,job\n" + rows)
    done = run_lull("replay", trace, "--idle", "util < 1 for 30s", "--per", "job", "--every", "5s")
    assert done.returncode == 0 and "After 30s the rule ends the one job, " in done.stdout, done.stderr
    trace.write_text("time,gpu,util,job\n" + "".join(f"{1700000000 + i // 2},{row}\n" for i, row in enumerate(rows.splitlines())))
    done = run_lull("replay", trace, "--idle", "util < 1 for 30s", "--per", "job", "--every", "5s")
    assert done.returncode != 0 and "--every does not work with --per job" in done.stderr and done.stderr.count("\n") == 1


def test_no_work_at_all_is_not_unknown_work(tmp_path):
    trace = tmp_path / "idle.csv"
    trace.write_text("time,gpu,util,job\n" + "".join(f"{1700000000 + i},0,0,7\n" for i in range(60)))
    assert "which was not seen to work again; no work was recorded that could be lost; " in replay(trace, "--idle", "util < 1 for 30s").stdout
    trace.write_text("time,gpu,power,job\n" + "".join(f"{1700000000 + i},0,60,7\n" for i in range(60)))
    assert "(no utilisation was recorded)" in replay(trace, "--idle", "power < 100 for 30s").stdout


def test_values_that_cannot_be_are_said(run_lull, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = [f"2026-01-01T00:00:{second:02}Z,0,{util}" for second, util in enumerate([0, 250, 0, -3, "", 0])]
    trace.write_text("\n".join(["time,gpu,util_percent", *rows, ""]))
    done = run_lull("replay", str(trace), "--idle", "util < 5 for 2s")
    assert done.returncode == 0
    assert done.stderr == "lull: 2 values are outside of what their signal can be (the first: util 250): unknown\n"
    trace.write_text("\n".join(["time,gpu,util_percent", *rows[:3], ""]))
    assert "1 value is outside of what its signal can be (util 250): unknown" in run_lull(
        "replay", str(trace), "--idle", "util < 5 for 2s").stderr
