#include "session/picking.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "act/spawn.h"
#include "base/fd.h"
#include "base/text.h"
#include "lease/visibility.h"
#include "session/pick_session.h"
#include "view/screen.h"

namespace lull {
namespace {

// Scripts use the low descriptors for themselves; ours start above.
constexpr int kFirstInherited = 100;

class TerminalWorld final : public SensedPickWorld {
 public:
  TerminalWorld(Senses& senses, bool quiet, TellPicker tell)
      : SensedPickWorld(senses), quiet_(quiet), tell_(std::move(tell)) {}

  void warn(const std::string& text) override {
    if (!quiet_) tell_(text);
  }

  // On a terminal one line that is kept up to date; elsewhere one line, once.
  void waits(const Waiting& waiting) override {
    if (quiet_) return;
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    if (!terminal && !shown_.empty()) return;
    const std::string text = "lull: " + (terminal ? to_words(waiting) : in_short(waiting));
    if (text == shown_) return;
    shown_ = text;
    const Screen screen = screen_of(STDERR_FILENO);
    (void)write_all(STDERR_FILENO, terminal
                                       ? "\r" + fit(for_screen(text, screen), screen.width - 1, screen.utf8) + "\x1b[K"
                                       : text + "\n");
  }

  void waits_no_more() override {
    if (!shown_.empty() && ::isatty(STDERR_FILENO) != 0) (void)write_all(STDERR_FILENO, "\r\x1b[K");
  }

 private:
  bool quiet_;
  TellPicker tell_;
  std::string shown_;
};

SessionEnd run_failure(const Error& error) { return {status_of_failed_exec(error), error.message()}; }

}  // namespace

std::unique_ptr<PickWorld> pick_world(Senses& senses, bool quiet, TellPicker tell) {
  return std::make_unique<TerminalWorld>(senses, quiet, std::move(tell));
}

// Before anything is chosen or waited for: a typo should not show after three hours.
std::optional<SessionEnd> cannot_run(const std::string& name) {
  const auto checked = check_executable(name);
  return checked ? std::nullopt : std::optional(run_failure(Error{printable(name), checked.error().errno_value}));
}

SessionEnd run_picked(Picker& picker, const Picked& picked, const PickOutput& output, const TellPicker& tell) {
  const PickSettings& settings = picker.settings();
  for (const auto& [name, value] : visibility(picked, output.uuid, Root::machine()))
    ::setenv(name.c_str(), value.c_str(), 1);
  if (!picked.locks.empty()) {
    ::setenv("LULL_LEASE", picked.lease.c_str(), 1);
    // Inside the job that lease is looked for where it is, also when there is a /run/lull one day.
    if (const LeasePlace place = LeasePlace::of_environment(); place.alone)
      ::setenv("LULL_LEASES", place.path.c_str(), 1);
    // Without a keeper the lease still holds for as long as the job keeps what it inherits.
    if (const auto kept = picker.hand_to_keeper(picked); !kept && !output.quiet)
      tell(kept.error().message() + "; the lease ends when the command closes it");
    for (const LockedFile& file : picked.locks)
      if (::fcntl(file.fd.get(), F_DUPFD, kFirstInherited) < 0 && ::fcntl(file.fd.get(), F_SETFD, 0) < 0)
        return {kExitFailure, fmt::format("pass the lease on to the command: {}", std::strerror(errno))};
  }
  std::vector<char*> arguments;
  for (const std::string& argument : settings.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(arguments[0], arguments.data());
  return run_failure(Error{printable(settings.command[0]), errno});
}

}  // namespace lull
