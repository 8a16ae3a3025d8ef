#pragma once
// What the completions of shells offer: words that are right in a place, each with what it is.

#include <string>
#include <string_view>
#include <vector>

namespace lull {

struct Offer {
  std::string word;
  std::string what;
};

// `kind`: signals, rules, actions, gpus, jobs, leases, users, signal-names. Nothing where that is not known now: a
// person waits for it.
std::vector<Offer> completions(std::string_view kind);

}  // namespace lull
