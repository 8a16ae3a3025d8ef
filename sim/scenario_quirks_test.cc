// What a scenario says of odd cards and machines, and what becomes of it in the plan.
#include <gtest/gtest.h>

#include "sim/plan.h"
#include "sim/scenario.h"

namespace lull::sim {
namespace {

using namespace std::chrono_literals;

Result<Plan> plan_from(std::string_view text) {
  const auto scenario =
      TRY(parse_scenario(text, "test.toml", [](const std::string&) -> Result<std::string> { return std::string(); }));
  return make_plan(scenario);
}

TEST(ScenarioQuirks, TheBufferIsAsInRealDriversUnlessSaid) {
  const auto usual = plan_from("[[gpu]]\nmodel = \"T4\"\n");
  ASSERT_TRUE(usual) << usual.error().message();
  EXPECT_EQ(usual->sample_capacity, 72U);
  EXPECT_NEAR(static_cast<double>(usual->sample_period_ns) * 72, 10e9, 100);
  EXPECT_FALSE(usual->sample_epoch);
  const auto other = plan_from(R"(
sample_period = "250ms"
sample_capacity = 40
sample_clock = "epoch"
[[gpu]]
model = "T4"
sample_dry = true
)");
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_EQ(other->sample_period_ns, 250'000'000);
  EXPECT_EQ(other->sample_capacity, 40U);
  EXPECT_TRUE(other->sample_epoch);
  EXPECT_EQ(other->gpus[0].gpu.quirks, kSampleBufferDry);
}

TEST(ScenarioQuirks, CardsAsTheyAre) {
  const auto plan = plan_from(R"(
wsl = true
process_view = "own_namespace"
call_cost = "lists=4.5ms, fan=137us"
cost_memory = "12us"
[[gpu]]
model = "T4"
attach = "1.5s"
scrub = "1s"
asleep = true
process_view = "host"
[[gpu]]
model = "GB10"
memory_total_zero = true
unified_memory = false
[[gpu]]
model = "A100"
reserved = "1GiB"
module_power = 30
mig = ["1g.10gb"]
mig_mode = false
)");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_TRUE(plan->wsl);
  EXPECT_EQ(plan->cost_ns[static_cast<unsigned>(Cost::lists)], 4'500'000);
  EXPECT_EQ(plan->cost_ns[static_cast<unsigned>(Cost::fan)], 137'000);
  EXPECT_EQ(plan->cost_ns[static_cast<unsigned>(Cost::memory)], 12'000);
  EXPECT_EQ(plan->cost_ns[static_cast<unsigned>(Cost::util)], 0);
  const Gpu& first = plan->gpus[0].gpu;
  EXPECT_EQ(first.attach_ns, 1'500'000'000);
  EXPECT_EQ(first.persistence, 0U) << "which is why it takes time";
  EXPECT_EQ(first.scrub_ns, 1'000'000'000);
  EXPECT_EQ(first.begins_asleep, 1U);
  EXPECT_EQ(first.process_view, kViewHost);
  EXPECT_EQ(first.quirks, kNoUtil | kNoProcessLists);
  const Gpu& second = plan->gpus[1].gpu;
  EXPECT_EQ(second.quirks, kNoUtil | kNoProcessLists | kMemoryTotalZero | kNoPowerLimit);
  EXPECT_EQ(second.process_view, kViewOwnNamespace);
  EXPECT_EQ(second.persistence, 1U);
  const Gpu& third = plan->gpus[2].gpu;
  EXPECT_EQ(third.memory_reserved, 1ULL << 30);
  EXPECT_EQ(third.module_power, 30);
  EXPECT_EQ(third.mig_count, 1U);
  ASSERT_EQ(plan->gpus[2].keyframes[static_cast<unsigned>(Metric::mig_mode)].size(), 1U);
  EXPECT_EQ(plan->gpus[2].keyframes[static_cast<unsigned>(Metric::mig_mode)][0].value, 0);
}

TEST(ScenarioQuirks, ProcessesThatComeWithAMachine) {
  const auto parsed =
      parse_scenario(R"(
[[gpu]]
model = "T4"
[[gpu]]
model = "RTX3090"
display = true
[[process]]
gpu = 0
type = "mps-server"
)",
                     "test.toml", [](const std::string&) -> Result<std::string> { return fail("none"); });
  ASSERT_TRUE(parsed) << parsed.error().message();
  ASSERT_EQ(parsed->processes.size(), 2U);
  const ProcessSpec& server = parsed->processes[0];
  EXPECT_EQ(server.name, "nvidia-cuda-mps-server");
  EXPECT_EQ(server.kind, kCompute);
  EXPECT_EQ(server.phases[0].util, 0);
  const ProcessSpec& screen = parsed->processes[1];
  EXPECT_EQ(screen.gpus, std::vector<std::size_t>{1});
  EXPECT_EQ(screen.kind, kGraphics);
  EXPECT_EQ(screen.phases[0].util, 7);
}

TEST(ScenarioQuirks, KindsOfFaults) {
  EXPECT_EQ(parse_fault("hang=dstate")->name, FaultName::dstate);
  EXPECT_EQ(parse_fault("dstate")->name, FaultName::dstate);
  EXPECT_EQ(parse_fault("hang=3s")->hang, 3s);
  const auto kind_of = [](FaultName name) {
    FaultSpec fault;
    fault.name = name;
    return state_faults(fault, 0, kForever).at(0).kind;
  };
  EXPECT_EQ(kind_of(FaultName::dstate), FaultKind::dstate);
  EXPECT_EQ(kind_of(FaultName::garbage), FaultKind::garbage);
  EXPECT_EQ(kind_of(FaultName::no_util), FaultKind::no_util);
  EXPECT_EQ(kind_of(FaultName::lost), FaultKind::result);
}

TEST(ScenarioQuirks, EveryDiscreteCardOfNvidiaReservesMemory) {
  for (const std::string_view name : model_names()) {
    const Gpu card = *model(name);
    if ((card.quirks & kUnifiedMemory) != 0 || card.vendor != Vendor::nvidia) continue;
    EXPECT_GE(card.memory_reserved, 200ULL << 20) << name;
    EXPECT_LE(card.memory_reserved, 1200ULL << 20) << name;
  }
}

Scenario quirky(std::string_view text) {
  auto scenario =
      parse_scenario(text, "test.toml", [](const std::string&) -> Result<std::string> { return std::string(); });
  EXPECT_TRUE(scenario) << scenario.error().message();
  return scenario ? *std::move(scenario) : Scenario();
}

TEST(ScenarioQuirks, GpusOfAllVendorsAreNumberedAsLullNumbersThem) {
  const Scenario scenario = quirky(R"(
    [[gpu]]
    model = "A770"
    [[gpu]]
    model = "MI300X"
    count = 2
    [[gpu]]
    model = "H100"
    [[process]]
    gpu = "amd:1"
    [[fault]]
    gpu = "intel:0"
    kind = "ebusy"
    file = "rc6_*"
  )");
  ASSERT_EQ(scenario.gpus.size(), 4U);
  EXPECT_EQ(vendors_of(scenario.gpus), (std::vector{Vendor::nvidia, Vendor::amd, Vendor::amd, Vendor::intel}));
  EXPECT_EQ(scenario.processes.at(0).gpus, std::vector<std::size_t>{2});
  EXPECT_EQ(scenario.faults.at(0).gpus, std::vector<std::size_t>{3});
  EXPECT_EQ(scenario.faults.at(0).function, "rc6_*");
  EXPECT_EQ(parse_gpu_list("amd:all,0", vendors_of(scenario.gpus)), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_FALSE(parse_gpu_list("amd:2", vendors_of(scenario.gpus)));
  EXPECT_FALSE(parse_gpu_list("tegra:0", vendors_of(scenario.gpus)));
}

TEST(ScenarioQuirks, OfCardsThatAreReadFromFiles) {
  const Scenario scenario = quirky(R"(
    [[gpu]]
    model = "7900 XTX"
    phantom_busy = true
    idle_util = 4
    hidden = ["power1_cap", "gpu_metrics"]
    uuid = "GPU-5d1f000000000065"
    [[gpu]]
    model = "MI300X"
    xcp_cards = false
    wrap_in = "10s"
    [[gpu]]
    model = "A770"
    kernel_driver = "xe"
    residency_stands = true
  )");
  const auto gpu = [&](std::size_t i) -> const Gpu& { return scenario.gpus.at(i).gpu; };
  EXPECT_NE(gpu(0).quirks & kPhantomBusy, 0U);
  EXPECT_EQ(gpu(0).idle_util, 4U);
  EXPECT_STREQ(gpu(0).hidden, ",power1_cap,gpu_metrics,");
  EXPECT_EQ(gpu(1).quirks & kXcpCards, 0U);
  EXPECT_EQ(gpu(1).wrap_in_ns, 10'000'000'000);
  EXPECT_EQ(gpu(2).quirks & (kXe | kResidencyStands), kXe | kResidencyStands);
  const auto plan = make_plan(scenario);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->gpus[0].gpu.unique_id, 0x5d1f000000000065U);
}

TEST(ScenarioQuirks, ASplitCardIsEightPlacesOfKfd) {
  const auto plan = make_plan(quirky("[[gpu]]\nmodel = \"MI300X\"\npartition = \"CPX\"\n[[gpu]]\nmodel = \"MI300X\""));
  ASSERT_TRUE(plan);
  const Gpu& split = plan->gpus[0].gpu;
  const Gpu& whole = plan->gpus[1].gpu;
  EXPECT_NE(split.quirks & kSplit, 0U);
  EXPECT_EQ(whole.quirks & kSplit, 0U);
  EXPECT_EQ(std::pair(whole.kfd_node, split.kfd_node), std::pair(2U, 3U)) << "the last card is the first there";
}

TEST(ScenarioQuirks, AreOfTheirVendorsAlone) {
  for (const std::string text : {"model = \"H100\"\nphantom_busy = true", "model = \"MI210\"\nkernel_driver = \"xe\"",
                                 "model = \"MI210\"\npartition = \"CPX\"", "model = \"MI300X\"\npartition = \"QPX\"",
                                 "model = \"A770\"\nkernel_driver = \"amdgpu\"", "model = \"T4\"\nhidden = [\"x\"]",
                                 "model = \"MI210\"\nuuid = \"GPU-5\""})
    EXPECT_FALSE(parse_scenario("[[gpu]]\n" + text, "quirks.toml", {})) << text;
}

}  // namespace
}  // namespace lull::sim
