#include "lease/queue.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "base/text.h"
#include "lease/lease_holder.h"
#include "lease/random_chooser_test.h"
#include "lease/sleep_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

std::vector<Candidate> gpus(std::size_t count, Fit fit = Fit::yes) {
  std::vector<Candidate> list;
  for (std::size_t i = 0; i < count; ++i) list.push_back({"GPU-" + std::to_string(i), std::to_string(i), fit});
  return list;
}

LeaseInfo lease(const std::string& gpu, const std::string& id, LeaseKind kind = LeaseKind::job,
                const std::string& within = "") {
  LeaseInfo info;
  info.gpu = gpu;
  info.file = gpu + "." + id;
  info.record.id = id;
  info.record.kind = kind;
  info.record.within = within;
  return info;
}

TicketInfo ticket(std::uint64_t number, std::vector<std::string> wants, unsigned missing = 1, int priority = 0) {
  TicketInfo info;
  info.file = "ticket." + std::to_string(number);
  info.record.number = number;
  info.record.wants = std::move(wants);
  info.record.missing = missing;
  info.record.count = missing;
  info.record.priority = priority;
  return info;
}

TEST(Standings, SayWhoHasAGpuAndWhoIsAheadOfUs) {
  FolderState state;
  state.leases = {lease("GPU-0", "a"), lease("GPU-1", "b", LeaseKind::collecting), lease("GPU-2", "c")};
  state.tickets = {ticket(3, {"GPU-3"})};
  const auto standing = standings(state, gpus(5), Place{0, 7, "", 0, 0}, "", {"GPU-2.c"}, {});
  EXPECT_EQ(standing[0].state, Standing::leased);
  EXPECT_EQ(standing[1].state, Standing::collecting);
  EXPECT_EQ(standing[2].state, Standing::ours);
  EXPECT_EQ(standing[3].state, Standing::free);
  EXPECT_NE(standing[3].spoken_for, nullptr);
  EXPECT_FALSE(standing[4].spoken_for);
}

TEST(Standings, TheFirstOfThoseAheadSpeaksForAGpu) {
  FolderState state;
  state.tickets = {ticket(3, {"GPU-0"}), ticket(4, {"GPU-0"})};
  EXPECT_EQ(standings(state, gpus(1), Place{0, 7, "", 0, 0}, "", {}, {})[0].spoken_for, &state.tickets[0]);
}

TEST(Standings, OnlyThoseAheadWhoStillLackSomethingCount) {
  FolderState state;
  state.tickets = {ticket(1, {"GPU-0"}, 0), ticket(9, {"GPU-0"}), ticket(5, {"GPU-0"}, 1, -1)};
  EXPECT_FALSE(standings(state, gpus(1), Place{0, 7, "", 0, 0}, "", {}, {})[0].spoken_for);
  state.tickets.push_back(ticket(8, {"GPU-0"}, 1, 2));  // came later, goes first
  EXPECT_TRUE(standings(state, gpus(1), Place{0, 7, "", 0, 0}, "", {}, {})[0].spoken_for);
  EXPECT_FALSE(standings(state, gpus(1), Place{2, 7, "", 0, 0}, "", {}, {})[0].spoken_for);
  EXPECT_FALSE(standings(state, gpus(1), Place{0, 7, "", 0, 0}, "", {}, {{"ticket.8", "GPU-0"}})[0].spoken_for);
}

TEST(Standings, AWaiterThatIsStoppedHasNoTurn) {
  FolderState state;
  state.tickets = {ticket(3, {"GPU-0"})};
  EXPECT_NE(standings(state, gpus(1), Place{0, 7, "", 0, 0}, "", {}, {})[0].spoken_for, nullptr);
  state.tickets[0].stopped = true;
  EXPECT_EQ(standings(state, gpus(1), Place{0, 7, "", 0, 0}, "", {}, {})[0].spoken_for, nullptr);
  EXPECT_FALSE(goes_before(state.tickets[0], Place{0, 7, "", 0, 0}, ""));
}

// Two cards with one UUID are leased by their places. Who sees one of them only leases it by the UUID: that is both.
TEST(Standings, GpusWithTheSameUuidAreNotConfused) {
  const std::vector<Candidate> two = {{"PCI-a", "0", Fit::yes, Fit::unknown, {"PCI-a", "GPU-x"}},
                                      {"PCI-b", "1", Fit::yes, Fit::unknown, {"PCI-b", "GPU-x"}}};
  FolderState state;
  state.leases = {lease("PCI-a", "a")};
  state.tickets = {ticket(3, {"PCI-b"})};
  auto standing = standings(state, two, Place{0, 7, "", 0, 0}, "", {}, {});
  EXPECT_EQ(standing[0].state, Standing::leased);
  EXPECT_EQ(standing[1].state, Standing::free);
  EXPECT_EQ(standing[0].spoken_for, nullptr);
  EXPECT_NE(standing[1].spoken_for, nullptr);
  state.leases = {lease("GPU-x", "a")};
  state.tickets = {ticket(3, {"GPU-x"})};
  standing = standings(state, two, Place{0, 7, "", 0, 0}, "", {}, {});
  for (const Standing& one : standing) {
    EXPECT_EQ(one.state, Standing::leased);
    EXPECT_NE(one.spoken_for, nullptr);
  }
}

TEST(Standings, InsideALeaseItsOwnGpusAreFree) {
  FolderState state;
  state.leases = {lease("GPU-0", "outer"), lease("GPU-1", "outer"), lease("GPU-1", "inner", LeaseKind::job, "outer"),
                  lease("GPU-2", "other")};
  const auto outside = standings(state, gpus(3), {}, "", {}, {});
  EXPECT_EQ(outside[0].state, Standing::leased);
  const auto inside = standings(state, gpus(3), {}, "outer", {}, {});
  EXPECT_EQ(inside[0].state, Standing::free);
  EXPECT_EQ(inside[1].state, Standing::leased);  // narrowed already by another
  EXPECT_EQ(inside[2].state, Standing::leased);
  const auto deeper = standings(state, gpus(3), {}, "inner", {}, {});
  EXPECT_EQ(deeper[1].state, Standing::free);
}

// Who shares a GPU and narrows its part is one holder, not two.
TEST(Standings, WhatAHolderHasNarrowedIsNoOtherHolder) {
  FolderState state;
  state.leases = {lease("GPU-0", "outer"), lease("GPU-0", "inner", LeaseKind::job, "outer")};
  state.leases[0].record.share = 2;
  const Place sharer{0, 7, "", 0, 0, 2};
  EXPECT_EQ(standings(state, gpus(1), sharer, "", {}, {})[0].state, Standing::shared);
  EXPECT_EQ(standings(state, gpus(1), sharer, "", {}, {})[0].holders, 1U);
  EXPECT_EQ(standings(state, gpus(1), sharer, "outer", {}, {})[0].state, Standing::leased);  // inside it is another
  state.leases.erase(state.leases.begin());  // the job around it is gone
  EXPECT_EQ(standings(state, gpus(1), sharer, "", {}, {})[0].state, Standing::leased);
}

TEST(Standings, ARingOfLeasesEnds) {
  FolderState state;
  state.leases = {lease("GPU-0", "a", LeaseKind::job, "b"), lease("GPU-0", "b", LeaseKind::job, "a")};
  EXPECT_EQ(around("a", state, 0), (std::set<std::string>{"a", "b"}));
}

TEST(Standings, AnotherUsersLeaseIsNotOneToBeInside) {
  FolderState state;
  state.leases = {lease("GPU-0", "theirs"), lease("GPU-0", "mine", LeaseKind::job, "theirs")};
  state.leases[1].owner = 1000;
  const Place us{0, 7, "", 1000, 0};
  EXPECT_EQ(standings(state, gpus(1), us, "theirs", {}, {})[0].state, Standing::leased);
  EXPECT_EQ(standings(state, gpus(1), us, "mine", {}, {})[0].state, Standing::leased);
  state.leases[0].owner = 1000;
  EXPECT_EQ(standings(state, gpus(1), us, "mine", {}, {})[0].state, Standing::free);
}

class Queue : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "lull-queue-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    folder_.emplace(*LeaseFolder::open({root_ + "/leases", false}));
  }
  void TearDown() override { fs::remove_all(root_); }
  LeaseQueue queue(unsigned count, std::size_t of, int priority = 0, Fit fit = Fit::yes) {
    Demand demand;
    demand.count = count;
    demand.priority = priority;
    return {*folder_, demand, gpus(of, fit), kTestClock};
  }
  static std::vector<std::size_t> first(std::span<const std::size_t> open, std::span<const std::size_t>,
                                        std::size_t count) {
    return {open.begin(), open.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  // A turn with a new reading: every GPU does nothing.
  static bool turn(LeaseQueue& queue) {
    for (Candidate& candidate : queue.candidates()) candidate.fit = Fit::yes;
    return queue.turn(first).value();
  }
  std::string root_;
  std::optional<LeaseFolder> folder_;
};

TEST_F(Queue, TakesAllOrNothing) {
  auto a = queue(2, 3);
  auto b = queue(2, 3);
  EXPECT_TRUE(*a.take_now(first));
  EXPECT_FALSE(*b.take_now(first));
  EXPECT_EQ(b.kept().size(), 0U);
  auto c = queue(1, 3);
  EXPECT_TRUE(*c.take_now(first));
  EXPECT_EQ(c.kept(), std::vector<std::size_t>{2});
}

TEST_F(Queue, FirstComeFirstServed) {
  std::optional<LeaseQueue> holder = queue(1, 1);
  ASSERT_TRUE(*holder->take_now(first));
  auto a = queue(1, 1);
  auto b = queue(1, 1);
  EXPECT_FALSE(turn(a));
  EXPECT_FALSE(turn(b));
  EXPECT_EQ(b.ahead(), 1U);
  holder.reset();
  EXPECT_FALSE(turn(b));  // looks first, but is second
  auto hurried = queue(1, 1);
  EXPECT_FALSE(*hurried.take_now(first));  // nor does one who does not queue get ahead
  auto urgent = queue(1, 1, 1);
  EXPECT_TRUE(turn(urgent));  // priority does
  const std::vector<std::size_t> all = urgent.kept();
  ASSERT_TRUE(urgent.give_back(all));
  EXPECT_FALSE(turn(b));
  EXPECT_FALSE(turn(urgent) && turn(a));  // it still goes first
}

TEST_F(Queue, AWaiterForMoreCollects) {
  std::vector<std::optional<LeaseQueue>> ones(4);
  for (auto& one : ones) {
    one = queue(1, 4);
    ASSERT_TRUE(*one->take_now(first));
  }
  auto four = queue(4, 4);
  EXPECT_FALSE(turn(four));
  auto later = queue(1, 4);
  EXPECT_FALSE(turn(later));
  for (std::size_t freed = 0; freed < 4; ++freed) {
    ones[freed].reset();
    EXPECT_FALSE(turn(later));
    EXPECT_EQ(turn(four), freed == 3);
    EXPECT_EQ(four.kept().size(), freed + 1);
  }
  EXPECT_EQ(later.ahead(), 1U);
  {
    const auto files = four.finish();
    EXPECT_EQ((*files)->size(), 4U);
    EXPECT_FALSE(turn(later));
    EXPECT_EQ(later.ahead(), 0U);
  }
  EXPECT_TRUE(turn(later));
}

TEST_F(Queue, WhatWasRevokedMeanwhileIsNotHandedOver) {
  auto taker = queue(1, 1);
  ASSERT_TRUE(*taker.take_now(first));
  {
    const auto folder_lock = folder_->enter();
    ASSERT_TRUE(folder_->revoke(*folder_lock, "GPU-0." + std::to_string(::geteuid())));
  }
  auto other = queue(1, 1);
  ASSERT_TRUE(*other.take_now(first));  // somebody else has it by now
  const auto files = taker.finish();
  ASSERT_FALSE(files);
  EXPECT_EQ(files.error().message(), "another process released a GPU before it could be used");
}

TEST_F(Queue, NothingIsHandedOverOnALookThatIsTooOld) {
  auto taker = queue(1, 1);
  ASSERT_TRUE(turn(taker));
  const auto stale = taker.finish([] { return false; });
  ASSERT_TRUE(stale);
  EXPECT_FALSE(*stale);
  EXPECT_TRUE(taker.queued());
  EXPECT_EQ(taker.kept().size(), 1U);
  EXPECT_EQ((*taker.finish())->size(), 1U);
}

TEST_F(Queue, ACollectorYieldsToPriorityAndNobodyIsStuck) {
  std::optional<LeaseQueue> holder = queue(1, 3);
  ASSERT_TRUE(*holder->take_now(first));
  auto low = queue(3, 3);
  EXPECT_FALSE(turn(low));
  EXPECT_EQ(low.kept().size(), 2U);
  auto high = queue(3, 3, 5);
  EXPECT_FALSE(turn(high));
  EXPECT_FALSE(turn(low));  // gives up what `high` wants
  EXPECT_EQ(low.kept().size(), 0U);
  EXPECT_FALSE(turn(high));
  EXPECT_EQ(high.kept().size(), 2U);
  holder.reset();
  EXPECT_FALSE(turn(low));
  EXPECT_TRUE(turn(high));
}

TEST_F(Queue, KeepsNothingFromOthersWhileItCannotBeServed) {
  auto three = queue(3, 3);
  three.candidates()[2].fit = Fit::no;  // in foreign use
  EXPECT_FALSE(*three.turn(first));
  EXPECT_EQ(three.kept().size(), 0U);
  auto one = queue(1, 3);
  EXPECT_TRUE(turn(one));
}

TEST_F(Queue, WhatOneDeclinesTheNextMayHave) {
  auto picky = queue(1, 2);
  for (Candidate& candidate : picky.candidates()) candidate.fit = Fit::no;
  EXPECT_FALSE(*picky.turn(first));
  auto modest = queue(1, 2);
  EXPECT_TRUE(turn(modest));
}

TEST_F(Queue, ADeadWaiterIsNotInTheWay) {
  std::optional<LeaseQueue> holder = queue(1, 1);
  ASSERT_TRUE(*holder->take_now(first));
  std::optional<LeaseQueue> a = queue(1, 1);
  EXPECT_FALSE(turn(*a));
  auto b = queue(1, 1);
  EXPECT_FALSE(turn(b));
  a.reset();
  holder.reset();
  EXPECT_TRUE(turn(b));
}

TEST_F(Queue, ARevokedCollectionIsForgotten) {
  std::optional<LeaseQueue> holder = queue(1, 2);
  ASSERT_TRUE(*holder->take_now(first));
  auto two = queue(2, 2);
  EXPECT_FALSE(turn(two));
  ASSERT_EQ(two.kept().size(), 1U);
  {
    const auto folder_lock = folder_->enter();
    const auto state = folder_->scan();
    for (const LeaseInfo& info : state->leases) {
      if (info.record.kind != LeaseKind::collecting) continue;
      ASSERT_TRUE(folder_->revoke(*folder_lock, info.file));
    }
  }
  EXPECT_FALSE(turn(two));
  holder.reset();
  EXPECT_TRUE(turn(two));
}

TEST_F(Queue, WakesWhenALeaseEnds) {
  std::optional<LeaseQueue> holder = queue(1, 1);
  ASSERT_TRUE(*holder->take_now(first));
  auto waiter = queue(1, 1);
  EXPECT_FALSE(turn(waiter));
  ASSERT_TRUE(wait_for_test(waiter));  // begins to watch
  ASSERT_TRUE(waiter.look());
  std::thread ends([&] { holder.reset(); });
  const Instant limit = SystemClock().now() + 20s;
  while (waiter.look()->front().state != Standing::free) {
    ASSERT_LT(SystemClock().now(), limit);
    ASSERT_TRUE(wait_for_test(waiter, limit));
  }
  ends.join();
  EXPECT_TRUE(turn(waiter));
}

// What the processes of the stress test share.
struct SensorMemory {
  std::array<std::atomic<pid_t>, 8> owner{};
  std::atomic<int> served{0};
  std::atomic<int> double_use{0};
  std::atomic<int> out_of_turn{0};
  std::atomic<int> errors{0};
};

bool dead(pid_t pid) {
  const auto stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  if (!stat) return true;
  // Its locks go before it is a zombie: the flag that it is on its way out comes first.
  constexpr std::uint64_t kExiting = 0x4;
  const auto fields = split(std::string_view(*stat).substr(stat->rfind(") ") + 2), ' ');
  return (to_unsigned(fields.at(6)).value_or(0) & kExiting) != 0;
}

// One waiter: queues, takes, works a moment, ends in one of several ways.
[[noreturn]] void wait_and_work(const std::string& path, SensorMemory& shared, unsigned count, unsigned seed) {
  auto folder = LeaseFolder::open({path, false});
  Demand demand;
  demand.count = count;
  LeaseQueue queue(*folder, demand, gpus(8), kTestClock);
  std::mt19937 random(seed);
  const Chooser choose = [&](std::span<const std::size_t> open, std::span<const std::size_t>, std::size_t want) {
    const auto state = folder->scan();  // we are inside the folder lock: this is exact
    for (const TicketInfo& other : state->tickets)
      if (other.turn().before(queue.place().turn()) && other.record.missing > 0) ++shared.out_of_turn;
    return some_of(open, want, random);
  };
  while (true) {
    const auto standing = queue.look();
    if (!standing) {
      ++shared.errors;
      ::_exit(1);
    }
    const bool act =
        queue.ticket().number == 0 || std::any_of(standing->begin(), standing->end(), [](const Standing& s) {
          return (s.state == Standing::free && !s.spoken_for) || (s.state == Standing::ours && s.spoken_for);
        });
    for (Candidate& candidate : queue.candidates()) candidate.fit = Fit::yes;
    if (act) {
      const auto done = queue.turn(choose);
      if (!done) {
        ++shared.errors;
        ::_exit(1);
      }
      if (*done) break;
    }
    if (!wait_for_test(queue)) {
      ++shared.errors;
      ::_exit(1);
    }
  }
  const auto mine = queue.kept();
  const auto files = queue.finish();
  if (!files) ++shared.errors;
  for (const std::size_t gpu : mine) {
    const pid_t before = shared.owner[gpu].exchange(::getpid());
    if (before != 0 && !dead(before)) ++shared.double_use;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
  ++shared.served;
  if (random() % 3 == 0) ::kill(::getpid(), SIGKILL);
  ::_exit(0);
}

TEST_F(Queue, ManyWaitersNeverShareAndAllAreServedInTurn) {
  auto* shared = new (::mmap(nullptr, sizeof(SensorMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
      SensorMemory;
  constexpr int kWaiters = 64;
  constexpr int kRounds = 4;
  int expected = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<pid_t> children;
    for (int i = 0; i < kWaiters; ++i, ++expected) {
      const pid_t child = ::fork();
      if (child == 0)
        wait_and_work(root_ + "/leases", *shared,
                      i % 16 == 0  ? 8
                      : i % 5 == 0 ? 3
                                   : 1,
                      static_cast<unsigned>(round * 1000 + i));
      children.push_back(child);
    }
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    EXPECT_EQ(shared->served.load(), expected);
    EXPECT_TRUE(folder_->scan()->leases.empty());
  }
  EXPECT_EQ(shared->double_use.load(), 0);
  EXPECT_EQ(shared->out_of_turn.load(), 0);
  EXPECT_EQ(shared->errors.load(), 0);
  ::munmap(shared, sizeof(SensorMemory));
}

}  // namespace
}  // namespace lull
