// Calls that sleep in D state: SIGKILL does not end them, the end of the fault does.
#include "sim/dstate.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "sim/library/library_test.h"

namespace {

using namespace lull::sim;
using namespace std::chrono_literals;

bool within(std::chrono::seconds limit, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto end = text.rfind(')');
  return end == std::string::npos ? '-' : text[end + 2];
}

bool mounted(const std::string& folder) {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);)
    if (line.find(folder + "/dstate") != std::string::npos) return true;
  return false;
}

class DState : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = start_dstate_server(sim_.folder());
    if (!started) GTEST_SKIP() << started.error().message();
    server_.emplace(std::move(*started));
    ::setenv("LULL_SIM", sim_.folder().c_str(), 1);
  }
  void TearDown() override {
    server_.reset();  // whoever still sleeps is let go
    if (client_ > 0) {
      ::kill(client_, SIGKILL);
      ::waitpid(client_, nullptr, 0);
    }
  }

  void fault(std::int32_t gpu, const char* function = "") {
    Fault fault{.gpu = gpu, .kind = FaultKind::dstate, .from_ns = -1};
    std::string(function).copy(fault.function, sizeof fault.function - 1);
    ASSERT_TRUE(sim_.writer().add_faults({fault}));
  }

  // A program that makes one call about a GPU and exits with its answer.
  void start_client(unsigned gpu) {
    client_ = ::fork();
    if (client_ != 0) return;
    const Library library(kLibrary);
    int code = library.call("nvmlInit_v2");
    Device device = nullptr;
    unsigned power = 0;
    if (code == 0) code = library.call("nvmlDeviceGetHandleByIndex_v2", gpu, &device);
    if (code == 0) code = library.call("nvmlDeviceGetPowerUsage", device, &power);
    ::_exit(code);
  }
  bool sleeps(std::int32_t gpu) {
    return within(10s, [&] { return sleepers(sim_.folder(), gpu) == 1 && state_of(client_) == 'D'; });
  }
  // Its status, or nothing if it does not end.
  std::optional<int> ended(std::chrono::seconds limit = 10s) {
    int status = 0;
    if (!within(limit, [&] { return ::waitpid(client_, &status, WNOHANG) == client_; })) return std::nullopt;
    client_ = -1;
    return status;
  }

  TestSim sim_{std::vector<std::string>{"H100", "T4"}};
  std::optional<FuseServer> server_;
  pid_t client_ = -1;
};

TEST_F(DState, KillDoesNotEndACallUntilTheFaultIsOver) {
  fault(0, "nvmlDeviceGetPowerUsage");
  start_client(0);
  ASSERT_TRUE(sleeps(0)) << state_of(client_);
  ::kill(client_, SIGKILL);
  ::kill(client_, SIGTERM);
  // Whatever happens elsewhere does not wake it either.
  ASSERT_TRUE(sim_.writer().set({{1, Metric::util, 3}}));
  EXPECT_FALSE(ended(2s)) << "SIGKILL ended it";
  EXPECT_EQ(state_of(client_), 'D');
  ASSERT_TRUE(sim_.writer().clear_faults(0));
  const auto status = ended();
  ASSERT_TRUE(status);
  EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL);
}

TEST_F(DState, AnUnharmedCallAnswersAsUsualAfterwards) {
  fault(kWholeDriver, "nvmlInit*");
  start_client(1);
  ASSERT_TRUE(sleeps(kWholeDriver));
  ASSERT_TRUE(sim_.writer().clear());
  const auto status = ended();
  ASSERT_TRUE(status);
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
}

TEST_F(DState, OtherGpusAnswer) {
  fault(0);
  start_client(1);
  const auto status = ended();
  ASSERT_TRUE(status);
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
}

TEST_F(DState, TheEndOfTheSimulationLetsGo) {
  fault(1);
  start_client(1);
  ASSERT_TRUE(sleeps(1));
  sim_.writer().close_simulation();
  const auto status = ended();
  ASSERT_TRUE(status);
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == kDriverNotLoaded);
}

TEST_F(DState, NothingIsLeftBehind) {
  fault(0);
  start_client(0);
  ASSERT_TRUE(sleeps(0));
  ::kill(client_, SIGKILL);
  EXPECT_TRUE(mounted(sim_.folder()));
  server_.reset();
  EXPECT_TRUE(ended()) << "killed before, and let go now";
  EXPECT_FALSE(mounted(sim_.folder()));
  struct stat status{};
  EXPECT_NE(::stat((sim_.folder() + "/dstate").c_str(), &status), 0);
}

TEST_F(DState, AKilledServerIsReplaced) {
  server_.reset();
  ASSERT_TRUE(serve_dstate(sim_.folder(), ::getpid()));
  ASSERT_TRUE(serve_dstate(sim_.folder(), ::getpid())) << "served already";
  fault(0);
  start_client(0);
  ASSERT_TRUE(sleeps(0));
  sim_.writer().close_simulation();
  EXPECT_TRUE(ended());
  EXPECT_TRUE(within(10s, [&] { return !mounted(sim_.folder()); })) << "it unmounts by itself";
}

}  // namespace
