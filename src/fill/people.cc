#include "fill/people.h"

#include <dirent.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "base/text.h"
#include "base/users.h"
#include "sense/presence.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAskEvery = 10s;
constexpr Duration kLoginctlLimit = 3s;
constexpr const char* kSessions = "/run/systemd/sessions";

std::optional<uid_t> uid_of(const std::string& name) {
  if (const auto number = to_unsigned(name)) return static_cast<uid_t>(*number);
  const passwd* entry = ::getpwnam(name.c_str());
  return entry != nullptr ? std::optional(entry->pw_uid) : std::nullopt;
}

// Numbers of sessions that logind has, those on a screen alone.
std::vector<std::string> sessions_on_screens() {
  std::vector<std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(kSessions), ::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name.empty() || name[0] == '.' || name.find('.') != std::string::npos) continue;
    const auto text = read_file(std::string(kSessions) + "/" + name);
    if (text &&
        (text->find("\nTYPE=x11\n") != std::string::npos || text->find("\nTYPE=wayland\n") != std::string::npos))
      found.push_back(name);
  }
  return found;
}

std::uint64_t monotonic_microseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

}  // namespace

std::vector<std::pair<std::string, std::optional<Duration>>> graphical_sessions(const std::string& text,
                                                                                std::uint64_t now_microseconds) {
  std::vector<std::pair<std::string, std::optional<Duration>>> found;
  std::map<std::string, std::string, std::less<>> one;
  const auto end_of_one = [&] {
    const std::string type = one["Type"];
    if (!one["Name"].empty() && (type == "x11" || type == "wayland") && one["Class"] != "greeter" &&
        one["Class"] != "manager") {
      std::optional<Duration> idle;
      if (one["IdleHint"] == "yes") {
        const std::uint64_t since = to_unsigned(one["IdleSinceHintMonotonic"]).value_or(now_microseconds);
        idle = std::chrono::microseconds(now_microseconds - std::min(since, now_microseconds));
      }
      found.emplace_back(one["Name"], idle);
    }
    one.clear();
  };
  for (const std::string_view line : split(text, '\n')) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos)
      end_of_one();
    else
      one[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
  }
  end_of_one();
  return found;
}

People::People(Loop& loop, Helpers& helpers, const PeopleSettings& settings, const InheritedSignals* signals)
    : loop_(loop), helpers_(helpers), settings_(settings), signals_(signals) {
  for (const std::string& name : settings_.leave_out)
    if (const auto user = uid_of(name)) left_out_.push_back(*user);
  if (!settings_.leave_out_us) return;
  left_out_.push_back(::getuid());
  // Who became root to start us.
  const char* sudo = std::getenv("SUDO_UID");
  if (const auto user = to_unsigned(sudo != nullptr ? sudo : "")) left_out_.push_back(static_cast<uid_t>(*user));
}

People::~People() { *alive_ = false; }

void People::ask_logind() {
  if (asking_ || (asked_ != Instant::min() && loop_.now() - asked_ < kAskEvery)) return;
  asked_ = loop_.now();
  const std::vector<std::string> sessions = sessions_on_screens();
  if (sessions.empty()) {
    graphical_.clear();
    return;
  }
  std::vector<std::string> arguments = {"loginctl", "show-session"};
  arguments.insert(arguments.end(), sessions.begin(), sessions.end());
  for (const char* property : {"Name", "Type", "Class", "IdleHint", "IdleSinceHintMonotonic"}) {
    arguments.emplace_back("-p");
    arguments.emplace_back(property);
  }
  asking_ = true;
  helpers_.run({.arguments = arguments, .limit = kLoginctlLimit, .capture = true, .quiet = true, .signals = signals_},
               [this, alive = alive_](const HelperResult& result) {
                 if (!*alive) return;
                 asking_ = false;
                 // Where nobody tells, a session on a screen says nothing: terminals still do.
                 graphical_ =
                     result.ok() ? graphical_sessions(result.output, monotonic_microseconds()) : decltype(graphical_){};
                 graphical_at_ = loop_.now();
               });
}

std::vector<ActivePerson> People::look(std::string& trouble) {
  std::vector<ActivePerson> active;
  if (!settings_.count || settings_.idle <= Duration::zero()) return active;
  const auto seen = typists({.ignore = left_out_, .utmp = "/run/utmp"}, loop_.clock());
  if (!seen) {
    trouble = "the terminals cannot be looked at";
    return active;
  }
  for (const Typist& one : *seen) {
    const auto idle = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(one.idle));
    if (idle < settings_.idle) active.push_back({user_name(one.user), idle});
  }
  ask_logind();
  for (const auto& [name, idle] : graphical_) {
    const auto user = uid_of(name);
    if (user && std::ranges::count(left_out_, *user) > 0) continue;
    const Duration now = idle ? *idle + (loop_.now() - graphical_at_) : Duration::zero();
    if (now < settings_.idle) active.push_back({name, now});
  }
  return active;
}

}  // namespace lull
