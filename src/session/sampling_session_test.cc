#include "session/sampling_session.h"

#include <gtest/gtest.h>

#include "session/fake_world_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class Sampling : public testing::Test {
 protected:
  SessionEnd run(SamplingSettings settings) {
    start_ = world_.clock.now();
    return SamplingSession(std::move(settings), world_,
                           [this](const Snapshot& snapshot) {
                             samples_.push_back(
                                 std::chrono::duration_cast<std::chrono::milliseconds>(snapshot.at - start_).count());
                             return on_sample_ ? on_sample_() : std::nullopt;
                           })
        .run();
  }
  void send_at(Duration when, int signal) {
    world_.loop().in(when, [this, signal] { world_.send(signal); });
  }

  FakeWorld world_{Script{}};
  Instant start_{};
  std::vector<std::int64_t> samples_;  // milliseconds from the start
  std::function<std::optional<SessionEnd>()> on_sample_;
};

TEST_F(Sampling, FollowsTheGridOfTheFirstSampleForAsLongAsAsked) {
  EXPECT_EQ(run({.sampling = {}, .every = 1s, .length = 3s}).status, 0);
  // Each takes 2 ms; the one at the very end of the time is not begun.
  EXPECT_EQ(samples_, (std::vector<std::int64_t>{2, 1004, 2004}));
}

TEST_F(Sampling, ALateSampleShiftsNoOther) {
  world_.script.latency = [this](Instant asked) {
    return asked - start_ > 900ms && asked - start_ < 1100ms ? 1500ms : 2ms;
  };
  EXPECT_EQ(run({.sampling = {}, .every = 1s, .length = 4500ms}).status, 0);
  EXPECT_EQ(samples_, (std::vector<std::int64_t>{2, 2502, 3004, 4004})) << "what was missed is missed";
}

TEST_F(Sampling, ASignalIsTheEnd) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    send_at(2500ms, signal);
    samples_.clear();
    const SessionEnd end = run({.sampling = {}, .every = 1s, .length = {}});
    EXPECT_EQ(end.status, 128 + signal);
    EXPECT_EQ(end.signal, signal);
    EXPECT_TRUE(end.complaint.empty());
    EXPECT_EQ(samples_.size(), 3U);
  }
}

TEST_F(Sampling, LettingGoOfTheDriverIsNoEnd) {
  send_at(500ms, SIGUSR1);
  EXPECT_EQ(run({.sampling = {}, .every = 1s, .length = 3s}).status, 0);
  EXPECT_EQ(samples_.size(), 3U);
}

TEST_F(Sampling, TheSinkSaysWhenItIsOver) {
  on_sample_ = [this]() -> std::optional<SessionEnd> {
    if (samples_.size() < 2) return std::nullopt;
    return SessionEnd{kExitUsage, "no such GPU"};
  };
  const SessionEnd end = run({.sampling = {}, .every = 1s, .length = {}});
  EXPECT_EQ(end.status, kExitUsage);
  EXPECT_EQ(end.complaint, "no such GPU");
  EXPECT_EQ(samples_.size(), 2U);
}

}  // namespace
}  // namespace lull
