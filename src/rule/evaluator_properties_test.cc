// The laws of judging, for random rules on random series with unknowns and gaps:
//   - the evaluator says what the slow oracle says;
//   - any way of cutting a series into blocks gives the same answers;
//   - replacing readings by unknown only turns answers into unknown (the main invariant);
//   - a firing under unknowns is a firing on a rule that truly holds.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "rule/oracle_test.h"
#include "rule/policy.h"

namespace lull {
namespace {

using oracle::Oracle;
using oracle::Series;
using std::chrono::milliseconds;
using std::chrono::seconds;

// RapidCheck draws the seed; a series of thousands of values comes from that.
std::mt19937_64& source() {
  static std::mt19937_64 random;
  return random;
}
int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(source()); }
template <class T>
T pick(std::initializer_list<T> from) {
  return from.begin()[between(0, static_cast<int>(from.size()) - 1)];
}

// Many small cases for each seed: failures stay readable without shrinking.
template <class Case>
bool check(Case&& one) {
  return rc::check([&](std::uint64_t seed) {
    source().seed(seed);
    for (int i = 0; i < 30; ++i) one();
  });
}

Comparison random_comparison(bool windows) {
  Comparison c{.over = pick({Over::all, Over::all, Over::any, Over::mean, Over::max, Over::min}),
               .metric = pick({Metric::util, Metric::util, Metric::power, Metric::mem_used}),
               .compare = pick({Compare::below, Compare::at_most, Compare::above, Compare::at_least, Compare::equal,
                                Compare::unequal}),
               .limit = static_cast<double>(between(0, 6))};
  if (c.metric == Metric::power && between(0, 1) == 1) {
    c.share = true;
    c.limit = between(0, 4) * 25;
  } else if (c.metric == Metric::power && between(0, 1) == 1) {
    c.over_idle = true;
    c.limit = between(-3, 3);
  }
  if (windows && between(0, 3) == 0) c.window = milliseconds(between(1, 60) * 100);
  return c;
}

NodeId random_node(Rule& rule, int depth, bool windows) {
  const auto add = [&](Node node) {
    rule.nodes.push_back(node);
    return static_cast<NodeId>(rule.nodes.size() - 1);
  };
  switch (depth <= 0 ? 0 : between(0, 7)) {
    case 1:
    case 2: {
      const NodeId left = random_node(rule, depth - 1, windows);
      return add(And{left, random_node(rule, depth - 1, windows)});
    }
    case 3: {
      const NodeId left = random_node(rule, depth - 1, windows);
      return add(Or{left, random_node(rule, depth - 1, windows)});
    }
    case 4: return add(Not{random_node(rule, depth - 1, windows)});
    case 5: {
      const NodeId operand = random_node(rule, depth - 1, windows);
      return add(Held{operand, between(0, 1) == 0 ? Span{.time = milliseconds(between(0, 50) * 100)}
                                                  : Span{.samples = static_cast<std::uint32_t>(between(1, 5))}});
    }
    case 6: {
      const NodeId operand = random_node(rule, depth - 1, windows);
      return add(Each{operand, between(0, 1) == 0});
    }
    default: return add(random_comparison(windows));
  }
}

// Half of all rules end in a `for`, as people's do.
Rule random_rule(bool windows = true) {
  Rule rule;
  const NodeId root = random_node(rule, between(0, 3), windows);
  if (between(0, 1) == 0) rule.nodes.emplace_back(Held{root, Span{.time = milliseconds(between(0, 50) * 100)}});
  rule.text = to_text(rule);
  return rule;
}

// Values are few, so that limits are often met exactly; runs are long, so that streaks complete.
Series random_series(std::size_t samples, std::size_t gpus, int unknown_percent) {
  Series series;
  std::int64_t now = between(-5, 5) * 1'000'000'000LL;
  for (std::size_t i = 0; i < samples; ++i) {
    series.at.emplace_back(Duration(now));
    const int kind = between(0, 19);
    now += (kind == 0 ? between(30, 80) : kind == 1 ? 0 : kind < 5 ? between(1, 30) : 10) * 100'000'000LL;
  }
  series.value.resize(gpus);
  for (auto& gpu : series.value) {
    for (const Metric metric :
         {Metric::util, Metric::power, Metric::power_limit, Metric::mem_used, Metric::idle_power}) {
      if (between(0, 29) == 0) continue;  // never known
      auto& column = gpu[index_of(metric)];
      auto value = static_cast<float>(between(0, 6));
      for (std::size_t i = 0; i < samples; ++i) {
        if (between(0, 5) == 0) value = static_cast<float>(between(0, 6));
        column.push_back(between(0, 99) < unknown_percent ? kUnknownSample : value);
      }
    }
  }
  return series;
}

EvaluatorOptions random_options(std::size_t gpus, WhenMissing missing) {
  return {.gpus = gpus, .interval = seconds(1), .max_gap = milliseconds(between(10, 40) * 100), .missing = missing};
}

std::string picture(const std::vector<Truth>& truths) {
  std::string text;
  for (const Truth t : truths) text += t == Truth::yes ? 'y' : t == Truth::no ? 'n' : '?';
  return text;
}

struct Answered {
  std::vector<Truth> rule;
  std::vector<Truth> condition;
  std::vector<bool> armed;
  std::vector<bool> fires;
};

std::vector<std::size_t> random_cuts(std::size_t samples) {
  std::vector<std::size_t> cuts;
  for (std::size_t at = 0; at < samples;) {
    at += static_cast<std::size_t>(between(1, 3) == 1 ? between(1, 3) : between(1, 130));
    cuts.push_back(std::min(at, samples));
  }
  return cuts;
}

Answered evaluate(const Rule& rule, const EvaluatorOptions& options, const Series& series,
                  const std::vector<std::size_t>& cuts) {
  Evaluator evaluator = Evaluator::compile(rule, options);
  Answered out;
  std::size_t from = 0;
  for (const std::size_t to : cuts) {
    Answers answers;
    Answers condition;
    RC_ASSERT(evaluator.feed(series.blocks(from, to), answers, &condition).has_value());
    for (std::size_t i = 0; i < to - from; ++i) {
      out.rule.push_back(answers[i]);
      out.condition.push_back(condition[i]);
    }
    from = to;
  }
  return out;
}

Answered evaluate(const Policy& policy, const EvaluatorOptions& options, const Series& series,
                  const std::vector<std::size_t>& cuts) {
  PolicyEvaluator evaluator = PolicyEvaluator::compile(policy, options);
  Answered out;
  std::size_t from = 0;
  for (const std::size_t to : cuts) {
    PolicyAnswers answers;
    RC_ASSERT(evaluator.feed(series.blocks(from, to), answers).has_value());
    for (std::size_t i = 0; i < to - from; ++i) {
      out.rule.push_back(answers.rule[i]);
      out.condition.push_back(answers.condition[i]);
      out.armed.push_back(bit(answers.armed, i));
      out.fires.push_back(bit(answers.fires, i));
    }
    from = to;
  }
  return out;
}

void unknown_some(Series& series, int percent) {
  for (auto& gpu : series.value)
    for (auto& column : gpu)
      for (float& value : column)
        if (between(0, 99) < percent) value = kUnknownSample;
}

TEST(EvaluatorProperties, TheEvaluatorSaysWhatTheOracleSays) {
  EXPECT_TRUE(check([] {
    const Rule rule = random_rule();
    const auto gpus = static_cast<std::size_t>(between(1, 4));
    const Series series = random_series(static_cast<std::size_t>(between(1, 70)), gpus, pick({0, 2, 10}));
    const EvaluatorOptions options = random_options(gpus, pick({WhenMissing::unknown, WhenMissing::ignore}));
    const Oracle oracle(rule, options, series);
    std::vector<Truth> rules;
    std::vector<Truth> conditions;
    for (std::size_t i = 0; i < series.samples(); ++i) {
      rules.push_back(oracle.answer(i));
      conditions.push_back(oracle.condition(i));
    }
    const Answered answered = evaluate(rule, options, series, {series.samples()});
    RC_LOG() << rule.text << "\n";
    RC_ASSERT(picture(answered.rule) == picture(rules));
    RC_ASSERT(picture(answered.condition) == picture(conditions));
  }));
}

TEST(EvaluatorProperties, AnyCuttingGivesTheSameAnswers) {
  EXPECT_TRUE(check([] {
    const auto gpus = static_cast<std::size_t>(between(1, 3));
    Policy policy{.idle = random_rule()};
    if (between(0, 1) == 0) policy.arm = random_rule();
    policy.rearm = between(0, 1) == 0;
    const Series series = random_series(static_cast<std::size_t>(between(1, 400)), gpus, pick({0, 2, 10}));
    const EvaluatorOptions options = random_options(gpus, pick({WhenMissing::unknown, WhenMissing::ignore}));
    const Answered whole = evaluate(policy, options, series, {series.samples()});
    const Answered cut = evaluate(policy, options, series, random_cuts(series.samples()));
    std::vector<std::size_t> ones;
    for (std::size_t i = 1; i <= series.samples(); ++i) ones.push_back(i);
    const Answered one_by_one = evaluate(policy, options, series, ones);
    RC_LOG() << policy.idle.text << "\n" << (policy.arm ? policy.arm->text : "") << "\n";
    RC_ASSERT(picture(cut.rule) == picture(whole.rule));
    RC_ASSERT(picture(cut.condition) == picture(whole.condition));
    RC_ASSERT(cut.fires == whole.fires);
    RC_ASSERT(cut.armed == whole.armed);
    RC_ASSERT(picture(one_by_one.rule) == picture(whole.rule));
    RC_ASSERT(one_by_one.fires == whole.fires);
    RC_ASSERT(one_by_one.armed == whole.armed);
  }));
}

// Answers may become unknown; none may turn into its opposite, and none
// that was unknown may become known.
TEST(EvaluatorProperties, UnknownReadingsOnlyMakeAnswersUnknown) {
  EXPECT_TRUE(check([] {
    const Rule rule = random_rule();
    const auto gpus = static_cast<std::size_t>(between(1, 4));
    const Series full = random_series(static_cast<std::size_t>(between(1, 200)), gpus, pick({0, 5}));
    Series less = full;
    unknown_some(less, pick({1, 5, 30}));
    const EvaluatorOptions options = random_options(gpus, WhenMissing::unknown);
    const Answered more = evaluate(rule, options, full, {full.samples()});
    const Answered fewer = evaluate(rule, options, less, {full.samples()});
    RC_LOG() << rule.text << "\n" << picture(more.rule) << "\n" << picture(fewer.rule) << "\n";
    for (std::size_t i = 0; i < full.samples(); ++i) {
      if (fewer.rule[i] != Truth::unknown) RC_ASSERT(fewer.rule[i] == more.rule[i]);
      if (fewer.condition[i] != Truth::unknown) RC_ASSERT(fewer.condition[i] == more.condition[i]);
    }
  }));
}

// Whatever fires with readings missing, would have been right with all of them known.
TEST(EvaluatorProperties, AFiringWithReadingsMissingIsRightWithThemKnown) {
  EXPECT_TRUE(check([] {
    const auto gpus = static_cast<std::size_t>(between(1, 3));
    Policy policy{.idle = random_rule()};
    if (between(0, 1) == 0) policy.arm = random_rule();
    const Series full = random_series(static_cast<std::size_t>(between(1, 200)), gpus, pick({0, 5}));
    Series less = full;
    unknown_some(less, pick({1, 5, 30}));
    const EvaluatorOptions options = random_options(gpus, WhenMissing::unknown);
    const Answered more = evaluate(policy, options, full, {full.samples()});
    const Answered fewer = evaluate(policy, options, less, {full.samples()});
    for (std::size_t i = 0; i < full.samples(); ++i) {
      if (!fewer.fires[i]) continue;
      RC_ASSERT(more.rule[i] == Truth::yes);
      RC_ASSERT(more.armed[i]);
    }
  }));
}

// With an arming rule: nothing fires before it has held, and what fires has held for
// its whole span behind the arming sample.
TEST(EvaluatorProperties, APolicyFiresOnceAStretchBehindItsArming) {
  EXPECT_TRUE(check([] {
    const auto gpus = static_cast<std::size_t>(between(1, 2));
    Policy policy{.idle = random_rule(), .arm = random_rule()};
    policy.rearm = between(0, 1) == 0;
    const Series series = random_series(static_cast<std::size_t>(between(1, 60)), gpus, pick({0, 5}));
    const EvaluatorOptions options = random_options(gpus, WhenMissing::unknown);
    const Answered answered = evaluate(policy, options, series, {series.samples()});
    bool armed = false;
    bool in_stretch = false;
    std::size_t judged_from = 0;  // of whichever rule is judged now
    for (std::size_t i = 0; i < series.samples(); ++i) {
      bool fires = false;
      if (!armed) {
        if (Oracle(*policy.arm, options, series, judged_from).answer(i) == Truth::yes) {
          armed = true;
          judged_from = i + 1;
          in_stretch = false;
        }
      } else {
        const Oracle idle(policy.idle, options, series, judged_from);
        const bool yes = idle.answer(i) == Truth::yes;
        if (idle.gap_before(i)) in_stretch = false;
        fires = yes && !in_stretch;
        in_stretch = yes;
        if (fires && policy.rearm) {
          armed = false;
          judged_from = i + 1;
        }
      }
      RC_LOG() << policy.idle.text << " / " << policy.arm->text << (policy.rearm ? " rearm " : " ") << i << " of "
               << series.samples() << " from " << judged_from << "\n";
      RC_ASSERT(answered.fires[i] == fires);
      RC_ASSERT(answered.armed[i] == armed);
    }
  }));
}

TEST(EvaluatorProperties, ARuleParsesBackFromItsText) {
  EXPECT_TRUE(check([] {
    const Rule rule = random_rule();
    const auto again = parse_rule(rule.text);
    RC_LOG() << rule.text << "\n" << (again ? "" : again.error().what) << "\n";
    RC_ASSERT(again.has_value());
    RC_ASSERT(*again == rule);
  }));
}

}  // namespace
}  // namespace lull
