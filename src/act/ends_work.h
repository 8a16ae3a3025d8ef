#pragma once
// What the actions that end work have in common: until SIGKILL it can be undone, and before SIGKILL somebody is asked
// whether what is to be ended works again.

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "act/action.h"
#include "act/tree.h"
#include "loop/loop.h"

namespace lull {

class EndsWork : public Action {
 public:
  ~EndsWork() override { stop_waiting(); }
  const std::string& text() const override { return text_; }
  void ask_before_kill(LastLook look) override { last_look_ = std::move(look); }
  bool ends_work() const override { return true; }

 protected:
  EndsWork(Loop& loop, std::string text, Ending::Options options)
      : loop_(loop), text_(std::move(text)), options_(options) {}

  bool asks_first() const { return last_look_ && options_.look_before_kill; }
  // `still_waits`: nobody has ended or been killed meanwhile. Who does not work is `kill`ed; of who does it is undone.
  void take_last_look(std::function<bool()> still_waits, std::function<void()> kill);
  void wait_until(Instant at, std::function<void()> then);
  void stop_waiting();

  Loop& loop_;
  const std::string text_;
  const Ending::Options options_;
  Done done_;
  Tell tell_;

 private:
  LastLook last_look_;
  std::optional<Loop::TimerId> timer_;
};

// How long a last look may take before SIGKILL: a driver that hangs saves nobody.
inline constexpr Duration kLongestLastLook = std::chrono::seconds(10);

}  // namespace lull
