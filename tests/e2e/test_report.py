"""`lull report`: GPU-hours by who had them, against a plain Python loop; every output, every mistake."""
import csv
import io
import json
import random
import subprocess

import pytest

from conftest import LIMIT, build_dir, clean_environment

LULL = str(build_dir() / "lull")
HEADER = ["time", "host", "gpu", "util_percent", "mem_used_bytes", "power_watts", "power_limit_watts", "users", "pids", "command"]


def report(*arguments):
    return subprocess.run([LULL, "report", *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT,
                          env=clean_environment())


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
                continue
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
    wasted = got["totals"]["idle_hours"] + got["totals"]["hung_hours"]
    assert got["totals"]["wasted_cost"] == pytest.approx(2 * wasted)


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


def test_mistakes_are_one_clear_line(tmp_path):
    trace = tmp_path / "plain.csv"
    trace.write_text("time,gpu,util\n0,0,1\n60,0,1\n")

    def wrong(status, word, *arguments):
        done = report(*arguments)
        assert done.returncode == status, done.stderr
        assert word in done.stderr and done.stdout == "" and len(done.stderr.splitlines()) == 1

    wrong(2, "--by is user, command, host or all", trace, "--by", "gpu")
    wrong(2, "not both", trace, "--json", "--csv")
    wrong(2, "--price: 'x'", trace, "--price", "x")
    wrong(2, "is the trace itself", trace, "--html", trace)
    wrong(125, "nowhere.csv", tmp_path / "nowhere.csv")
    wrong(125, "`lull record` writes it", trace, "--idle", "temp < 30 for 1m")
