// The meters by themselves: what neither ring nor moments covered was not seen.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "sense/nvml/meters.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Instant kBegin{1000s};
constexpr RingLook kNoRing{.state = RingLook::State::none, .spans = {}, .usual = {}};

TEST(UtilMeter, TheMomentIsAllThatAFirstSampleHas) {
  UtilMeter meter;
  meter.look(kBegin, 30, kNoRing);
  const MeterTake take = meter.take(kBegin);
  EXPECT_EQ(take.mean, 30);
  EXPECT_EQ(take.basis, Basis::instant);
  UtilMeter blind;
  blind.look(kBegin, std::nullopt, kNoRing);
  EXPECT_EQ(blind.take(kBegin).absence, Absence::not_covered);
  EXPECT_EQ(blind.look_within(), kNoLook);
}

TEST(UtilMeter, TheRingFillsWhatItCoversAndMomentsTheRest) {
  UtilMeter meter;
  meter.look(kBegin, 0, {});
  meter.take(kBegin);
  for (int i = 1; i <= 20; ++i) meter.look(kBegin + i * 100ms, 50, {});
  const std::vector<RingSpan> spans = {{kBegin + 500ms, kBegin + 1000ms, 100}};
  meter.look(kBegin + 2s, 50, {.state = RingLook::State::read, .spans = spans, .usual = 200ms});
  const MeterTake take = meter.take(kBegin + 2s);
  EXPECT_NEAR(take.coverage, 1, 1e-9);
  EXPECT_NEAR(take.mean, (1.5 * 50 + 0.5 * 100) / 2, 1e-6);
  EXPECT_EQ(take.basis, Basis::moments);
}

TEST(UtilMeter, AThousandLooksASecondAreOneMean) {
  UtilMeter meter;
  meter.look(kBegin, 0, {});
  meter.take(kBegin);
  for (int i = 1; i <= 1000; ++i) meter.look(kBegin + i * 1ms, i <= 250 ? 100 : 0, {});
  const MeterTake take = meter.take(kBegin + 1s);
  EXPECT_NEAR(take.mean, 25, 1e-6);
  EXPECT_NEAR(take.coverage, 1, 1e-9);
}

TEST(UtilMeter, TimeThatGoesBackwardsIsABeginning) {
  UtilMeter meter;
  meter.look(kBegin, 0, kNoRing);
  meter.take(kBegin);
  meter.look(kBegin - 5s, 70, kNoRing);
  EXPECT_EQ(meter.take(kBegin - 5s).basis, Basis::instant);
}

TEST(UtilMeter, NineTenthsOfTheTimeAreEnoughAndLessIsNot) {
  for (const auto& [apart, known] : {std::pair{1660ms, true}, std::pair{1680ms, false}, std::pair{1850ms, false}}) {
    UtilMeter meter;
    meter.look(kBegin, 0, kNoRing);
    meter.take(kBegin);
    meter.look(kBegin + apart, 0, kNoRing);
    EXPECT_EQ(meter.take(kBegin + apart).absence == Absence::none, known) << "1.5 s of " << apart / 1ms << " ms";
  }
}

// ---- the newest data

TEST(UtilMeter, TheNewestAreTheLastSampleOfTheRingAndTheMoment) {
  UtilMeter meter;
  meter.look(kBegin, 0, kNoRing);
  meter.take(kBegin);
  const Instant now = kBegin + 1s;
  const std::vector<RingSpan> spans = {{now - 550ms, now - 300ms, 90}, {now - 300ms, now - 50ms, 20}};
  meter.look(now, 30, {.state = RingLook::State::read, .spans = spans, .usual = 250ms});
  const MeterTake take = meter.take(now);
  EXPECT_EQ(take.newest.low, 20);
  EXPECT_EQ(take.newest.high, 30);
  EXPECT_EQ(take.span, 300ms);
  EXPECT_EQ(take.period, 250ms);
}

TEST(UtilMeter, WithoutARingTheMomentIsTheNewestOfUpToASecond) {
  UtilMeter meter;
  meter.look(kBegin, 70, kNoRing);
  const MeterTake take = meter.take(kBegin);
  EXPECT_EQ(take.newest.low, 70);
  EXPECT_EQ(take.newest.high, 70);
  EXPECT_EQ(take.span, 2s) << "it is of the last whole period, which may be of up to a second";
  EXPECT_EQ(take.period, 0s);
}

TEST(UtilMeter, ARingThatRanDryIsNotTheNewestAndItsPeriodIsKept) {
  UtilMeter meter;
  const std::vector<RingSpan> spans = {{kBegin - 300ms, kBegin - 50ms, 90}};
  meter.look(kBegin, 90, {.state = RingLook::State::read, .spans = spans, .usual = 250ms});
  meter.take(kBegin);
  meter.look(kBegin + 2s, 0, {.state = RingLook::State::read, .spans = {}, .usual = 250ms});
  const MeterTake take = meter.take(kBegin + 2s);
  EXPECT_EQ(take.newest.high, 0);
  EXPECT_EQ(take.span, 500ms);
  EXPECT_EQ(take.period, 0s);
}

TEST(UtilMeter, ANewestSampleThatIsNoPercentageMakesTheNewestUnknown) {
  UtilMeter meter;
  const std::vector<RingSpan> spans = {{kBegin - 300ms, kBegin - 50ms, std::nan("")}};
  meter.look(kBegin, 0, {.state = RingLook::State::read, .spans = spans, .usual = 250ms});
  EXPECT_TRUE(std::isnan(meter.take(kBegin).newest.high));
}

TEST(PowerMeter, TheMomentIsTheNewestAndElseTheCounterOfAShortTime) {
  PowerMeter meter;
  meter.trust_counter();
  meter.look(kBegin, 0, kBegin, std::nullopt);
  meter.take(kBegin);
  meter.look(kBegin + 10s, 1'000'000, kBegin + 10s, std::nullopt);
  EXPECT_TRUE(std::isnan(meter.take(kBegin + 10s).newest.high)) << "the mean of ten seconds";
  meter.look(kBegin + 11s, 1'300'000, kBegin + 11s, std::nullopt);
  EXPECT_EQ(meter.take(kBegin + 11s).newest.high, 300);
  meter.look(kBegin + 21s, 2'300'000, kBegin + 21s, 70);
  EXPECT_EQ(meter.take(kBegin + 21s).newest.high, 70);
}

// Making anything unknown makes the coverage smaller, never the answer "idle".
TEST(UtilMeter, WhatWasNotSeenNeverCountsAsIdle) {
  EXPECT_TRUE(rc::check("a busy card is never under 100 where it is known", [] {
    UtilMeter meter;
    Instant now = kBegin;
    meter.look(now, 100, kNoRing);
    meter.take(now);
    for (int takes = 0; takes < 20; ++takes) {
      const int looks = *rc::gen::inRange(0, 6);
      std::vector<RingSpan> spans;
      for (int i = 0; i <= looks; ++i) {
        now += std::chrono::milliseconds(*rc::gen::inRange(1, 4000));
        const auto moment = *rc::gen::arbitrary<bool>() ? std::optional(100.0) : std::nullopt;
        RingLook ring{
            .state = *rc::gen::element(RingLook::State::none, RingLook::State::read, RingLook::State::not_asked),
            .spans = {},
            .usual = 150ms};
        const int back = *rc::gen::inRange(0, 3000);
        spans.push_back({now - std::chrono::milliseconds(back + 150), now - std::chrono::milliseconds(back),
                         *rc::gen::arbitrary<bool>() ? 100.0 : std::nan("")});
        if (ring.state == RingLook::State::read && *rc::gen::arbitrary<bool>()) ring.spans = spans;
        meter.look(now, moment, ring);
      }
      const MeterTake take = meter.take(now);
      RC_ASSERT(take.coverage >= 0 && take.coverage <= 1);
      if (take.absence == Absence::none)
        RC_ASSERT(take.mean > 99.999);
      else
        RC_ASSERT(std::isnan(take.mean));
    }
  }));
}

TEST(Uneven, BetweenTwoThirdsAndAllOfItAndNeverInStep) {
  Duration least = 1s;
  Duration most{};
  for (int i = 0; i < 1000; ++i) {
    const Duration one = uneven(300ms, kBegin + i * 150ms);
    least = std::min(least, one);
    most = std::max(most, one);
  }
  EXPECT_GE(least, 200ms);
  EXPECT_LE(least, 205ms);
  EXPECT_LE(most, 300ms);
  EXPECT_GE(most, 295ms);
}

// A card that draws `own` watts, whose counter counts `counted`, looked at twice a second and sampled every 5 s.
std::vector<MeterTake> drawn(double own, double counted, int takes, double swing = 0) {
  PowerMeter meter;
  std::vector<MeterTake> all;
  Instant now = kBegin;
  double joules = 5000;
  for (int i = 0; i <= takes * 10; ++i) {
    const double moment = own + (i % 2 == 0 ? swing : -swing);
    meter.look(now, static_cast<std::uint64_t>(joules * 1000), now, moment);
    if (i % 10 == 0) all.push_back(meter.take(now));
    joules += counted / 2;
    now += 500ms;
  }
  return all;
}

TEST(PowerMeter, ACounterOfItsOwnIsUsed) {
  const auto takes = drawn(300, 310, 3);
  EXPECT_EQ(takes[0].basis, Basis::instant);
  EXPECT_EQ(takes[1].basis, Basis::mean);
  EXPECT_NEAR(takes[1].mean, 310, 0.1);
}

TEST(PowerMeter, ACounterThatSaysMuchMoreOrMuchLessIsNot) {
  for (const double counted : {250.0, 20.0}) {
    for (const MeterTake& take : drawn(90, counted, 4)) EXPECT_NEAR(take.mean, 90, 0.1) << counted;
  }
}

TEST(PowerMeter, ABusyModuleIsNotTrustedEither) {
  // A quarter more is no proof of either: momentary values until there is.
  for (const MeterTake& take : drawn(600, 760, 4)) EXPECT_NEAR(take.mean, 600, 0.1);
}

TEST(PowerMeter, ACounterIsGivenUpOnlyWhenItIsFarOffSeveralTimesInARow) {
  PowerMeter meter;
  Instant now = kBegin;
  double joules = 5000;
  const auto second = [&](double own, double counted) {
    for (int i = 0; i < 2; ++i) {
      joules += counted / 2;
      now += 500ms;
      meter.look(now, static_cast<std::uint64_t>(joules * 1000), now, own);
    }
    return meter.take(now);
  };
  meter.look(now, static_cast<std::uint64_t>(joules * 1000), now, 100);
  for (int i = 0; i < 12; ++i) (void)second(100, i % 3 == 2 ? 130 : 250);  // every third one proves nothing
  for (int i = 0; i < 4; ++i) (void)second(100, 105);
  EXPECT_NEAR(second(100, 105).mean, 105, 0.1);
}

TEST(PowerMeter, WhatWasHardlyLookedAtIsNotCoveredAndSaysHowLittleWasSeen) {
  PowerMeter meter;
  meter.look(kBegin, std::nullopt, kBegin, 100);
  (void)meter.take(kBegin);
  meter.look(kBegin + 500ms, std::nullopt, kBegin, 100);
  const MeterTake take = meter.take(kBegin + 5s);
  EXPECT_EQ(take.absence, Absence::not_covered);
  EXPECT_NEAR(take.coverage, 0.1, 0.001);
}

// A moment stands for 1.5 s.
TEST(PowerMeter, NineTenthsOfTheTimeAreEnoughAndLessIsNot) {
  for (const auto& [apart, known] : {std::pair{1660ms, true}, std::pair{1680ms, false}, std::pair{1850ms, false}}) {
    PowerMeter meter;
    meter.look(kBegin, std::nullopt, kBegin, 100);
    (void)meter.take(kBegin);
    meter.look(kBegin + apart, std::nullopt, kBegin, 100);
    EXPECT_EQ(meter.take(kBegin + apart).absence == Absence::none, known) << apart / 1ms;
  }
}

TEST(PowerMeter, ACounterIsNotComparedWithMomentsThatCoverLess) {
  for (const auto& [apart, compared] : {std::pair{1660ms, true}, std::pair{1760ms, false}}) {
    PowerMeter meter;
    Instant now = kBegin;
    for (int i = 0; i < 10; ++i, now += apart)
      meter.look(now, static_cast<std::uint64_t>(250 * i * (apart / 1ms)) + 5000, now, 100);
    EXPECT_EQ(meter.counts_the_module(), compared) << apart / 1ms;
  }
}

TEST(PowerMeter, ALoadThatSwingsDoesNotCostTheCounter) { EXPECT_EQ(drawn(300, 300, 6, 150).back().basis, Basis::mean); }

}  // namespace
}  // namespace lull
