#pragma once
// What a watch or a rule fired on, as Python sees it.

#include <memory>

#include "act/facts.h"

namespace lull::python {

struct Firing {
  std::shared_ptr<const FiringFacts> facts;
};

}  // namespace lull::python
