// Runs the cases of tests/rules/*.txt: a rule, a series, the expected answers. The
// format is explained in tests/rules/README.md; adding a case takes no C++. Each case is
// judged as one block, sample by sample, and in pieces of three.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "rule/oracle_test.h"
#include "rule/policy.h"
#include "tests/places.h"

namespace lull {
namespace {

struct Case {
  std::string name;
  std::map<std::string, std::string> keys;
};

std::vector<std::string> tokens(std::string_view text) {
  std::vector<std::string> out;
  for (const std::string_view word : split(text, ' ')) {
    if (trim(word).empty()) continue;
    const std::size_t times = word.find('*');  // 0*5 is five zeros
    const auto count = times == std::string_view::npos ? 1 : to_unsigned(word.substr(times + 1)).value_or(0);
    for (std::uint64_t i = 0; i < count; ++i) out.emplace_back(word.substr(0, times));
  }
  return out;
}

std::vector<Case> read_cases(const std::filesystem::path& path) {
  std::vector<Case> cases;
  const std::string text = read_file(path.string()).value();
  int line_number = 0;
  bool open = false;
  for (const std::string_view whole : split(text, '\n')) {
    ++line_number;
    const std::string_view line = trim(whole);
    if (line.starts_with("//")) continue;
    if (line.empty()) {
      open = false;
      continue;
    }
    if (!open) cases.push_back({path.filename().string() + ":" + std::to_string(line_number), {}});
    open = true;
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      ADD_FAILURE() << path << ":" << line_number << ": no 'key: value'";
      continue;
    }
    std::string& value = cases.back().keys[std::string(trim(line.substr(0, colon)))];
    value += (value.empty() ? "" : " ") + std::string(trim(line.substr(colon + 1)));
  }
  return cases;
}

class CaseRunner {
 public:
  explicit CaseRunner(Case it) : case_(std::move(it)) {}

  void run() {
    SCOPED_TRACE(case_.name);
    if (case_.keys.contains("error")) {
      const auto rule = parse_rule(take("rule"));
      ASSERT_FALSE(rule.has_value()) << "was expected to be refused";
      EXPECT_NE(rule.error().what.find(take("error")), std::string::npos) << rule.error().what;
      return;
    }
    const std::string arm = take("arm");
    auto policy = Policy::parse(take("rule"), arm.empty() ? std::nullopt : std::optional<std::string_view>(arm));
    ASSERT_TRUE(policy.has_value()) << policy.error().what;
    policy->rearm = take("rearm") == "yes";
    read_series();
    for (const std::size_t piece : {kBlockSamples, std::size_t{1}, std::size_t{3}}) judge(*policy, piece);
    for (const auto& [key, value] : case_.keys) ADD_FAILURE() << "unknown key '" << key << "'";
  }

 private:
  std::string take(const std::string& key) {
    const auto node = case_.keys.extract(key);
    return node.empty() ? std::string() : node.mapped();
  }

  void read_series() {
    const std::string every = take("every");
    options_.interval = parse_duration(every.empty() ? "1s" : every).value();
    if (const std::string gap = take("max_gap"); !gap.empty()) options_.max_gap = parse_duration(gap).value();
    if (take("missing") == "ignore") options_.missing = WhenMissing::ignore;
    want_ = take("want");
    fires_ = take("fires");
    std::erase(want_, ' ');
    std::erase(fires_, ' ');
    const std::size_t samples = want_.size();
    const auto times = tokens(take("at"));
    for (std::size_t i = 0; i < samples; ++i)
      series_.at.emplace_back(times.empty() ? static_cast<std::int64_t>(i) * options_.interval
                                            : parse_duration(times.at(i)).value());
    if (const std::string gpus = take("gpus"); !gpus.empty()) series_.value.resize(to_unsigned(gpus).value());
    std::vector<std::string> used;
    for (const auto& [key, value] : case_.keys) {
      const std::size_t bracket = key.find('[');
      const auto metric = metric_by_name(key.substr(0, bracket));
      if (!metric) continue;
      used.push_back(key);
      const std::size_t gpu =
          bracket == std::string::npos ? 0 : to_unsigned(key.substr(bracket + 1, key.size() - bracket - 2)).value();
      if (series_.value.size() <= gpu) series_.value.resize(gpu + 1);
      auto& column = series_.value[gpu][index_of(*metric)];
      for (const std::string& token : tokens(value))
        column.push_back(token == "?" ? kUnknownSample : static_cast<float>(to_double(token).value()));
      EXPECT_EQ(column.size(), samples) << key << " has not as many values as 'want' has answers";
      column.resize(samples, kUnknownSample);
    }
    for (const std::string& key : used) case_.keys.erase(key);
    options_.gpus = series_.gpus();
  }

  void judge(const Policy& policy, std::size_t piece) {
    PolicyEvaluator evaluator = PolicyEvaluator::compile(policy, options_);
    std::string answered;
    std::string fired;
    for (std::size_t from = 0; from < series_.samples(); from += piece) {
      const std::size_t to = std::min(series_.samples(), from + piece);
      PolicyAnswers answers;
      const auto fed = evaluator.feed(series_.blocks(from, to), answers);
      ASSERT_TRUE(fed.has_value()) << fed.error().what;
      for (std::size_t i = 0; i < to - from; ++i) {
        const Truth truth = answers.rule[i];
        answered += truth == Truth::yes ? 'y' : truth == Truth::no ? 'n' : '?';
        fired += bit(answers.fires, i) ? 'F' : '.';
      }
    }
    EXPECT_EQ(answered, want_) << "in pieces of " << piece;
    if (!fires_.empty()) {
      EXPECT_EQ(fired, fires_) << "in pieces of " << piece;
    }
  }

  Case case_;
  oracle::Series series_;
  EvaluatorOptions options_;
  std::string want_;
  std::string fires_;
};

TEST(TextRules, AnswerAsTheirFilesSay) {
  const std::filesystem::path folder = std::filesystem::path(source_dir()) / "tests" / "rules";
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".txt") continue;
    for (Case& one : read_cases(entry.path())) {
      CaseRunner(std::move(one)).run();
      ++count;
    }
  }
  EXPECT_GE(count, 30U) << "cases went missing";
}

}  // namespace
}  // namespace lull
