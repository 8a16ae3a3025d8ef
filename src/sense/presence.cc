#include "sense/presence.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <string_view>

#include "base/text.h"

namespace lull {
namespace {

// The kernel updates the time of a terminal in steps of 8 s: the last key may be
// that much younger than it says.
constexpr double kStep = 8;

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

bool is_number(std::string_view text) { return to_unsigned(text).has_value(); }

// The newest key in one folder of terminals. False: it cannot be looked at.
bool newest_key(const std::string& folder, std::string_view prefix, const PresenceOptions& options, double& newest) {
  const Directory dir(::opendir(folder.c_str()), ::closedir);
  if (!dir) return errno == ENOENT;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix) || !is_number(name.substr(prefix.size()))) continue;
    struct stat info{};
    if (::fstatat(::dirfd(dir.get()), entry->d_name, &info, 0) != 0) continue;  // closed meanwhile
    if (std::ranges::count(options.ignore, info.st_uid) > 0) continue;
    newest =
        std::max(newest, static_cast<double>(info.st_atim.tv_sec) + static_cast<double>(info.st_atim.tv_nsec) / 1e9);
  }
  return true;
}

}  // namespace

double user_idle_seconds(const PresenceOptions& options, const Clock& clock) {
  const double now = std::chrono::duration<double>(clock.wall().time_since_epoch()).count();
  const double since_boot = std::chrono::duration<double>(clock.now().time_since_epoch()).count();
  double newest = now - since_boot;
  const bool seen = newest_key(options.root.dev + "/pts", "", options, newest) &&
                    newest_key(options.root.dev, "tty", options, newest);
  if (!seen) return kUnknown;
  return std::max(0.0, now - newest - kStep);
}

void add_presence(Facts& facts, double user_idle) {
  if (std::isnan(user_idle)) return facts.miss(Metric::user_idle, Absence::no_permission);
  facts.set(Metric::user_idle, user_idle);
}

}  // namespace lull
