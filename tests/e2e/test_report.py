"""`lull report`: GPU-hours by who had them, against a plain Python loop; every output, every mistake."""
import csv
import io
import json
import random
import re
import subprocess

import pytest

from conftest import LIMIT, build_dir, clean_environment

LULL = str(build_dir() / "lull")
HEADER = ["time", "host", "gpu", "util_percent", "mem_used_bytes", "power_watts", "power_limit_watts", "users", "pids", "command"]


def report(*arguments, columns=None):
    return subprocess.run([LULL, "report", *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT,
                          env=clean_environment() | ({"COLUMNS": str(columns)} if columns else {}))


def random_rows(seed):
    """Jobs that come and go on a few GPUs of two hosts, work, pause, hang and show nothing."""
    dice = random.Random(seed)
    gpus = {}
    for gpu in range(4):
        rows, at = [], 0
        who, mode = None, "idle"
        for _ in range(400):
            if dice.random() < .02:
                who = dice.choice([None, ("alice", 1), ("bob", 2), ("carol", 3)])
            if dice.random() < .08:
                mode = dice.choice(["busy", "idle", "hung"])
            at += 600 if dice.random() < .01 else 60
            util = {"busy": 60, "idle": 0, "hung": 100}[mode] if who else 0
            util = None if dice.random() < .03 else util
            power = {"busy": 400, "idle": 70, "hung": 120}[mode] if who else 60
            rows.append((at, util, power, who))
        gpus[gpu] = rows
    return gpus


def obvious(gpus):
    """{user: {state: seconds}} by the definitions: a stretch of five minutes counts as a whole, less is a pause."""
    sums = {}

    def add(user, state, seconds):
        sums.setdefault(user, {}).setdefault(state, 0)
        sums[user][state] += seconds

    for rows in gpus.values():
        last, pending, key, first_yes = None, [], None, None

        def settle(pending, key, length):
            for user, seconds in pending:
                add(user, key[1] if length >= 300 else "busy", seconds)

        length = 0
        for at, util, power, who in rows:
            since = at - last if last is not None else 0
            last = at
            if since > 180:
                settle(pending, key, length)
                pending, key, length, first_yes = [], None, 0, None
                since = 0  # a stretch may begin with the sample behind a gap
            user = who[0] if who else None
            hung = util is not None and util >= 95 and power < .35 * 700
            idle = util is not None and util < 1
            state = "hung" if hung else "idle" if idle else None
            now = (user, state) if state and user else None
            if now != key or now is None:
                settle(pending, key, length)
                pending, length, first_yes = [], 0, None
            key = now
            if user is None:
                # Nobody by its own word; where utilisation is not known that stands.
                add(None, "free", since)
            elif state is None:
                add(user, "unknown" if util is None else "busy", since)
            else:
                pending.append((user, since))
                first_yes = at if first_yes is None else first_yes
                length = at - first_yes
        settle(pending, key, length)
    return sums


def write(path, gpus):
    with open(path, "w") as out:
        rows = csv.writer(out)
        rows.writerow(HEADER)
        lines = []
        for gpu, samples in gpus.items():
            for at, util, power, who in samples:
                lines.append((at, f"node{gpu // 2}", gpu, "" if util is None else util, 40 << 30 if who else 4 << 20, power, 700,
                              who[0] if who else "none", who[1] + 10 * gpu if who else "none", "train.py" if who else ""))
        for line in sorted(lines):
            rows.writerow([1_700_000_000 + line[0], *line[1:]])


def test_small_figures_are_not_0(tmp_path):
    """Six minutes with two minutes that were not seen, at 100 W: 0.03 GPU-hours, 0.007 kWh."""
    trace, page = tmp_path / "minutes.csv", tmp_path / "page.html"
    trace.write_text("time,gpu,util_percent,mem_used_bytes,power_watts,user\n" + "".join(
        f"{at},0,0,{8 << 30},100,ada\n" for at in range(0, 481, 10) if not 120 < at < 240))
    done = report(trace, "--html", page, "--by", "user", columns=200)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert ", 0.033 GPU-hours in gaps," in text and re.search(r"; 0\.0(09|10) kWh\.", text), text
    row, = (line.split() for line in done.stdout.splitlines() if line.startswith("ada"))
    assert row[-1] in ("0.009", "0.010"), row
    html = page.read_text()
    assert re.search(r'data-label="kWh">0\.0(09|10)<', html) and "0.033 GPU-hours in gaps" in html


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_a_plain_loop(tmp_path, seed):
    gpus = random_rows(seed)
    trace = tmp_path / "trace.csv"
    write(trace, gpus)
    done = report(trace, "--json", "--price", "2")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["judges_hangs"] is True
    want = obvious(gpus)
    for state, name in (("busy", "busy_hours"), ("idle", "idle_hours"), ("hung", "hung_hours"), ("free", "free_hours"),
                        ("unknown", "unknown_hours")):
        for row in got["by_user"]:
            assert row[name] == pytest.approx(want[row["user"]].get(state, 0) / 3600), (row["user"], name)
        assert got["totals"][name] == pytest.approx(sum(states.get(state, 0) for states in want.values()) / 3600)
    joules = sum(power * (at - before) for rows in gpus.values()
                 for (before, *_), (at, _, power, _) in zip(rows, rows[1:]) if at - before <= 180)
    assert got["totals"]["energy_kwh"] == pytest.approx(joules / 3.6e6)
    for by in ("by_user", "by_command", "by_host", "uses"):
        assert sum(row["gpu_hours"] for row in got[by]) == pytest.approx(got["totals"]["gpu_hours"])
    idle = got["totals"]["idle_hours"] + got["totals"]["hung_hours"]
    assert got["totals"]["idle_cost"] == pytest.approx(2 * idle)


def test_a_table_csv_and_a_page(tmp_path):
    trace, page = tmp_path / "trace.csv", tmp_path / "use.html"
    write(trace, random_rows(1))
    done = report(trace, "--html", page)
    assert done.stdout.startswith("Of ") and "held idle" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("total")
    text = page.read_text()
    assert "By user" in text and "By host" in text and "alice" in text and "http" not in text
    for by, first in (("user", "user"), ("command", "command"), ("host", "host"), ("all", "user")):
        rows = list(csv.DictReader(io.StringIO(report(trace, "--csv", "--by", by).stdout)))
        assert list(rows[0])[0] == first
        assert sum(float(row["gpu_hours"]) for row in rows) > 0


def test_without_who_and_without_power(tmp_path):
    trace = tmp_path / "plain.csv"
    trace.write_text("time,gpu,util\n" + "".join(f"{60 * i},0,{0 if i > 30 else 90}\n" for i in range(60)))
    got = json.loads(report(trace, "--json").stdout)
    assert got["by_user"][0]["user"] is None and got["totals"]["energy_kwh"] is None
    assert got["judges_hangs"] is False and "hangs are not told apart" in got["basis"]
    assert got["totals"]["hung_hours"] is None and "hung" not in got["answer"], "what was not judged is not said to be none"
    assert got["totals"]["idle_hours"] == pytest.approx(29 / 60)


def test_an_idle_stretch_directly_behind_a_gap_counts(tmp_path):
    """It lasts five minutes from the first sample behind the gap on, and not a sample longer."""
    trace = tmp_path / "gap.csv"
    times = [60 * i for i in range(10)] + [3600 + 60 * i for i in range(6)] + [3960, 4020]
    trace.write_text("time,gpu,util,mem_used_bytes\n" + "".join(
        f"{at},0,{90 if at < 3600 or at > 3900 else 0},{8 << 30}\n" for at in times))
    got = json.loads(report(trace, "--json").stdout)
    assert got["totals"]["idle_hours"] == pytest.approx(300 / 3600)


def test_hours_in_long_idle_stretches(tmp_path):
    """Of what is held idle only what lies behind a limit can be freed by ending after it."""
    trace, page = tmp_path / "idle.csv", tmp_path / "idle.html"
    minutes = [0] * 20 + [90] * 5 + [0] * 95 + [90] * 5 + [0] * 7
    trace.write_text("time,gpu,util,mem_used_bytes,user\n" + "".join(
        f"{60 * i},0,{util},{8 << 30},alice\n" for i, util in enumerate(minutes)))
    done = report(trace, "--json", "--html", page)
    totals = json.loads(done.stdout)["totals"]
    assert totals["idle_hours"] == pytest.approx((19 + 95 + 7) / 60)
    for name, over, after in (("10m", 19 + 95, 9 + 85), ("30m", 95, 65), ("1h", 95, 35), ("2h", 0, 0), ("8h", 0, 0)):
        assert totals[f"idle_over_{name}_hours"] == pytest.approx(over / 60), name
        assert totals[f"idle_after_{name}_hours"] == pytest.approx(after / 60), name
    assert "ending jobs after 1h would have freed at most 0.58" in json.loads(done.stdout)["answer"]
    table = report(trace).stdout
    for name in ("10m", "30m", "1h", "2h", "8h"):
        assert ">" + name in table and f"<th>over {name}</th>" in page.read_text()


@pytest.mark.parametrize("width", [200, 80, 60])
def test_every_stretch_and_what_was_not_judged_are_shown_at_any_width(tmp_path, width):
    trace = tmp_path / "idle.csv"
    trace.write_text("time,host,gpu,util,mem_used_bytes,power_watts,user\n" + "".join(
        f"{60 * i},n1,0,{0 if i < 700 else 100},{8 << 30},90,alice-of-the-lab\n" for i in range(760)))
    lines = report(trace, columns=width).stdout.splitlines()
    assert all(len(line) <= width for line in lines), lines
    titles = [line for line in lines if line.startswith("USER")]
    assert len(titles) == (1 if width == 200 else 2)
    for name in ("GPU-HOURS", "HELD IDLE", ">10m", ">30m", ">1h", ">2h", ">8h", "HUNG", "NOT JUDGED"):
        assert any(name in line for line in titles), name
    names = sum(line.startswith("alice-of-the-lab ") for line in lines)
    assert width == 60 or names == len(titles), "kWh goes before a name is cut"
    total = [line.split() for line in lines if line.startswith("total")]
    assert total[-1].count("12") >= 6, "held idle, in each of the five kinds of stretches"


def test_what_idle_hours_cost_comes_with_what_could_be_recovered(tmp_path):
    """At 2 an hour: three hours held idle in pauses of 15 minutes cost 6, of which nobody recovers anything; the hour past the
    first one of a stretch of two costs 2."""
    trace, page = tmp_path / "price.csv", tmp_path / "price.html"
    minutes = ([0] * 15 + [90] * 15) * 12 + [0] * 120 + [90] * 30
    trace.write_text("time,gpu,util,mem_used_bytes,user\n" + "".join(
        f"{60 * i},0,{util},{8 << 30},alice\n" for i, util in enumerate([90] + minutes)))
    done = report(trace, "--price", "2", "--json", "--html", page)
    got = json.loads(done.stdout)
    assert got["totals"]["idle_cost"] == pytest.approx(10) and got["totals"]["recoverable_cost"] == pytest.approx(2)
    assert "The hours held idle cost 10.00 of 17.00." in got["answer"] and "wasted" not in got["answer"]
    assert got["answer"].endswith("ending jobs after 1h would have freed at most 1.0, worth 2.00.")
    table = report(trace, "--price", "2").stdout
    assert "IDLE COST" in table and "PAST 1h" in table and table.splitlines()[-1].split()[-2:] == ["10.00", "2.00"]
    row, = csv.DictReader(io.StringIO(report(trace, "--price", "2", "--csv").stdout))
    assert float(row["recoverable_cost"]) == pytest.approx(2)
    assert "of it past 1h" in page.read_text()


def test_a_hang_that_cannot_be_judged_is_not_called_busy(tmp_path):
    trace = tmp_path / "limitless.csv"
    trace.write_text("time,gpu,util,mem_used_bytes,power_watts,power_limit_watts,user\n" + "".join(
        f"{60 * i},0,{100 if i > 10 else 50},{8 << 30},90,,alice\n" for i in range(31)))
    got = json.loads(report(trace, "--json").stdout)
    assert got["totals"]["not_judged_hours"] == pytest.approx(20 / 60) and got["totals"]["busy_hours"] == pytest.approx(10 / 60)
    assert got["totals"]["hung_hours"] == 0 and got["not_judged_reason"] == "no power limit"
    assert "not judged: no power limit" in got["answer"]
    assert "NOT JUDGED" in report(trace).stdout
    # Where the signal is in no row at all, the same.
    trace.write_text("time,gpu,util,mem_used_bytes,user\n" + "".join(
        f"{60 * i},0,100,{8 << 30},alice\n" for i in range(31)))
    got = json.loads(report(trace, "--json").stdout)
    assert got["totals"]["not_judged_hours"] == pytest.approx(30 / 60) and got["totals"]["hung_hours"] is None
    assert got["not_judged_reason"] == "no power, no power limit"


def test_what_was_known_of_a_job_stays_known(tmp_path):
    """One empty cell in its last sample takes nobody's hours away."""
    trace = tmp_path / "cell.csv"
    rows = [f"{60 * i},0,90,{8 << 30},17,{'' if i == 30 else 'alice'},{'' if i == 30 else 'train.py'}" for i in range(31)]
    trace.write_text("time,gpu,util,mem_used_bytes,pids,users,command\n" + "\n".join(rows) + "\n")
    got = json.loads(report(trace, "--json").stdout)
    assert [(row["user"], row["command"], round(row["gpu_hours"], 3)) for row in got["uses"]] == [("alice", "train.py", .5)]


def test_a_process_that_comes_or_goes_ends_no_idle_stretch(tmp_path):
    """The job is the same one while one of its processes is: three hours idle are no two stretches, however long the trace is."""
    trace = tmp_path / "pids.csv"
    trace.write_text("time,gpu,util,mem_used_bytes,users,pids,command\n" + "".join(
        f"{5 * i},0,{90 if i <= 120 else 0},{8 << 30},ada,{'5 6' if i < 1200 else '5' if i < 1800 else '5 7'},train.py\n"
        for i in range(2281)))
    got = json.loads(report(trace, "--json").stdout)
    assert got["totals"]["idle_hours"] == got["totals"]["idle_over_2h_hours"] == pytest.approx(3)
    assert [(one["user"], one["seconds"]) for one in got["longest_idle"]] == [("ada", 10800)]
    # Another job of the same user is another stretch.
    trace.write_text(trace.read_text().replace(",ada,5 7,", ",ada,7,"))
    got = json.loads(report(trace, "--json").stdout)
    assert got["totals"]["idle_over_2h_hours"] == pytest.approx(1679 * 5 / 3600) and len(got["longest_idle"]) == 2


@pytest.mark.parametrize("style", ["csv", "ndjson"])
def test_who_has_a_gpu_in_a_table_with_a_row_per_value(tmp_path, style):
    """The columns job, user and command stand beside each value; another job on the GPU is another job."""
    names = ["time", "host", "gpu", "job_id", "user", "command", "metric", "value"]
    rows = []
    for minute in range(180):
        who = ["17", "ada", "train.py"] if minute < 90 else ["18", "bob", "eval.py"] if minute < 150 else ["none", "none", "none"]
        for metric, value in (("util", 90 if minute % 90 < 30 else 0), ("mem_used", 8 << 30)):
            rows.append([1_760_000_000 + 60 * minute, "n1", 0, *who, metric, value])
    trace = tmp_path / f"long.{style}"
    trace.write_text("".join(json.dumps(dict(zip(names, row))) + "\n" for row in rows) if style == "ndjson" else
                     "".join(",".join(map(str, row)) + "\n" for row in [names, *rows]))
    got = json.loads(report(trace, "--json").stdout)
    assert [(use["user"], use["command"], use["host"], round(use["gpu_hours"], 2)) for use in got["uses"]] == [
        ("ada", "train.py", "n1", 1.48), ("bob", "eval.py", "n1", 1.0), (None, None, "n1", 0.5)]
    done = subprocess.run([LULL, "replay", str(trace), "--per", "job", "--idle", "20m", "--json"], capture_output=True, text=True,
                          timeout=LIMIT, env=clean_environment())
    assert [(end["gpu"], end["user"], end["job"], end["command"], end["then"]) for end in json.loads(done.stdout)["ends"]] == [
        ("ada/17", "ada", "17", "train.py", "released"), ("bob/18", "bob", "18", "eval.py", "released")]


def test_columns_without_values_take_no_space(tmp_path):
    """What was free is told before what there was none of, also where the screen is narrow."""
    trace = tmp_path / "free.csv"
    trace.write_text("time,gpu,util_percent,mem_used_bytes,power_watts,power_limit_watts,users\n" + "".join(
        f"{60 * i},0,{90 if i < 60 else 0},{(8 << 30) if i < 60 else 0},300,700,{'ada' if i < 60 else 'none'}\n" for i in range(121)))
    for columns in (60, 80, 200):
        text = report(trace, columns=columns).stdout
        head = next(line for line in text.splitlines() if line.startswith("USER")).split()
        assert "FREE" in head and "JUDGED" not in head and "KNOWN" not in head, text


def test_intervals_that_change_within_a_file(tmp_path):
    """A second apart, then a minute: neither part is a gap, and a pause in either is one."""
    trace = tmp_path / "pace.csv"
    times = list(range(600)) + list(range(700, 1300)) + [1300 + 60 * i for i in range(60)]
    trace.write_text("time,gpu,util,mem_used_bytes\n" + "".join(f"{at},0,0,{8 << 30}\n" for at in times))
    got = json.loads(report(trace, "--json").stdout)
    assert got["gap_hours"] == pytest.approx(101 / 3600)
    assert got["totals"]["idle_hours"] == pytest.approx((599 + 599 + 1 + 59 * 60) / 3600)


def test_mistakes_are_one_clear_line(tmp_path):
    trace = tmp_path / "plain.csv"
    trace.write_text("time,gpu,util\n0,0,1\n60,0,1\n")

    def wrong(status, word, *arguments):
        done = report(*arguments)
        assert done.returncode == status, done.stderr
        assert word in done.stderr and done.stdout == "" and len(done.stderr.splitlines()) == 1

    wrong(2, "--by: 'gpu': user, command, host or all would be right", trace, "--by", "gpu")
    wrong(2, "not both", trace, "--json", "--csv")
    wrong(2, "--price: 'x'", trace, "--price", "x")
    wrong(2, "is the trace itself", trace, "--html", trace)
    wrong(125, "nowhere.csv", tmp_path / "nowhere.csv")
    wrong(125, "`lull record` writes it", trace, "--idle", "temp < 30 for 1m")
