#include "session/trace_session.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "rule/timeline.h"
#include "sense/select.h"

namespace lull {
namespace {

using std::chrono_literals::operator""s;

constexpr Duration kClockSlack = 2s;  // the wall clock may wander so far before we mention it
constexpr int kGapsSaid = 3;

SamplingSettings sampling_of(const TraceSettings& settings) {
  SamplingSettings sampling;
  sampling.sampling.want_only(settings.layout.metrics);
  if (settings.layout.who) sampling.sampling.tenants = sampling.sampling.processes = true;
  sampling.every = settings.every;
  sampling.length = settings.length;
  struct stat status{};
  if (settings.output.empty() && ::fstat(STDOUT_FILENO, &status) == 0 && S_ISFIFO(status.st_mode))
    sampling.reader = STDOUT_FILENO;
  return sampling;
}

std::string driver_words(const DriverState& driver) {
  return driver.detail.empty() ? std::string(words(driver.absence)) : printable(driver.detail);
}

}  // namespace

TraceSession::TraceSession(TraceSettings settings, World& world, Say say)
    : settings_(std::move(settings)),
      say_(std::move(say)),
      sampling_(sampling_of(settings_), world, [this](const Snapshot& snapshot) { return take(snapshot); }) {}

SessionEnd TraceSession::run() {
  SessionEnd end = sampling_.run();
  quiet_ = quiet_ || sampling_.reader_left();
  return end.status == 0 && end.complaint.empty() && log_ ? finish() : end;
}

std::optional<SessionEnd> TraceSession::take(const Snapshot& snapshot) {
  for (const SamplingCosts::Note& note : costs_.see(snapshot, settings_.every)) say_(note.text);
  if (!log_)
    if (auto end = begin(snapshot)) return end;
  return add(snapshot);
}

// The first snapshot tells who is there. No file is made before that is known.
std::optional<SessionEnd> TraceSession::begin(const Snapshot& first) {
  if (first.inventory->devices.empty()) {
    const bool driver = first.driver.absence == Absence::none;
    return SessionEnd{kExitFailure, driver ? "there is no GPU to record" : driver_words(first.driver)};
  }
  if (auto chosen = select_devices(settings_.gpus.empty() ? "all" : settings_.gpus, *first.inventory); !chosen)
    return SessionEnd{kExitUsage, chosen.error().message()};
  auto log = TraceLog::open(settings_.output, settings_.layout);
  if (!log) return SessionEnd{kExitFailure, log.error().message()};
  log_ = *std::move(log);
  if (!log_->note().empty()) say_(log_->note());
  log_->begin(first);
  said_anchor_ = log_->anchor();
  return std::nullopt;
}

void TraceSession::choose(const Snapshot& snapshot) {
  if (snapshot.inventory == inventory_) return;
  inventory_ = snapshot.inventory;
  if (auto chosen = select_devices(settings_.gpus.empty() ? "all" : settings_.gpus, *inventory_)) {
    devices_ = *std::move(chosen);
  } else {
    say_(chosen.error().message());  // the GPU may come back: until then there is nothing to write
    devices_.clear();
  }
}

void TraceSession::mention_oddities(const Snapshot& snapshot) {
  if (last_ && snapshot.at - *last_ > longest_gap(settings_.every) && ++gaps_ <= kGapsSaid)
    say_(fmt::format("no sample for {} before {}{}", format_duration(snapshot.at - *last_),
                     format_rfc3339(WallTime(snapshot.at.time_since_epoch() + log_->anchor())),
                     gaps_ == kGapsSaid ? "; further gaps are only counted" : ""));
  last_ = snapshot.at;
  const Duration anchor = snapshot.wall.time_since_epoch() - snapshot.at.time_since_epoch();
  if (std::chrono::abs(anchor - log_->anchor()) > kClockSlack &&
      std::chrono::abs(anchor - said_anchor_) > kClockSlack) {
    say_(fmt::format("the clock was set by {}; the trace goes on by the old one",
                     format_duration(anchor - log_->anchor())));
    said_anchor_ = anchor;
  }
  if (snapshot.driver.absence != driver_) {
    driver_ = snapshot.driver.absence;
    if (driver_ != Absence::none) say_(driver_words(snapshot.driver) + "; rows are empty until it is back");
  }
}

// An end: there is no going on.
std::optional<SessionEnd> TraceSession::add(const Snapshot& snapshot) {
  choose(snapshot);
  mention_oddities(snapshot);
  whos_.clear();
  if (settings_.layout.who) {
    who_.look(snapshot.at);
    for (const std::size_t i : devices_) whos_.push_back(who_.find(snapshot, i));
  }
  count_ += devices_.size();
  if (const auto put = log_->add(snapshot, devices_, {}, {}, whos_); !put) return failed(put.error());
  return std::nullopt;
}

SessionEnd TraceSession::failed(const Error& error) {
  quiet_ = quiet_ || (settings_.output.empty() && error.errno_value == EPIPE);
  if (quiet_) return {};
  std::string what = error.message();
  if (!settings_.output.empty() &&
      (error.errno_value == ENOSPC || error.errno_value == EFBIG || error.errno_value == EDQUOT))
    what += "; what was written before is whole";
  return {kExitFailure, what};
}

SessionEnd TraceSession::finish() {
  if (quiet_) return {};
  if (const auto closed = log_->close(); !closed) return failed(closed.error());
  if (!settings_.output.empty())
    say_(fmt::format("{} rows of {} GPU{} in {}{}", count_, devices_.size(), devices_.size() == 1 ? "" : "s",
                     printable(settings_.output), gaps_ > 0 ? fmt::format(", {} gaps", gaps_) : ""));
  return {};
}

}  // namespace lull
