// Random days of a machine with fillers: no filler runs beside somebody for long, and no free GPU stays empty.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "fill/filling_world_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// Strangers come and go on three GPUs: monitors that only look, programs that open all and use one, leases, people,
// fillers that crash, GPUs that cannot be read. Time passes in tenths of a second.
class Episode {
 public:
  static constexpr std::size_t kGpus = 3;
  static constexpr Duration kStep = 100ms;
  static constexpr Duration kEvery = 1s;
  static constexpr Duration kRule = 5s;
  static constexpr Duration kGrace = 2s;

  Episode(unsigned seed, bool events, bool only_monitors)
      : random_(seed), events_(events), only_monitors_(only_monitors), world_(settings(), kGpus) {}

  void run(Duration time) {
    for (Duration passed{}; passed < time; passed += kStep) step(true);
  }
  // Everybody goes; every GPU must be filled in the end.
  void calm() {
    strangers_.clear();
    claims_.fill(false);
    unreadable_.fill(false);
    for (Duration passed{}; passed < 12min && !all_filled(); passed += kStep) step(false);
  }

  Duration longest_beside() const { return longest_; }
  bool ended_any() const { return ended_any_; }
  bool ran_on() const { return ran_on_; }  // although somebody was heard to open its GPU
  bool all_filled() const {
    for (std::size_t gpu = 0; gpu < kGpus; ++gpu)
      if (!running_on_[gpu] || still_[gpu] || gone_at_[gpu]) return false;
    return true;
  }

 private:
  struct Stranger {
    GpuProcess who;
    std::array<bool, kGpus> holds{};
    std::optional<std::size_t> uses = {};  // which GPU it will compute on
    Instant uses_from{};
    Instant leaves{};
  };
  static std::vector<FillerSettings> settings() {
    FillerSettings one = FillingWorld::filler();
    one.grace = kGrace;
    return {one};
  }
  int roll(int sides) { return std::uniform_int_distribution<int>(0, sides - 1)(random_); }

  void carry_out(const std::vector<FillOrder>& orders) {
    for (const FillOrder& order : orders) {
      const std::size_t gpu = order.unit;
      switch (order.kind) {
        case FillOrder::start:
          running_on_[gpu] = world_.now;
          still_[gpu] = false;
          break;
        case FillOrder::halt: still_[gpu] = true; break;
        case FillOrder::go_on: still_[gpu] = false; break;
        case FillOrder::park:
        case FillOrder::end:
          ended_any_ = true;
          still_[gpu] = false;
          gone_at_[gpu] = world_.now + roll(20) * kStep;
          break;
      }
    }
  }

  void step(bool wild) {
    world_.now += kStep;
    if (wild && roll(30) == 0) somebody_comes();
    for (Stranger& one : strangers_)
      if (world_.now >= one.leaves) one.holds.fill(false);
    std::erase_if(strangers_, [&](const Stranger& one) { return world_.now >= one.leaves; });
    if (wild && !only_monitors_) {
      for (std::size_t gpu = 0; gpu < kGpus; ++gpu) {
        if (roll(300) == 0) claims_[gpu] = !claims_[gpu];
        if (roll(300) == 0) unreadable_[gpu] = !unreadable_[gpu];
        if (running_on_[gpu] && !gone_at_[gpu] && !still_[gpu] && roll(600) == 0) end_of(gpu, 1);
      }
    }
    for (std::size_t gpu = 0; gpu < kGpus; ++gpu) {
      if (gone_at_[gpu] && world_.now >= *gone_at_[gpu]) end_of(gpu, 143);
      const bool used = in_use(gpu);
      if (used || claims_[gpu] || (running_on_[gpu] && !still_[gpu])) quiet_since_[gpu] = world_.now;
      const bool beside = used && running_on_[gpu] && !still_[gpu];
      beside_[gpu] = beside ? beside_[gpu] + kStep : Duration::zero();
      longest_ = std::max(longest_, beside_[gpu]);
    }
    const auto at = world_.filling->decides_at();
    if (world_.now >= next_sample_ || (at && world_.now >= *at)) sample();
  }

  bool in_use(std::size_t gpu) const {
    return std::ranges::any_of(strangers_,
                               [&](const Stranger& one) { return one.uses == gpu && world_.now >= one.uses_from; });
  }

  void end_of(std::size_t gpu, int status) {
    running_on_[gpu].reset();
    gone_at_[gpu].reset();
    still_[gpu] = false;
    world_.filling->ended(gpu, world_.now, status);
  }

  void somebody_comes() {
    Stranger one{.who = {.pid = 1000 + ++last_, .program = "python3"}};
    one.who.start_ticks = static_cast<std::uint64_t>(last_);
    one.leaves = world_.now + (1 + roll(200)) * kStep;
    const bool user = !only_monitors_ && roll(2) == 0;
    for (std::size_t gpu = 0; gpu < kGpus; ++gpu) one.holds[gpu] = user || roll(2) == 0;
    if (user) {
      one.uses = static_cast<std::size_t>(roll(kGpus));
      one.uses_from = world_.now + roll(60) * kStep;  // also later than anybody waits for it
    }
    strangers_.push_back(one);
    if (!events_) return;
    for (std::size_t gpu = 0; gpu < kGpus; ++gpu)
      if (one.holds[gpu]) {
        carry_out(world_.filling->opened(world_.now, world_.observations[gpu].gpu, one.who));
        ran_on_ |= running_on_[gpu] && !still_[gpu] && !gone_at_[gpu];
      }
  }

  void sample() {
    next_sample_ = world_.now + kEvery;
    for (int look = 0; look < 2; ++look) {
      for (std::size_t gpu = 0; gpu < kGpus; ++gpu) {
        GpuObservation observation = FillingWorld::observation(gpu);
        if (unreadable_[gpu]) observation.unreadable = "GPU is lost";
        if (in_use(gpu)) observation.claims.push_back({.kind = Reason::used, .who = "python3"});
        if (claims_[gpu]) observation.claims.push_back({.kind = Reason::leased, .who = "ada"});
        if (world_.now - quiet_since_[gpu] < kRule)
          observation.not_free = Reason{.kind = Reason::starts_soon, .time = 1s};
        observation.openers.reset();
        if (look == 1 || !events_) {
          observation.openers.emplace();
          for (const Stranger& one : strangers_)
            if (one.holds[gpu]) observation.openers->push_back(one.who);
        }
        world_.observations[gpu] = observation;
      }
      carry_out(world_.filling->sampled(world_.now, world_.now, world_.observations, {}, 0));
      if (!world_.filling->wants_openers()) return;
    }
  }

  std::mt19937 random_;
  bool events_;
  bool only_monitors_;
  FillingWorld world_;
  std::vector<Stranger> strangers_;
  int last_ = 0;
  Instant next_sample_{};
  std::array<bool, kGpus> claims_{};
  std::array<bool, kGpus> unreadable_{};
  std::array<bool, kGpus> still_{};
  std::array<std::optional<Instant>, kGpus> running_on_{};
  std::array<std::optional<Instant>, kGpus> gone_at_{};
  std::array<Instant, kGpus> quiet_since_{};
  std::array<Duration, kGpus> beside_{};
  Duration longest_{};
  bool ended_any_ = false;
  bool ran_on_ = false;
};

class RandomEpisodes : public ::testing::TestWithParam<bool> {};

TEST_P(RandomEpisodes, NoFillerRunsBesideSomebodyForLongerThanTheLimitAndFreeGpusAreFilled) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Episode episode(seed, GetParam(), false);
    episode.run(3min);
    // A sample sees who uses it; then the filler has its grace. An unreadable GPU is given one sample more.
    EXPECT_FALSE(episode.ran_on()) << "seed " << seed;
    EXPECT_LE(episode.longest_beside(), 2 * Episode::kEvery + Episode::kGrace + 2 * Episode::kStep) << "seed " << seed;
    episode.calm();
    EXPECT_TRUE(episode.all_filled()) << "seed " << seed;
  }
}

TEST_P(RandomEpisodes, AMonitorNeverCostsAFillerItsWork) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Episode episode(seed, GetParam(), true);
    episode.run(3min);
    EXPECT_FALSE(episode.ended_any()) << "seed " << seed;
    episode.calm();
    EXPECT_TRUE(episode.all_filled()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Filling, RandomEpisodes, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "Events" : "Scanning"; });

}  // namespace
}  // namespace lull
