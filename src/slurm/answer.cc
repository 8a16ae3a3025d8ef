#include "slurm/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/units.h"
#include "slurm/allocation.h"

namespace lull::slurm {
namespace {

constexpr std::string_view kAnswer = "lull-answer ";
constexpr std::string_view kQuestion = "slurm-ask ";
constexpr std::array<std::string_view, 4> kSays = {"yes", "no", "unknown", "nobody"};
constexpr double kLongest = 1e9;  // seconds

std::optional<Duration> seconds(std::string_view text) {
  const auto number = to_double(text);
  if (!number || !(*number >= 0) || *number > kLongest) return std::nullopt;
  return Duration(static_cast<std::int64_t>(*number * 1e9));
}

std::string seconds_text(Duration time) { return fmt::format("{:.3f}", to_seconds(time)); }

// The first blank-separated word, taken off.
std::string_view take_word(std::string_view& rest) {
  const std::size_t blank = rest.find(' ');
  const std::string_view word = rest.substr(0, blank);
  rest = blank == std::string_view::npos ? std::string_view() : rest.substr(blank + 1);
  return word;
}

}  // namespace

std::string_view to_text(Says says) { return kSays[static_cast<std::size_t>(says)]; }

std::string to_line(const Answer& one) {
  std::string line = fmt::format("{}job={} node={} says={}", kAnswer, one.job, printable(one.node), to_text(one.says));
  if (one.restarts) line += fmt::format(" restarts={}", *one.restarts);
  if (one.gpus) line += fmt::format(" gpus={}", *one.gpus);
  if (!one.numbers.empty()) line += fmt::format(" numbers={}", fmt::join(one.numbers, ","));
  line +=
      fmt::format(" age={} every={} held={}", seconds_text(one.age), seconds_text(one.every), seconds_text(one.held));
  if (one.yes_in) line += " yes_in=" + seconds_text(*one.yes_in);
  // A plain yes of many nodes is to stay short; the word has to be there, since it says that the line is whole.
  return line + " why=" + (one.says == Says::yes ? "" : printable(one.why));
}

std::optional<Answer> read_answer(std::string_view line) {
  if (!line.starts_with(kAnswer)) return std::nullopt;
  line.remove_prefix(kAnswer.size());
  Answer one;
  std::map<std::string_view, std::string_view> values;
  for (std::string_view rest = line; !rest.empty();) {
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view name = rest.substr(0, equals);
    rest.remove_prefix(equals + 1);
    const std::string_view value = name == "why" ? std::exchange(rest, {}) : take_word(rest);
    if (!values.emplace(name, value).second) return std::nullopt;
  }
  const auto job = to_unsigned(values["job"]);
  const auto says = std::ranges::find(kSays, values["says"]);
  const auto age = seconds(values["age"]);
  const auto every = seconds(values["every"]);
  const auto held = seconds(values["held"]);
  if (!job || says == kSays.end() || values["node"].empty() || !age || !every || !held) return std::nullopt;
  if (!values.contains("why")) return std::nullopt;  // the last one: the line was cut off
  one.job = *job;
  one.node = values["node"];
  one.says = static_cast<Says>(says - kSays.begin());
  one.age = *age;
  one.every = *every;
  one.held = *held;
  one.why = values["why"];
  if (values.contains("restarts")) {
    const auto restarts = to_unsigned(values["restarts"]);
    if (!restarts || *restarts > 1'000'000'000) return std::nullopt;
    one.restarts = static_cast<unsigned>(*restarts);
  }
  if (values.contains("gpus")) {
    const auto gpus = to_unsigned(values["gpus"]);
    if (!gpus || *gpus > 1'000'000) return std::nullopt;
    one.gpus = static_cast<unsigned>(*gpus);
  }
  if (values.contains("numbers")) {
    auto numbers = parse_gpu_numbers(values["numbers"]);
    if (!numbers) return std::nullopt;
    one.numbers = *std::move(numbers);
  }
  if (values.contains("yes_in")) {
    one.yes_in = seconds(values["yes_in"]);
    if (!one.yes_in) return std::nullopt;
  }
  return one;
}

std::string to_json(const Answer& one) {
  JsonWriter json;
  json.begin_object().member("job", one.job).member("node", one.node).member("says", to_text(one.says));
  json.member("restarts", one.restarts).member("gpus", one.gpus).member("sample_age_seconds", to_seconds(one.age));
  json.member("interval_seconds", to_seconds(one.every)).member("held_seconds", to_seconds(one.held));
  json.member("yes_in_seconds", one.yes_in ? std::optional(to_seconds(*one.yes_in)) : std::nullopt);
  return json.member("reason", one.why).end_object().take();
}

bool is_fresh(const Answer& one) { return one.every > Duration::zero() && one.age < kFreshIntervals * one.every; }

Agreement agree(std::uint64_t job, unsigned restarts, const std::vector<std::string>& nodes, std::string_view output) {
  Agreement agreement;
  std::map<std::string, Answer> answers;
  const auto refuse = [&](std::string why) {
    if (agreement.why.empty()) agreement.why = std::move(why);
  };
  for (const std::string_view line : split(output, '\n')) {
    auto one = read_answer(trim(line));
    if (!one) continue;  // what else a node prints
    const std::string node = one->node;
    if (one->job != job)
      refuse(fmt::format("{} answers for job {}", node, one->job));
    else if (std::ranges::find(nodes, node) == nodes.end())
      refuse(fmt::format("{} is not a node of the job", node));
    else if (!answers.emplace(node, *std::move(one)).second)
      refuse(fmt::format("{} answers twice", node));
  }
  if (nodes.empty()) refuse("its nodes are not known");
  for (const std::string& node : nodes) {
    const auto found = answers.find(node);
    if (found == answers.end()) {
      refuse(node + " does not answer");
      continue;
    }
    const Answer& one = found->second;
    if (one.yes_in && one.says != Says::yes)
      agreement.again_in = std::max(agreement.again_in.value_or(Duration::zero()), *one.yes_in);
    if (one.says != Says::yes)
      refuse(fmt::format("{} says {}{}{}", node, to_text(one.says), one.why.empty() ? "" : ": ", one.why));
    else if (!is_fresh(one))
      refuse(fmt::format("what {} says is {} old", node, format_duration(one.age)));
    else if (!one.restarts)
      refuse(fmt::format("{} does not know how often the job was restarted", node));
    else if (*one.restarts != restarts)
      refuse(fmt::format("{} has seen {} restarts, not {}", node, *one.restarts, restarts));
  }
  agreement.answers = answers.size();
  agreement.complete = answers.size() == nodes.size();
  for (const std::string& node : nodes) {
    const auto found = answers.find(node);
    if (found == answers.end()) continue;
    const Answer& one = found->second;
    if (agreement.leader.empty() && one.gpus.value_or(0) > 0) agreement.leader = node;
    agreement.complete = agreement.complete && one.gpus == one.numbers.size();
    for (const unsigned number : one.numbers) agreement.judged.emplace_back(node, number);
  }
  agreement.agreed = agreement.why.empty();
  return agreement;
}

std::string to_line(const Question& question) {
  return fmt::format("{}{} {} {}", kQuestion, question.job, question.node, question.rule);
}

std::optional<Question> read_question(std::string_view line) {
  if (!line.starts_with(kQuestion)) return std::nullopt;
  line.remove_prefix(kQuestion.size());
  Question question;
  const auto job = to_unsigned(take_word(line));
  question.node = take_word(line);
  question.rule = line;
  if (!job || question.node.empty()) return std::nullopt;
  question.job = *job;
  return question;
}

}  // namespace lull::slurm
