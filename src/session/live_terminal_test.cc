// On a terminal of its own, by a process that is in its foreground.

#include "session/live_view.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/fd.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr const char* kTaken = "\033[?1049h";
constexpr const char* kGivenBack = "\033[?1049l";

struct Terminal {
  Terminal() {
    int ours = -1;
    int theirs = -1;
    EXPECT_EQ(::openpty(&ours, &theirs, nullptr, nullptr, nullptr), 0);
    master = Fd(ours);
    slave = Fd(theirs);
  }
  // What was written to it so far.
  std::string shown() const {
    std::string text;
    for (pollfd ready{master.get(), POLLIN, 0}; ::poll(&ready, 1, 200) > 0 && (ready.revents & POLLIN) != 0;) {
      char buffer[4096];
      const ssize_t got = ::read(master.get(), buffer, sizeof buffer);
      if (got <= 0) break;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }
  termios modes() const {
    termios modes{};
    EXPECT_EQ(::tcgetattr(slave.get(), &modes), 0);
    return modes;
  }
  Fd master;
  Fd slave;
};

bool reads_lines(const termios& modes) { return (modes.c_lflag & (ICANON | ECHO)) == (ICANON | ECHO); }
bool reads_keys(const termios& modes) {
  return (modes.c_lflag & (ICANON | ECHO)) == 0 && (modes.c_lflag & ISIG) != 0 && modes.c_cc[VMIN] == 0 &&
         modes.c_cc[VTIME] == 0;
}

// 0, or the first line of `check` that was not true.
int in_the_foreground(const Terminal& terminal, const std::function<int(Loop&)>& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setsid() < 0 || ::ioctl(terminal.slave.get(), TIOCSCTTY, 0) != 0) ::_exit(1);
    const SystemClock clock;
    const auto loop = *Loop::create(clock);
    loop->in(20s, [] { ::_exit(2); });
    ::_exit(check(*loop));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(LiveTerminal, KeysComeWithoutEnterAndAllIsAsBeforeAfterwards) {
  const Terminal terminal;
  const int wrong = in_the_foreground(terminal, [&](Loop& loop) {
    std::vector<Key> keys;
    {
      LiveTerminal live(loop, terminal.slave.get(), terminal.slave.get(), [&](const Key& key) {
        keys.push_back(key);
        loop.stop();
      });
      if (!reads_keys(terminal.modes())) return 10;
      if (!write_all(terminal.master.get(), "x") || !loop.run()) return 11;
      if (keys != std::vector<Key>{{KeyKind::text, "x"}}) return 12;
    }
    return reads_lines(terminal.modes()) ? 0 : 13;
  });
  EXPECT_EQ(wrong, 0);
  const std::string shown = terminal.shown();
  EXPECT_LT(shown.find(kTaken), shown.find(kGivenBack));
  EXPECT_NE(shown.find(kGivenBack), std::string::npos);
}

TEST(LiveTerminal, WhileWeAreStoppedItIsGivenBackAndThenOursAgain) {
  const Terminal terminal;
  const int wrong = in_the_foreground(terminal, [&](Loop& loop) {
    ::signal(SIGTTOU, SIG_IGN);
    const pid_t job = ::fork();
    if (job == 0) {
      if (::setpgid(0, 0) != 0 || ::tcsetpgrp(terminal.slave.get(), ::getpid()) != 0) ::_exit(20);
      LiveTerminal live(loop, terminal.slave.get(), terminal.slave.get(), [](const Key&) {});
      if (!reads_keys(terminal.modes())) ::_exit(21);
      live.suspend();
      ::_exit(reads_keys(terminal.modes()) ? 0 : 22);
    }
    int status = 0;
    if (::waitpid(job, &status, WUNTRACED) != job) return 10;
    if (!WIFSTOPPED(status)) return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 11;
    const bool given_back = reads_lines(terminal.modes());
    ::kill(job, SIGCONT);
    if (::waitpid(job, &status, 0) != job) return 12;
    return !given_back ? 13 : WIFEXITED(status) ? WEXITSTATUS(status) : 14;
  });
  EXPECT_EQ(wrong, 0);
  const std::string shown = terminal.shown();
  const std::size_t given = shown.find(kGivenBack);
  ASSERT_NE(given, std::string::npos);
  EXPECT_LT(shown.find(kTaken), given);
  EXPECT_NE(shown.find(kTaken, given), std::string::npos);
}

TEST(LiveTerminal, AnEscapeAloneIsAKeyInAMoment) {
  const Terminal terminal;
  const int wrong = in_the_foreground(terminal, [&](Loop& loop) {
    std::vector<Key> keys;
    LiveTerminal live(loop, terminal.slave.get(), terminal.slave.get(), [&](const Key& key) {
      keys.push_back(key);
      if (keys.size() == 2) loop.stop();
    });
    if (!write_all(terminal.master.get(), "\033[A\033")) return 10;
    if (!loop.run()) return 11;
    return keys == std::vector<Key>{{KeyKind::up, ""}, {KeyKind::escape, ""}} ? 0 : 12;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(LiveTerminal, OnceItIsGivenBackNoKeyIsHeard) {
  const Terminal terminal;
  const int wrong = in_the_foreground(terminal, [&](Loop& loop) {
    int keys = 0;
    {
      LiveTerminal live(loop, terminal.slave.get(), terminal.slave.get(), [&](const Key&) { ++keys; });
      if (!write_all(terminal.master.get(), "\033")) return 10;
      loop.in(Duration::zero(), [&] { loop.stop(); });
      if (!loop.run()) return 11;
    }
    if (!write_all(terminal.master.get(), "y\n")) return 12;
    loop.in(300ms, [&] { loop.stop(); });
    if (!loop.run()) return 13;
    return keys == 0 ? 0 : 14;
  });
  EXPECT_EQ(wrong, 0);
}

// It is not ours to change: whoever is in its foreground reads lines from it.
TEST(LiveTerminal, InTheBackgroundItTakesNoKeys) {
  const Terminal terminal;
  const int wrong = in_the_foreground(terminal, [&](Loop& loop) {
    const pid_t background = ::fork();
    if (background == 0) {
      ::signal(SIGTTOU, SIG_IGN);
      if (::setpgid(0, 0) != 0) ::_exit(20);
      LiveTerminal live(loop, terminal.slave.get(), terminal.slave.get(), [](const Key&) {});
      ::_exit(reads_lines(terminal.modes()) ? 0 : 21);
    }
    int status = 0;
    ::waitpid(background, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 22;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_NE(terminal.shown().find(kTaken), std::string::npos);
}

TEST(LiveTerminal, WithoutATerminalToReadFromItOnlyShows) {
  const Terminal terminal;
  const SystemClock clock;
  const auto loop = *Loop::create(clock);
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  {
    const LiveTerminal live(*loop, null.get(), terminal.slave.get(), [](const Key&) {});
  }
  EXPECT_TRUE(reads_lines(terminal.modes()));
  const std::string shown = terminal.shown();
  EXPECT_NE(shown.find(kTaken), std::string::npos);
  EXPECT_NE(shown.find(kGivenBack), std::string::npos);
}

}  // namespace
}  // namespace lull
