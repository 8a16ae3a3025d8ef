#include "sense/presence.h"

#include <dirent.h>
#include <sys/stat.h>
#include <utmpx.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
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

// When whoever has this terminal last typed.
void add_newest_key(int folder, const char* name, const PresenceOptions& options, std::map<uid_t, double>& newest) {
  struct stat info{};
  if (::fstatat(folder, name, &info, 0) != 0 || std::ranges::count(options.ignore, info.st_uid) > 0) return;
  const double at = static_cast<double>(info.st_atim.tv_sec) + static_cast<double>(info.st_atim.tv_nsec) / 1e9;
  const auto one = newest.try_emplace(info.st_uid, at).first;
  one->second = std::max(one->second, at);
}

// When each user last typed, by the terminals of one folder. False: it cannot be looked at.
bool add_newest_keys(const std::string& folder, std::string_view prefix, const PresenceOptions& options,
                     std::map<uid_t, double>& newest) {
  const Directory dir(::opendir(folder.c_str()), ::closedir);
  if (!dir) return errno == ENOENT;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix) || !is_number(name.substr(prefix.size()))) continue;
    add_newest_key(::dirfd(dir.get()), entry->d_name, options, newest);
  }
  return true;
}

// The terminals that somebody is logged in at. A file that is not there, or is none of that kind, adds nobody.
void add_logged_in(const PresenceOptions& options, std::map<uid_t, double>& newest) {
  const Result<std::string> text = options.utmp.empty() ? fail("") : read_file(options.utmp);
  for (std::size_t at = 0; text && at + sizeof(utmpx) <= text->size(); at += sizeof(utmpx)) {
    utmpx entry{};
    std::memcpy(&entry, text->data() + at, sizeof entry);
    const std::string line(entry.ut_line, ::strnlen(entry.ut_line, sizeof entry.ut_line));
    if (entry.ut_type != USER_PROCESS || line.empty() || line.find("..") != std::string::npos) continue;
    add_newest_key(AT_FDCWD, (options.root.dev + "/" + line).c_str(), options, newest);
  }
}

}  // namespace

std::optional<std::vector<Typist>> typists(const PresenceOptions& options, const Clock& clock) {
  const double now = std::chrono::duration<double>(clock.wall().time_since_epoch()).count();
  const double since_boot = std::chrono::duration<double>(clock.now().time_since_epoch()).count();
  std::map<uid_t, double> newest;
  const bool seen = add_newest_keys(options.root.dev + "/pts", "", options, newest) &&
                    add_newest_keys(options.root.dev, "tty", options, newest);
  if (!seen) return std::nullopt;
  add_logged_in(options, newest);
  std::vector<Typist> found;
  for (const auto& [user, at] : newest)
    found.push_back({user, std::clamp(now - at - kStep, 0.0, std::max(0.0, since_boot - kStep))});
  std::ranges::sort(found, {}, &Typist::idle);
  return found;
}

double user_idle_seconds(const PresenceOptions& options, const Clock& clock) {
  const auto found = typists(options, clock);
  if (!found) return kUnknown;
  const double since_boot = std::chrono::duration<double>(clock.now().time_since_epoch()).count();
  return found->empty() ? std::max(0.0, since_boot - kStep) : found->front().idle;
}

void add_presence(Facts& facts, double user_idle) {
  if (std::isnan(user_idle)) return facts.miss(Metric::user_idle, Absence::no_permission);
  facts.set(Metric::user_idle, user_idle);
}

}  // namespace lull
