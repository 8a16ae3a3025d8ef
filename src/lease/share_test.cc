// GPUs that several hold: who may join whom, and that a crowd is never larger than each of its members lives with.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "lease/queue.h"
#include "lease/random_chooser_test.h"
#include "lease/sleep_test.h"

namespace lull {
namespace {

LeaseInfo holder(const std::string& id, unsigned share, const std::string& within = "") {
  LeaseInfo info;
  info.gpu = "GPU-0";
  info.file = "GPU-0." + id;
  info.record.id = id;
  info.record.share = share;
  info.record.within = within;
  return info;
}

Standing for_one_who_shares(const FolderState& state, unsigned share, const std::string& within = "") {
  const std::vector<Candidate> gpu = {{"GPU-0", "0", Fit::yes, Fit::yes}};
  return standings(state, gpu, Place{0, 7, "", 0, 0, share}, within, {}, {})[0];
}

TEST(Sharing, AllMustAgreeOnTheNumber) {
  FolderState state;
  state.leases = {holder("a", 2)};
  EXPECT_EQ(for_one_who_shares(state, 1).state, Standing::leased);
  EXPECT_EQ(for_one_who_shares(state, 2).state, Standing::shared);
  state.leases.push_back(holder("b", 5));
  EXPECT_EQ(for_one_who_shares(state, 5).state, Standing::leased) << "the first lives with one other only";
  state.leases[0].record.share = 5;
  EXPECT_EQ(for_one_who_shares(state, 5).state, Standing::shared);
  EXPECT_EQ(for_one_who_shares(state, 2).state, Standing::leased) << "we would be the third";
  state.leases[1].record.share = 1;
  EXPECT_EQ(for_one_who_shares(state, 5).state, Standing::leased);
}

TEST(Sharing, WhatCannotBeReadIsNotShared) {
  FolderState state;
  state.leases = {holder("a", 9)};
  state.leases[0].readable = false;
  EXPECT_EQ(for_one_who_shares(state, 9).state, Standing::leased);
  // Nor is what an older lull, or anybody else, wrote without a number, or with one that is none.
  EXPECT_EQ(read_lease("gpu: GPU-0\nlease: a\n")->share, 1U);
  EXPECT_EQ(read_lease("gpu: GPU-0\nshare: -3\n")->share, 1U);
  EXPECT_EQ(read_lease("gpu: GPU-0\nshare: 0\n")->share, 1U);
  EXPECT_EQ(read_lease("gpu: GPU-0\nshare: 99999999999999999999\n")->share, 1U);
  EXPECT_EQ(read_lease("gpu: GPU-0\nshare: 4000000000\n")->share, kMostHolders);
}

TEST(Sharing, InsideASharedLeaseTheOthersAreBeside) {
  FolderState state;
  state.leases = {holder("ours", 2), holder("theirs", 2)};
  state.leases[1].owner = 1000;
  EXPECT_EQ(for_one_who_shares(state, 1, "ours").state, Standing::free);
  state.leases.push_back(holder("inner", 1, "ours"));
  EXPECT_EQ(for_one_who_shares(state, 1, "ours").state, Standing::leased) << "another one inside has it";
  state.leases.back().record.within = "elsewhere";
  state.leases.back().record.share = 2;
  EXPECT_EQ(for_one_who_shares(state, 1, "ours").state, Standing::free) << "that is inside of another job";
  state.leases[1].record.share = 1;
  EXPECT_EQ(for_one_who_shares(state, 1, "ours").state, Standing::leased) << "it was taken away from us";
}

TEST(Sharing, WhoWantsItAloneIsNotOvertakenByThoseWhoShare) {
  FolderState state;
  state.leases = {holder("a", 3)};
  TicketInfo alone;
  alone.file = "ticket.1";
  alone.record.number = 1;
  alone.record.missing = alone.record.count = 1;
  alone.record.wants = {"GPU-0"};
  state.tickets = {alone};
  const Standing standing = for_one_who_shares(state, 3);
  EXPECT_FALSE(standing.open());
  EXPECT_FALSE(standing.claimable()) << "it cannot take it yet, so it is not late";
  state.tickets[0].record.share = 3;
  EXPECT_TRUE(for_one_who_shares(state, 3).claimable());
}

constexpr std::size_t kGpus = 3;

struct SharedCounts {
  std::atomic<int> served{0};
  std::atomic<int> killed{0};  // while waiting
  std::atomic<int> crowded{0};
  std::atomic<int> together{0};  // seen more than one on a GPU
  std::atomic<int> errors{0};
};

[[noreturn]] void give_up(SharedCounts& shared) {
  ++shared.errors;
  ::_exit(1);
}

// Inside the folder lock what is there is exact.
void count_holders(const LeaseFolder& folder, SharedCounts& shared) {
  const auto folder_lock = folder.enter();
  const auto state = folder.scan();
  if (!folder_lock || !state) give_up(shared);
  std::map<std::string, std::pair<unsigned, unsigned>> crowd;  // holders, and how many the least patient lives with
  for (const LeaseInfo& lease : state->leases) {
    auto& [holders, patience] = crowd.try_emplace(lease.gpu, 0U, kMostHolders).first->second;
    ++holders;
    patience = std::min(patience, lease.record.share);
  }
  for (const auto& [gpu, found] : crowd) {
    if (found.first > found.second) ++shared.crowded;
    if (found.first > 1) ++shared.together;
  }
}

[[noreturn]] void wait_and_share(const std::string& path, SharedCounts& shared, unsigned seed) {
  std::mt19937 random(seed);
  const auto folder = LeaseFolder::open({path, false});
  Demand demand;
  demand.count = 1 + static_cast<unsigned>(random() % 2);
  demand.share = demand.pattern.share = 1 + static_cast<unsigned>(random() % 4);
  std::vector<Candidate> gpus;
  for (std::size_t i = 0; i < kGpus; ++i)
    gpus.push_back({"GPU-" + std::to_string(i), std::to_string(i), Fit::yes, Fit::yes});
  LeaseQueue queue(*folder, demand, gpus, kTestClock);
  const Chooser choose = [&](std::span<const std::size_t> open, std::span<const std::size_t>, std::size_t want) {
    return some_of(open, want, random);
  };
  while (true) {
    const auto standing = queue.look();
    if (!standing) give_up(shared);
    const bool act = queue.ticket().number == 0 || std::ranges::any_of(*standing, [](const Standing& one) {
                       return one.open() || (one.state == Standing::ours && one.spoken_for);
                     });
    for (Candidate& candidate : queue.candidates()) candidate.fit = Fit::yes;
    if (act) {
      const auto done = queue.turn(choose);
      if (!done) give_up(shared);
      if (*done) break;
    }
    if (random() % 100 == 0) {
      ++shared.killed;
      ::kill(::getpid(), SIGKILL);
    }
    if (!wait_for_test(queue)) give_up(shared);
  }
  const auto files = queue.finish();
  if (!files) give_up(shared);
  count_holders(*folder, shared);
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
  ++shared.served;
  if (random() % 3 == 0) ::kill(::getpid(), SIGKILL);
  ::_exit(0);
}

TEST(Sharing, AStormNeverCrowdsAGpu) {
  std::string root = ::testing::TempDir() + "lull-share-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  auto* shared = new (::mmap(nullptr, sizeof(SharedCounts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
      SharedCounts;
  const auto folder = LeaseFolder::open({root + "/leases", false});
  ASSERT_TRUE(folder);
  for (unsigned round = 0; round < 4; ++round) {
    std::vector<pid_t> children;
    for (unsigned i = 0; i < 48; ++i) {
      const pid_t child = ::fork();
      if (child == 0) wait_and_share(root + "/leases", *shared, round * 1000 + i);
      children.push_back(child);
    }
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(folder->scan()->leases.empty());
  }
  EXPECT_EQ(shared->crowded.load(), 0);
  EXPECT_EQ(shared->errors.load(), 0);
  EXPECT_GT(shared->together.load(), 0);
  EXPECT_EQ(shared->served.load() + shared->killed.load(), 4 * 48);
  EXPECT_GT(shared->served.load(), 48);
  ::munmap(shared, sizeof(SharedCounts));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace lull
