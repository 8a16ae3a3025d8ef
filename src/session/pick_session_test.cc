// Waiting for GPUs in the time of a test: hours at a queue pass in milliseconds. The lease folder, its locks and its
// events are real.

#include "session/pick_session.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "session/fake_world_test.h"
#include "view/picked.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

// The script tells only utilisation: the rest is that of a card that nobody uses.
class TestPickWorld final : public SensedPickWorld {
 public:
  using SensedPickWorld::SensedPickWorld;
  void sample(Snapshot& into) override {
    SensedPickWorld::sample(into);
    for (Reading& reading : into.readings) {
      reading.set(Metric::mem_util, 0);
      reading.set(Metric::mem_used, 0);
      reading.set(Metric::procs, 0);
    }
  }
  void close() override {
    closed = true;
    SensedPickWorld::close();
  }
  void warn(const std::string& text) override { warnings.push_back(text); }
  void waits(const Waiting& waiting) override { told = waiting; }
  void waits_no_more() override {}

  std::vector<std::string> warnings;
  std::optional<Waiting> told;
  bool closed = false;
};

// Somebody else who has a GPU. A process of its own: a lease holder that comes of ours must not inherit the lock.
class Holder {
 public:
  Holder(const std::string& folder, unsigned gpu) {
    int ready[2];
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    const Fd from(ready[0]);
    Fd to(ready[1]);
    child_ = ::fork();
    if (child_ == 0) hold(folder, gpu, to.get());
    to.reset();
    char held = 0;
    EXPECT_EQ(::read(from.get(), &held, 1), 1);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() { give_back(); }
  void give_back() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  [[noreturn]] static void hold(const std::string& path, unsigned gpu, int ready) {
    const SystemClock clock;
    const auto folder = LeaseFolder::open({path, false});
    LeaseQueue queue(*folder, {}, {{"GPU-" + std::to_string(gpu), std::to_string(gpu), Fit::yes}}, clock);
    const auto taken = queue.take_now([](std::span<const std::size_t> open, auto, std::size_t) {
      return std::vector<std::size_t>(open.begin(), open.end());
    });
    if (!taken || !*taken || ::write(ready, "!", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  pid_t child_ = 0;
};

// A job that has ended and whose lease is let go later, as its lease holder does: by a process that has inherited it.
class Ended {
 public:
  Ended(const std::string& folder, unsigned gpu) {
    int order[2];
    int done[2];
    EXPECT_EQ(::pipe2(order, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(done, O_CLOEXEC), 0);
    const Fd told(order[0]);
    const Fd says(done[1]);
    tell_ = Fd(order[1]);
    done_ = Fd(done[0]);
    const pid_t job = ::fork();
    if (job == 0) {
      const auto place = LeaseFolder::open({folder, false});
      LeaseRecord record;
      record.gpu = "GPU-" + std::to_string(gpu);
      record.holder = ProcessMark::of(0);
      auto lock = place->take(*place->enter(), record);
      if (!lock || ::fork() != 0) ::_exit(0);
      tell_.reset();  // else who only goes away would not be heard
      std::int64_t later = 0;
      (void)!::read(told.get(), &later, sizeof later);
      const timespec moment{0, later};
      ::nanosleep(&moment, nullptr);
      lock->fd.reset();
      ::_exit(0);
    }
    ::waitpid(job, nullptr, 0);
  }
  void let_go(std::chrono::nanoseconds later = {}) {
    const std::int64_t count = later.count();
    EXPECT_EQ(::write(tell_.get(), &count, sizeof count), sizeof count);
  }
  void wait() {
    char none = 0;
    EXPECT_EQ(::read(done_.get(), &none, 1), 0);
  }

 private:
  Fd tell_;
  Fd done_;
};

class Picking : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "lull-picking-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    ::setenv("LULL_LEASES", folder().c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("LULL_LEASES");
    fs::remove_all(root_);
  }

  static PickSettings waiting(unsigned count = 1) {
    PickSettings settings;
    settings.count = count;
    settings.wait = true;
    settings.command = {"true"};
    return settings;
  }
  std::string folder() const { return root_ + "/leases"; }
  Duration passed() const { return world_.clock.now() - Instant{}; }

  std::string root_;
  FakeWorld world_{Script{}};
  TestPickWorld eyes_{world_};
};

TEST_F(Picking, TakesAGpuThatIsFree) {
  PickSession session(world_.loop(), eyes_, waiting());
  const auto picked = session.run();
  ASSERT_TRUE(picked) << picked.error().what;
  EXPECT_EQ(picked->devices.size(), 1U);
  EXPECT_EQ(picked->locks.size(), 1U);
  EXPECT_LT(passed(), 1s);
  EXPECT_TRUE(eyes_.closed);
}

TEST_F(Picking, WhoIsListedIsIdentifiedNow) {
  eyes_.open({});
  Snapshot seen;
  for (const std::uint64_t start : {0U, 1U}) {
    world_.context.start_ticks = start;
    eyes_.sample(seen);
    ASSERT_EQ(seen.readings[0].processes->size(), 1U);
    EXPECT_EQ(seen.readings[0].processes->front().proven(), start == 0) << "our number is another's by now";
  }
}

TEST_F(Picking, OneVendorUnlessOthersAreNamed) {
  Inventory inventory;
  for (const Vendor vendor : {Vendor::nvidia, Vendor::nvidia, Vendor::amd, Vendor::intel}) {
    Device& device = inventory.devices.emplace_back();
    device.vendor = vendor;
    device.index = static_cast<unsigned>(inventory.devices.size()) - 1;
    device.uuid = "GPU-" + std::to_string(device.index);
  }
  using Places = std::vector<std::size_t>;
  PickSettings settings;
  EXPECT_EQ(*eyes_.scope(inventory, settings), (Places{0, 1}));
  settings.gpus = "1,2";
  EXPECT_EQ(*eyes_.scope(inventory, settings), (Places{1, 2}));
  settings.vendor = Vendor::amd;
  EXPECT_EQ(*eyes_.scope(inventory, settings), Places{2});
  settings.gpus = "0";
  EXPECT_EQ(eyes_.scope(inventory, settings).error().message(),
            "--vendor amd: there is no such GPU among those of --gpus");
  settings.gpus.clear();
  EXPECT_EQ(*eyes_.scope(inventory, settings), Places{2});
  settings.vendor = Vendor::intel;
  EXPECT_EQ(*eyes_.scope(inventory, settings), Places{3});
  inventory.devices.pop_back();
  EXPECT_EQ(eyes_.scope(inventory, settings).error().message(), "--vendor intel: there is no such GPU in this machine");
  inventory.devices.clear();
  EXPECT_TRUE(eyes_.scope(inventory, settings)->empty()) << "the driver says why";
  inventory.devices.resize(1);
  inventory.devices[0].vendor = Vendor::tegra;
  settings.vendor = Vendor::nvidia;
  EXPECT_EQ(*eyes_.scope(inventory, settings), Places{0}) << "a Jetson is NVIDIA's";
}

// A machine so busy that the sensor did not come to look: what is unknown is the time since, not the GPU of now.
TEST_F(Picking, TakesAGpuThatWasNotLookedAtBetweenTwoSamples) {
  for (const std::size_t sample : {0U, 1U, 2U}) {
    world_.script.not_covered = [this, first = world_.seen.size() + sample](std::size_t now) { return now == first; };
    PickSettings settings = waiting();
    settings.wait = false;
    PickSession session(world_.loop(), eyes_, settings);
    const auto picked = session.run();
    ASSERT_TRUE(picked) << picked.error().what;
  }
}

TEST_F(Picking, TakesNoGpuThatNobodyEverLooksAt) {
  world_.script.not_covered = [](std::size_t) { return true; };
  PickSettings settings = waiting();
  settings.wait = false;
  PickSession session(world_.loop(), eyes_, settings);
  EXPECT_FALSE(session.run());
  EXPECT_LE(world_.seen.size(), 50U);
}

TEST_F(Picking, LooksOnceASecondAtWhatOthersUse) {
  world_.script.util = [](Instant at, unsigned gpu) { return gpu == 1 && at >= Instant(30min) ? 0.0 : 90.0; };
  PickSession session(world_.loop(), eyes_, waiting());
  const auto picked = session.run();
  ASSERT_TRUE(picked) << picked.error().what;
  EXPECT_EQ(picked->devices, std::vector<std::size_t>{1});
  EXPECT_GE(passed(), 30min);
  EXPECT_LE(passed(), 30min + 2s);
  EXPECT_LE(world_.seen.size(), 30 * 60 + 60U);
  ASSERT_TRUE(eyes_.told);
  EXPECT_EQ(eyes_.told->reasons.size(), 2U);
  EXPECT_EQ(in_short(*eyes_.told), "waiting for 1 GPU, next in turn: 2 in use") << "where a line is a line of a log";
}

TEST_F(Picking, GivesUpWhenTheTimeIsOver) {
  world_.script.util = [](Instant, unsigned) { return 90.0; };
  PickSettings settings = waiting();
  settings.wait_limit = 10min - 1ms;  // as it is left of ten minutes
  PickSession session(world_.loop(), eyes_, settings);
  const auto picked = session.run();
  ASSERT_FALSE(picked);
  EXPECT_EQ(picked.error().kind, Refusal::late);
  EXPECT_NE(picked.error().what.find("waited 10m for 1 GPU"), std::string::npos) << picked.error().what;
  EXPECT_EQ(passed(), 10min - 1ms);
  EXPECT_TRUE(eyes_.closed);
}

// The time that it took the driver to come is part of what one is ready to wait.
TEST_F(Picking, WaitsForADriverThatIsBeingLoaded) {
  world_.script.has_driver = [](Instant at) { return at >= Instant(5min); };
  PickSettings settings = waiting();
  settings.wait_limit = 10min;
  PickSession session(world_.loop(), eyes_, settings);
  EXPECT_TRUE(session.run());
  EXPECT_GE(passed(), 5min);
  EXPECT_LE(passed(), 5min + 1s);
}

TEST_F(Picking, AGpuThatIsLeasedIsTakenAtTheMomentThatItIsGivenBack) {
  Holder first(folder(), 0);
  Holder second(folder(), 1);
  world_.loop().at(Instant(2h), [&] { first.give_back(); });
  PickSession session(world_.loop(), eyes_, waiting());
  const auto picked = session.run();
  ASSERT_TRUE(picked) << picked.error().what;
  EXPECT_EQ(picked->devices, std::vector<std::size_t>{0});
  EXPECT_GE(passed(), 2h);
  EXPECT_LE(passed(), 2h + 200ms);
  // Nobody has to look at GPUs that are leased.
  EXPECT_LE(world_.seen.size(), 10U);
}

TEST_F(Picking, CollectsTwoThatComeFreeOneAfterTheOther) {
  Holder first(folder(), 0);
  Holder second(folder(), 1);
  world_.loop().at(Instant(1h), [&] { first.give_back(); });
  world_.loop().at(Instant(2h), [&] { second.give_back(); });
  PickSession session(world_.loop(), eyes_, waiting(2));
  const auto picked = session.run();
  ASSERT_TRUE(picked) << picked.error().what;
  EXPECT_EQ(picked->devices, (std::vector<std::size_t>{0, 1}));
  EXPECT_GE(passed(), 2h);
  EXPECT_LE(passed(), 2h + 200ms);
}

// Somebody who does not use lull was quicker: it is given back, and looked for on.
TEST_F(Picking, WhatTurnsOutToBeInUseIsNotTaken) {
  Holder holder(folder(), 0);
  world_.script.gpus = 1;
  world_.loop().at(Instant(1h), [&] { holder.give_back(); });
  world_.script.util = [](Instant at, unsigned) { return at >= Instant(1h) && at < Instant(65min) ? 50.0 : 0.0; };
  PickSession session(world_.loop(), eyes_, waiting());
  ASSERT_TRUE(session.run());
  EXPECT_GE(passed(), 65min);
  EXPECT_LE(passed(), 65min + 2s);
}

TEST_F(Picking, EndsWithTheProcessThatWasToHoldThem) {
  world_.script.util = [](Instant, unsigned) { return 90.0; };
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  PickSettings settings = waiting();
  settings.command.clear();
  settings.hold_pid = child;
  world_.loop().at(Instant(1min), [&] {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  });
  PickSession session(world_.loop(), eyes_, settings);
  const auto picked = session.run();
  ASSERT_FALSE(picked);
  EXPECT_EQ(picked.error().what, "process " + std::to_string(child) + ", which was to hold them, has ended");
  EXPECT_GE(passed(), 1min);
  EXPECT_LE(passed(), 1min + 2s);
}

// What is leased is said to be, and that there are not so many.
TEST_F(Picking, MoreThanThereAreIsSaidWithWhatEachIs) {
  const Holder holder(folder(), 1);
  PickSettings settings = waiting();
  settings.count = 20;
  PickSession session(world_.loop(), eyes_, settings);
  const auto picked = session.run();
  ASSERT_FALSE(picked);
  EXPECT_EQ(picked.error().what, "20 GPUs asked for, there are only 2");
  ASSERT_EQ(picked.error().reasons.size(), 1U);
  EXPECT_TRUE(picked.error().reasons[0].starts_with("GPU 1: leased (")) << picked.error().reasons[0];
  EXPECT_FALSE(picked.error().waiting_helps);
}

// `lull pick -- a; lull pick -- b` in a script: the lease holder of the first lets go a moment after the second has
// begun.
TEST_F(Picking, WithoutWaitingTheGpuOfAJobThatHasJustEndedIsTaken) {
  world_.script.gpus = 1;
  for (const bool held : {true, false}) {
    Ended before(folder(), 0);
    const Instant then = world_.clock.now() + 100ms;
    world_.loop().at(then, [&] {
      before.let_go();
      before.wait();
    });
    PickSettings settings = waiting();
    settings.wait = false;
    if (!held) settings.command.clear();
    PickSession session(world_.loop(), eyes_, settings);
    const auto picked = session.run();
    ASSERT_TRUE(picked) << picked.error().what << (held ? ", held" : "");
    EXPECT_GE(world_.clock.now(), then);
  }
}

// It may be let go while we look, too: nobody is told that all they asked for fit, and yet gets none.
TEST_F(Picking, ARefusalNeverSaysThatEnoughFit) {
  world_.script.gpus = 1;
  for (int round = 0; round < 200; ++round) {
    Ended before(folder(), 0);
    before.let_go(std::chrono::microseconds(round * 5));
    PickSettings settings = waiting();
    settings.wait = false;
    PickSession session(world_.loop(), eyes_, settings);
    const auto picked = session.run();
    before.wait();
    ASSERT_TRUE(picked || picked.error().fitting < picked.error().wanted) << "in round " << round;
  }
}

TEST_F(Picking, WithoutWaitingWhatIsBusyIsRefusedAtOnce) {
  world_.script.util = [](Instant, unsigned) { return 90.0; };
  PickSettings settings = waiting();
  settings.wait = false;
  PickSession session(world_.loop(), eyes_, settings);
  const auto picked = session.run();
  ASSERT_FALSE(picked);
  EXPECT_TRUE(picked.error().waiting_helps);
  EXPECT_EQ(picked.error().reasons.size(), 2U);
  EXPECT_LE(passed(), 2s);
}

}  // namespace
}  // namespace lull
