#pragma once
// A terminal that is ours for a while: its other buffer, keys without Enter, no cursor. However we leave (q, Ctrl-C,
// TERM, Ctrl-Z), it is as it was before; after Ctrl-Z and fg it is ours again.

#include <termios.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "loop/loop.h"
#include "view/keys.h"

namespace lull {

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
  std::optional<Loop::TimerId> lone_escape_;
};

}  // namespace lull
