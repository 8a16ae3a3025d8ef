#include "session/logger.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/clock.h"

namespace lull {
namespace {

TEST(LoggerTest, ALineOfJsonSaysWhomItIsAbout) {
  const SystemClock clock;
  const Logger logger(LogFormat::json, Level::note, clock);
  const LogSubject job{"job 4711 (python3)", "tree:4711", {"0", "3"}};
  const LogSubject gpu{"GPU 3", "", {"3"}};
  ::testing::internal::CaptureStderr();
  logger.say(Level::note, "done", "done", "", &job);
  logger.say(Level::note, "done", "done", "", &gpu);
  logger.say(Level::note, "start", "watching");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(R"x("subject":"job 4711 (python3)","job":"tree:4711","gpus":["0","3"]})x"), std::string::npos);
  EXPECT_NE(text.find(R"("subject":"GPU 3","job":null,"gpus":["3"]})"), std::string::npos);
  EXPECT_NE(text.find(R"("message":"watching"})"), std::string::npos) << "the whole machine is no subject";
}

std::string said_in_text(std::string_view text, bool live = false) {
  const SystemClock clock;
  Logger logger(LogFormat::text, Level::note, clock);
  logger.set_live(live);
  ::testing::internal::CaptureStderr();
  logger.say(Level::note, "done", text, R"({"a":1})");
  logger.say(Level::debug, "done", "not to be heard");
  return ::testing::internal::GetCapturedStderr();
}

TEST(LoggerTest, OnlyTheFirstOfSeveralLinesSaysWhoSpeaks) {
  const std::string one = said_in_text("done");
  EXPECT_TRUE(one.ends_with(" lull: done\n")) << one;
  EXPECT_EQ(std::ranges::count(one, '\n'), 1);
  const std::string three = said_in_text("first\n\nlast");
  EXPECT_TRUE(three.ends_with(" lull: first\n  \n  last\n")) << three;
  const std::string ended = said_in_text("first\n");
  EXPECT_TRUE(ended.ends_with(" lull: first\n  \n")) << ended;
  EXPECT_TRUE(said_in_text("").ends_with(" lull: \n"));
}

TEST(LoggerTest, ALiveLineIsClearedFirst) {
  EXPECT_TRUE(said_in_text("done", true).starts_with("\r\x1b[K"));
  EXPECT_FALSE(said_in_text("done").starts_with("\r"));
}

TEST(LoggerTest, DetailsAreInJsonWhereThereAreAny) {
  const SystemClock clock;
  const Logger logger(LogFormat::json, Level::note, clock);
  ::testing::internal::CaptureStderr();
  logger.say(Level::note, "done", "done", R"({"a":1})");
  EXPECT_TRUE(::testing::internal::GetCapturedStderr().ends_with(R"("message":"done","details":{"a":1}})"
                                                                 "\n"));
}

}  // namespace
}  // namespace lull
