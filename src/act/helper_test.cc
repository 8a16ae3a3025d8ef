#include "act/children.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using namespace std::chrono_literals;

class HelpersTest : public ::testing::Test {
 protected:
  void pass(Duration time) {
    bool over = false;
    loop_->in(time, [&] { over = true; });
    while (!over) {
      ASSERT_TRUE(loop_->turn());
      children_.sweep();
    }
  }
  void run(const HelperOptions& options) {
    helpers_->run(options, [this](const HelperResult& result) {
      ++done_;
      trouble_ = result.trouble;
    });
  }
  SystemClock clock_;
  std::unique_ptr<Loop> loop_ = *Loop::create(clock_);
  Children children_;
  std::optional<Helpers> helpers_{std::in_place, *loop_, children_, false};
  int done_ = 0;
  std::string trouble_;
};

TEST_F(HelpersTest, WhatIsUnderWayWhenTheyAreDestroyedIsNeverTold) {
  run({.arguments = {"sleep", "1000"}, .limit = 50ms});
  run({.arguments = {"/nowhere/at/all"}});
  run({.arguments = {"true"}, .output_file = "/nowhere/at/all"});
  helpers_.reset();
  pass(150ms);
  EXPECT_EQ(done_, 0);
}

TEST_F(HelpersTest, OneThatCannotBeStartedIsToldOnceAndFromTheLoop) {
  run({.arguments = {"/nowhere/at/all"}});
  EXPECT_EQ(done_, 0);
  pass(20ms);
  EXPECT_EQ(done_, 1);
  EXPECT_NE(trouble_.find("cannot run"), std::string::npos) << trouble_;
}

TEST_F(HelpersTest, OneThatTakesTooLongIsEnded) {
  run({.arguments = {"sleep", "1000"}, .limit = 50ms});
  for (int i = 0; i < 200 && done_ == 0; ++i) pass(20ms);
  EXPECT_EQ(done_, 1);
  EXPECT_NE(trouble_.find("not done after"), std::string::npos) << trouble_;
}

}  // namespace
}  // namespace lull
