#pragma once
// The Determined task that we run in, and the command that ends it. A task is known by its environment, else by what
// Determined leaves in /run/determined/info: a startup hook may see only one of the two.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lull {

struct DeterminedTask {
  std::string type;   // "SHELL", "NOTEBOOK", "TRIAL", …
  std::string id;     // of the task
  std::string trial;  // of the trial, where it is one
};

using Variable = std::function<std::optional<std::string>(const char* name)>;

// Nothing: this is not a Determined task.
std::optional<DeterminedTask> determined_task(const Variable& variable,
                                              const std::string& folder = "/run/determined/info");

// `det shell kill ID`. A trial goes by its own number; what collects garbage cannot be killed.
Result<std::vector<std::string>> determined_kill(const DeterminedTask& task);

}  // namespace lull
