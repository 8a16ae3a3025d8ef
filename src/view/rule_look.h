#pragma once
// A rule explained: what it means, what it needs, and what one look at this machine gives of it.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "gpu/snapshot.h"
#include "rule/rule.h"
#include "rule/truth.h"
#include "view/columns.h"

namespace lull {

struct RuleLook {
  Snapshot snapshot;
  std::vector<std::size_t> devices;             // in scope
  Truth now = Truth::unknown;                   // the rule without its outermost `for`
  Facts machine = {};                           // signals of the user's own
  std::map<Metric, std::string> sources = {};   // where they come from
  std::map<Metric, std::string> troubles = {};  // why they are unknown
  bool driver() const { return snapshot.driver.absence == Absence::none; }
};

std::string rule_text(const Rule& rule, const RuleLook& looked, const Screen& screen);
std::string rule_json(const Rule& rule, const RuleLook& looked);

}  // namespace lull
