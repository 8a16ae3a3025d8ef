#include "fill/people.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "base/process_start.h"
#include "base/text.h"
#include "base/users.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAskEvery = 10s;
constexpr Duration kLoginctlLimit = 3s;
constexpr const char* kSessions = "/run/systemd/sessions";

constexpr Duration kNameLimit = 500ms;    // for one user
constexpr Duration kNamesLimit = 1500ms;  // for all of them

// In a task. Empty: there is no such user.
std::string ask_for_uid(const std::string& name) {
  const passwd* entry = ::getpwnam(name.c_str());
  return entry != nullptr ? std::to_string(entry->pw_uid) : "";
}

// Numbers of sessions that logind has, those on a screen alone.
std::vector<std::string> sessions_on_screens() {
  std::vector<std::string> found;
  Directory folder(kSessions);
  while (const char* name = folder.next()) {
    if (std::string_view(name).contains('.')) continue;
    const auto text = read_file(folder.fd(), name);
    if (text && (text->contains("\nTYPE=x11\n") || text->contains("\nTYPE=wayland\n"))) found.emplace_back(name);
  }
  return found;
}

std::uint64_t monotonic_microseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

}  // namespace

std::vector<GraphicalSession> graphical_sessions(const std::string& text, std::uint64_t now_microseconds) {
  std::vector<GraphicalSession> found;
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
      const auto user = to_unsigned(one["User"]);
      found.push_back({one["Name"], user ? std::optional(static_cast<uid_t>(*user)) : std::nullopt, idle});
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
  std::vector<std::string> names;
  for (const std::string& name : settings_.except_user) {
    if (const auto number = to_unsigned(name))
      left_out_.push_back(static_cast<uid_t>(*number));
    else
      names.push_back(name);
  }
  // Once, and not on the loop: a network directory may take its time, or never answer.
  const auto answers = run_each_with_timeout(
      names.size(), [&](std::size_t i) { return ask_for_uid(names[i]); }, kNameLimit, kNamesLimit);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (const auto user = to_unsigned(answers[i].value_or("")))
      left_out_.push_back(static_cast<uid_t>(*user));
    else
      unknown_.push_back(names[i] + (answers[i] ? ": there is no such user" : ": the name service does not answer"));
  }
  if (settings_.except_self) {
    left_out_.push_back(::getuid());
    // Who became root to start us.
    const char* sudo = std::getenv("SUDO_UID");
    if (const auto user = to_unsigned(sudo != nullptr ? sudo : "")) left_out_.push_back(static_cast<uid_t>(*user));
  }
  presence_.emplace(PresenceOptions{.ignore = left_out_, .utmp = "/run/utmp"});
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
  for (const char* property : {"Name", "User", "Type", "Class", "IdleHint", "IdleSinceHintMonotonic"}) {
    arguments.emplace_back("-p");
    arguments.emplace_back(property);
  }
  asking_ = true;
  helpers_.run({.arguments = arguments, .limit = kLoginctlLimit, .capture = true, .quiet = true, .signals = signals_},
               [this, alive = alive_](const HelperResult& result) {
                 if (!*alive) return;
                 asking_ = false;
                 // Without an answer graphical sessions are unknown: terminals still count.
                 graphical_ =
                     result.ok() ? graphical_sessions(result.output, monotonic_microseconds()) : decltype(graphical_){};
                 graphical_at_ = loop_.now();
               });
}

std::vector<ActivePerson> People::look(std::string& trouble) {
  std::vector<ActivePerson> active;
  if (!settings_.count || settings_.idle <= Duration::zero()) return active;
  const auto seen = presence_->typists(loop_.clock());
  if (!seen) {
    trouble = "the terminals cannot be looked at";
    return active;
  }
  for (const Typist& one : *seen) {
    const auto idle = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(one.idle));
    if (idle < settings_.idle) active.push_back({user_name(one.user), idle});
  }
  ask_logind();
  for (const auto& [name, user, idle] : graphical_) {
    if (user && std::ranges::count(left_out_, *user) > 0) continue;
    const Duration now = idle ? *idle + (loop_.now() - graphical_at_) : Duration::zero();
    if (now < settings_.idle) active.push_back({name, now});
  }
  return active;
}

}  // namespace lull
