// The sampler and /proc: who holds a GPU, and what becomes of a sample when a
// file of /proc does not answer, as those of a process do whose memory is locked.
// The GPUs are simulated, /proc is a folder, a file that hangs is a pipe.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "sense/sampler.h"
#include "sense/sim_machine_test.h"

namespace lull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Two GPUs; this process works on the first one, and two others hold device files.
class SamplerProc : public testing::Test {
 protected:
  void SetUp() override {
    machine_.begin();
    sim::Load load;
    load.step_count = 1;
    load.steps[0].memory = 1 << 30;
    hold_ = SimMachine::must(machine_.writer().hold(load));
    for (unsigned i = 0; i < 2; ++i) tree_.write(device(i), "");
    tree_.link("proc/self/ns/pid", "pid:[4026531836]");  // who lists processes sees all of them
    process(::getpid(), "trainer", {0});
    process(kBoth, "worker", {0, 1});
    process(kService, "persistenced", {0, 1});
    options_ = machine_.options();
    options_.root = tree_.root();
    options_.deadline = milliseconds(2500);
    options_.process_info = true;
    options_.openers = true;
    options_.ignore_openers = {"persistenced"};
  }

  std::string device(unsigned gpu) const { return "dev/nvidia" + std::to_string(machine_.plan.gpus[gpu].gpu.minor); }
  static std::string folder(pid_t pid) { return "proc/" + std::to_string(pid); }
  void process(pid_t pid, const std::string& name, const std::vector<unsigned>& gpus) const {
    tree_.write(folder(pid) + "/stat",
                std::to_string(pid) + " (" + name + ") S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 5 1 1");
    tree_.write(folder(pid) + "/comm", name + "\n");
    tree_.write(folder(pid) + "/cmdline", name + '\0');
    std::filesystem::create_directories(tree_.at(folder(pid) + "/fd"));
    for (const unsigned gpu : gpus) tree_.link(folder(pid) + "/fd/" + std::to_string(gpu), tree_.at(device(gpu)));
  }
  std::string process_arguments() const { return tree_.at(folder(::getpid()) + "/cmdline"); }

  // What /proc says of us, where it says anything.
  static const ProcessInfo* info_of_us(const Snapshot& snapshot) {
    for (const Reading& reading : snapshot.readings)
      for (const GpuProcess& one : reading.processes.value_or(std::vector<GpuProcess>()))
        if (one.info != nullptr && one.pid == ::getpid()) return one.info.get();
    return nullptr;
  }
  static bool complete(const Snapshot& snapshot) {
    return info_of_us(snapshot) != nullptr && snapshot.readings.size() == 2 &&
           snapshot.readings[0].why_missing(Metric::openers) == Absence::none;
  }
  // What is left of a sample without /proc: everything that the driver says, and nothing that only /proc knows.
  static void expect_without_proc(const Snapshot& snapshot) {
    EXPECT_EQ(snapshot.driver.absence, Absence::none);
    EXPECT_EQ(info_of_us(snapshot), nullptr);
    ASSERT_EQ(snapshot.readings.size(), 2U);
    for (const Reading& reading : snapshot.readings) {
      EXPECT_EQ(reading.device_absence, Absence::none);
      EXPECT_EQ(reading.why_missing(Metric::util), Absence::none);
      EXPECT_EQ(reading.why_missing(Metric::openers), Absence::looking) << "not looked at is not unused";
      EXPECT_TRUE(reading.processes);
    }
    EXPECT_EQ(snapshot.readings[0][Metric::procs], 1);
  }
  static Snapshot sample_until_complete(Sampler& sampler) { return sample_until(sampler, complete); }

  static constexpr pid_t kBoth = 900'000'001;  // beyond every real one
  static constexpr pid_t kService = 900'000'002;
  SimMachine machine_{{"H100", "H100"}};
  TestTree tree_;
  sim::Hold hold_;
  SamplerOptions options_;
};

TEST_F(SamplerProc, HoldersOfDeviceFilesAreCounted) {
  const auto sampler = Sampler::start(options_);
  const Snapshot snapshot = sampler->sample();
  ASSERT_TRUE(complete(snapshot));
  EXPECT_EQ(snapshot.readings[0][Metric::openers], 1) << "neither we nor those who are to be ignored";
  EXPECT_EQ(snapshot.readings[1][Metric::openers], 1);
  EXPECT_EQ(snapshot.readings[1].openers_span, seconds(0)) << "the scan began after it was asked for";
  EXPECT_EQ(info_of_us(snapshot)->name, "trainer");

  std::filesystem::remove_all(tree_.at(folder(kBoth)));
  process(kBoth + 10, "late", {1});
  process(kBoth + 11, "later", {1});
  const Snapshot after = sampler->sample();
  EXPECT_EQ(after.readings[0][Metric::openers], 0);
  EXPECT_EQ(after.readings[1][Metric::openers], 2);

  std::filesystem::remove(tree_.at(device(1)));
  const Snapshot without = sampler->sample();
  EXPECT_EQ(without.readings[0][Metric::openers], 0);
  EXPECT_EQ(without.readings[1].why_missing(Metric::openers), Absence::failed) << "no file is not no holder";
}

TEST_F(SamplerProc, AScanThatTakesLongerThanASampleTellsWhenItBegan) {
  for (int i = 10; i < 50'000; ++i) tree_.link(folder(kBoth) + "/fd/" + std::to_string(i), tree_.at(device(0)));
  options_.deadline = milliseconds(40);
  const auto sampler = Sampler::start(options_);
  std::vector<Instant> asked;
  const auto is_older = [&](const Snapshot& snapshot) {
    asked.push_back(snapshot.asked);
    return snapshot.readings.size() == 2 && snapshot.readings[1].openers_span > seconds(0);
  };
  const Snapshot snapshot = sample_until(*sampler, is_older);
  ASSERT_TRUE(is_older(snapshot));
  EXPECT_EQ(snapshot.readings[1][Metric::openers], 1);
  const Instant began = snapshot.asked - snapshot.readings[1].openers_span;
  EXPECT_GE(began, asked.front());
  EXPECT_LT(began, snapshot.asked);
}

TEST_F(SamplerProc, HoldersAreCountedOnlyWhereAsked) {
  options_.openers = false;
  const Snapshot snapshot = Sampler::start(options_)->sample();
  ASSERT_EQ(snapshot.readings.size(), 2U);
  EXPECT_EQ(snapshot.readings[0].why_missing(Metric::openers), Absence::not_asked);
  EXPECT_NE(info_of_us(snapshot), nullptr);
}

TEST_F(SamplerProc, AMigDeviceHasNoHoldersOfItsOwn) {
  hold_ = {};
  SimMachine machine({"H100"});
  ASSERT_TRUE(sim::cut(machine.plan.gpus[0].gpu, 0, {"3g.40gb"}));
  machine.begin();
  const Snapshot snapshot = Sampler::start(options_)->sample();
  ASSERT_EQ(snapshot.readings.size(), 2U);
  EXPECT_EQ(snapshot.readings[0][Metric::openers], 1);
  EXPECT_EQ(snapshot.readings[1].why_missing(Metric::openers), Absence::not_supported);
}

TEST_F(SamplerProc, AHangInProcCostsOnlyWhatProcKnows) {
  const auto sampler = Sampler::start(options_);
  ASSERT_TRUE(complete(sampler->sample()));
  {
    const HangingFile hangs(process_arguments());
    const Instant began = now();
    expect_without_proc(sampler->sample());
    EXPECT_LT(now() - began, seconds(20));
    // From now on it is known to hang: nobody is kept waiting for it, and no second thread is lost to it.
    const Instant again = now();
    for (int i = 0; i < 20; ++i) expect_without_proc(sampler->sample());
    EXPECT_LT(now() - again, 2 * options_.deadline);
    EXPECT_EQ(sensors_of_ours().size(), 1U);
  }
  const Snapshot after = sample_until_complete(*sampler);
  EXPECT_TRUE(complete(after)) << "it comes back by itself";
  EXPECT_EQ(after.readings[0][Metric::openers], 1);
}

TEST_F(SamplerProc, AHangFromTheStart) {
  std::optional<HangingFile> hangs(process_arguments());
  const auto sampler = Sampler::start(options_);
  expect_without_proc(sampler->sample());
  hangs.reset();
  EXPECT_TRUE(complete(sample_until_complete(*sampler)));
}

// The name of a holder is looked up only for --ignore-openers, on the same way that may hang.
TEST_F(SamplerProc, AHangAmongTheHoldersIsUnknownNotZero) {
  options_.process_info = false;
  const auto sampler = Sampler::start(options_);
  ASSERT_EQ(sampler->sample().readings.at(1)[Metric::openers], 1);
  {
    const HangingFile hangs(tree_.at(folder(kBoth) + "/comm"));
    expect_without_proc(sampler->sample());
  }
  const Instant end = now() + seconds(20);
  Snapshot snapshot = sampler->sample();
  while (snapshot.readings.at(1).why_missing(Metric::openers) != Absence::none && now() < end)
    snapshot = sampler->sample();
  EXPECT_EQ(snapshot.readings[1][Metric::openers], 1);
}

TEST_F(SamplerProc, WhoWaitsForTheEventFindsOutInTimeThatProcHangs) {
  const auto sampler = Sampler::start(options_);
  ASSERT_TRUE(complete(sample_until_complete(*sampler)));
  const HangingFile hangs(process_arguments());
  for (int i = 0; i < 2; ++i) expect_without_proc(sample_by_event(*sampler));
}

TEST_F(SamplerProc, WhoEndsWhileProcHangsIsNotKept) {
  const HangingFile hangs(process_arguments());
  auto sampler = Sampler::start(options_);
  expect_without_proc(sampler->sample());
  const Instant began = now();
  sampler.reset();
  EXPECT_LT(now() - began, seconds(20)) << "who hangs is not waited for";
}

// Both at once: the GPU's thread and the reader of /proc hang, and the other GPU is still answered for.
TEST_F(SamplerProc, AHangInProcAndOneInTheDriver) {
  const auto sampler = Sampler::start(options_);
  ASSERT_TRUE(complete(sampler->sample()));
  {
    const HangingFile hangs(process_arguments());
    machine_.fault(1, nvml::Return::success, seconds(60));
    for (int i = 0; i < 3; ++i) {
      const Snapshot snapshot = sampler->sample();
      ASSERT_EQ(snapshot.readings.size(), 2U);
      EXPECT_EQ(snapshot.readings[0].device_absence, Absence::none);
      EXPECT_EQ(snapshot.readings[1].device_absence, Absence::no_answer);
      EXPECT_EQ(info_of_us(snapshot), nullptr);
    }
    EXPECT_EQ(sensors_of_ours().size(), 1U);
    machine_.heal();
  }
  EXPECT_TRUE(complete(sample_until_complete(*sampler)));
}

}  // namespace
}  // namespace lull
