"""lull.Rule: samples one by one, and whole arrays without copying."""
import subprocess

import pytest
from conftest import BUILD

import lull

np = pytest.importorskip("numpy")


def series(count=20_000, seed=1):
    random = np.random.default_rng(seed)
    times = np.arange(count, dtype=np.float64)
    util = np.where(random.random(count) < 0.02, 90, 0).astype(np.float32)
    util[random.random(count) < 0.005] = np.nan
    power = random.uniform(40, 300, count).astype(np.float32)
    return times, util, power


def one_by_one(rule, times, values):
    out = []
    for i, time in enumerate(times):
        holds = rule.feed(time, {name: column[i] for name, column in values.items()}).holds
        out.append(-1 if holds is None else int(holds))
    return out


@pytest.mark.parametrize("text", ["util < 5 for 30s", "util < 5 and power < 200", "util < 5 or power > 250 for 5 samples",
                                  "mean(util, 1m) < 3 for 20s", "not util > 50 for 1m"])
def test_arrays_give_the_answers_of_single_samples(text):
    times, util, power = series(5000)
    values = {"util": util, "power": power}
    answers = lull.Rule(text, every=1).evaluate(times, values)
    assert answers.dtype == np.int8
    assert answers.tolist() == one_by_one(lull.Rule(text), times, values)
    assert len(set(answers.tolist())) > 1


def test_every_kind_of_array_gives_the_same():
    times, util, power = series()
    rule = lull.Rule("util < 5 and power < 250 for 5s")
    expected = rule.evaluate(times, {"util": util, "power": power}).tolist()
    moments = (times * 1e9).astype("datetime64[ns]")
    wide = np.zeros((len(times), 3), dtype=np.float32)
    wide[:, 1] = util
    for at in (times, times.astype(np.int64), moments, moments.astype("datetime64[s]"), times.tolist()):
        for u in (util, util.astype(np.float64), wide[:, 1], util.tolist()):
            assert rule.evaluate(at, {"util": u, "power": power}).tolist() == expected
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"t": moments, "util": util, "power": power})
    assert rule.evaluate(frame["t"], {"util": frame["util"], "power": frame["power"]}).tolist() == expected


def test_columns_of_float32_are_not_copied():
    import tracemalloc
    count = 1 << 22
    times = (np.arange(count, dtype=np.int64) * 1_000_000_000).view("datetime64[ns]")
    util = np.zeros(count, dtype=np.float32)
    tracemalloc.start()
    try:
        answers = lull.Rule("util < 5 for 1h").evaluate(times, {"util": util})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answers[-1] == 1 and peak < count * 1.5  # the answers, a byte each, and little else
    util.flags.writeable = False  # nor is anything asked for that would need writing
    assert lull.Rule("util < 5").evaluate(times, {"util": util})[0] == 1


def test_several_gpus_as_a_table_and_as_a_list():
    times = np.arange(100.0)
    table = np.zeros((100, 3), dtype=np.float32)
    table[50:, 2] = 80
    rule = lull.Rule("util < 5 for 10s")
    answers = rule.evaluate(times, {"util": table})
    assert answers[49] == 1 and answers[50] == 0
    assert rule.evaluate(times, {"util": np.asfortranarray(table)}).tolist() == answers.tolist()
    assert rule.evaluate(times, {"util": [table[:, i] for i in range(3)]}).tolist() == answers.tolist()
    assert lull.Rule("any(util) < 5 for 10s").evaluate(times, {"util": table})[99] == 1


def test_a_share_needs_its_whole_which_may_be_one_number():
    times = np.arange(10.0)
    rule = lull.Rule("power < 30%")
    assert sorted(rule.signals) == ["power", "power_limit"]
    assert rule.evaluate(times, {"power": np.full(10, 80.0), "power_limit": 300}).tolist() == [1] * 10
    assert rule.evaluate(times, {"power": np.full(10, 80.0)}).tolist() == [-1] * 10


def test_firings_say_where_and_since_when():
    times = np.arange(200.0)
    util = np.zeros(200, dtype=np.float32)
    util[[0, 100]] = 90
    with pytest.raises(lull.UsageError, match="the rule needs 'util'"):
        lull.Rule("util < 5 for 30s").fires(times, {})
    found = lull.Rule("util < 5 for 30s").fires(times, {"util": util})
    assert [(one.index, one.time, one.since, one.held) for one in found] == [(31, 31.0, 1.0, 30.0), (131, 131.0, 101.0, 30.0)]
    util[110] = np.nan
    assert [one.index for one in lull.Rule("util < 5 for 30s").fires(times, {"util": util})] == [31, 141]
    armed = lull.Rule("util < 5 for 30s", arm="util > 50", rearm=True)
    assert [one.index for one in armed.fires(times, {"util": util})] == [31, 141]


def test_a_gap_and_a_value_that_cannot_be_break_a_streak():
    times = np.concatenate([np.arange(20.0), np.arange(100.0, 120.0)])
    answers = lull.Rule("util < 5 for 15s").evaluate(times, {"util": np.zeros(40, dtype=np.float32)})
    assert answers[19] == 1 and answers[20] == -1 and answers[39] == 1
    util = np.zeros(20, dtype=np.float32)
    util[10] = -1  # no utilisation
    answers = lull.Rule("util < 5 for 8s").evaluate(np.arange(20.0), {"util": util})
    assert answers[9] == 1 and answers[10] == -1 and answers[12] == -1 and util[10] == -1


def test_feeding_several_gpus():
    rule = lull.Rule("util < 5 for 2s")
    assert [rule.feed(t, {"util": [0, 0]}).holds for t in range(3)] == [None, None, True]
    assert rule.feed(3, {"util": [0, None]}).holds is None
    verdict = rule.feed(4, {"util": [0, 50]})
    assert verdict.holds is False and verdict.condition is False and not verdict.fires and verdict.held == 0
    with pytest.raises(lull.UsageError):
        rule.feed(1, {"util": [0, 0]})  # time goes backwards


def test_mistakes_are_told_in_the_words_of_the_command_line():
    with pytest.raises(lull.RuleError) as caught:
        lull.Rule("util < 5 fr 30m")
    done = subprocess.run([BUILD / "lull", "check", "util < 5 fr 30m"], capture_output=True, text=True)
    assert str(caught.value).splitlines()[0] in done.stderr
    rule = lull.Rule("util < 5")
    for values, words in (({"utl": [1]}, "did you mean 'util'"), ({"util": [1, 2]}, "2 samples, there are 1 times"),
                          ({"util": ["x"]}, "is not a number"), ({"util": np.zeros((1, 2, 3))}, "one column per GPU")):
        with pytest.raises(lull.UsageError, match=words):
            rule.evaluate([0.0], values)
    with pytest.raises(lull.UsageError):
        rule.evaluate([1.0, 0.0], {"util": [0, 0]})
    with pytest.raises(lull.UsageError, match="sample 1 has none"):
        rule.evaluate([1.0, float("nan")], {"util": [0, 0]})


def test_a_rule_explains_itself():
    rule = lull.Rule("util < 5 for 30m", arm="util > 50")
    assert "30" in rule.explain() and "Armed by" in rule.explain() and str(rule) == rule.text == "util < 5 for 30m"


def test_without_numpy_it_works_too(script):
    child = script("""
import sys
sys.modules["numpy"] = None   # import fails
import array, lull
answers = lull.Rule("util < 5 for 2s").evaluate(array.array("d", [0, 1, 2, 3]), {"util": array.array("f", [0, 0, 0, 0])})
print(type(answers).__name__, list(answers))
""")
    assert child.finish()[:2] == (0, "array [-1, -1, 1, 1]\n")


def test_a_rule_learns_what_the_card_draws():
    """A T4 that hangs at 58 % of its limit: found by what it drew before, never by what comes later."""
    util = np.repeat([0, 97, 100], [30, 90, 60]).astype(np.float32)
    power = np.repeat([27, 68, 41], [30, 90, 60]).astype(np.float32)
    times = np.arange(len(util), dtype=np.float64) * 10
    rule = "util >= 95 and (learned >= 1m and effort < 45 or learned < 1m and power < 35%) for 5m"
    values = {"util": util, "power": power, "power_limit": np.full(len(util), 70, np.float32)}
    assert [one.index for one in lull.Rule(rule).fires(times, values)] == [150]
    assert lull.Rule(rule, every=10).evaluate(times, values).tolist() == one_by_one(lull.Rule(rule, every=10), times, values)
    values = {"util": util, "power": power}  # without a limit
    assert [one.index for one in lull.Rule(rule).fires(times, values)] == [150]
    late = {"util": np.roll(util, 60), "power": np.roll(power, 60)}
    assert lull.Rule(rule).fires(times, late) == []
    assert lull.Rule("effort < 45 for 50s").fires(times, {"effort": power}) != []
    with pytest.raises(lull.UsageError, match="the rule needs 'power'"):
        lull.Rule(rule).fires(times, {"util": util})
    idle = lull.Rule("power < idle+3W for 1m").fires(times, values)
    assert len(idle) == 1 and 7 <= idle[0].index < 15
