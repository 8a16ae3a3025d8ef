#include "act/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

namespace lull {

namespace {

// Changing the terminal from the background would stop us.
template <class Change>
void undisturbed(const Change& change) {
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGTTOU);
  ::pthread_sigmask(SIG_BLOCK, &set, &old);
  change();
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

}  // namespace

Terminal Terminal::remember() {
  Terminal terminal;
  Fd tty(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!tty) return terminal;
  terminal.foreground_ = ::tcgetpgrp(tty.get());
  if (terminal.foreground_ != ::getpgrp()) return terminal;
  termios modes{};
  if (::tcgetattr(tty.get(), &modes) == 0) terminal.modes_ = modes;
  terminal.tty_ = std::move(tty);
  return terminal;
}

void Terminal::restore() const {
  if (!tty_) return;
  undisturbed([&] {
    if (::tcgetpgrp(tty_.get()) != foreground_) ::tcsetpgrp(tty_.get(), foreground_);
    if (modes_) ::tcsetattr(tty_.get(), TCSADRAIN, &*modes_);
  });
}

pid_t Terminal::foreground() const {
  const pid_t group = tty_ ? ::tcgetpgrp(tty_.get()) : -1;
  return group > 0 ? group : 0;
}

void Terminal::give_to(pid_t group) const {
  if (tty_ && group > 0) undisturbed([&] { ::tcsetpgrp(tty_.get(), group); });
}

void stop_ourselves() {
  if (::getpid() == 1) return;
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGTSTP);
  ::raise(SIGTSTP);  // waits, since it is blocked
  ::pthread_sigmask(SIG_UNBLOCK, &set, &old);
  // Here we stood still. In an orphaned process group the kernel drops the signal.
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

}  // namespace lull
