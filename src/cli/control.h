#pragma once
// How `lull watch --cancel` reaches a running `lull watch`, also another user's: a socket
// in the abstract namespace, named after the process. It leaves no file behind however
// the watcher ends, and /proc/net/unix lists those there are.

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "loop/loop.h"

namespace lull {

class Control {
 public:
  // `on_cancel` gets who asks ("ada (uid 1000)") and answers in one line.
  static Result<Control> listen(Loop& loop, std::function<std::string(const std::string& who)> on_cancel);
  Control(Control&&) = default;
  Control& operator=(Control&&) = default;
  ~Control() = default;

 private:
  explicit Control(Fd socket) : socket_(std::move(socket)) {}
  Fd socket_;
};

// Asks every watcher on this machine; their answers.
struct Answer {
  std::string watcher;  // its pid
  std::string line;
};
std::vector<Answer> cancel_watchers();

}  // namespace lull
