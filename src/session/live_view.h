#pragma once
// Samples looked at as they come: on a terminal a screen with keys, elsewhere one picture below the other. What
// `lull status --watch` and `lull leases --watch` share.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/exit_status.h"
#include "base/result.h"
#include "session/live_terminal.h"
#include "session/sampling_session.h"
#include "view/live.h"

namespace lull {

// What follows --watch; nothing: every second.
Result<Duration> live_interval(const std::string& text);

class LiveView {
 public:
  using Redraw = std::function<std::optional<SessionEnd>()>;

  LiveView(int input, int output) : input_(input), output_(output) {}

  // Until q, Ctrl-C, TERM, or the reader of our pipe is gone. `table`: for people, so on a terminal it is a screen,
  // and `redraw` shows the newest sample anew when a key or the size of the window changed what is to be seen.
  SessionEnd watch(World& world, SamplingSettings settings, bool table, SamplingSession::OnSample show, Redraw redraw);

  bool on_screen() const { return terminal_ != nullptr; }
  std::optional<SessionEnd> draw(const LiveRows& rows, const std::string& heading);  // on the screen
  std::optional<SessionEnd> append(const std::string& text);                         // where there is none

 private:
  SessionEnd watch_on_screen(World& world, SamplingSettings settings, SamplingSession::OnSample show, Redraw redraw);

  int input_;
  int output_;
  std::unique_ptr<LiveTerminal> terminal_;
  LiveScreen screen_;
};

}  // namespace lull
