#include "session/status_session.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "session/fake_world_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(StatusSessionTest, WhoHasTheNumberOfAnEndedProcessIsNotShownAsProven) {
  const Fd output(::memfd_create("status", MFD_CLOEXEC));
  FakeWorld world{Script{}};
  world.context.start_ticks = 1;
  world.loop().in(500ms, [&] { world.send(SIGTERM); });
  StatusSettings settings;
  settings.format = StatusFormat::json;
  settings.every = 1s;
  settings.output = output.get();
  StatusSession session(settings, [](const std::string&) {});
  session.watch(world);
  std::string text(1 << 16, ' ');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(output.get(), text.data(), text.size(), 0))));
  EXPECT_NE(text.find("\"proof\":\"unproven\""), std::string::npos) << text;
  EXPECT_EQ(text.find("\"proof\":\"proven\""), std::string::npos) << text;
}

}  // namespace
}  // namespace lull
