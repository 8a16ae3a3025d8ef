#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "sim/testing.h"

namespace lull::sim {
namespace {

// What is written down of the dead has room for the next, while others look: they must not take the one for the other.
TEST(Cells, WhoTakesThePlaceOfADeadOneLives) {
  Plan plan = plan_of({"A100"});
  plan.sample_period_ns = 1'000'000;
  plan.sample_capacity = 1;
  const TestSim sim(plan);
  Mapping mapping;
  ASSERT_EQ(mapping.open(sim.folder().c_str()), 0);
  const auto present_pids = [&] {
    return mapping.read([&](const Live& live) {
      std::vector<std::uint32_t> pids;
      const std::int64_t now = mapping.now_ns();
      each_load({mapping.writable_state(), true, live, now}, 0, now, [&](const Load& one) { pids.push_back(one.pid); });
      return pids;
    });
  };
  std::atomic<bool> done = false;
  std::thread looker([&] {
    while (!done) (void)present_pids();
  });
  for (int round = 0; round < 50; ++round) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto own = sim.writer();
      auto held = own.hold(load_on(0, 90));
      (void)!::write(ready[1], held ? "y" : "n", 1);
      for (;;) ::pause();
    }
    char answer = 0;
    EXPECT_EQ(::read(ready[0], &answer, 1), 1);
    EXPECT_EQ(answer, 'y');
    EXPECT_EQ(present_pids(), std::vector<std::uint32_t>{static_cast<std::uint32_t>(child)}) << "round " << round;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const int fd : ready) ::close(fd);
    const std::int64_t forgotten = mapping.now_ns() + 10'000'000;
    while (mapping.now_ns() < forgotten) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  done = true;
  looker.join();
}

}  // namespace
}  // namespace lull::sim
