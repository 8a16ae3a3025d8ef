#include "rule/fitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <variant>

#include "rule/reason.h"

namespace lull {
namespace {

constexpr double kPhantom = 5;     // %: an idle program may read so much on RDNA, or 100
constexpr double kIdleShare = 25;  // % of the power limit: 24 of 203 W where RDNA read 100 %, 191 of 750 on an MI300X

bool wants_little(const Comparison& it) { return it.compare == Compare::below || it.compare == Compare::at_most; }
bool wants_much(const Comparison& it) { return it.compare == Compare::above || it.compare == Compare::at_least; }
// An idle program on RDNA may read more than this asks for.
bool is_narrow(const Comparison& it) { return it.metric == Metric::util && it.limit <= kPhantom && wants_little(it); }

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

// What a rule says, without the comparisons that are left out; nothing: nothing is left.
class Without {
 public:
  Without(const Rule& rule, const std::vector<bool>& left_out) : rule_(rule), left_out_(left_out) {}
  std::optional<Rule> result() {
    if (!copy(rule_.root())) return std::nullopt;
    made_.for_hangs = rule_.for_hangs;
    made_.text = to_text(made_);
    return std::move(made_);
  }

 private:
  std::optional<NodeId> add(Node node) {
    made_.nodes.push_back(node);
    return made_.root();
  }
  template <class Joint>
  std::optional<NodeId> join(const Joint& it) {
    const auto left = copy(it.left);
    const auto right = copy(it.right);
    if (left && right) return add(Joint{*left, *right});
    return left ? left : right;
  }
  std::optional<NodeId> copy(NodeId id) {
    const Node& node = rule_[id];
    if (const auto* both = std::get_if<And>(&node)) return join(*both);
    if (const auto* either = std::get_if<Or>(&node)) return join(*either);
    if (std::holds_alternative<Comparison>(node)) return left_out_[id] ? std::nullopt : add(node);
    if (const auto* negated = std::get_if<Not>(&node)) {
      const auto operand = copy(negated->operand);
      return operand ? add(Not{*operand}) : std::nullopt;
    }
    if (const auto* held = std::get_if<Held>(&node)) {
      const auto operand = copy(held->operand);
      return operand ? add(Held{*operand, held->span}) : std::nullopt;
    }
    const auto& each = std::get<Each>(node);
    const auto operand = copy(each.operand);
    return operand ? add(Each{*operand, each.all}) : std::nullopt;
  }

  const Rule& rule_;
  const std::vector<bool>& left_out_;
  Rule made_;
};

// Memory and those who hold it do not say whether a card works.
bool is_of_work(Metric metric) {
  using enum Metric;
  constexpr std::array kHeld = {mem_used, mem_free, mem_total, procs, openers};
  return std::ranges::find(kHeld, metric) == kHeld.end();
}

// A rule whose comparisons are put in terms of other signals, one at a time.
class Fitting {
 public:
  explicit Fitting(const Rule& rule) : rule_(rule), left_out_(rule.nodes.size()) {}

  // `others`: what may be compared instead, the likeliest first. A signal that the rule compares already is not
  // compared twice: it stands for both where both are asked together and alike. False: nothing would do.
  bool put(NodeId id, std::span<const Metric> others) {
    const Comparison was = std::get<Comparison>(rule_[id]);
    // Much of one and little of another is how a hang looks: there nothing stands for the other.
    const auto contradicts = [&](NodeId, const Comparison& one) { return is_of_work(one.metric) && wants_little(one); };
    if (wants_much(was) && is_of_work(was.metric) && is_any(id, contradicts)) return false;
    for (const Metric metric : others) {
      const auto compares_it = [&](NodeId, const Comparison& one) { return one.metric == metric; };
      const auto now = is_any(id, compares_it) ? std::nullopt : in_terms_of(was, metric);
      if (!now) continue;
      rule_.nodes[id] = *now;
      return true;
    }
    const auto stands_for_it = [&](NodeId at, const Comparison& one) {
      const bool alike = (wants_little(was) && wants_little(one)) || (wants_much(was) && wants_much(one));
      return alike && std::ranges::find(others, one.metric) != others.end() && one.over == was.over &&
             one.window == was.window && conjunction_of(at) == conjunction_of(id);
    };
    return left_out_[id] = is_any(id, stands_for_it);
  }
  Rule result() const { return Without(rule_, left_out_).result().value_or(rule_); }

 private:
  // Of the other comparisons.
  template <class Is>
  bool is_any(NodeId id, const Is& is) const {
    for (NodeId at = 0; at < rule_.nodes.size(); ++at)
      if (const auto* one = std::get_if<Comparison>(&rule_[at]); one != nullptr && at != id && !left_out_[at])
        if (is(at, *one)) return true;
    return false;
  }
  // The topmost node to which `and` alone leads.
  NodeId conjunction_of(NodeId id) const {
    for (NodeId parent = id + 1; parent < rule_.nodes.size(); ++parent)
      if (const auto* both = std::get_if<And>(&rule_[parent]); both && (both->left == id || both->right == id))
        id = parent;
    return id;
  }

  Rule rule_;
  std::vector<bool> left_out_;
};

}  // namespace

std::optional<Rule> rule_instead(const Rule& rule, bool rdna, const std::function<bool(Metric)>& readable) {
  const auto can_compare = [&](Metric metric, bool share) {
    if (!readable(metric)) return false;
    return !share || !info(metric).whole || readable(*info(metric).whole);
  };
  Fitting other(rule);
  bool changed = false;
  for (NodeId id = 0; id < rule.nodes.size(); ++id) {
    const auto* it = std::get_if<Comparison>(&rule[id]);
    if (it == nullptr || info(it->metric).of != Of::gpu) continue;
    const bool is_unread = !can_compare(it->metric, it->share);
    if (!is_unread && !(rdna && is_narrow(*it))) continue;
    std::vector<Metric> others;
    std::ranges::copy_if(instead_of(it->metric), std::back_inserter(others), [&](Metric metric) {
      if (rdna && metric == Metric::util && wants_little(*it)) return false;
      return can_compare(metric, metric == Metric::power);
    });
    if (!other.put(id, others)) return std::nullopt;
    changed = changed || is_unread;
  }
  if (!changed) return std::nullopt;
  return other.result();
}

bool is_rdna(const Device& device) { return device.idle_looks_hung && device.vendor == Vendor::amd; }

std::vector<std::string> card_notes(const Rule& rule, std::span<const Device> gpus, bool offer) {
  std::vector<Device> rdna;
  std::vector<Device> others;
  for (const Device& device : gpus)
    if (device.idle_looks_hung) (is_rdna(device) ? rdna : others).push_back(device);
  const std::string which = labels(rdna) + (rdna.size() == 1 ? " is an RDNA card" : " are RDNA cards");
  if (rule.for_hangs) {
    std::vector<std::string> notes;
    if (!rdna.empty())
      notes.push_back(which +
                      ", where a program that does nothing may read 100 % as a hang does: the rule `hung` is not used");
    if (!others.empty())
      notes.push_back(
          labels(others) +
          ": `util` of Intel is an upper bound, which may be 100 % at rest as in a hang: the rule `hung` is "
          "not used");
    return notes;
  }
  if (rdna.empty()) return {};
  if (std::ranges::any_of(rule.nodes, [](const Node& one) { return std::holds_alternative<Not>(one); })) return {};
  Fitting other(rule);
  std::string narrow;
  bool fits = true;
  constexpr std::array kPower = {Metric::power};
  for (NodeId id = 0; id < rule.nodes.size(); ++id) {
    const auto* it = std::get_if<Comparison>(&rule[id]);
    if (it == nullptr || !is_narrow(*it)) continue;
    if (narrow.empty()) narrow = to_text(*it);
    fits = other.put(id, kPower) && fits;
  }
  if (narrow.empty()) return {};
  return {
      fmt::format("{}, where a program that does nothing may read 3 to 4 %, or even 100 %: `{}` may never hold there{}",
                  which, narrow, fits && offer ? fmt::format("; `{}` would do", other.result().text) : "")};
}

}  // namespace lull
