#pragma once
// The action `park`: `lull park` in a process of its own, which goes on should we die, and does what follows where the
// job cannot be parked. What is parked and how: docs/park.md.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "act/action.h"
#include "act/actions.h"
#include "base/process.h"
#include "base/result.h"

namespace lull {

class ParkJob final : public Action {
 public:
  // Who is to be parked, as arguments of `lull park`; asked when it begins. None: there is nobody.
  using Who = std::function<Result<std::vector<std::string>>()>;
  // `otherwise`: what is done where it could not be parked. Null: nothing.
  ParkJob(const Tools& tools, std::string text, ParkOptions options, Who who, std::unique_ptr<Action> otherwise,
          std::function<void(const Process&)> on_start = nullptr)
      : tools_(tools),
        text_(std::move(text)),
        options_(std::move(options)),
        who_(std::move(who)),
        otherwise_(std::move(otherwise)),
        on_start_(std::move(on_start)) {}

  const std::string& text() const override { return text_; }
  Result<> prepare() override;
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  void ask_before_kill(PreKillCheck look) override;
  void ask_before_acting(Leave leave) override;
  bool undo() override { return ends_ && otherwise_->undo(); }
  void look() override;
  bool ends_work() const override { return ends_ && otherwise_->ends_work(); }
  bool may_be_repeated() const override { return false; }

 private:
  void failed(const std::string& trouble, const FiringFacts& facts, const Done& done, const Tell& tell);

  Tools tools_;
  std::string text_;
  ParkOptions options_;
  Who who_;
  std::unique_ptr<Action> otherwise_;
  std::function<void(const Process&)> on_start_;
  Leave leave_;
  bool ends_ = false;  // it could not be parked, and `otherwise` is under way
};

// "PID@START" of a process, with a '+' for all that it started.
std::string park_argument(pid_t pid, std::uint64_t start_ticks, bool with_children);
// Of the process that has this number now: looked up here, once.
ParkJob::Who park_named(pid_t pid);

}  // namespace lull
