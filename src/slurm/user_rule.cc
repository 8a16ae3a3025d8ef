#include "slurm/user_rule.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/text.h"
#include "base/units.h"

namespace lull::slurm {
namespace {

constexpr std::string_view kWord = "lull=";
constexpr std::size_t kLongestText = 64;  // such a text is shown to people
constexpr std::array kThens = {
    std::pair(std::string_view("requeue"), UserRule::Then::requeue),
    std::pair(std::string_view("cancel"), UserRule::Then::cancel),
    std::pair(std::string_view("warn"), UserRule::Then::warn),
};

}  // namespace

Result<UserRule> parse_user_rule(std::string_view text) {
  const std::size_t comma = text.find(',');
  UserRule rule;
  auto time = parse_duration(text.substr(0, std::min(comma, kLongestText)));
  if (!time) return std::unexpected(std::move(time).error());
  rule.time = *time;
  // Shorter than any sample: a slip, such as ms for m.
  if (rule.time < std::chrono::seconds(1))
    return fail(fmt::format("'{}' is too short: 1s at least would be right", printable(text.substr(0, comma))));
  if (comma == std::string_view::npos) return rule;
  const std::string_view then = text.substr(comma + 1);
  for (const auto& [word, meaning] : kThens)
    if (then == word) {
      rule.then = meaning;
      return rule;
    }
  return fail(fmt::format("'{}': requeue, cancel or warn would be right", printable(then.substr(0, kLongestText))));
}

Result<std::optional<UserRule>> user_rule_of(const Allocation& job) {
  const auto parsed = [](std::string_view text, std::string_view from) -> Result<std::optional<UserRule>> {
    auto rule = parse_user_rule(text);
    if (!rule) return std::unexpected(std::move(rule).error().during(from));
    return *rule;
  };
  if (!job.rule.empty()) return parsed(job.rule, "--gpu-idle");
  std::optional<std::string_view> asked;
  std::string_view rest = job.comment;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(" \t\n;"), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!word.starts_with(kWord)) continue;
    if (asked) return fail("its comment has lull= twice");
    asked = word.substr(kWord.size());
  }
  if (!asked) return std::nullopt;
  return parsed(*asked, "lull= in its comment");
}

}  // namespace lull::slurm
