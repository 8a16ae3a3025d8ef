#include "loop/loop.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/process.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class LoopTest : public testing::Test {
 protected:
  LoopTest() {
    // A test that waits for what never comes fails instead of hanging.
    loop_->in(20s, [this] {
      ADD_FAILURE() << "nothing happened for 20 s";
      loop_->stop();
    });
  }
  SystemClock clock_;
  std::unique_ptr<Loop> loop_ = *Loop::create(clock_);
};

TEST_F(LoopTest, TimersFireInOrderAndNeverEarly) {
  std::vector<int> order;
  const Instant start = loop_->now();
  Instant third{};
  loop_->in(20ms, [&] {
    third = loop_->now();
    order.push_back(3);
    loop_->stop();
  });
  loop_->in(10ms, [&] { order.push_back(2); });
  loop_->in(-1s, [&] { order.push_back(1); });
  const auto cancelled = loop_->in(5ms, [&] { order.push_back(99); });
  loop_->cancel(cancelled);
  ASSERT_TRUE(loop_->run());
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  EXPECT_GE(third - start, 20ms);
}

TEST_F(LoopTest, TimerThatSetsItselfForNowDoesNotStarveDescriptors) {
  const Fd event(::eventfd(1, EFD_CLOEXEC));
  std::function<void()> again = [&] { loop_->in(0s, again); };
  again();
  ASSERT_TRUE(loop_->on_ready(event.get(), [&] { loop_->stop(); }));
  ASSERT_TRUE(loop_->run());
}

TEST_F(LoopTest, HandlerMayForgetItselfAndOthers) {
  const Fd a(::eventfd(1, EFD_CLOEXEC));
  const Fd b(::eventfd(1, EFD_CLOEXEC));
  int calls = 0;
  const auto handler = [&] {
    ++calls;
    loop_->forget(a.get());
    loop_->forget(b.get());
    loop_->in(5ms, [&] { loop_->stop(); });
  };
  ASSERT_TRUE(loop_->on_ready(a.get(), handler));
  ASSERT_TRUE(loop_->on_ready(b.get(), handler));
  ASSERT_TRUE(loop_->run());
  EXPECT_EQ(calls, 1);
}

TEST_F(LoopTest, ReusedDescriptorNumberGetsNoStaleEvent) {
  Fd a(::eventfd(1, EFD_CLOEXEC));
  Fd b(::eventfd(1, EFD_CLOEXEC));
  int stale = 0;
  Fd reused;
  const auto replace = [&](Fd& other) {
    const int number = other.get();
    loop_->forget(number);
    other.reset();
    reused = Fd(::eventfd(0, EFD_CLOEXEC));  // never readable
    ASSERT_EQ(reused.get(), number);
    ASSERT_TRUE(loop_->on_ready(number, [&] { ++stale; }));
    loop_->in(5ms, [&] { loop_->stop(); });
  };
  ASSERT_TRUE(loop_->on_ready(a.get(), [&] {
    loop_->forget(a.get());
    replace(b);
  }));
  ASSERT_TRUE(loop_->on_ready(b.get(), [&] {
    loop_->forget(b.get());
    replace(a);
  }));
  ASSERT_TRUE(loop_->run());
  EXPECT_EQ(stale, 0);
}

TEST_F(LoopTest, SignalsComeAsDataWithTheirSender) {
  pid_t sender = 0;
  ASSERT_TRUE(loop_->on_signals({SIGUSR2}, [&](const signalfd_siginfo& info) {
    sender = static_cast<pid_t>(info.ssi_pid);
    EXPECT_EQ(info.ssi_code, SI_USER);
    loop_->stop();
  }));
  ::kill(::getpid(), SIGUSR2);
  ASSERT_TRUE(loop_->run());
  EXPECT_EQ(sender, ::getpid());
}

TEST_F(LoopTest, EndOfProcessAndChangeOfFileWakeIt) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(3);
  const auto process = Process::open(child);
  ASSERT_TRUE(process);
  bool ended = false;
  ASSERT_TRUE(loop_->on_ready(process->fd(), [&] {
    ended = true;
    loop_->forget(process->fd());
    loop_->stop();
  }));
  ASSERT_TRUE(loop_->run());
  EXPECT_TRUE(ended);
  ::waitpid(child, nullptr, 0);

  char name[] = "/tmp/lull_loop_XXXXXX";
  const Fd file(::mkstemp(name));
  const Fd watch(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(::inotify_add_watch(watch.get(), name, IN_MODIFY), 0);
  ASSERT_TRUE(loop_->on_ready(watch.get(), [&] { loop_->stop(); }));
  ASSERT_TRUE(write_all(file.get(), "x"));
  ASSERT_TRUE(loop_->run());
  ::unlink(name);
}

TEST_F(LoopTest, WakesFromAnotherThread) {
  const Fd event(::eventfd(0, EFD_CLOEXEC));
  ASSERT_TRUE(loop_->on_ready(event.get(), [&] { loop_->stop(); }));
  std::thread other([&] {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(event.get(), &one, sizeof one), 8);
  });
  ASSERT_TRUE(loop_->run());
  other.join();
}

TEST(WarpedLoop, EndsWhenNothingCanHappen) {
  ManualClock clock;
  auto loop = *Loop::create_warped(clock);
  loop->in(24h, [] {});
  ASSERT_TRUE(loop->run());
  EXPECT_EQ(clock.now(), Instant(24h));
}

TEST(WarpedTimer, FiresOnceForTheLastTimeItWasSetTo) {
  ManualClock clock;
  auto loop = *Loop::create_warped(clock);
  std::vector<std::pair<int, Instant>> fired;
  Timer timer(*loop);
  EXPECT_FALSE(timer);
  timer.in(1h, [&] { fired.emplace_back(1, clock.now()); });
  timer.in(2h, [&] {
    EXPECT_FALSE(timer) << "it may be set again from here";
    fired.emplace_back(2, clock.now());
  });
  EXPECT_TRUE(timer);
  ASSERT_TRUE(loop->run());
  EXPECT_EQ(fired, (std::vector<std::pair<int, Instant>>{{2, Instant(2h)}}));
}

TEST(WarpedTimer, NothingFiresOnceItIsGoneOrCancelled) {
  ManualClock clock;
  auto loop = *Loop::create_warped(clock);
  Timer cancelled(*loop);
  cancelled.in(1h, [] { FAIL(); });
  cancelled.cancel();
  {
    Timer(*loop).in(1h, [] { FAIL(); });
  }
  // One that goes from inside of its own call.
  auto last = std::make_unique<Timer>(*loop);
  last->in(2h, [&] { last.reset(); });
  ASSERT_TRUE(loop->run());
  EXPECT_EQ(last, nullptr);
  EXPECT_EQ(clock.now(), Instant(2h));
}

TEST(WarpedLoop, FiresLikeSortedTime) {
  EXPECT_TRUE(rc::check("timers fire in order of time, then of setting", [] {
    ManualClock clock;
    auto loop = *Loop::create_warped(clock);
    const auto delays = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 50));
    std::vector<std::pair<int, std::size_t>> wanted;
    std::vector<std::pair<int, std::size_t>> fired;
    for (std::size_t i = 0; i < delays.size(); ++i) {
      wanted.emplace_back(delays[i], i);
      loop->in(std::chrono::seconds(delays[i]), [&, i] {
        RC_ASSERT(clock.now() == Instant(std::chrono::seconds(delays[i])));
        fired.emplace_back(delays[i], i);
      });
    }
    std::ranges::sort(wanted);
    RC_ASSERT(loop->run().has_value());
    RC_ASSERT(fired == wanted);
  }));
}

}  // namespace
}  // namespace lull
