// Which process a number in the driver's list stands for, on a made-up /proc.
#include "sense/proof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class ProofTest : public testing::Test {
 protected:
  ProofTest() {
    tree_.write("dev/nvidia3", "");
    tree_.write("dev/nvidia4", "");
  }
  // A process that holds the file of GPU 3, unless told otherwise.
  void make(pid_t pid, std::uint64_t start = 100, const std::string& file = "nvidia3", char state = 'S',
            unsigned threads = 1) const {
    const std::string folder = "proc/" + std::to_string(pid);
    fs::remove_all(tree_.at(folder));
    tree_.write(folder + "/stat", std::to_string(pid) + " (python3) " + state + " 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 " +
                                      std::to_string(threads) + " 0 " + std::to_string(start) +
                                      " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n");
    tree_.write(folder + "/comm", "python3\n");
    tree_.write(folder + "/cmdline", "python3");
    fs::create_directories(tree_.at(folder + "/fd"));
    tree_.link(folder + "/fd/0", "/dev/null");
    if (!file.empty()) tree_.link(folder + "/fd/7", tree_.at("dev/" + file));
  }
  static GpuProcess listed(pid_t pid) {
    GpuProcess process;
    process.pid = pid;
    process.compute = true;
    return process;
  }
  std::vector<GpuProcess> list(const std::vector<pid_t>& pids, ProcessProofs::How how = {}) {
    std::vector<GpuProcess> processes;
    for (const pid_t pid : pids) processes.push_back(listed(pid));
    const std::vector<DeviceFile> files = {DeviceFile(tree_.root(), 3)};
    if (!no_number_) how.files = files;
    proofs_.begin_list();
    proofs_.look(processes, how, tree_.root());
    proofs_.end_list();
    return processes;
  }
  Proof proof_of(pid_t pid, ProcessProofs::How how = {}) {
    proofs_ = {};
    return list({pid}, how).front().proof;
  }

  TestTree tree_;
  ProcessProofs proofs_;
  bool no_number_ = false;
};

TEST_F(ProofTest, OnlyWhoHoldsTheDeviceFileIsProven) {
  make(10, 4711);
  const GpuProcess one = list({10}).front();
  EXPECT_EQ(one.proof, Proof::proven);
  EXPECT_TRUE(one.here);
  EXPECT_EQ(one.start_ticks, 4711U);
  make(11, 100, "");
  EXPECT_EQ(proof_of(11), Proof::stale) << "holds no GPU";
  make(12, 100, "nvidia4");
  EXPECT_EQ(proof_of(12), Proof::stale) << "holds another GPU";
  EXPECT_EQ(proof_of(13), Proof::stale) << "there is no such process";
  make(14, 100, "nvidia3", 'Z');
  EXPECT_EQ(proof_of(14), Proof::stale) << "it has ended";
  const GpuProcess stale = list({11}).front();
  EXPECT_FALSE(stale.here);
  EXPECT_EQ(stale.start_ticks, 0U);
}

TEST_F(ProofTest, AProcessWhoseFirstThreadEndedHoldsItsFiles) {
  make(10, 100, "", 'Z', 2);
  EXPECT_EQ(proof_of(10), Proof::stale);
  tree_.link("proc/10/task/11/fd/5", tree_.at("dev/nvidia3"));
  EXPECT_EQ(proof_of(10), Proof::proven);
}

TEST_F(ProofTest, WhatCannotBeLookedAtIsUnproven) {
  make(10, 4711);
  fs::remove_all(tree_.at("proc/10/fd"));
  tree_.write("proc/10/fd", "not a folder");
  const GpuProcess one = list({10}).front();
  EXPECT_EQ(one.proof, Proof::unproven);
  EXPECT_TRUE(one.here);
  EXPECT_EQ(one.start_ticks, 4711U);
  make(10);
  no_number_ = true;
  EXPECT_EQ(proof_of(10), Proof::unproven) << "which file it would be is not known";
}

TEST_F(ProofTest, InAnotherPidNamespaceANumberWithoutTheFileProvesNothing) {
  make(10);
  make(11, 100, "");
  const ProcessProofs::How how{.numbers_are_ours = false};
  EXPECT_EQ(proof_of(10, how), Proof::proven);
  for (const pid_t pid : {11, 12}) {
    EXPECT_EQ(proof_of(pid, how), Proof::unproven);
    EXPECT_FALSE(list({pid}, how).front().here);
  }
}

TEST_F(ProofTest, AClientOfAnMpsServerNeedNotHoldTheFile) {
  make(11, 100, "");
  EXPECT_EQ(proof_of(11, {.has_mps_server = true}), Proof::unproven);
  EXPECT_EQ(proof_of(12, {.has_mps_server = true}), Proof::stale) << "there is no such process";
}

TEST_F(ProofTest, ANodeThatWasRemovedIsStillHeld) {
  make(10, 100, "");
  fs::remove(tree_.at("dev/nvidia3"));
  const std::string path = fs::canonical(tree_.at("dev")).string() + "/nvidia3";
  tree_.link("proc/10/fd/7", path + " (deleted)");
  EXPECT_EQ(proof_of(10), Proof::proven);
  make(11, 100, "nvidia4");
  EXPECT_EQ(proof_of(11), Proof::stale);
}

TEST_F(ProofTest, OfManyAllAreLookedAtAgainWithinAWhile) {
  std::vector<pid_t> pids;
  for (pid_t pid = 1000; pid < 1300; ++pid) {
    make(pid);
    pids.push_back(pid);
  }
  const auto proven = [&](const std::vector<GpuProcess>& processes) {
    return std::ranges::count(processes, Proof::proven, &GpuProcess::proof);
  };
  EXPECT_EQ(proven(list(pids)), 300) << "each when it is first listed";
  for (const pid_t pid : pids) make(pid, 100, "");
  EXPECT_GT(proven(list(pids)), 200) << "some of them";
  const std::size_t lists = 300 / ProcessProofs::kInTurn + 1;
  for (std::size_t i = 1; i < lists; ++i) list(pids);
  EXPECT_EQ(proven(list(pids)), 0);
  for (const pid_t pid : pids) make(pid, 200);
  EXPECT_EQ(proven(list(pids, {.all = true})), 300) << "all of them, where that is asked for";
}

TEST_F(ProofTest, SaysWhenSomebodyTurnsOutToBeStale) {
  make(10);
  list({10});
  EXPECT_FALSE(proofs_.found_stale());
  list({10, 11});
  EXPECT_TRUE(proofs_.found_stale());
  list({10, 11});
  EXPECT_FALSE(proofs_.found_stale()) << "known since";
}

// ---- who had the number first

class FirstReportsTest : public ProofTest {
 protected:
  GpuProcess report(pid_t pid) {
    std::vector<GpuProcess> processes = list({pid});
    reports_.check(DeviceId("GPU-3"), processes, at_ += 1s);
    return processes.front();
  }
  void report_nobody() {
    std::vector<GpuProcess> nobody;
    reports_.check(DeviceId("GPU-3"), nobody, at_ += 1s);
  }
  FirstReports reports_;
  Instant at_{1h};
};

TEST_F(FirstReportsTest, ALaterProcessDoesNotInheritANumber) {
  make(10, 100);
  EXPECT_EQ(report(10).proof, Proof::proven);
  make(10, 200);  // it ended, and another process that opens the GPU gets its number
  const GpuProcess later = report(10);
  EXPECT_EQ(later.proof, Proof::stale);
  EXPECT_FALSE(later.here);
  proofs_ = {};  // a restarted sensor remembers nothing
  EXPECT_EQ(report(10).proof, Proof::stale) << "as long as the driver goes on listing it";
  report_nobody();
  EXPECT_EQ(report(10).proof, Proof::proven) << "it was listed anew";
}

TEST_F(FirstReportsTest, NobodyInheritsANumberThatWasListedWithoutAProcess) {
  EXPECT_EQ(report(10).proof, Proof::stale);
  make(10, 200);
  EXPECT_EQ(report(10).proof, Proof::stale);
  make(11, 100, "");  // and one that was there, and did not hold the GPU, does not come to hold it
  EXPECT_EQ(report(11).proof, Proof::stale);
  make(11, 100);
  EXPECT_EQ(report(11).proof, Proof::stale);
}

TEST_F(FirstReportsTest, WhoCouldNotBeSeenAtFirstIsKnownByItsStart) {
  std::vector<GpuProcess> unseen = {listed(10)};
  unseen.front().proof = Proof::unproven;
  unseen.front().here = false;
  reports_.check(DeviceId("GPU-3"), unseen, at_);
  make(10, 100);  // a second after the boot: an hour before it was listed
  EXPECT_EQ(report(10).proof, Proof::proven);
  unseen.front().pid = 11;
  reports_.check(DeviceId("GPU-4"), unseen, Instant(1s));
  std::vector<GpuProcess> later = {listed(11)};
  later.front().start_ticks = 100'000;
  reports_.check(DeviceId("GPU-4"), later, at_);
  EXPECT_EQ(later.front().proof, Proof::stale) << "it started after it was listed";
}

TEST_F(FirstReportsTest, OneProcessNamedTwiceIsOne) {
  make(10, 100);
  make(11, 100);
  std::vector<GpuProcess> both = list({10, 11});
  reports_.check(DeviceId("GPU-3"), both, at_);
  std::vector<GpuProcess> twice = list({11, 11});  // of two MIG instances
  reports_.check(DeviceId("GPU-3"), twice, at_);
  make(10, 200);
  std::vector<GpuProcess> again = list({10, 11});
  reports_.check(DeviceId("GPU-3"), again, at_);
  EXPECT_EQ(again.front().proof, Proof::proven) << "10 was forgotten when it was not listed";
}

}  // namespace
}  // namespace lull
