// Many clients at once, starting and stopping, forking, while the state changes
// under them and its writers are killed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "sim/library/library_test.h"

namespace {

using namespace lull::sim;

constexpr int kClients = 8;
constexpr int kCycles = 1000;

// One life of a client. False: something answered what it must not.
bool live_once(const Library& library) {
  if (library.call("nvmlInit_v2") != kSuccess) return false;
  bool good = true;
  unsigned count = 0;
  good &= library.call("nvmlDeviceGetCount_v2", &count) == kSuccess && count == 8;
  for (unsigned i = 0; i < count; i += 3) {
    Device device = nullptr;
    good &= library.call("nvmlDeviceGetHandleByIndex_v2", i, &device) == kSuccess;
    Utilization util{};
    good &= library.call("nvmlDeviceGetUtilizationRates", device, &util) == kSuccess && util.gpu <= 100;
    unsigned long long energy = 0;
    good &= library.call("nvmlDeviceGetTotalEnergyConsumption", device, &energy) == kSuccess && energy > 0;
  }
  return library.call("nvmlShutdown") == kSuccess && good;
}

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

// Mappings of any simulation's state in this process.
std::size_t mapped_states() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::size_t count = 0;
  while (std::getline(maps, line)) count += line.ends_with("/state") ? 1 : 0;
  return count;
}

pid_t spawn(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  bool good = false;
  try {
    good = body();
  } catch (...) {
    good = false;
  }
  ::_exit(good ? 0 : 1);
}

void expect_all_good(const std::vector<pid_t>& children) {
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

class Stress : public ::testing::Test {
 protected:
  Stress() : sim_(std::vector<std::string>(8, "A100")) {
    ::setenv("LULL_SIM", sim_.folder().c_str(), 1);
    ::unsetenv("LULL_SIM_LOG");
  }
  TestSim sim_;
};

TEST_F(Stress, AThousandLivesOfEightProcesses) {
  std::vector<pid_t> clients;
  for (int i = 0; i < kClients; ++i)
    clients.push_back(spawn([] {
      // Loaded and unloaded again and again, as short-lived clients do.
      {
        const Library warm(kLibrary);
      }
      const std::size_t files = open_files();
      for (int load = 0; load < kCycles / 10; ++load) {
        const Library library(kLibrary);
        for (int cycle = 0; cycle < 10; ++cycle)
          if (!live_once(library)) return false;
      }
      return open_files() == files && mapped_states() == 0;
    }));
  expect_all_good(clients);
}

TEST_F(Stress, AThousandLivesOfEightThreads) {
  const Library library(kLibrary);
  ASSERT_TRUE(live_once(library));
  const std::size_t files = open_files();
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i)
    threads.emplace_back([&] {
      for (int cycle = 0; cycle < kCycles; ++cycle)
        if (!live_once(library)) ++bad;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(mapped_states(), 0U);
}

// One thread starts and stops; the others call whenever they like and get an answer or UNINITIALIZED.
TEST_F(Stress, CallsWhileAnotherThreadShutsDown) {
  const Library library(kLibrary);
  ASSERT_EQ(library.call("nvmlInit_v2"), kSuccess);
  Device device = nullptr;
  ASSERT_EQ(library.call("nvmlDeviceGetHandleByIndex_v2", 1U, &device), kSuccess);
  std::atomic<bool> stop{false};
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (!stop) {
        unsigned power = 0;
        const int result = library.call("nvmlDeviceGetPowerUsage", device, &power);
        if (result != kUninitialized && (result != kSuccess || power != 52'000)) ++bad;
      }
    });
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    if (library.call("nvmlShutdown") != kSuccess) ++bad;
    if (library.call("nvmlInit_v2") != kSuccess) ++bad;
  }
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
  library.call("nvmlShutdown");
  EXPECT_EQ(mapped_states(), 0U);
}

TEST_F(Stress, ForkingFromAProgramWithBusyThreads) {
  const Library library(kLibrary);
  ASSERT_EQ(library.call("nvmlInit_v2"), kSuccess);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!stop) live_once(library);
    });
  for (int round = 0; round < 50; ++round)
    expect_all_good({spawn([&] { return live_once(library) && live_once(library); })});
  stop = true;
  for (auto& thread : threads) thread.join();
  library.call("nvmlShutdown");
}

// Writers change two GPUs in one go and are killed at any point; nobody sees one without the other, and
// nobody waits.
TEST_F(Stress, KilledWritersLeaveNothingHalfDone) {
  const auto writing = [this] {
    auto writer = sim_.writer();
    for (unsigned i = 0;; i = (i + 1) % 100)
      if (!writer.set({{2, Metric::util, static_cast<double>(i)}, {5, Metric::util, static_cast<double>(i)}}))
        return false;
  };
  Mapping mapping;
  ASSERT_EQ(mapping.open(sim_.folder().c_str()), 0);
  const auto pair = [&] {
    return mapping.read([&](const Live& live) {
      const std::int64_t now = mapping.now_ns();
      const Scene scene{mapping.writable_state(), true, live, now};
      return std::pair(value(scene, 2, Metric::util, now), value(scene, 5, Metric::util, now));
    });
  };
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t before = mapping.state().version.load();
    const pid_t one = spawn(writing);
    const pid_t other = spawn(writing);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (mapping.state().version.load() < before + 200 && std::chrono::steady_clock::now() < limit) {
      const auto [second, fifth] = pair();
      ASSERT_EQ(second, fifth);
    }
    for (const pid_t writer : {one, other}) {
      ::kill(writer, SIGKILL);
      int status = 0;
      ASSERT_EQ(::waitpid(writer, &status, 0), writer);
      ASSERT_TRUE(WIFSIGNALED(status));
    }
    const auto [second, fifth] = pair();
    ASSERT_EQ(second, fifth);
  }
  // And a change goes through at once.
  EXPECT_TRUE(sim_.writer().set({{2, Metric::util, 7}}));
  EXPECT_EQ(pair().first, 7);
}

// More changes than the table holds: the sums go on, exact.
TEST_F(Stress, ManyChangesAreForgottenButNotTheirSums) {
  auto writer = sim_.writer();
  const auto energy = [&] {
    return writer.mapping().read([&](const Live& live) {
      const Scene scene{const_cast<State&>(writer.state()), true, live, writer.mapping().now_ns()};
      return energy_mj(scene, 0, scene.now_ns);
    });
  };
  ASSERT_TRUE(writer.set({{0, Metric::power, 100}}));
  const std::int64_t start = writer.mapping().now_ns();
  const auto before = energy();
  for (unsigned i = 0; i < kMaxSets + 500; ++i) ASSERT_TRUE(writer.set({{0, Metric::power, 100}}));
  const auto grown = static_cast<double>(energy() - before);
  const double passed = static_cast<double>(writer.mapping().now_ns() - start) * 1e-9;
  EXPECT_NEAR(grown, 100e3 * passed, 100e3 * 0.05);
  EXPECT_LE(grown, 100e3 * passed + 1);
}

// Loads come and go for ever: neither cells nor entries run out.
TEST_F(Stress, LoadsComeAndGo) {
  auto writer = sim_.writer();
  std::vector<Hold> held;
  for (int i = 0; i < 500; ++i) {
    auto one = writer.hold(load_on(static_cast<unsigned>(i) % 8, 1, 1 << 20));
    ASSERT_TRUE(one) << one.error().message();
    held.push_back(std::move(*one));
    if (held.size() > 20) held.erase(held.begin());
  }
  const Library library(kLibrary);
  ASSERT_EQ(library.call("nvmlInit_v2"), kSuccess);
  unsigned total = 0;
  for (unsigned i = 0; i < 8; ++i) {
    Device device = nullptr;
    library.call("nvmlDeviceGetHandleByIndex_v2", i, &device);
    Memory2 memory{};
    memory.version = sizeof(Memory2) | (2U << 24);
    library.call("nvmlDeviceGetMemoryInfo_v2", device, &memory);
    total += static_cast<unsigned>(memory.used >> 20);
  }
  EXPECT_EQ(total, 20U);
  held.clear();
  library.call("nvmlShutdown");
  EXPECT_EQ(mapped_states(), 1U);  // the writer's own
}

}  // namespace
