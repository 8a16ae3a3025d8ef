#include "signals/own_signal_state.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "config/signal_source.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using Series = SignalReading::Series;

constexpr double kNow = 1'800'000'000;

SignalSource source(std::string_view table) { return *parse_signal_from("requests=" + std::string(table)); }
SignalSource endpoint(std::string_view more = "") {
  return source("{ url = \"http://127.0.0.1:8000/metrics\", metric = \"done_total\"" + std::string(more) + " }");
}

// Readings, one second apart.
class Readings {
 public:
  explicit Readings(SignalSource from) : state_(std::move(from)) {}
  const SignalValue& take(SignalReading reading, Duration after = 1s) {
    at_ += after;
    state_.take(std::move(reading), Instant(at_), WallTime(std::chrono::seconds(std::int64_t{1'800'000'000}) + at_));
    return state_.value();
  }
  const SignalValue& fail_once() {
    at_ += 1s;
    state_.take(fail("connect: Connection refused"), Instant(at_), WallTime());
    return state_.value();
  }

 private:
  OwnSignalState state_;
  Duration at_{};
};

SignalReading counter(double value, std::optional<double> started = {}) { return {{{"", value, {}}}, started}; }

TEST(OwnSignalState, AValueIsTheSumOfItsSeries) {
  Readings readings(endpoint());
  EXPECT_EQ(readings.take({{{"model=a,", 2, {}}, {"model=b,", 3, {}}}, {}}).value, 5);
}

TEST(OwnSignalState, WhatCannotBeReadIsUnknownWithItsReason) {
  Readings readings(endpoint());
  EXPECT_TRUE(readings.take(counter(0)).known());
  EXPECT_EQ(readings.fail_once().why, Absence::unreadable);
  EXPECT_EQ(readings.fail_once().trouble, "connect: Connection refused");
  EXPECT_TRUE(std::isnan(readings.fail_once().value));
}

TEST(OwnSignalState, ARateIsTheGrowthOfAllSeriesEachSecond) {
  Readings readings(endpoint(", as = \"rate\""));
  EXPECT_EQ(readings.take({{{"a", 10, {}}, {"b", 5, {}}}, {}}).why, Absence::no_baseline);
  EXPECT_EQ(readings.take({{{"a", 14, {}}, {"b", 5, {}}}, {}}, 2s).value, 2);
  EXPECT_EQ(readings.take({{{"a", 14, {}}, {"b", 5, {}}}, {}}).value, 0);
  // A series that is new began at 0.
  EXPECT_EQ(readings.take({{{"a", 14, {}}, {"b", 5, {}}, {"c", 3, {}}}, {}}).value, 3);
}

TEST(OwnSignalState, ACounterThatBeganAnewIsUnknownOnceAndNeverIdle) {
  Readings fell(endpoint(", as = \"rate\""));
  fell.take(counter(100));
  EXPECT_EQ(fell.take(counter(0)).why, Absence::no_baseline);
  EXPECT_EQ(fell.take(counter(2)).value, 2);
  // It has counted beyond what it was, but its process is another.
  Readings started(endpoint(", as = \"rate\""));
  started.take(counter(1, 1000));
  EXPECT_EQ(started.take(counter(1, 2000)).why, Absence::no_baseline);
  EXPECT_EQ(started.take(counter(1, 2000)).value, 0);
  Readings lost(endpoint(", as = \"rate\""));
  lost.take({{{"a", 1, {}}, {"b", 1, {}}}, {}});
  EXPECT_EQ(lost.take({{{"a", 1, {}}}, {}}).why, Absence::no_baseline);
}

TEST(OwnSignalState, WhatIsNoCountHasNoRate) {
  for (const double count : {-5.0, 1e16}) {
    Readings readings(endpoint(", as = \"rate\""));
    readings.take(counter(count));
    EXPECT_EQ(readings.take(counter(count)).why, Absence::implausible) << count;
    EXPECT_EQ(readings.take(counter(1)).why, Absence::no_baseline) << count;
    EXPECT_EQ(readings.take(counter(1)).value, 0) << count;
  }
}

TEST(OwnSignalState, ARateSpansReadingsThatFailed) {
  Readings readings(endpoint(", as = \"rate\""));
  readings.take(counter(0));
  readings.fail_once();
  EXPECT_EQ(readings.take(counter(8)).value, 4);
}

TEST(OwnSignalState, AnEndpointThatRepeatsAnOldTimeIsStale) {
  Readings readings(endpoint(", max_age = \"10s\""));
  const SignalReading old{{{"", 0, kNow + 1}}, {}};
  EXPECT_TRUE(readings.take(old).known());
  EXPECT_TRUE(readings.take(old, 9s).known());
  const SignalValue& late = readings.take(old, 3s);
  EXPECT_EQ(late.why, Absence::stale);
  EXPECT_NE(late.trouble.find("max_age is 10s"), std::string::npos) << late.trouble;
  EXPECT_EQ(readings.take({{{"", 0, kNow + 100}}, {}}).why, Absence::stale);  // ahead of us
}

TEST(OwnSignalState, ARateStaysWhileTheTimeIsRepeated) {
  Readings readings(endpoint(", as = \"rate\""));
  const auto at = [](double count, double time) { return SignalReading{{{"", count, kNow + time}}, {}}; };
  readings.take(at(0, 0));
  EXPECT_EQ(readings.take(at(20, 10), 10s).value, 2);
  EXPECT_EQ(readings.take(at(20, 10)).value, 2);  // not 0: nothing new was said
  EXPECT_EQ(readings.take(at(20, 20), 9s).value, 0);
  EXPECT_EQ(readings.take(at(20, 20), 90s).why, Absence::stale);
}

TEST(OwnSignalState, AFileThatWasNotWrittenIsStale) {
  Readings readings(source("file:/run/queue"));
  EXPECT_TRUE(readings.take({{{"", 0, kNow - 50}}, {}}).known());
  const SignalValue& late = readings.take({{{"", 0, kNow - 70}}, {}});
  EXPECT_EQ(late.why, Absence::stale);
  EXPECT_NE(late.trouble.find("was written"), std::string::npos) << late.trouble;
}

TEST(OwnSignalState, AnAgeIsThatOfTheLatest) {
  Readings readings(endpoint(", as = \"age\""));
  EXPECT_EQ(readings.take({{{"a", kNow - 600, {}}, {"b", kNow - 60, {}}}, {}}).value, 61);
  EXPECT_EQ(readings.take({{{"a", kNow + 600, {}}}, {}}).why, Absence::implausible);
  // "Never yet", seconds since boot, and what is no time are not idle since 1970.
  for (const double none : {0.0, -1.0, 5000.0}) {
    EXPECT_EQ(readings.take({{{"a", none, {}}}, {}}).why, Absence::implausible) << none;
    EXPECT_TRUE(readings.take({{{"a", none, {}}, {"b", kNow, {}}}, {}}).known()) << none;
  }
}

// Whatever a reading says: the value is known and finite, or unknown with a reason.
RC_GTEST_PROP(OwnSignalState, AValueIsKnownOrHasAReason, (std::vector<double> values, bool rate)) {
  Readings readings(endpoint(rate ? ", as = \"rate\"" : ""));
  for (const double value : values) {
    const SignalValue& now = readings.take(counter(value));
    RC_ASSERT(now.known() == std::isfinite(now.value));
    RC_ASSERT(!rate || !now.known() || now.value >= 0);
  }
}

}  // namespace
}  // namespace lull
