#pragma once
// The action that ends processes that were seen holding a GPU, `kill=holders`. Who is to end is asked when it
// begins, and each must still be the process that was seen (pid and start time, held by a pidfd from then on). Nobody
// else is touched: no children, no parents, no process group.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "act/action.h"
#include "act/holder.h"
#include "act/tree.h"
#include "base/process.h"
#include "loop/loop.h"

namespace lull {

class EndHolders final : public Action {
 public:
  using Who = std::function<std::vector<Holder>()>;
  EndHolders(Loop& loop, std::string text, Ending::Options options, Who who)
      : loop_(loop), text_(std::move(text)), options_(options), who_(std::move(who)) {}
  ~EndHolders() override;

  const std::string& text() const override { return text_; }
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  void ask_before_kill(LastLook look) override { last_look_ = std::move(look); }
  bool undo() override;  // within the grace: what got the signal has it, SIGKILL does not follow
  void look() override;
  bool ends_work() const override { return true; }

 private:
  void signal_all(int number);
  void step();
  void take_last_look();
  void kill();
  void over();

  Loop& loop_;
  std::string text_;
  Ending::Options options_;
  LastLook last_look_;
  bool asked_ = false;  // for a last look
  Who who_;
  std::vector<Process> left_;
  std::vector<std::string> refused_;  // alive, and not ours to end
  bool killed_ = false;
  Instant next_{};
  std::optional<Loop::TimerId> timer_;
  Done done_;
  Tell tell_;
};

}  // namespace lull
