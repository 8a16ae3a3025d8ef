"""lull.replay() says what `lull replay --json` says."""
import json
import re
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
    result = lull.replay(trace, idle="util < 5 for 10m", sweep={"for": ["5m", "20m"]}, price=2)
    done = subprocess.run([BUILD / "lull", "replay", trace, "--idle", "util < 5 for 10m", "--sweep", "for=5m,20m", "--price", "2",
                           "--json"], capture_output=True, text=True)
    assert result.as_dict() == json.loads(done.stdout)
    assert result.totals.ended == len(result.ends) == 2 and [gpu.gpu for gpu in result.gpus] == ["0", "1"]
    assert len(result.sweep) == 2 and result.recommendation is None and "24 h" in result.recommendation_missing
    again = lull.replay([trace], lull.Rule("util < 5 for 10m"), price=2, verbose=True)
    assert again.totals.ended == result.totals.ended and again.totals.firings == len(again.events) > 1


def test_a_frame_goes_in_and_out(trace):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(trace)
    result = lull.replay(frame, "util < 5 for 10m")
    assert result.as_dict()["ends"] == lull.replay(trace, "util < 5 for 10m").as_dict()["ends"]
    renamed = frame.rename(columns={"timestamp": "ts", "util_percent": "load"}).set_index("ts")
    again = lull.replay(renamed, "util < 5 for 10m", columns={"time": "ts", "gpu": "gpu", "util": "load"})
    assert again.totals.ended == result.totals.ended
    assert list(result.ends_frame()["gpu"]) == [end.gpu for end in result.ends] and result.events_frame().empty
    assert len(result.gpus_frame()) == 2 and result.sweep_frame().empty


def test_mistakes_are_told_in_its_words(trace, tmp_path):
    with pytest.raises(lull.UsageError, match="utl"):
        lull.replay(trace, "utl < 5")
    with pytest.raises(lull.Error, match="No such file"):
        lull.replay(tmp_path / "none.csv", "util < 5 for 10m")
    with pytest.raises(lull.Error, match="the trace has no power"):
        lull.replay(trace, "power < 50 for 10m")


def test_a_sweep_may_be_written_as_on_the_command_line(trace):
    as_mapping = lull.replay(trace, "util < 5 for 10m", sweep={"for": ["5m", "20m"]}).as_dict()
    assert lull.replay(trace, "util < 5 for 10m", sweep="for=5m,20m").as_dict() == as_mapping
    assert lull.replay(trace, "util < 5 for 10m", sweep={"for": "5m,20m"}).as_dict() == as_mapping
    with pytest.raises(lull.UsageError, match="'10' needs a unit"):
        lull.replay(trace, sweep="for=10")


def test_users_can_be_left_out(tmp_path):
    path = tmp_path / "who.csv"
    path.write_text("timestamp,gpu,util_percent,users,pids\n" + "".join(
        f"{60 * i},{gpu},{0 if i > 10 else 90},{user},{gpu + 5}\n" for i in range(60) for gpu, user in ((0, "ada"), (1, "bob"))))
    for names in ("ada", ["ada"]):
        result = lull.replay(path, "util < 5 for 10m", except_user=names)
        assert [end.user for end in result.ends] == [who.user for who in result.hurt] == ["bob"] and result.hurt[0].ended == 1
        assert result.as_dict()["left_out"] == 1 and result.as_dict()["except_users"] == ["ada"]


def test_report_is_the_answer_of_the_command_line(trace):
    use = lull.report(trace, price=2)
    done = subprocess.run([BUILD / "lull", "report", trace, "--price", "2", "--json"], capture_output=True, text=True)
    assert use.as_dict() == json.loads(done.stdout)
    assert use.totals.gpu_hours == pytest.approx(2 * 599 / 60) and use.by_user[0].user is None
    with pytest.raises(lull.UsageError, match="utl"):
        lull.report(trace, idle="utl < 5")


def test_without_a_rule_the_default_one_is_tried_and_a_time_is_its_time(trace):
    assert lull.replay(trace).as_dict()["rule"] == "util < 1 for 30m"
    assert lull.replay(trace, "2h").as_dict()["rule"] == "util < 1 for 2h"


def test_a_notebook_shows_tables_and_nobody_sees_fifteen_digits(trace):
    result = lull.replay(trace, "util < 5 for 10m", sweep={"for": ["5m", "20m"]})
    use = lull.report(trace)
    for shown in (result, result.ends, result.gpus, result.totals, use, use.by_user, use.totals):
        page = shown._repr_html_()
        assert page.count("<table>") == 1 and "<th>" in page
        assert not re.search(r"\d\.\d{6}", page), page
    assert not re.search(r"\d\.\d{6}", repr(result.ends[0])) and "<script" not in lull.Record({"user": "<script>"})._repr_html_()
    assert lull.Record({"user": "<script>"})._repr_html_().count("&lt;script&gt;") == 1
