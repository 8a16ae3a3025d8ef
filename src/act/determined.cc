#include "act/determined.h"

#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/text.h"

namespace lull {
namespace {

// A string or a whole number, as text; empty where there is none.
std::string text_in(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  return found->is_number_integer() ? found->dump() : std::string();
}

nlohmann::json read_info(const std::string& path) {
  const auto text = read_file(path);
  return text ? nlohmann::json::parse(*text, nullptr, false) : nlohmann::json();
}

// Goes into a command line: nothing but what Determined gives out.
bool plain(const std::string& word) { return !word.starts_with('-') && shell_line({word}) == word; }

}  // namespace

std::optional<DeterminedTask> determined_task(const Variable& variable, const std::string& folder) {
  DeterminedTask task;
  task.type = variable("DET_TASK_TYPE").value_or("");
  task.id = variable("DET_TASK_ID").value_or("");
  task.trial = variable("DET_TRIAL_ID").value_or("");
  if (task.type.empty() || task.id.empty()) {
    const nlohmann::json cluster = read_info(folder + "/cluster.json");
    if (task.type.empty()) task.type = text_in(cluster, "task_type");
    if (task.id.empty()) task.id = text_in(cluster, "task_id");
  }
  if (task.type == "TRIAL" && task.trial.empty()) task.trial = text_in(read_info(folder + "/trial.json"), "trial_id");
  if (task.type.empty() || (task.id.empty() && task.trial.empty())) return std::nullopt;
  return task;
}

Result<std::vector<std::string>> determined_kill(const DeterminedTask& task) {
  if (task.type == "CHECKPOINT_GC") return fail("a Determined task of the type CHECKPOINT_GC cannot be killed");
  const bool trial = task.type == "TRIAL";
  const std::string& id = trial ? task.trial : task.id;
  if (id.empty())
    return fail(trial ? "this Determined task is a trial, and DET_TRIAL_ID does not say which"
                      : "this Determined task has no DET_TASK_ID");
  if (!plain(task.type) || !plain(id))
    return fail("this is not a Determined task: '" + printable(task.type) + "' '" + printable(id) + "'");
  return std::vector<std::string>{"det", lowered(task.type), "kill", id};
}

}  // namespace lull
