// The chip's own counters, as a program with CUDA 12's header asks for them.
#include <cmath>
#include <thread>

#include "sim/library/library_test.h"
#include "sim/state.h"

namespace lull::sim {
namespace {

using namespace std::chrono_literals;

class Gpm : public OnSim {
 protected:
  explicit Gpm(const Plan& plan = plan_of({"H100", "A100", "GB10", "B200"})) : OnSim(plan) {}
  void TearDown() override {
    for (void* one : made_) EXPECT_EQ(library_.call("nvmlGpmSampleFree", one), kSuccess);
    OnSim::TearDown();
  }
  void* make() {
    void* out = nullptr;
    EXPECT_EQ(library_.call("nvmlGpmSampleAlloc", &out), kSuccess);
    made_.push_back(out);
    return out;
  }
  int sample(unsigned gpu, void* into) { return library_.call("nvmlGpmSampleGet", device(gpu), into); }
  int sample_mig(unsigned gpu, unsigned instance, void* into) {
    return library_.call("nvmlGpmMigSampleGet", device(gpu), instance, into);
  }
  // Graphics, SM, tensor, DRAM.
  GpmMetricsGet get(void* first, void* second, int expected = kSuccess) {
    GpmMetricsGet out{};
    out.version = 1;
    out.count = 4;
    out.first = first;
    out.second = second;
    for (const auto& [place, id] : {std::pair{0, 1U}, {1, 2U}, {2, 5U}, {3, 10U}}) out.metrics[place].id = id;
    EXPECT_EQ(library_.call("nvmlGpmMetricsGet", &out), expected);
    return out;
  }
  unsigned supported(unsigned gpu) {
    GpmSupport out{1, 7};
    EXPECT_EQ(library_.call("nvmlGpmQueryDeviceSupport", device(gpu), &out), kSuccess);
    return out.supported;
  }

  std::vector<void*> made_;
};

TEST_F(Gpm, HopperAndNewerHaveIt) {
  EXPECT_EQ(supported(0), 1U);
  EXPECT_EQ(supported(1), 0U);
  EXPECT_EQ(supported(2), 0U);
  EXPECT_EQ(supported(3), 1U);
  GpmSupport wrong{2, 0};
  EXPECT_EQ(library_.call("nvmlGpmQueryDeviceSupport", device(0), &wrong), kVersionMismatch);
  EXPECT_EQ(sample(1, make()), kNotSupported);
}

TEST_F(Gpm, ValuesAreTheMeansBetweenTwoSamples) {
  auto writer = sim_.writer();
  Load load = load_on(0, 60, 1 << 30);
  load.steps[0].counters[1] = 10;
  const auto held = writer.hold(load);
  ASSERT_TRUE(held);
  void* first = make();
  void* second = make();
  ASSERT_EQ(sample(0, first), kSuccess);
  std::this_thread::sleep_for(120ms);
  ASSERT_EQ(sample(0, second), kSuccess);
  const GpmMetricsGet out = get(first, second);
  EXPECT_NEAR(out.metrics[0].value, 60, 0.01);
  EXPECT_NEAR(out.metrics[1].value, 48, 0.01);
  EXPECT_NEAR(out.metrics[2].value, 10, 0.01);
  EXPECT_NEAR(out.metrics[3].value, 24, 0.01);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out.metrics[i].result, kSuccess);
  EXPECT_STREQ(out.metrics[1].short_name, "SMACT");
}

TEST_F(Gpm, SamplesTooNearEachOtherGiveAZeroThatIsNotTrue) {
  auto writer = sim_.writer();
  const auto held = writer.hold(load_on(0, 60, 1 << 30));
  ASSERT_TRUE(held);
  void* first = make();
  void* second = make();
  ASSERT_EQ(sample(0, first), kSuccess);
  ASSERT_EQ(sample(0, second), kSuccess);
  const GpmMetricsGet out = get(first, second);
  EXPECT_EQ(out.metrics[0].result, kSuccess);
  EXPECT_EQ(out.metrics[0].value, 0);
}

TEST_F(Gpm, WrongUseIsRefused) {
  void* first = make();
  void* second = make();
  get(first, second, kInvalidArgument);  // with nothing in them
  ASSERT_EQ(sample(0, first), kSuccess);
  ASSERT_EQ(sample(3, second), kSuccess);
  get(first, second, kInvalidArgument);  // of two GPUs
  EXPECT_EQ(sample(0, nullptr), kInvalidArgument);
  EXPECT_EQ(library_.call("nvmlGpmSampleAlloc", static_cast<void**>(nullptr)), kInvalidArgument);
  EXPECT_EQ(library_.call("nvmlGpmSampleFree", static_cast<void*>(nullptr)), kInvalidArgument);
  EXPECT_EQ(library_.call("nvmlGpmMetricsGet", static_cast<GpmMetricsGet*>(nullptr)), kInvalidArgument);
  GpmMetricsGet many{};
  many.version = 1;
  many.first = many.second = first;
  EXPECT_EQ(library_.call("nvmlGpmMetricsGet", &many), kInvalidArgument) << "none is asked for";
  many.count = 1;
  many.version = 3;
  EXPECT_EQ(library_.call("nvmlGpmMetricsGet", &many), kVersionMismatch);
  many.version = 1;
  many.metrics[0].id = 4;  // not simulated
  EXPECT_EQ(library_.call("nvmlGpmMetricsGet", &many), kSuccess);
  EXPECT_EQ(many.metrics[0].result, kNotSupported);
}

TEST_F(Gpm, FaultsMeetItsCalls) {
  auto writer = sim_.writer();
  void* first = make();
  ASSERT_TRUE(writer.add_faults({fault_on(0, kNoPermission, "nvmlGpmSampleGet")}));
  EXPECT_EQ(sample(0, first), kNoPermission);
  ASSERT_TRUE(writer.clear_faults(kEveryGpu));
  Fault garbage = fault_on(0, 0, "nvmlGpmMetricsGet");
  garbage.kind = FaultKind::garbage;
  ASSERT_TRUE(writer.add_faults({garbage}));
  void* second = make();
  ASSERT_EQ(sample(0, first), kSuccess);
  std::this_thread::sleep_for(110ms);
  ASSERT_EQ(sample(0, second), kSuccess);
  const GpmMetricsGet out = get(first, second);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(out.metrics[i].value >= 0 && out.metrics[i].value <= 100) << i;
}

Plan cut_card() {
  Plan plan = plan_of({"H100"});
  EXPECT_TRUE(cut(plan.gpus[0].gpu, 0, {"3g.40gb", "1g.10gb"}, ""));
  return plan;
}

class CutGpm : public Gpm {
 protected:
  CutGpm() : Gpm(cut_card()) {}
};

TEST_F(CutGpm, AnInstanceShowsItsOwnLoads) {
  auto writer = sim_.writer();
  Load load = load_on(0, 30, 1 << 30);
  load.mig = 1;
  const auto held = writer.hold(load);
  ASSERT_TRUE(held);
  void* one[] = {make(), make()};
  void* other[] = {make(), make()};
  EXPECT_EQ(sample(0, one[0]), kNotSupported) << "the card as a whole has none";
  EXPECT_EQ(sample_mig(0, 9, one[0]), kInvalidArgument);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(sample_mig(0, 1, one[i]), kSuccess);
    ASSERT_EQ(sample_mig(0, 2, other[i]), kSuccess);
    std::this_thread::sleep_for(110ms);
  }
  EXPECT_EQ(get(one[0], one[1]).metrics[0].value, 0);
  EXPECT_NEAR(get(other[0], other[1]).metrics[0].value, 30, 0.01);
  EXPECT_NEAR(get(other[0], other[1]).metrics[1].value, 24, 0.01);
  get(one[0], other[1], kInvalidArgument);
}

}  // namespace
}  // namespace lull::sim
