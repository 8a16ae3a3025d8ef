// Which reading belongs to which GPU, also where no UUID can be read.

#include "lease/picker.h"

#include <gtest/gtest.h>

#include <numeric>

#include "gpu/inventory_test.h"

namespace lull {
namespace {

// Cards that say nothing but how busy they are.
class NamelessCards final : public PickWorld {
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

 private:
  ManualClock clock_;
  std::shared_ptr<Inventory> inventory_;
};

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

}  // namespace
}  // namespace lull
