"""lull.replay() says what `lull replay --json` says."""
import json
import subprocess

import pytest
from conftest import BUILD

import lull


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "night.csv"
    rows = ["timestamp,gpu,util_percent"]
    rows += [f"{60 * i},{gpu},{0 if gpu == 0 and i > 60 or i % 50 > 20 else 90}" for i in range(600) for gpu in (0, 1)]
    path.write_text("\n".join(rows) + "\n")
    return path


def test_it_is_the_answer_of_the_command_line(trace):
    result = lull.replay(trace, "util < 5 for 10m", sweep={"for": ["5m", "20m"]}, price=2)
    done = subprocess.run([BUILD / "lull", "replay", trace, "--idle", "util < 5 for 10m", "--sweep", "for=5m,20m", "--price", "2",
                           "--json"], capture_output=True, text=True)
    assert result.as_dict() == json.loads(done.stdout)
    assert result.totals.firings == len(result.events) > 1 and [gpu.gpu for gpu in result.gpus] == ["0", "1"]
    assert len(result.sweep) == 2 and result.events[0].regretted in (True, False)
    assert lull.replay([trace], lull.Rule("util < 5 for 10m"), price=2).totals.firings == result.totals.firings


def test_a_frame_goes_in_and_out(trace):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(trace)
    result = lull.replay(frame, "util < 5 for 10m")
    assert result.as_dict()["events"] == lull.replay(trace, "util < 5 for 10m").as_dict()["events"]
    renamed = frame.rename(columns={"timestamp": "ts", "util_percent": "load"}).set_index("ts")
    again = lull.replay(renamed, "util < 5 for 10m", columns={"time": "ts", "gpu": "gpu", "util": "load"})
    assert again.totals.firings == result.totals.firings
    assert list(result.events_frame()["gpu"]) == [event.gpu for event in result.events]
    assert len(result.gpus_frame()) == 2 and result.sweep_frame().empty


def test_mistakes_are_told_in_its_words(trace, tmp_path):
    with pytest.raises(lull.UsageError, match="utl"):
        lull.replay(trace, "utl < 5")
    with pytest.raises(lull.Error, match="No such file"):
        lull.replay(tmp_path / "none.csv", "util < 5 for 10m")
    with pytest.raises(lull.Error, match="the trace has no power"):
        lull.replay(trace, "power < 50 for 10m")
