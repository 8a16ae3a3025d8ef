// A long line: what those far behind do, and what it costs the others.

#include <gtest/gtest.h>
#include <sys/inotify.h>

#include <list>

#include "base/inotify.h"
#include "lease/folder_test.h"
#include "lease/queue.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class Line : public Lease {
 protected:
  void SetUp() override {
    Lease::SetUp();
    folder_.emplace(folder());
    holder_.emplace(queue());
    ASSERT_TRUE(holder_->take_now(first).value());
  }
  LeaseQueue queue() { return {*folder_, {}, {{"GPU-0", "0", Fit::yes}}, clock_}; }
  void join(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      line_.push_back(queue());
      ASSERT_FALSE(line_.back().turn(first).value());
    }
  }
  static std::vector<std::size_t> first(std::span<const std::size_t> open, std::span<const std::size_t>, std::size_t) {
    return {open.front()};
  }
  // Nothing happens until it wakes up by itself. How long that was.
  Duration sleep_on(LeaseQueue& queue) {
    const Instant now = clock_.now();
    Instant until = now;
    for (int i = 0; i < 3 && until == now; ++i) {  // one who watches begins by looking once more
      until = queue.sleep({}).until.value();
      clock_.advance(until - now);
      EXPECT_TRUE(queue.woken());
      standing_ = must(queue.look());
    }
    return until - now;
  }
  // The tickets that are opened meanwhile.
  template <class Do>
  std::multiset<std::string> opened(Do something) {
    const Fd events(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    EXPECT_GE(::inotify_add_watch(events.get(), folder_->path().c_str(), IN_OPEN), 0);
    something();
    std::multiset<std::string> names;
    each_inotify_event(events.get(), [&](const inotify_event&, std::string_view name) {
      if (name.starts_with(kTicketPrefix)) names.emplace(name);
      return true;
    });
    return names;
  }

  ManualClock clock_;
  std::optional<LeaseFolder> folder_;
  std::optional<LeaseQueue> holder_;
  std::list<LeaseQueue> line_;  // none of them does anything unasked: they are stuck
  std::vector<Standing> standing_;
};

TEST_F(Line, TheFartherBehindTheMoreRarelyItLooksAround) {
  join(41);
  EXPECT_EQ(sleep_on(line_.back()), 20s);
  EXPECT_EQ(sleep_on(*std::next(line_.begin(), 2)), 5s);
}

TEST_F(Line, AFreeGpuThatNobodyComesForDoesNotWakeAllOfThem) {
  join(41);
  holder_.reset();
  EXPECT_EQ(sleep_on(line_.back()), 20s);
  ASSERT_TRUE(standing_[0].claimable());
  EXPECT_EQ(sleep_on(line_.back()), 20s);
  auto& third = *std::next(line_.begin(), 2);
  EXPECT_EQ(sleep_on(third), 5s);
  EXPECT_EQ(sleep_on(third), 1s) << "those near see to it";
}

TEST_F(Line, WhenAllWhoAreNearAreStuckTheNextOnePassesThemOver) {
  join(3);
  holder_.reset();
  const Instant begin = clock_.now();
  do {
    sleep_on(line_.back());
  } while (!standing_[0].open() && clock_.now() - begin < 1h);
  EXPECT_EQ(clock_.now() - begin, 10s);         // one look around, and the time that each has to come
  line_.back().candidates()[0].fit = Fit::yes;  // a new reading
  EXPECT_TRUE(line_.back().turn(first).value());
}

TEST_F(Line, WhileNothingIsFreeNobodyReadsTheWholeLine) {
  join(20);
  EXPECT_LE(opened([&] { sleep_on(line_.back()); }).size(), 4U);
}

TEST_F(Line, NobodyReadsTheTicketsOfThoseBehindIt) {
  join(20);
  auto& tenth = *std::next(line_.begin(), 9);
  holder_.reset();
  const auto names = opened([&] { sleep_on(tenth); });
  EXPECT_GE(names.size(), 9U);
  for (auto behind = std::next(line_.begin(), 10); behind != line_.end(); ++behind)
    EXPECT_FALSE(names.contains(behind->place().ticket));
}

}  // namespace
}  // namespace lull
