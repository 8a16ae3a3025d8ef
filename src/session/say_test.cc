#include "session/say.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace lull {
namespace {

TEST(SayerTest, ALineOfJsonSaysWhomItIsAbout) {
  const SystemClock clock;
  const Sayer sayer(LogFormat::json, Level::note, clock);
  const Whom job{"job 4711 (python3)", "tree:4711", {"0", "3"}};
  const Whom gpu{"GPU 3", "", {"3"}};
  ::testing::internal::CaptureStderr();
  sayer.say(Level::note, "done", "done", "", &job);
  sayer.say(Level::note, "done", "done", "", &gpu);
  sayer.say(Level::note, "start", "watching");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find(R"x("subject":"job 4711 (python3)","job":"tree:4711","gpus":["0","3"]})x"), std::string::npos);
  EXPECT_NE(text.find(R"("subject":"GPU 3","job":null,"gpus":["3"]})"), std::string::npos);
  EXPECT_NE(text.find(R"("message":"watching"})"), std::string::npos) << "the whole machine is no subject";
}

}  // namespace
}  // namespace lull
