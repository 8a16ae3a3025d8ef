"""What `lull watch` does live and what `lull replay` says it would have done: the same firings."""
import csv
import datetime
import json
import signal
import subprocess

import pytest

from conftest import LIMIT, wait_until

# Busy for 15 s, idle for 40 s, ten times as fast.
SCENARIO = """
[[gpu]]
model = "H100"
repeat = "55s"
[[gpu.timeline]]
at = "0s"
util = 90
[[gpu.timeline]]
at = "15s"
util = 0
"""
EVERY = ["--every", "100ms"]
RULE = ["--idle", "util < 5 for 8 samples"]
FIRINGS = 2
APART = 3  # seconds: two samplers do not look at the same moments, but in the same idle time, which lasts longer
CONFIRMED = 3  # seconds at most until a firing is confirmed


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def watch_and_record(gpus, trace):
    """The log of a watch until the last of a few idle times is over, with a recording beside it."""
    recording = gpus.start_lull("record", *EVERY, "-o", trace)
    wait_until(lambda: trace.exists() and trace.stat().st_size > 0, what="rows in the file")
    watching = gpus.start_lull("watch", *EVERY, *RULE, "--do", "exec=true", "--repeat", "-v", "--log-format", "json",
                               stdout=subprocess.DEVNULL)
    log = []
    while sum(line["event"] == "fire" for line in log) < FIRINGS or log[-1]["event"] != "busy":
        line = watching.stderr.readline()
        assert line, log
        log.append(json.loads(line))
    for process in (watching, recording):
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
    return log


def replay(run_lull, trace, *more):
    done = run_lull("replay", trace, *RULE, "--json", "--verbose", *more)
    assert done.returncode == 0, done.stderr
    return [event["at_seconds"] for event in json.loads(done.stdout)["events"]]


def test_replay_fires_where_watch_did(sim, run_lull, tmp_path):
    trace = tmp_path / "recorded.csv"
    with sim(text=SCENARIO, speed=10) as gpus:
        log = watch_and_record(gpus, trace)

    # What watch itself saw, sample by sample, as a trace: exactly its firings. A gap is where it said so.
    samples, acted, fired, at = [], [], [], 0.0
    for line in log:
        if line["event"] == "sample":
            at += 0.1
            samples.append([at, 0 if "(yes" in line["message"] else 90])
        if line["event"] == "gap":
            at += 10
            samples[-1][0] = at
        if line["event"] == "fire":
            acted.append(at)
            fired.append(seconds(line["time"]))
    seen = tmp_path / "seen.csv"
    seen.write_text("time,gpu,util\n" + "".join(f"{at:.1f},0,{util}\n" for at, util in samples))
    assert len(fired) >= FIRINGS
    # Live, a firing is said once it has been confirmed by newer data, some samples later.
    for replayed in (replay(run_lull, seen), replay(run_lull, seen, "--per", "all")):
        assert len(replayed) == len(acted)
        assert all(0 <= live - other + 1e-6 < CONFIRMED for live, other in zip(acted, replayed)), (acted, replayed)

    # What was recorded beside it: the same idle times fire, as near as two samplers come to each other.
    recorded = replay(run_lull, trace)
    for at in fired:
        assert min(abs(at - other) for other in recorded) < APART, (fired, recorded)


def test_a_job_records_itself_and_rules_on_its_work_can_be_replayed(sim, tmp_path):
    """`lull run --record` has cpu, io and quiet of the job; `lull record` has not, and replay says which would."""
    with sim(2) as gpus:
        trace = tmp_path / "job.csv"
        job = gpus.start_lull("run", "--record", trace, "--delay", "0", "--every", "100ms", "--idle", "util < 1 for 1h",
                              "--", gpus.binary, "sim", "load", "--gpu", "0", "--util", "0")

        def rows():
            """Those that know of the job's work; a line that is still being written is none."""
            whole = trace.read_text().rpartition("\n")[0] if trace.exists() else ""
            return [row for row in csv.DictReader(whole.splitlines()) if row["cpu_percent"]]

        wait_until(lambda: len(rows()) > 20, what="rows of the job's work")
        job.send_signal(signal.SIGINT)
        assert job.wait(LIMIT) == -signal.SIGINT, job.stderr.read()
        assert {row["gpu"] for row in rows()} == {"0"}
        last = rows()[-1]
        assert last["users"] and last["command"] and last["job"].startswith("run-")
        judged = gpus.lull("replay", trace, "--idle", "util < 1 and cpu < 90 and quiet > 0 for 500ms", "--json")
        assert judged.returncode == 0, judged.stderr
        assert json.loads(judged.stdout)["totals"]["ended"] == 1
        plain = tmp_path / "plain.csv"
        assert gpus.lull("record", "--every", "50ms", "--for", "200ms", "-o", plain).returncode == 0
        missing = gpus.lull("replay", plain, "--idle", "cpu < 5 for 1m")
        assert missing.returncode == 125 and "`lull run --record FILE` writes" in missing.stderr
        nothing = gpus.lull("run", "--record", tmp_path / "nothing.csv", "--", "true")
        assert nothing.returncode == 0 and "nothing was recorded" in nothing.stderr, nothing.stderr
        refused = gpus.lull("run", "--record", tmp_path / "no" / "folder.csv", "--", "true")
        assert refused.returncode == 125 and "--record" in refused.stderr
