#pragma once
// Samples looked at as they come: on a terminal a screen with keys, elsewhere one picture below the other. What
// `lull status --watch` and `lull leases --watch` share.

#include <termios.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "base/result.h"
#include "loop/loop.h"
#include "session/sampling_session.h"
#include "view/live.h"

namespace lull {

// A terminal that is ours for a while: its other buffer, keys without Enter, no cursor. However we leave (q, Ctrl-C,
// TERM, Ctrl-Z), it is as it was before; after Ctrl-Z and fg it is ours again.
class LiveTerminal {
 public:
  // Keys come from `keys`, where that is a terminal on which we are in the foreground; pictures go to `screen`.
  LiveTerminal(Loop& loop, int keys, int screen, std::function<void(const Key&)> on_key);
  LiveTerminal(const LiveTerminal&) = delete;
  LiveTerminal& operator=(const LiveTerminal&) = delete;
  ~LiveTerminal();

  // In one write, over what was there: nothing flickers, and nothing of a longer picture is left.
  Result<> draw(const std::vector<std::string>& lines);
  // Ctrl-Z: gives the terminal back and stops us; returns, with the terminal ours again, when we go on.
  void suspend();

 private:
  void take();
  void give_back();
  void read_keys();

  Loop& loop_;
  int keys_;
  int screen_;
  std::function<void(const Key&)> on_key_;
  std::optional<termios> modes_;
  KeyReader reader_;
  Timer lone_escape_{loop_};
};

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
