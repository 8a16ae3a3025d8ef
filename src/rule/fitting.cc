#include "rule/fitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "rule/reason.h"

namespace lull {
namespace {

constexpr double kPhantom = 5;     // %: an idle program may read so much on RDNA, or 100
constexpr double kIdleShare = 25;  // % of the power limit: 24 of 203 W where RDNA read 100 %, 191 of 750 on an MI300X

bool wants_little(const Comparison& it) { return it.compare == Compare::below || it.compare == Compare::at_most; }
bool wants_much(const Comparison& it) { return it.compare == Compare::above || it.compare == Compare::at_least; }

// The same of another signal; nothing: no limit of it says so.
std::optional<Comparison> in_terms_of(const Comparison& it, Metric metric) {
  Comparison other = it;
  other.metric = metric;
  other.share = metric == Metric::power;
  other.over_idle = false;
  if (!wants_little(it) && !wants_much(it)) return std::nullopt;
  const bool little = wants_little(it);
  other.compare = little ? Compare::below : Compare::at_least;
  switch (metric) {
    case Metric::util:
    case Metric::mem_util: other.limit = little ? 1 : kPhantom; return other;
    case Metric::power: other.limit = kIdleShare; return other;
    case Metric::procs:
    case Metric::openers: other.limit = 1; return other;
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<Rule> rule_instead(const Rule& rule, const std::function<bool(Metric)>& readable) {
  const auto can_compare = [&](Metric metric, bool share) {
    if (!readable(metric)) return false;
    return !share || !info(metric).whole || readable(*info(metric).whole);
  };
  Rule other = rule;
  bool changed = false;
  for (Node& node : other.nodes) {
    auto* it = std::get_if<Comparison>(&node);
    if (it == nullptr || info(it->metric).of != Of::gpu || can_compare(it->metric, it->share)) continue;
    std::optional<Comparison> found;
    for (const Metric metric : instead_of(it->metric)) {
      if (!found && can_compare(metric, metric == Metric::power)) found = in_terms_of(*it, metric);
    }
    if (!found) return std::nullopt;
    *it = *found;
    changed = true;
  }
  if (!changed) return std::nullopt;
  other.text = to_text(other);
  return other;
}

std::vector<std::string> rdna_notes(const Rule& rule, std::span<const Device> gpus) {
  std::vector<Device> rdna;
  std::ranges::copy_if(gpus, std::back_inserter(rdna), &Device::rdna);
  if (rdna.empty()) return {};
  const std::string which = labels(rdna) + (rdna.size() == 1 ? " is an RDNA card" : " are RDNA cards");
  if (rule.for_hangs)
    return {which + ", where a program that does nothing may read 100 % as a hang does: the rule `hung` is not used"};
  if (std::ranges::any_of(rule.nodes, [](const Node& one) { return std::holds_alternative<Not>(one); })) return {};
  Rule other = rule;
  std::string narrow;
  for (Node& node : other.nodes) {
    auto* it = std::get_if<Comparison>(&node);
    if (it == nullptr || it->metric != Metric::util || it->limit > kPhantom || !wants_little(*it)) continue;
    if (narrow.empty()) narrow = to_text(*it);
    *it = *in_terms_of(*it, Metric::power);
  }
  if (narrow.empty()) return {};
  return {
      fmt::format("{}, where a program that does nothing may read 3 to 4 %, or even 100 %: `{}` may never hold "
                  "there; `{}` would do",
                  which, narrow, to_text(other))};
}

}  // namespace lull
