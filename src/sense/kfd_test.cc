#include "sense/kfd.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

class KfdTest : public testing::Test {
 protected:
  static std::string node(unsigned number) { return "sys/class/kfd/kfd/topology/nodes/" + std::to_string(number); }
  static std::string process(pid_t pid) { return "sys/class/kfd/kfd/proc/" + std::to_string(pid); }
  void cpu(unsigned number) const {
    tree_.write(node(number) + "/gpu_id", "0\n");
    tree_.write(node(number) + "/properties", "cpu_cores_count 96\nsimd_count 0\n");
  }
  void gpu(unsigned number, std::uint32_t id, std::uint32_t location, unsigned minor, std::uint64_t unique,
           unsigned simds = 1216) const {
    tree_.write(node(number) + "/gpu_id", std::to_string(id) + "\n");
    tree_.write(node(number) + "/properties", "cpu_cores_count 0\nsimd_count " + std::to_string(simds) +
                                                  "\nlocation_id " + std::to_string(location) +
                                                  "\ndomain 0\ndrm_render_minor " + std::to_string(minor) +
                                                  "\nunique_id " + std::to_string(unique) + "\n");
    tree_.write("dev/dri/renderD" + std::to_string(minor), "");
  }
  KfdTopology read() const { return read_kfd_topology(tree_.root()); }
  std::vector<std::optional<unsigned>> ranks() const {
    std::vector<std::optional<unsigned>> all;
    for (const KfdNode& one : read().gpus) all.push_back(one.rank);
    return all;
  }

  TestTree tree_;
};

using Ranks = std::vector<std::optional<unsigned>>;

TEST_F(KfdTest, RanksFollowTheNodesAndNotTheBus) {  // buses of a public machine with 8 MI210
  cpu(0);
  cpu(1);
  unsigned number = 2;
  for (const unsigned bus : {0x63U, 0x43U, 0x03U, 0x26U, 0xe3U, 0xc3U, 0x83U, 0xa3U}) {
    gpu(number, 20000 + bus, bus << 8, 128 + bus, 0x5d1f000000000000 + bus);
    ++number;
  }
  const KfdTopology topology = read();
  ASSERT_EQ(topology.gpus.size(), 8U);
  EXPECT_EQ(topology.absence, Absence::none);
  const KfdNode* third = topology.with_render_minor(128 + 0x03);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->rank, 2U);
  EXPECT_EQ(third->gpu_id, 20003U);
  EXPECT_EQ(third->pci(), "00000000:03:00.0");
  EXPECT_EQ(third->uuid(), "GPU-5d1f000000000003");
  EXPECT_FALSE(third->partition);
  EXPECT_EQ(topology.with_render_minor(1), nullptr);
}

TEST_F(KfdTest, NumbersWithTwoDigitsAreNumbers) {
  for (unsigned i = 0; i < 12; ++i) gpu(i, 100 + i, (i + 1) << 8, 128 + i, 7000 + i);
  EXPECT_EQ(read().with_render_minor(138)->rank, 10U);
}

TEST_F(KfdTest, WhatRocmDoesNotCountMovesNobody) {
  cpu(0);
  gpu(1, 11, 0x300, 128, 1, 0);  // without SIMDs
  gpu(2, 12, 0x400, 129, 2);
  gpu(3, 13, 0x500, 130, 3);
  std::filesystem::remove(tree_.at("dev/dri/renderD129"));  // not given to this container
  EXPECT_EQ(ranks(), (Ranks{std::nullopt, std::nullopt, 0}));
}

TEST_F(KfdTest, AnUnreadableNodeMakesTheOrderUnknown) {
  gpu(0, 11, 0x300, 128, 1);
  gpu(1, 12, 0x400, 129, 2);
  EXPECT_EQ(ranks(), (Ranks{0, 1}));
  tree_.write(node(0) + "/gpu_id", "");
  EXPECT_FALSE(read().order_known);
  EXPECT_EQ(ranks(), (Ranks{std::nullopt}));
  tree_.write(node(0) + "/gpu_id", "11\n");
  tree_.write(node(0) + "/properties", "nonsense");
  EXPECT_FALSE(read().order_known);
  std::filesystem::remove_all(tree_.at(node(0)));
  EXPECT_FALSE(read().order_known) << "a gap";
}

TEST_F(KfdTest, PartitionsShareTheirCard) {
  for (unsigned i = 0; i < 4; ++i) gpu(i, 100 + i, 0x6500 + i, 128 + i, 0x5d1f000000000065);
  gpu(4, 200, 0x4500, 140, 0x5d1f000000000045);
  const KfdTopology topology = read();
  EXPECT_TRUE(topology.gpus[3].partition);
  EXPECT_EQ(topology.gpus[3].pci(), "00000000:65:00.0");
  EXPECT_EQ(topology.gpus[3].rank, 3U);
  EXPECT_FALSE(topology.gpus[4].partition);
}

TEST_F(KfdTest, AMachineWithoutKfdSaysSo) {
  EXPECT_EQ(read().absence, Absence::no_driver);
  tree_.write("sys/class/kfd/kfd/dev", "511:0\n");
  EXPECT_EQ(read().absence, Absence::failed);
  EXPECT_FALSE(read().order_known);
}

TEST_F(KfdTest, AUserHasMemoryOrAQueueThere) {
  tree_.write(process(10) + "/vram_11", "1073741824\n");
  tree_.write(process(10) + "/vram_12", "0\n");
  tree_.write(process(11) + "/vram_12", "0\n");
  tree_.write(process(11) + "/queues/0/gpuid", "11");
  tree_.write(process(11) + "/queues/1/gpuid", "12");
  tree_.write(process(13) + "/vram_12", "0\n");
  tree_.write(process(13) + "/queues/0/gpuid", "112");
  const KfdUsers first = read_kfd_users(tree_.root(), 11);
  ASSERT_EQ(first.processes.size(), 2U);
  EXPECT_EQ(first.absence, Absence::none);
  EXPECT_EQ(first.processes[0].pid, 10);
  EXPECT_EQ(first.processes[0].memory_bytes, 1U << 30);
  EXPECT_EQ(first.processes[0].proof, Proof::unproven);
  EXPECT_TRUE(first.processes[0].compute);
  EXPECT_EQ(first.processes[1].pid, 11);
  const KfdUsers second = read_kfd_users(tree_.root(), 12);
  ASSERT_EQ(second.processes.size(), 1U) << "a file for a GPU is no use of it";
  EXPECT_EQ(second.processes[0].pid, 11);
}

TEST_F(KfdTest, FurtherContextsCount) {
  tree_.write(process(10) + "/vram_11", "0\n");
  tree_.write(process(10) + "/context_3/vram_11", "4096\n");
  tree_.write(process(10) + "/context_4/vram_11", "4096\n");
  tree_.write(process(10) + "/context_4/queues/0/gpuid", "12");
  const KfdUsers users = read_kfd_users(tree_.root(), 11);
  ASSERT_EQ(users.processes.size(), 1U);
  EXPECT_EQ(users.processes[0].memory_bytes, 8192U);
  EXPECT_EQ(read_kfd_users(tree_.root(), 12).processes.size(), 1U);
}

TEST_F(KfdTest, WhatCannotBeReadMayBeAUser) {
  tree_.write(process(10) + "/vram_11", "");
  EXPECT_EQ(read_kfd_users(tree_.root(), 11).absence, Absence::failed);
  tree_.write(process(10) + "/vram_11", "18446744073709551615\n");
  EXPECT_EQ(read_kfd_users(tree_.root(), 11).absence, Absence::failed) << "no card has that much";
  tree_.write(process(10) + "/queues/0/gpuid", "11");
  EXPECT_EQ(read_kfd_users(tree_.root(), 11).processes.size(), 1U) << "it is seen all the same";
  EXPECT_EQ(read_kfd_users(tree_.root(), 12).absence, Absence::none) << "not asked there";
  tree_.write(process(10) + "/queues/0/gpuid", "18446744073709551615");
  EXPECT_EQ(read_kfd_users(tree_.root(), 12).absence, Absence::failed) << "a queue of some GPU";
  std::filesystem::remove_all(tree_.at("sys/class/kfd/kfd/proc"));
  EXPECT_EQ(read_kfd_users(tree_.root(), 11).absence, Absence::not_supported);
}

TEST_F(KfdTest, AnOldKernelThatOnlyNamesItsProcessesTellsNothing) {
  tree_.write(process(10) + "/pasid", "32769\n");  // before Linux 5.7
  EXPECT_EQ(read_kfd_users(tree_.root(), 11).absence, Absence::not_supported);
  std::filesystem::create_directories(tree_.at(process(10) + "/queues"));
  EXPECT_EQ(read_kfd_users(tree_.root(), 11).absence, Absence::none) << "it may not open that GPU";
}

TEST_F(KfdTest, ANodeThatCannotBeReadMayBeAnyCard) {
  cpu(0);
  gpu(1, 11, 0x300, 128, 7);
  EXPECT_EQ(read().unseen, Absence::none);
  tree_.write(node(2) + "/gpu_id", "");
  EXPECT_EQ(read().unseen, Absence::failed);
  EXPECT_EQ(read().absence, Absence::none);
}

// Its file is a pipe that nobody writes: reading it would never end.
TEST_F(KfdTest, NeverReadsWhatAKernelWorkerAnswers) {
  tree_.write(process(10) + "/vram_11", "4096\n");
  ASSERT_EQ(::mkfifo(tree_.at(process(10) + "/sdma_11").c_str(), 0600), 0);
  EXPECT_EQ(read_kfd_users(tree_.root(), 11).processes.size(), 1U);
}

}  // namespace
}  // namespace lull
