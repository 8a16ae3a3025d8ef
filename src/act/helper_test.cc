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
      output_ = result.output;
    });
  }
  SystemClock clock_;
  std::unique_ptr<Loop> loop_ = *Loop::create(clock_);
  Children children_;
  std::optional<Helpers> helpers_{std::in_place, *loop_, children_, false};
  int done_ = 0;
  std::string trouble_;
  std::string output_;
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

TEST_F(HelpersTest, WhatItPrintsIsToldWhereThatIsAskedForAndNoMoreThanThat) {
  run({.arguments = {"sh", "-c", "printf 123456789"}, .capture = true, .most_output = 4});
  for (int i = 0; i < 500 && done_ == 0; ++i) pass(20ms);
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(output_, "1234");
}

TEST_F(HelpersTest, OneThatTakesTooLongIsEnded) {
  run({.arguments = {"sleep", "1000"}, .limit = 50ms});
  for (int i = 0; i < 200 && done_ == 0; ++i) pass(20ms);
  EXPECT_EQ(done_, 1);
  EXPECT_NE(trouble_.find("not done after"), std::string::npos) << trouble_;
}

// As srun does with what several nodes say, and its own complaints.
TEST_F(HelpersTest, LinesOfSeveralWritersAtOnceDoNotOverwriteEachOther) {
  constexpr std::string_view kWriters =
      "for k in 1 2 3 4; do (i=0; while [ $i -lt 2500 ]; do echo line; i=$((i+1)); done) & done; wait";
  run({.arguments = {"sh", "-c", std::string(kWriters)}, .capture = true, .most_output = 1U << 20U, .quiet = true});
  for (int i = 0; i < 1000 && done_ == 0; ++i) pass(20ms);
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(output_.size(), std::size_t{4} * 2500 * 5);
}

}  // namespace
}  // namespace lull
