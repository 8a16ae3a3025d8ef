#include "sense/presence.h"

#include <sys/stat.h>
#include <utmpx.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/process.h"
#include "base/text.h"

namespace lull {
namespace {

// The kernel updates the time of a terminal in steps of 8 s: the last key may be
// that much younger than it says.
constexpr double kStep = 8;

constexpr Duration kLeap = std::chrono::seconds(2);  // that the wall clock was set by; less is a correction

}  // namespace

// When whoever has this terminal last typed.
void Presence::add(int folder, const std::string& name, const std::string& path, Terminals& found) const {
  struct stat info{};
  if (::fstatat(folder, name.c_str(), &info, 0) != 0 || std::ranges::count(options_.ignore, info.st_uid) > 0) return;
  const auto time = [](const timespec& at) {
    return std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec);
  };
  found[path] = {info.st_uid, info.st_rdev, time(info.st_atim), time(info.st_ctim), {}};
}

// The terminals of one folder. False: it cannot be looked at.
bool Presence::add_all(const std::string& folder, std::string_view prefix, Terminals& found) const {
  Directory dir(folder);
  if (!dir) return errno == ENOENT;
  while (const char* entry = dir.next())
    if (const std::string name = entry;
        name.starts_with(prefix) && to_unsigned(std::string_view(name).substr(prefix.size())))
      add(dir.fd(), name, folder + "/" + name, found);
  return dir.error() == 0;
}

// The terminals at which users are logged in. A file that does not exist, or is of another kind, adds none.
void Presence::add_logged_in(Terminals& found) const {
  const Result<std::string> text = options_.utmp.empty() ? fail("") : read_file(options_.utmp);
  for (std::size_t at = 0; text && at + sizeof(utmpx) <= text->size(); at += sizeof(utmpx)) {
    utmpx entry{};
    std::memcpy(&entry, text->data() + at, sizeof entry);
    const std::string line(entry.ut_line, ::strnlen(entry.ut_line, sizeof entry.ut_line));
    if (entry.ut_type != USER_PROCESS || line.empty() || line.find("..") != std::string::npos) continue;
    const std::string path = options_.root.dev + "/" + line;
    add(AT_FDCWD, path, path, found);
  }
}

// Those at which somebody has typed, and that may have been opened before the wall clock was set.
std::set<std::string> Presence::opened_before_leap(const Terminals& found, Duration ahead) const {
  std::set<std::string> doubtful;
  for (const auto& [path, one] : found)
    if (one.noted > one.opened) doubtful.insert(path);
  if (doubtful.empty()) return doubtful;
  for (const ProcessEntry& leader : read_all_processes(options_.root)) {
    if (leader.terminal == 0 || leader.session != leader.pid) continue;
    std::erase_if(doubtful, [&](const std::string& path) {
      const Terminal& one = found.at(path);
      return one.number == leader.terminal &&
             std::chrono::abs(one.opened - since_boot(leader.start_ticks) - ahead) <= kLeap;
    });
  }
  return doubtful;
}

std::optional<std::vector<Typist>> Presence::typists(const Clock& clock) {
  const Instant now = clock.now();
  const Duration wall = clock.wall().time_since_epoch();
  const Duration ahead = wall - now.time_since_epoch();
  const bool leapt = looked_at_ && std::chrono::abs(ahead - wall_ahead_) > kLeap;
  Terminals found;
  if (!add_all(options_.root.dev + "/pts", "", found) || !add_all(options_.root.dev, "tty", found)) return std::nullopt;
  add_logged_in(found);
  const std::set<std::string> doubtful = looked_at_ ? std::set<std::string>() : opened_before_leap(found, ahead);
  // A key that was not there at the previous look is younger than that.
  const Duration oldest = looked_at_ ? now - *looked_at_ : now.time_since_epoch();
  std::map<uid_t, Instant> newest;
  for (auto& [path, one] : found) {
    const auto before = terminals_.find(path);
    if (before != terminals_.end() && before->second.user == one.user && before->second.noted == one.noted)
      one.typed = before->second.typed;
    else
      one.typed = now - (leapt || doubtful.contains(path) ? Duration::zero()
                                                          : std::clamp(wall - one.noted, Duration::zero(), oldest));
    const auto latest = newest.try_emplace(one.user, one.typed).first;
    latest->second = std::max(latest->second, one.typed);
  }
  terminals_ = std::move(found);
  looked_at_ = now;
  wall_ahead_ = ahead;
  std::vector<Typist> those;
  for (const auto& [user, typed] : newest) those.push_back({user, std::max(0.0, to_seconds(now - typed) - kStep)});
  std::ranges::sort(those, {}, &Typist::idle);
  return those;
}

double Presence::user_idle(const Clock& clock) {
  const auto those = typists(clock);
  if (!those) return kUnknown;
  return those->empty() ? std::max(0.0, to_seconds(clock.now().time_since_epoch()) - kStep) : those->front().idle;
}

void add_presence(Facts& facts, double user_idle) {
  if (std::isnan(user_idle)) return facts.miss(Metric::user_idle, Absence::no_permission);
  facts.set(Metric::user_idle, user_idle);
}

}  // namespace lull
