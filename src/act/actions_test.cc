#include "act/actions.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/fd.h"

namespace lull {
namespace {

TEST(LeftInWords, TellsWhoIsStuckFromWhoIsNotOurs) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    for (;;) ::pause();
  }
  std::vector<ProcessEntry> left{*read_process_entry(child)};
  const std::string number = std::to_string(child);
  EXPECT_EQ(processes_left_text(left), number + " (stuck in the kernel)");
  left.push_back(left[0]);
  EXPECT_EQ(processes_left_text(left), number + " " + number + " (stuck in the kernel)");
  EXPECT_EQ(processes_left_text({}), "");

  if (::geteuid() == 0) {
    const pid_t somebody = ::fork();
    if (somebody == 0) {
      if (::setresuid(65534, 65534, 65534) != 0) ::_exit(9);
      left.pop_back();
      ::_exit(processes_left_text(left) == number + " (not ours to end)" ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(somebody, &status, 0), somebody);
    EXPECT_EQ(status, 0);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// What a command does cannot be undone: whether it may be run is asked right before it is started.
TEST(RunCommandTest, ACommandIsStartedOnlyByALeaveOfThisMoment) {
  const SystemClock clock;
  const auto loop = *Loop::create(clock);
  Children children;
  Helpers helpers(*loop, children, false);
  const InheritedSignals signals;
  for (const bool wanted : {true, false}) {
    std::string file = testing::TempDir() + "/ran-XXXXXX";
    const Fd made(::mkstemp(file.data()));
    ::unlink(file.c_str());
    RunCommand command({*loop, helpers, signals},
                       {.text = "exec=…", .find = [&] { return std::vector<std::string>{"touch", file}; }});
    ASSERT_TRUE(command.prepare());
    bool holds = false;
    int asked = 0;
    std::optional<Outcome> outcome;
    Action::Leave leave;
    leave.holds = [&] { return holds; };
    leave.again = [&](const std::function<void()>& then) {
      EXPECT_NE(::access(file.c_str(), F_OK), 0);
      ++asked;
      holds = true;
      if (wanted) then();
    };
    command.ask_before_acting(leave);
    command.start({}, [&](const Outcome& how) { outcome = how; }, [](const ActionEvent&) {});
    const Instant limit = clock.now() + std::chrono::seconds(30);
    while (!(wanted ? outcome.has_value() : asked > 0) && clock.now() < limit) {
      loop->in(std::chrono::milliseconds(5), [] {});
      ASSERT_TRUE(loop->turn());
      children.sweep();
    }
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(outcome.has_value(), wanted);
    EXPECT_EQ(::access(file.c_str(), F_OK) == 0, wanted);
    ::unlink(file.c_str());
  }
}

TEST(ActionWords, AnUnknownActionListsThoseThereAre) {
  const auto action = parse_action("xyzzy");
  ASSERT_FALSE(action);
  EXPECT_NE(action.error().message().find("; there are exit, kill=, "), std::string::npos) << action.error().message();
  EXPECT_NE(parse_action("exti").error().message().find("exit"), std::string::npos);
}

TEST(SendNotification, CurlIsToldTheLimitsInWholeSeconds) {
  std::string folder = testing::TempDir() + "/curl-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = std::getenv("PATH");
  std::ofstream(folder + "/curl") << "#!/bin/sh\necho \"$*\" >" << folder << "/arguments\ncat >/dev/null\n";
  std::filesystem::permissions(folder + "/curl", std::filesystem::perms::owner_all);
  ::setenv("PATH", (folder + ":" + path).c_str(), 1);
  const SystemClock clock;
  const auto loop = *Loop::create(clock);
  Children children;
  Helpers helpers(*loop, children, false);
  const InheritedSignals signals;
  ActionOptions options;
  options.retries = 2;
  options.retry_after = std::chrono::milliseconds(1500);
  const auto actions = actions_of(*parse_action("notify=https://ntfy.sh/gpus"), {*loop, helpers, signals}, options);
  ASSERT_EQ(actions.size(), 1U);
  std::optional<Outcome> outcome;
  ASSERT_TRUE(actions[0]->prepare());
  actions[0]->start({}, [&](const Outcome& how) { outcome = how; }, [](const ActionEvent&) {});
  const Instant limit = clock.now() + std::chrono::seconds(30);
  while (!outcome && clock.now() < limit) {
    loop->in(std::chrono::milliseconds(5), [] {});
    ASSERT_TRUE(loop->turn());
    children.sweep();
  }
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_TRUE(outcome && outcome->ok);
  const auto said = read_file(folder + "/arguments");
  ASSERT_TRUE(said);
  EXPECT_NE(said->find("--max-time 10 --retry 2 --retry-delay 2 --retry-max-time 30"), std::string::npos) << *said;
  std::filesystem::remove_all(folder);
}

// What is ended where a job cannot be parked must know who was there before.
TEST(ParkJobTest, ALookIsPassedOnToWhatFollows) {
  class Looks final : public Action {
   public:
    explicit Looks(int& looks) : looks_(looks) {}
    const std::string& text() const override { return text_; }
    void start(const FiringFacts&, Done, Tell) override {}
    void look() override { ++looks_; }

   private:
    int& looks_;
    std::string text_ = "end";
  };
  const SystemClock clock;
  const auto loop = *Loop::create(clock);
  Children children;
  Helpers helpers(*loop, children, false);
  const InheritedSignals signals;
  int looks = 0;
  ParkJob park({*loop, helpers, signals}, "park", {}, park_named(::getpid()), std::make_unique<Looks>(looks));
  park.look();
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace lull
