#pragma once
// Which rule fits a card: what a vendor's card does not have, or shows otherwise, and what would do there instead.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/snapshot.h"
#include "rule/rule.h"

namespace lull {

// The rule with every comparison of a signal that is not `readable` put in terms of one that is. Nothing: all of it can
// be read, or nothing would do for some of it. A guess at what was meant, to be offered and never used by itself.
// `rdna`: of one (is_rdna), where a rule on little `util` does not help (see card_notes).
std::optional<Rule> rule_instead(const Rule& rule, bool rdna, const std::function<bool(Metric)>& readable);

// AMD's card whose idle may look like a hang.
bool is_rdna(const Device& device);

// What a person should know of the rule on cards where a program that does nothing may read as busy: one line each.
// Nothing where none of these is one. `offer`: with a rule that would do, should all of it be readable.
std::vector<std::string> card_notes(const Rule& rule, std::span<const Device> gpus, bool offer = true);

}  // namespace lull
