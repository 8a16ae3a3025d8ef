"""What `lull watch` does live and what `lull replay` says it would have done: the same firings."""
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
    done = run_lull("replay", trace, *RULE, "--json", *more)
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
    assert replay(run_lull, seen) == pytest.approx(acted)
    assert replay(run_lull, seen, "--per", "all") == pytest.approx(acted)

    # What was recorded beside it: the same idle times fire, as near as two samplers come to each other.
    recorded = replay(run_lull, trace)
    for at in fired:
        assert min(abs(at - other) for other in recorded) < APART, (fired, recorded)
