#pragma once
// The action that ends processes that were seen holding a GPU, `kill=holders`. Who is to end is asked when it
// begins, and each must still be the process that was seen (pid and start time, held by a pidfd from then on). Nobody
// else is touched: no children, no parents, no process group.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "act/ends_work.h"
#include "act/holder.h"
#include "base/process.h"

namespace lull {

class EndHolders final : public EndsWork {
 public:
  using Who = std::function<std::vector<Holder>()>;
  EndHolders(Loop& loop, std::string text, Ending::Options options, Who who)
      : EndsWork(loop, std::move(text), options), who_(std::move(who)) {}

  void start(const FiringFacts& facts, Done done, Tell tell) override;
  bool undo() override;  // within the grace: what got the signal has it, SIGKILL does not follow
  void look() override;

 private:
  void signal_all(int number);
  void step();
  void ask();
  void kill();
  void over();

  bool asked_ = false;  // for a last look
  Who who_;
  std::vector<Process> left_;
  std::vector<std::string> refused_;  // alive, and not ours to end
  bool killed_ = false;
  Instant next_{};
};

}  // namespace lull
