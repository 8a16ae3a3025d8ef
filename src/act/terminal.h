#pragma once
// The terminal as it was before a job had it. A job that is killed cannot put back
// what it changed (raw mode, no echo, its own process group in the foreground), so
// whoever kills it does, and the person gets a usable terminal.

#include <sys/types.h>
#include <termios.h>

#include <optional>

#include "base/fd.h"

namespace lull {

class Terminal {
 public:
  // Remembers the controlling terminal if we are in its foreground; else nothing.
  static Terminal remember();
  // There is one, and Ctrl-Z on it stops us and the job together.
  bool has_job_control() const { return static_cast<bool>(tty_); }
  void restore() const;
  // The process group that has it now; 0: nobody knows.
  pid_t foreground() const;
  void give_to(pid_t group) const;

 private:
  Fd tty_;
  std::optional<termios> modes_;
  pid_t foreground_ = 0;
};

// Stops this process as Ctrl-Z would, so that the shell that started us notices;
// returns when it goes on. Where nobody could let us go on (PID 1, no job control) it does nothing.
void stop_ourselves();

}  // namespace lull
