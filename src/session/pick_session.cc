#include "session/pick_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "act/spawn.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/users.h"
#include "lease/visibility.h"
#include "sense/select.h"
#include "view/screen.h"

namespace lull {
namespace {

constexpr unsigned kMoreLooks = 3;

bool lacks_time(const Snapshot& snapshot) {
  return std::ranges::any_of(snapshot.readings, [](const Reading& reading) {
    return std::ranges::any_of(std::array{Metric::util, Metric::mem_util, Metric::power},
                               [&](Metric metric) { return reading.why_missing(metric) == Absence::not_covered; });
  });
}

}  // namespace

void SensedPickWorld::open(const PickNeeds& needs) {
  SamplerOptions options;
  options.power = needs.power;
  options.details = needs.details;
  options.openers = needs.openers;
  options.pcie = needs.pcie;
  options.counters = needs.counters;
  options.once = needs.once;
  options.process_info = needs.process_info;
  options.topology = needs.topology;
  options.apart = true;
  options.lists_every = {};  // whoever came a moment ago counts
  sampler_ = senses_.sampler(options, [](const Snapshot&) {});
  sampler_->request(false);
}

// Here and now: the reading of a GPU decides whether it is taken, and there is nothing else to do until then. A call
// that hangs has its time limit, and its value is then unknown. But if only the time since the last sample is missing,
// because this machine was overloaded, another sample has only the moment since then to cover.
void SensedPickWorld::sample(Snapshot& into) {
  sampler_->sample_here(Duration::max());
  for (unsigned more = kMoreLooks; more > 0 && lacks_time(sampler_->newest()); --more)
    sampler_->sample_here(Duration::max());
  into = sampler_->newest();
  users_.identify_in(into);
}

// A lease is of one vendor's GPUs, unless others are named: hardly any program uses two, and one that is made for the
// first finds nothing on another's.
Result<std::vector<std::size_t>> SensedPickWorld::scope(const Inventory& inventory, const PickSettings& settings) {
  std::optional<Vendor> vendor = settings.vendor;
  std::vector<std::size_t> places;
  if (!settings.gpus.empty()) {
    places = TRY(select_devices(settings.gpus, inventory));
  } else {
    if (!vendor && !inventory.devices.empty()) vendor = inventory.devices.front().runtime();
    for (std::size_t i = 0; i < inventory.devices.size(); ++i) places.push_back(i);
  }
  const bool named = !places.empty();
  if (vendor) std::erase_if(places, [&](std::size_t place) { return inventory.devices[place].runtime() != *vendor; });
  if (named && places.empty() && settings.vendor && settings.keep_to_visible)
    return fail(fmt::format("--vendor {}: there is no such GPU {}", to_string(*vendor),
                            settings.gpus.empty() ? "in this machine" : "among those of --gpus"));
  const char* job = std::getenv("SLURM_JOB_ID");
  if (!settings.gpus.empty() || !settings.keep_to_visible || job == nullptr || *job == '\0') return places;
  // In a batch job: those that it was given.
  for (const VisibleOf& one : visible_by_variables(RuntimeVariables::of_this_process(), inventory))
    if (vendor == one.vendor) return one.visible.devices;
  return places;
}

std::string SensedPickWorld::user_name(uid_t user) { return lull::user_name(user); }

std::string SensedPickWorld::command_of(pid_t pid) {
  const auto process = read_process(Root::machine(), pid);
  return process ? printable(process->command_line()) : "";
}

std::string SensedPickWorld::owner_of(pid_t pid) {
  const auto user = process_user(Root::machine(), pid);
  return user ? printable(lull::user_name(*user)) : "";
}

PickResult PickSession::run() {
  take(picker_.begin());
  if (!result_)
    if (const auto ran = loop_.run(); !ran) return std::unexpected(Refusal(ran.error()));
  return result_ ? *std::move(result_) : PickResult(fail("there is nothing to wait for"));
}

void PickSession::take(PickStep step) {
  if (auto* result = std::get_if<PickResult>(&step)) {
    result_ = std::move(*result);
    return loop_.stop();
  }
  sleep_ = std::get<Sleep>(std::move(step));
  if (const auto asleep = sleep(); !asleep) {
    result_ = std::unexpected(Refusal(asleep.error()));
    loop_.stop();
  }
}

Result<> PickSession::sleep() {
  for (const int event : sleep_.events) TRY(loop_.on_ready(event, [this] { wake(); }));
  if (sleep_.until) alarm_.at(*sleep_.until, [this] { wake(); });
  return {};
}

void PickSession::wake() {
  for (const int event : sleep_.events) loop_.forget(event);
  alarm_.cancel();
  take(picker_.go_on());
}

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
    const std::string text = "lull: " + (terminal ? to_string(waiting) : in_short(waiting));
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
  const auto visible = visibility(picked, output.uuid, Root::machine());
  if (!visible) return {kExitFailure, visible.error().message()};
  for (const auto& [name, value] : visible->set) ::setenv(name.c_str(), value.c_str(), 1);
  for (const std::string& name : visible->removed) ::unsetenv(name.c_str());
  if (!picked.locks.empty()) {
    ::setenv("LULL_LEASE", picked.lease.c_str(), 1);
    // Inside the job that lease is looked for where it is, also when there is a /run/lull one day.
    if (const LeasePlace place = LeasePlace::of_environment(); place.alone)
      ::setenv("LULL_LEASES", place.path.c_str(), 1);
    // Without a lease holder the lease still holds for as long as the job keeps what it inherits.
    if (const auto kept = picker.hand_to_lease_holder(picked); !kept && !output.quiet)
      tell(kept.error().message() + "; the lease ends when the command closes it");
    for (const LockedFile& file : picked.locks)
      if (::fcntl(file.fd.get(), F_DUPFD, kFirstInherited) < 0 && ::fcntl(file.fd.get(), F_SETFD, 0) < 0)
        return {kExitFailure, fmt::format("pass the lease on to the command: {}", std::strerror(errno))};
  }
  const std::vector<char*> arguments = exec_pointers(settings.command);
  std::fflush(nullptr);
  ::execvp(arguments[0], arguments.data());
  return run_failure(Error{printable(settings.command[0]), errno});
}

}  // namespace lull
