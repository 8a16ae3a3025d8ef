#pragma once
// The action `notify`: curl with a message, and its retries. Nothing that follows depends on it, but it comes first
// where it is given first: it takes no longer than its limit.

#include <string>

#include "act/actions.h"

namespace lull {

class SendNotification final : public Action {
 public:
  SendNotification(const Tools& tools, const ActionWord& word, const ActionOptions& options)
      : tools_(tools), text_(word.text), to_(word.notify), options_(options) {}
  const std::string& text() const override { return text_; }
  Result<> prepare() override;
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  bool may_be_repeated() const override { return false; }  // curl does, and minds a server's Retry-After

 private:
  Tools tools_;
  std::string text_;
  NotifyTo to_;
  ActionOptions options_;
};

}  // namespace lull
