// Waiting for GPUs: events of the lease folder, and one sampler for those who do not use lull.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/pick.h"
#include "cli/screen.h"
#include "view/columns.h"

namespace lull {

namespace {

const SystemClock kClock;

// After a change a GPU may still look busy (its utilisation is a mean over a
// moment): look again soon at first, then once a second.
constexpr Duration kFirstLook = std::chrono::milliseconds(100);
constexpr Duration kLongestLook = std::chrono::seconds(1);

std::string ordinal(std::size_t number) {
  const bool teen = number % 100 / 10 == 1;
  const std::size_t last = number % 10;
  return fmt::format("{}{}", number, teen || last == 0 || last > 3 ? "th" : last == 1 ? "st" : last == 2 ? "nd" : "rd");
}

}  // namespace

PickResult Picker::pick_waiting() {
  const std::optional<Instant> deadline =
      settings_.wait_limit ? std::optional(kClock.now() + *settings_.wait_limit) : std::nullopt;
  const auto failed = [&](const Error& error) {
    clear_place();
    return std::unexpected(Refusal{error.message(), {}, kExitFailure});
  };
  if (const auto told = keeper_->stand_by(); !told) return failed(told.error());
  Duration pause = kFirstLook;
  bool sampled = true;  // the first sample was made just now
  while (true) {
    auto standing = queue_->look();
    if (!standing) return failed(standing.error());
    bool act = sampled;
    bool tempting = false;
    for (const Standing& one : *standing) {
      tempting = tempting || (one.state == Standing::free && !one.spoken_for);
      act = act || (one.state == Standing::ours && one.spoken_for);
    }
    if (tempting && !sampled) judge_again();
    if (act || tempting) {
      const auto done = queue_->turn(chooser());
      if (!done) return failed(done.error());
      if (*done) {
        const auto unfit = unfit_of_kept();
        if (unfit.empty()) {
          clear_place();
          return finished();
        }
        if (const auto given = queue_->give_back(unfit); !given) return failed(given.error());
      }
      standing = queue_->look();
      if (!standing) return failed(standing.error());
    }
    show_place(*standing);

    // Nobody tells when foreign use ends: that has to be looked for.
    bool foreign = false;
    for (std::size_t i = 0; i < standing->size(); ++i)
      foreign = foreign || ((*standing)[i].state != Standing::leased && (*standing)[i].state != Standing::ours &&
                            queue_->candidates()[i].fit == Fit::no);
    std::optional<Instant> next = deadline;
    const Instant look_again = kClock.now() + pause;
    if (foreign) next = next ? std::min(*next, look_again) : look_again;
    if (const auto waited = queue_->wait(next); !waited) return failed(waited.error());
    const Instant now = kClock.now();
    if (deadline && now >= *deadline) {
      clear_place();
      const auto last = queue_->look();
      Refusal late = refusal(last ? *last : std::vector<Standing>());
      late.what = fmt::format("waited {} for {} GPU{}; {}", format_duration(*settings_.wait_limit), settings_.count,
                              settings_.count == 1 ? "" : "s", late.what);
      late.status = kExitIdle;
      return std::unexpected(std::move(late));
    }
    sampled = foreign && now >= look_again;
    if (sampled) judge_again();
    pause = sampled ? std::min<Duration>(pause * 2, kLongestLook) : kFirstLook;
  }
}

// On a terminal one line that is kept up to date; elsewhere one line, once.
void Picker::show_place(const std::vector<Standing>& standing) {
  if (settings_.quiet) return;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  if (!terminal && !shown_.empty()) return;
  std::string text = fmt::format("lull: waiting for {} GPU{}", settings_.count, settings_.count == 1 ? "" : "s");
  const std::size_t ahead = queue_->ahead().size();
  text += ahead == 0 ? ", next in turn" : fmt::format(", {} in turn", ordinal(ahead + 1));
  const std::size_t kept = queue_->kept().size();
  if (kept > 0) text += fmt::format(", {} collected", kept);
  const Refusal why = refusal(standing);
  for (std::size_t i = 0; i < why.reasons.size(); ++i) text += (i == 0 ? ": " : "; ") + why.reasons[i];
  if (text == shown_) return;
  shown_ = text;
  if (terminal) {
    const Screen screen = screen_of(STDERR_FILENO);
    fmt::print(stderr, "\r{}\x1b[K", fit(for_screen(text, screen), screen.width - 1, screen.utf8));
  } else {
    fmt::print(stderr, "{}\n", text);
  }
  std::fflush(stderr);
}

void Picker::clear_place() {
  if (shown_.empty() || ::isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace lull
