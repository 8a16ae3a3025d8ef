#include "lease/watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "lease/folder.h"
#include "lease/folder_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// The kernel tells of a close just before it drops the lock. Here that takes as long as the test wants.
class Closing : public Lease {
 protected:
  void SetUp() override {
    Lease::SetUp();
    folder_.emplace(folder());
    held_ = must(folder_->take(must(folder_->enter()), record("GPU-1")));
    watch_.emplace(*folder_, clock_);
    must(watch_->read_all());
    ASSERT_TRUE(watch_->begin());
    settle(*watch_);
    {
      const Fd writer = must(open_at(folder_->descriptor(), held_.file, O_WRONLY));
    }
    look();
  }
  void look() { EXPECT_TRUE(must(watch_->read_events({}))); }
  // Until what may have happened before the watch began is over.
  void settle(FolderWatch& watch) {
    while (const auto due = watch.due()) {
      clock_.advance(*due - clock_.now());
      EXPECT_TRUE(must(watch.read_events({})));
    }
  }
  bool leased() const { return !watch_->state().leases.empty(); }
  void unlock() {
    struct flock range = whole_file(F_UNLCK);
    EXPECT_EQ(::fcntl(held_.fd.get(), F_OFD_SETLK, &range), 0);
  }

  ManualClock clock_;
  std::optional<LeaseFolder> folder_;
  LockedFile held_;
  std::optional<FolderWatch> watch_;
};

TEST_F(Closing, WhatIsStillLockedIsLookedAtAgainInAMoment) {
  EXPECT_TRUE(leased());
  EXPECT_EQ(watch_->due(), clock_.now() + 200us);
  unlock();
  clock_.advance(199us);
  look();
  EXPECT_TRUE(leased()) << "nobody looks before that";
  clock_.advance(1us);
  look();
  EXPECT_FALSE(leased());
  EXPECT_EQ(watch_->due(), std::nullopt);
}

TEST_F(Closing, EachTimeTwiceAsLateAndNotForEver) {
  Duration pause = 200us;
  const Instant begin = clock_.now();
  while (const auto due = watch_->due()) {
    EXPECT_EQ(*due - clock_.now(), pause);
    clock_.advance(*due - clock_.now());
    look();
    pause = std::min<Duration>(pause * 2, 100ms);
    ASSERT_LT(clock_.now() - begin, 1h);
  }
  EXPECT_TRUE(leased());
  EXPECT_GT(clock_.now() - begin, 30s);
  EXPECT_LT(clock_.now() - begin, 31s);
}

TEST_F(Closing, FileClosedRightBeforeTheWatchBeganIsReadAgain) {
  FolderWatch late(*folder_, clock_);
  ASSERT_TRUE(late.begin());
  must(late.read_all());
  EXPECT_EQ(late.state().leases.size(), 1U);
  unlock();  // its close was reported before anybody watched
  ASSERT_EQ(late.due(), clock_.now() + 200us);
  clock_.advance(200us);
  EXPECT_TRUE(must(late.read_events({})));
  EXPECT_TRUE(late.state().leases.empty());
  const Instant begin = clock_.now();
  settle(late);
  EXPECT_LT(clock_.now() - begin, 1200ms) << "then it rests";
}

TEST_F(Closing, OurOwnFilesAreNotWaitedFor) {
  FolderWatch ours(*folder_, clock_);
  must(ours.read_all());
  ASSERT_TRUE(ours.begin());
  settle(ours);
  {
    const Fd writer = must(open_at(folder_->descriptor(), held_.file, O_WRONLY));
  }
  EXPECT_TRUE(must(ours.read_events({held_.file})));
  EXPECT_EQ(ours.due(), std::nullopt);
}

TEST_F(Closing, OfAFileThatSomebodyMadeHugeOnlyTheBeginningIsRead) {
  const Fd file = must(open_at(folder_->descriptor(), "huge", O_RDWR | O_CREAT, 0600));
  must(write_all(file.get(), std::string(100'000, 'x')));
  EXPECT_EQ(read_start(file.get(), 100'000).size(), 64U << 10);
  EXPECT_EQ(read_start(file.get(), 10).size(), 10U);
  EXPECT_EQ(read_start(file.get(), -1).size(), 0U);
}

}  // namespace
}  // namespace lull
