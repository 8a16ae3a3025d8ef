// Which reading belongs to which GPU, also where no UUID can be read.

#include "lease/picker.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "gpu/inventory_test.h"
#include "lease/choice_readings_test.h"

namespace lull {
namespace {

// Cards that say nothing but how busy they are.
class NamelessCards : public PickWorld {
 public:
  explicit NamelessCards(unsigned count) : inventory_(gpus_for_test(count)) {
    for (Device& device : inventory_->devices) device.uuid.clear();
  }
  const Clock& clock() const override { return clock_; }
  void open(const PickNeeds&) override {}
  void first(Snapshot& into) override { sample(into); }
  void sample(Snapshot& into) override {
    into = {};
    into.inventory = inventory_;
    for (std::size_t i = 0; i < inventory_->devices.size(); ++i) {
      Reading reading;
      reading.set(Metric::util, static_cast<double>(10 * i));
      into.readings.push_back(reading);
    }
  }
  void close() override {}
  Result<std::vector<std::size_t>> scope(const Inventory& inventory, const PickSettings&) override {
    std::vector<std::size_t> all(inventory.devices.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }
  std::string user_name(uid_t) override { return "ada"; }
  std::string command_of(pid_t) override { return ""; }
  std::string owner_of(pid_t) override { return ""; }
  void warn(const std::string&) override {}
  void waits(const Waiting&) override {}
  void waits_no_more() override {}

 protected:
  ManualClock clock_;
  std::shared_ptr<Inventory> inventory_;
};

// A card of which the driver names four processes: ada's, one of another pid namespace, the server of MPS, and bob's.
class BusyCard final : public NamelessCards {
 public:
  BusyCard() : NamelessCards(1) { inventory_->devices[0].uuid = "GPU-0"; }
  void sample(Snapshot& into) override {
    NamelessCards::sample(into);
    Reading& reading = into.readings[0];
    reading.set(Metric::util, util);
    for (const Metric metric : {Metric::mem_used, Metric::mem_util}) reading.set(metric, 0);
    reading.set(Metric::procs, util > 0 ? 4 : 0);
    reading.processes.emplace();
    if (util == 0) return;
    for (const pid_t pid : {10, 11, 12, 13}) {
      GpuProcess& process = reading.processes->emplace_back();
      process.pid = pid;
      process.here = pid != 11;
      process.mps_server = pid == 12;
    }
  }
  std::string owner_of(pid_t pid) override { return pid == 10 ? "ada" : pid == 13 ? "bob" : "mallory"; }
  void warn(const std::string& text) override { warned += text; }
  double util = 90;
  std::string warned;
};

PickResult result_of(Picker& picker) {
  PickStep step = picker.begin();
  for (int i = 0; i < 10 && std::holds_alternative<Sleep>(step); ++i) step = picker.go_on();
  return std::get<PickResult>(std::move(step));
}

TEST(Picker, WhoIsOnABusyCardIsNamedAndNobodyWhoOnlyHasTheNumber) {
  BusyCard world;
  PickSettings settings;
  settings.lease = false;
  Picker picker(world, settings);
  const PickResult result = result_of(picker);
  ASSERT_FALSE(result);
  ASSERT_EQ(result.error().reasons.size(), 1U);
  EXPECT_TRUE(result.error().reasons[0].ends_with(" (ada; bob)")) << result.error().reasons[0];
}

TEST(Picker, HowCardsAreJoinedIsAskedOnlyWhereItMatters) {
  for (const Best best : {Best::random, Best::memory, Best::topology}) {
    BusyCard world;
    world.util = 0;
    PickSettings settings;
    settings.lease = false;
    settings.best = best;
    Picker picker(world, settings);
    const PickResult result = result_of(picker);
    EXPECT_TRUE(result) << (result ? "" : result.error().what + result.error().reasons.at(0));
    EXPECT_EQ(world.warned.empty(), best != Best::topology) << world.warned;
  }
}

TEST(Picker, TwoCardsWithoutUuidAreNotTakenForOne) {
  NamelessCards world(3);
  PickSettings settings;
  settings.lease = false;
  Picker picker(world, settings);
  PickStep step = picker.begin();
  for (int i = 0; i < 10 && std::holds_alternative<Sleep>(step); ++i) step = picker.go_on();
  ASSERT_TRUE(std::holds_alternative<PickResult>(step));
  EXPECT_FALSE(std::get<PickResult>(step)) << "what cannot be named cannot be had";
  ASSERT_EQ(picker.choices().size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(picker.position_of(picker.choices()[i]), i);
}

// Time passes whenever somebody asks for it.
class HastyClock final : public Clock {
 public:
  explicit HastyClock(Duration step) : step_(step) {}
  Instant now() const override { return now_ += step_; }
  WallTime wall() const override { return WallTime(now_.time_since_epoch()); }

 private:
  Duration step_;
  mutable Instant now_{};
};

// Two cards that do nothing, until somebody without a lease comes to the first.
class VisitedCards final : public PickWorld {
 public:
  VisitedCards(Duration step, int came_before) : clock_(step), came_before_(came_before) {}
  const Clock& clock() const override { return clock_; }
  void open(const PickNeeds&) override {}
  void first(Snapshot& into) override { sample(into); }
  void sample(Snapshot& into) override {
    ++samples;
    into = {};
    into.inventory = inventory_;
    into.readings = {idle(), idle()};
    into.readings[1].set(Metric::mem_free, kGiB);  // the first is the better one
    if (samples < came_before_) return;
    into.readings[0].processes_hidden = true;  // of another container
    into.readings[0].miss(Metric::procs, Absence::hidden);
    into.readings[0].set(Metric::mem_used, 12 * kGiB);
  }
  void close() override {}
  Result<std::vector<std::size_t>> scope(const Inventory&, const PickSettings&) override {
    return std::vector<std::size_t>{0, 1};
  }
  std::string user_name(uid_t) override { return "ada"; }
  std::string command_of(pid_t) override { return ""; }
  std::string owner_of(pid_t) override { return ""; }
  void warn(const std::string&) override {}
  void waits(const Waiting&) override {}
  void waits_no_more() override {}

  int samples = 0;

 private:
  HastyClock clock_;
  int came_before_;
  std::shared_ptr<Inventory> inventory_ = gpus_for_test(2);
};

class PickerWithLeases : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "lull-picker-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    ::setenv("LULL_LEASES", (root_ + "/leases").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("LULL_LEASES");
    std::filesystem::remove_all(root_);
  }
  // Which of them were picked.
  static std::vector<std::size_t> picked(VisitedCards& world, bool wait) {
    PickSettings settings;
    settings.best = Best::memory;
    settings.command = {"true"};
    settings.wait = wait;
    Picker picker(world, settings);
    PickStep step = picker.begin();
    for (int i = 0; i < 10 && std::holds_alternative<Sleep>(step); ++i) step = picker.go_on();
    const auto* result = std::get_if<PickResult>(&step);
    EXPECT_TRUE(result != nullptr && *result);
    return result != nullptr && *result ? (*result)->devices : std::vector<std::size_t>();
  }
  std::string root_;
};

TEST_P(PickerWithLeases, WhatIsFreeIsHandedOver) {
  VisitedCards world({}, 1000);
  EXPECT_EQ(picked(world, GetParam()), (std::vector<std::size_t>{0}));
  EXPECT_EQ(world.samples, 2) << "one look to choose, one once it is ours";
}

TEST_P(PickerWithLeases, WhoComesWhileItIsTakenIsSeenByHisMemory) {
  VisitedCards world({}, 2);
  EXPECT_EQ(picked(world, GetParam()), (std::vector<std::size_t>{1}));
}

// Who had to wait for the folder, or did not run meanwhile, looks again before the hand-over.
TEST_P(PickerWithLeases, WhoComesAfterALookThatIsOldByNowIsSeen) {
  VisitedCards world(std::chrono::milliseconds(150), 3);
  EXPECT_EQ(picked(world, GetParam()), (std::vector<std::size_t>{1}));
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutWaiting, PickerWithLeases, testing::Bool());

}  // namespace
}  // namespace lull
