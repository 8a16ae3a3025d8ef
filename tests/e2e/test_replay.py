"""`lull replay` from outside: against the Python twin, every output, every mistake."""
import csv
import gzip
import io
import json
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
SHARED = ("firings", "came_back", "regretted", "idle_hours", "reclaimed_hours", "seen_hours", "gpus", "samples")
ENDS = ("ended", "worked_again", "work_lost_ratio", "saved_hours", "gap_hours")


def replay(*arguments, **options):
    return subprocess.run([LULL, "replay", *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT,
                          env=clean_environment(), **options)


def totals(*arguments):
    done = replay(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
        for name in ("firings", "came_back", "regretted", "idle_hours", "reclaimed_hours"):
            assert row[name] == pytest.approx(alone[name]), (row["rule"], name)
    rows = list(csv.DictReader(io.StringIO(replay(trace, "--idle", "util < 5", "--sweep", "for=1m,5m", "--csv").stdout)))
    assert [row["for"] for row in rows] == ["1m", "5m"]


def test_the_knee(tmp_path):
    """Many short pauses of one GPU, and another that never works again: a longer timeout spares the pauses."""
    trace = tmp_path / "trace.csv"
    at, lines = 0, ["time,gpu,util\n"]
    for _ in range(40):
        for util, minutes in ((90, 10), (0, 4)):
            for _ in range(minutes):
                lines.append(f"{at},0,{util}\n{at},1,{90 if at < 6000 else 0}\n")
                at += 60
    trace.write_text("".join(lines))
    arguments = [trace, "--idle", "util < 5 for 2m", "--sweep", "for=2m,5m,30m,1000m"]
    got = totals(*arguments)
    assert [row["ended"] for row in got["sweep"]] == [2, 1, 1, 0]
    assert [row["worked_again"] for row in got["sweep"]] == [1, 0, 0, 0]
    assert got["knee"]["for"] == "5m"
    assert [row["knee"] for row in got["sweep"]] == [False, True, False, False]
    assert "knee: for=5m" in replay(*arguments).stdout
    none = totals(trace, "--idle", "util < 5 for 2m", "--sweep", "for=2m,3m")
    assert none["knee"] is None
    assert "no knee" in replay(trace, "--idle", "util < 5 for 2m", "--sweep", "for=2m,3m").stdout
    assert totals(trace, "--idle", "util < 5 for 2m", "--sweep", "for=2m,3m", "--lose", "99%")["knee"]["for"] == "2m"


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
    assert out.splitlines()[0] == ("Ending after 30m would have ended 2 of 3 jobs, of which 1 worked again: 27 % of the work "
                                   "would have been lost, 0.5 GPU-hours saved for good.")
    assert "Judged each GPU by itself: 2 GPUs, 8.0 GPU-hours seen, no gaps, no rows left out." in out
    hurt = out[out.index("whom it would have hurt"):].splitlines()
    assert "alice" in hurt[2] and "python train.py" in hurt[2] and "bob" not in out[out.index("whom"):out.index("what it would have ended")]
    got = totals(trace, "--idle", "util < 1 for 30m")
    work = (60 - 1 + 100) * 60 * .5 + (60 - 1) * 60 * .9 + 60 * 60 * .9
    assert got["totals"]["work_lost_ratio"] == pytest.approx(100 * 60 * .5 / work)
    assert got["totals"]["saved_hours"] == pytest.approx(29 / 60)
    assert [(end["user"], end["then"]) for end in got["ends"]] == [("alice", "worked again"), ("bob", "released")]
    assert got["totals"]["chance_back_1h"] == pytest.approx(.5)
    assert got["totals"]["firings"] == 3, "today's figures stay what they were"


def test_a_sweep_of_for_needs_no_for_in_the_rule(trace):
    got = totals(trace, "--idle", "util < 5", "--sweep", "for=2m,1m")
    assert got["rule"] == "util < 5 for 2m"
    assert [row["for"] for row in got["sweep"]] == ["1m", "2m"]
    assert replay(trace, "--idle", "util < 5", "--sweep", "for=2m,1m").stdout.startswith("Ending after 2m ")


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
    wrong(2, "--per is gpu, job, host or all", trace, "--idle", "util < 5", "--per", "user")
    wrong(2, "--lose: 'lots' is not a share", trace, "--idle", "util < 5", "--lose", "lots")
    wrong(125, "does not say which job has a GPU", trace, "--idle", "util < 5", "--per", "job")
    wrong(2, "is not a duration", trace, "--idle", "util < 5", "--regret", "soon")
    wrong(2, "--price", trace, "--idle", "util < 5", "--price", "cheap")
    wrong(2, "does not look at temp", trace, "--idle", "util < 5", "--sweep", "temp=5")
    wrong(2, "neither 'for' nor a signal", trace, "--idle", "util < 5", "--sweep", "fro=5m")
    wrong(2, "--columns", trace, "--idle", "util < 5", "--columns", "utl=x")
    wrong(2, "--idle", trace)
    wrong(125, "no temp", trace, "--idle", "temp < 50")
    wrong(125, "No such file", tmp_path / "absent.csv", "--idle", "util < 5")
    wrong(125, "directory", tmp_path, "--idle", "util < 5")
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
    piped = replay("-", "--idle", "util < 5 for 1m", "--json", input=TRACE)
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
    assert data["result"]["firings"] > 0 and len(data["marks"]) == data["result"]["firings"]
    assert not list(tmp_path.glob("*.part"))
    assert replay(hostile, "--idle", "util < 5", "--html", tmp_path / "no" / "such" / "folder.html").returncode == 125


def test_faults_b4_an_output_is_never_an_input(trace, tmp_path):
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
    assert json.loads(much.stdout)["firings"] > 0


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
    assert data["result"]["answer"] == done.stdout.splitlines()[0] and data["knee"][0].startswith("knee: for=5m")
    assert data["width"] >= 60
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), "it needs no network"


def test_every_with_per_job_is_for_files_without_times(run_lull, tmp_path):
    trace = tmp_path / "counted.csv"
    rows = "".join(f"{gpu},{0 if i > 5 else 70},7\n" for i in range(40) for gpu in (0, 1))
    trace.write_text("gpu,util,job\n" + rows)
    done = run_lull("replay", trace, "--idle", "util < 1 for 30s", "--per", "job", "--every", "5s")
    assert done.returncode == 0 and "would have ended the one job" in done.stdout, done.stderr
    trace.write_text("time,gpu,util,job\n" + "".join(f"{1700000000 + i // 2},{row}\n" for i, row in enumerate(rows.splitlines())))
    done = run_lull("replay", trace, "--idle", "util < 1 for 30s", "--per", "job", "--every", "5s")
    assert done.returncode != 0 and "--every does not work with --per job" in done.stderr and done.stderr.count("\n") == 1


def test_no_work_at_all_is_not_unknown_work(tmp_path):
    trace = tmp_path / "idle.csv"
    trace.write_text("time,gpu,util,job\n" + "".join(f"{1700000000 + i},0,0,7\n" for i in range(60)))
    assert "never worked again: there was no work to lose, " in replay(trace, "--idle", "util < 1 for 30s").stdout
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
