#pragma once
// Keeps what was learned of each card (gpu/power_learner.h) in a file per UUID. `effort` says when a job is ended, so a
// file counts only if nobody but us and root can have written it, or put it there: the file is ours, and each folder
// above it is ours or root's and closed to others. What is anything else, or makes no sense, is ignored with one line.

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "gpu/power_learner.h"

namespace lull {

// $LULL_LEARNED (empty: nowhere); in a simulation ($LULL_SIM) a folder of it; root's /var/lib/lull/learned; else
// lull/learned in $XDG_STATE_HOME or ~/.local/state. Empty: there is none.
std::string learned_folder(uid_t user);

class LearnedStore {
 public:
  explicit LearnedStore(std::string folder, uid_t user) : folder_(std::move(folder)), user_(user) {}

  // Nothing: there is none, or it is kept nowhere.
  Result<std::optional<PowerLearner::Learned>> load(const std::string& uuid) const;
  // Replaces the file in one step, unless somebody has learned more there in the meantime.
  Result<> save(const std::string& uuid, const PowerLearner::Learned& learned) const;

  const std::string& folder() const { return folder_; }

 private:
  Result<Fd> open_folder() const;

  std::string folder_;
  uid_t user_;
};

// The file's text. Reading back refuses whatever save() would not have written.
std::string learned_text(const std::string& uuid, const PowerLearner::Learned& learned);
Result<PowerLearner::Learned> parse_learned(std::string_view text, const std::string& uuid);

}  // namespace lull
