// The session's own life: beginning, signals, other settings, the end. What it sees is in session_seeing.cc, what it
// does in session_doing.cc.
#include "fill/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "base/exit_status.h"
#include "base/inotify.h"
#include "base/text.h"
#include "fill/running.h"
#include "fill/status.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstLook = 20s;      // for the first sample: cards may be slow to wake
constexpr Duration kFileSettles = 200ms;  // an editor writes in several steps
constexpr Duration kAfterGrace = 15s;     // then we end, whatever is stuck in the kernel

// Whether the events of a folder are about the file of this name; others may write there all day.
bool tells_of(int events, std::string_view name) {
  bool told = false;
  each_inotify_event(events, [&](const inotify_event& event, std::string_view file) {
    told = told || (event.mask & IN_Q_OVERFLOW) != 0 || file == name;
    return true;
  });
  return told;
}

}  // namespace

FillSession::FillSession(FillSettings settings, FillOptions options, Machine& machine, FillSink& sink)
    : settings_(std::move(settings)),
      options_(std::move(options)),
      machine_(machine),
      loop_(machine.loop()),
      sink_(sink) {}

FillSession::~FillSession() {
  if (opens_ && opens_->descriptor() >= 0) loop_.forget(opens_->descriptor());
  if (lease_events_) loop_.forget(lease_events_.get());
  if (file_events_) loop_.forget(file_events_.get());
  for (const auto* timer : {&reload_timer_, &decide_timer_, &last_timer_, &scan_timer_})
    if (*timer) loop_.cancel(**timer);
}

Result<> FillSession::listen() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&set, number);
  return machine_.listen(set, [this](const signalfd_siginfo& info) { on_signal(info); });
}

SessionEnd FillSession::run() {
  if (const auto listening = listen(); !listening) return {kExitFailure, listening.error().message()};
  scan_ = std::make_unique<OpenerScan>(Root::machine(), settings_.ignore, loop_.clock());
  sights_ = std::make_unique<Sights>(settings_, [this](pid_t pid) { return owns(pid); });
  people_ = std::make_unique<People>(loop_, machine_.helpers(), settings_.people, &machine_.signals());
  make_sampler();
  // What names a GPU that is not there is a mistake of now, not of later.
  if (sampler_->sample_here(kFirstLook)) {
    const Snapshot& first = sampler_->newest();
    if (!first.inventory->devices.empty())
      if (const auto units = units_of(settings_.fillers, *first.inventory); !units)
        return {kExitUsage, "fill: " + units.error().message()};
    if (first.inventory->devices.empty() && first.driver.absence != Absence::none)
      sink_.note(
          Level::warning, "no-gpu",
          fmt::format("no GPU can be read: {}; still looking",
                      first.driver.detail.empty() ? words(first.driver.absence) : printable(first.driver.detail)));
    on_sample(first);
  }
  if (options_.controlled) {
    if (auto control = Control::listen(loop_, ControlOf::fill, [this](const std::string&) { return status(); }))
      control_ = *std::move(control);
    else
      sink_.note(Level::warning, "control", control.error().message());
  }
  watch_leases();
  watch_file();
  ticker_ = std::make_unique<Ticker>(loop_, settings_.every, [this](std::uint64_t) { sampler_->request(false); });
  ticker_->begin();
  const auto ran = loop_.run();
  running_.clear();
  return ran ? end_ : SessionEnd{kExitFailure, ran.error().message()};
}

void FillSession::on_signal(const signalfd_siginfo& info) {
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGCHLD) return;
  if (number == SIGUSR1) return sampler_->let_go();
  // A terminal that goes away says the same as a person who wants other settings; the kernel sends the one.
  if (number == SIGHUP && options_.reload && info.ssi_code != SI_KERNEL) return reload(true);
  begin_to_end(number);
}

void FillSession::begin_to_end(int signal) {
  if (ending_) {
    // Somebody has no patience.
    for (auto& [unit, one] : running_) one->guard->end({.signal = 0, .grace = Duration::zero()});
    return;
  }
  ending_ = true;
  end_.status = 128 + signal;
  ticker_->stop();
  if (decide_timer_) loop_.cancel(*decide_timer_);
  decide_timer_.reset();
  Duration longest{};
  for (const FillerSettings& filler : settings_.fillers) longest = std::max(longest, filler.grace);
  if (filling_) carry_out(filling_->end_all({.kind = Reason::shutting_down}));
  last_timer_ = loop_.in(longest + kAfterGrace, [this] {
    sink_.note(Level::important, "stuck", "some processes of the fillers do not even end by SIGKILL");
    loop_.stop();
  });
  end_if_nothing_is_left();
}

void FillSession::end_if_nothing_is_left() {
  if (ending_ && running_.empty()) loop_.stop();
}

// ---- other settings -------------------------------------------------------------

// The folder is watched, since editors put a new file in the old one's place.
void FillSession::watch_file() {
  if (options_.file.empty()) return;
  file_seen_ = read_file(options_.file).value_or(std::string());
  file_events_ = Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  const auto slash = options_.file.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : options_.file.substr(0, slash);
  if (!file_events_ ||
      ::inotify_add_watch(file_events_.get(), folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR) < 0) {
    file_events_.reset();
    sink_.note(Level::warning, "reload", "that the file changes cannot be seen here: SIGHUP makes lull read it again");
    return;
  }
  (void)loop_.on_ready(file_events_.get(), [this, name = options_.file.substr(slash + 1)] {
    if (!tells_of(file_events_.get(), name) || reload_timer_) return;
    reload_timer_ = loop_.in(kFileSettles, [this] {
      reload_timer_.reset();
      reload(false);
    });
  });
}

void FillSession::reload(bool asked) {
  if (ending_) return;
  const auto text = read_file(options_.file);
  if (!asked && text && *text == file_seen_) return;
  if (text) file_seen_ = *text;
  auto fresh = options_.reload();
  if (fresh && inventory_ && !inventory_->devices.empty())
    if (const auto units = units_of(fresh->fillers, *inventory_); !units) fresh = std::unexpected(units.error());
  if (!fresh)
    return sink_.note(Level::important, "not-reloaded",
                      fmt::format("the settings stay as they were: {}", fresh.error().message()));
  const FillSettings before = std::exchange(settings_, *std::move(fresh));
  if (before.ignore != settings_.ignore)
    scan_ = std::make_unique<OpenerScan>(Root::machine(), settings_.ignore, loop_.clock());
  if (!(before.free == settings_.free)) make_sampler();
  if (!(before.free == settings_.free) || before.ignore != settings_.ignore || before.every != settings_.every) {
    sights_ = std::make_unique<Sights>(settings_, [this](pid_t pid) { return owns(pid); });
    ticker_ = std::make_unique<Ticker>(loop_, settings_.every, [this](std::uint64_t) { sampler_->request(false); });
    ticker_->begin();
  }
  if (!(before.people == settings_.people))
    people_ = std::make_unique<People>(loop_, machine_.helpers(), settings_.people, &machine_.signals());
  sink_.note(Level::note, "reloaded", "the settings were read again");
  if (!filling_) return;
  filling_->set_confirm(settings_.confirm);
  auto units = units_of(settings_.fillers, *inventory_);
  if (units) carry_out(filling_->replace(settings_.fillers, *std::move(units), loop_.now()));
}

std::string FillSession::status() const {
  FillStatus status{.pid = ::getpid(),
                    .way = opens_ ? opens_->way() : OpenWay::none,
                    .rule = to_text(settings_.free),
                    .trouble = newest_.empty() ? "no GPU has been read yet" : ""};
  if (filling_) {
    for (const GpuSight& sight : newest_) status.gpus.push_back(status_of(*filling_, sight, loop_.now()));
    for (GpuStatus& gpu : status.gpus)
      if (gpu.unit)
        if (const auto one = running_.find(*gpu.unit); one != running_.end()) {
          gpu.pid = one->second->guard->pid();
          if (filling_->state(*gpu.unit) == Filling::State::still && !one->second->guard->stands_still())
            gpu.state = "being stopped";
        }
  }
  return to_text(status) + '\0' + to_json(status);
}

}  // namespace lull
