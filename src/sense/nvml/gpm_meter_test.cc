// The chip's own counters: which time a value is of, what is no value, and that every buffer is given back.
#include "sense/nvml/gpm_meter.h"

#include <limits>
#include <random>

#include "sense/nvml/driver_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class Counters : public NvmlValues {
 protected:
  void SetUp() override {
    NvmlValues::SetUp();
    add_counters(calls_);
    needs_.counters = true;
    buffers_.pause = [this](Duration time) { clock_.at += time, paused_ += time; };
  }
  void TearDown() override {
    gpu_ = NvmlGpu(0);
    EXPECT_TRUE(driver.gpm_samples.empty()) << "given back, each once";
  }
  void cut(unsigned parts) {
    driver.mig_mode = Return::success;
    driver.mig_current = parts > 0 ? nvml::kMigEnabled : nvml::kMigDisabled;
    driver.mig_count = parts;
  }
  const Reading& part(unsigned number = 0) const { return answer_.parts[number]; }

  Duration paused_{};
};

TEST_F(Counters, EachValueIsOfTheTimeSinceTheSampleBefore) {
  const Reading& first = sample();
  EXPECT_EQ(first[Metric::util], 40) << "of a whole card by the call for that: here the counters say 50";
  EXPECT_EQ(first[Metric::sm], 40) << "of a tenth of a second that the first sample waited for";
  EXPECT_GE(paused_, 100ms);
  EXPECT_LT(paused_, 120ms);
  EXPECT_LT(first.counters_span, 120ms);
  paused_ = {};
  const Reading& second = sample(30s);
  EXPECT_EQ(paused_, 0ms);
  EXPECT_EQ(second[Metric::sm], 40);
  EXPECT_EQ(second[Metric::tensor], 30);
  EXPECT_EQ(second[Metric::dram], 20);
  EXPECT_EQ(second.counters_span, 30s);
  EXPECT_EQ(second.newest(Metric::sm).high, 40) << "it ends now, so it is the newest data as well";
  EXPECT_EQ(sample(5s).counters_span, 5s);
  EXPECT_EQ(driver.gpm_allocated, 3U);
}

TEST_F(Counters, NobodyPaysForWhatIsNotAskedFor) {
  needs_.counters = false;
  sample();
  const Reading& reading = sample();
  EXPECT_TRUE(driver.gpm_asked.empty());
  EXPECT_EQ(reading.why_missing(Metric::sm), Absence::not_asked);
  EXPECT_EQ(reading.counters_span, 0s);
}

TEST_F(Counters, ACardWithoutThemIsAskedOnce) {
  driver.gpm_supported = 0;
  EXPECT_EQ(sample().why_missing(Metric::sm), Absence::not_supported);
  EXPECT_EQ(sample().why_missing(Metric::dram), Absence::not_supported);
  EXPECT_EQ(driver.gpm_asked, std::vector<std::string>{"support"});
  EXPECT_EQ(paused_, 0ms);
}

TEST_F(Counters, AnOldLibraryHasNone) {
  for (auto* function : {&calls_.GpmMetricsGet}) *function = nullptr;
  sample();
  EXPECT_EQ(sample().why_missing(Metric::sm), Absence::no_symbol);
  calls_.GpmQueryDeviceSupport = nullptr;
  gpu_ = NvmlGpu(0);
  EXPECT_EQ(sample().why_missing(Metric::sm), Absence::no_symbol);
  EXPECT_EQ(answer_.gpu.device_absence, Absence::none);
}

// Samples that are too near each other give invalid values.
TEST_F(Counters, ASampleTooSoonIsComparedWithTheOneBefore) {
  sample();
  sample(10s);
  EXPECT_EQ(sample(99ms).counters_span, 10s + 99ms) << "more than the time since, and never less";
  EXPECT_EQ(sample(5s).counters_span, 5s + 99ms);
  EXPECT_EQ(sample(100ms).counters_span, 100ms);
}

TEST_F(Counters, WithoutTimeBetweenThemThereIsNoValue) {
  buffers_.pause = [](Duration) {};  // a clock that stands
  EXPECT_EQ(sample().why_missing(Metric::sm), Absence::no_baseline);
  EXPECT_EQ(sample(50ms).why_missing(Metric::sm), Absence::no_baseline);
  EXPECT_EQ(sample(60ms)[Metric::sm], 40) << "110 ms after the first";
}

// The time is that between the calls, not that of the sample as a whole: a slow call must not make two look far apart.
TEST_F(Counters, ASlowCallDoesNotCountAsTimeBetween) {
  driver.gpm_passes = [this] { clock_.at += 90ms; };
  sample();
  sample(50ms);
  const auto gets = std::ranges::count(driver.gpm_asked, "get");
  EXPECT_EQ(gets, 2);
  const Reading& reading = sample(20ms);
  EXPECT_GE(reading.counters_span, 100ms + 180ms);
}

TEST_F(Counters, OneMetricThatFailsDoesNotSpoilTheOthers) {
  sample();
  for (const unsigned id : {2U, 5U, 10U}) {
    driver.gpm_results = {{id, Return::no_permission}};
    const Reading& reading = sample();
    for (const auto& [metric, of] : {std::pair{Metric::sm, 2U}, {Metric::tensor, 5U}, {Metric::dram, 10U}}) {
      EXPECT_EQ(reading.why_missing(metric), of == id ? Absence::no_permission : Absence::none);
      EXPECT_EQ(std::isnan(reading[metric]), of == id);
    }
  }
}

TEST_F(Counters, NonsenseIsUnknown) {
  sample();
  for (const double value : {-0.1, -1e300, 100.5, 37100.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    driver.gpm_values = {{1, value}, {2, value}, {5, value}, {10, 3}};
    const Reading& reading = sample();
    EXPECT_EQ(reading.why_missing(Metric::sm), Absence::implausible) << value;
    EXPECT_EQ(reading.why_missing(Metric::tensor), Absence::implausible) << value;
    EXPECT_EQ(reading[Metric::dram], 3);
  }
  driver.gpm_values = {{10, 3}};
  EXPECT_EQ(sample().why_missing(Metric::sm), Absence::failed) << "what the driver left as it was is no zero";
}

// Each call fails once: the value is unknown for as long as it takes, and never that of another time.
TEST_F(Counters, ACallThatFailsCostsTheValueAlone) {
  for (Return Driver::* call : {&Driver::gpm_query, &Driver::gpm_alloc, &Driver::gpm_sample, &Driver::gpm_get}) {
    for (const auto& [code, absence] : std::map<Return, Absence>{{Return::no_permission, Absence::no_permission},
                                                                 {Return::not_supported, Absence::not_supported},
                                                                 {Return::timeout, Absence::no_answer},
                                                                 {Return::unknown, Absence::failed}}) {
      gpu_ = NvmlGpu(0);
      driver.*call = code;
      EXPECT_EQ(sample().why_missing(Metric::sm), absence);
      EXPECT_EQ(sample().why_missing(Metric::sm), absence);
      EXPECT_EQ(answer_.gpu[Metric::util], 40);
      EXPECT_EQ(answer_.gpu.device_absence, Absence::none);
      EXPECT_EQ(answer_.gpu.counters_span, 0s);
      driver.*call = Return::success;
      if (call == &Driver::gpm_query && code == Return::not_supported) continue;  // it said so, and is not asked again
      sample(1h);
      if (call != &Driver::gpm_get) {
        EXPECT_EQ(answer_.gpu.why_missing(Metric::sm), Absence::no_baseline) << "an hour is not the last sample's time";
      }
      EXPECT_EQ(sample(3s)[Metric::sm], 40);
      EXPECT_EQ(answer_.gpu.counters_span, 3s);
    }
  }
}

TEST_F(Counters, PermissionThatIsLostMeanwhileBreaksTheTime) {
  sample();
  sample();
  driver.gpm_sample = Return::no_permission;
  EXPECT_EQ(sample(10min).why_missing(Metric::sm), Absence::no_permission);
  driver.gpm_sample = Return::success;
  EXPECT_EQ(sample(1s).why_missing(Metric::sm), Absence::no_baseline);
  EXPECT_EQ(sample(1s).counters_span, 1s);
}

TEST_F(Counters, ALostGpuIsLostByThemToo) {
  sample();
  for (Return Driver::* call : {&Driver::gpm_sample}) {
    driver.*call = Return::gpu_is_lost;
    EXPECT_EQ(sample().device_absence, Absence::lost);
    EXPECT_EQ(answer_.gpu.why_missing(Metric::util), Absence::lost);
    EXPECT_EQ(answer_.gpu.counters_span, 0s);
    driver.*call = Return::success;
  }
  sample(10s);
  EXPECT_EQ(sample(2s).counters_span, 2s);
  driver.everything = Return::gpu_is_lost;
  sample(1h);
  driver.everything = Return::success;
  sample(6s);
  sample(6s);
  EXPECT_LE(sample(2s).counters_span, 6s) << "nothing of the time in which it was lost";
}

TEST_F(Counters, ADriverWithoutABufferToGiveIsNoCrash) {
  calls_.GpmSampleAlloc = [](nvml::GpmSample* out) {
    *out = nullptr;
    return Return::success;
  };
  EXPECT_EQ(sample().why_missing(Metric::sm), Absence::failed);
}

// ---- MIG devices

TEST_F(Counters, AMigDeviceHasItsUtilisationFromThem) {
  cut(2);
  needs_.counters = false;
  sample();
  EXPECT_EQ(part()[Metric::util], 50);
  EXPECT_EQ(part().util_basis, Basis::instant) << "of the moment: nobody watched before";
  EXPECT_EQ(part().why_missing(Metric::sm), Absence::not_asked);
  driver.gpm_asked.clear();
  sample(5s);
  EXPECT_EQ(driver.gpm_asked, (std::vector<std::string>{"mig 7", "get", "mig 8", "get"}));
  for (const unsigned number : {0U, 1U}) {
    EXPECT_EQ(part(number)[Metric::util], 50);
    EXPECT_EQ(part(number).util_basis, Basis::mean);
    EXPECT_EQ(part(number).util_coverage, 1);
    EXPECT_EQ(part(number).newest(Metric::util).low, 50);
    EXPECT_EQ(part(number).newest(Metric::util).high, 50);
    EXPECT_GE(part(number).counters_span, 5s);
    EXPECT_EQ(part(number).why_missing(Metric::mem_util), Absence::not_supported);
  }
  EXPECT_EQ(paused_ / 100ms, 1) << "once for all of them";
}

TEST_F(Counters, AMigDeviceIsReadWhereNothingIsReadOfItsCard) {
  cut(1);
  driver.util = Return::not_supported;  // so is that of a card that is cut
  needs_ = {.memory = false, .power = false, .details = false, .processes = false, .counters = false};
  for (int i = 0; i < 3; ++i) {
    sample(5s);
    EXPECT_EQ(answer_.gpu.device_absence, Absence::not_supported);
    EXPECT_EQ(part()[Metric::util], 50) << i;
    EXPECT_EQ(part().device_absence, Absence::none);
  }
  driver.everything = Return::gpu_is_lost;
  sample(1h);
  driver.everything = Return::success;
  sample(6s);
  EXPECT_EQ(part().why_missing(Metric::util), Absence::no_baseline) << "not of the hour in which it was lost";
}

TEST_F(Counters, ACardThatIsCutHasNoneOfItsOwn) {
  cut(1);
  sample();
  sample();
  EXPECT_EQ(answer_.gpu.why_missing(Metric::sm), Absence::not_supported);
  EXPECT_EQ(part()[Metric::sm], 40);
  EXPECT_EQ(part()[Metric::tensor], 30);
  EXPECT_EQ(part()[Metric::dram], 20);
  EXPECT_EQ(std::ranges::count(driver.gpm_asked, "whole"), 0);
}

TEST_F(Counters, WhereThereAreNoneAMigDevicesUtilisationIsUnknown) {
  cut(1);
  driver.gpm_supported = 0;
  sample();
  sample();
  EXPECT_EQ(part().why_missing(Metric::util), Absence::not_supported);
  driver.gpm_supported = 1;
  for (const auto& [code, absence] : std::map<Return, Absence>{{Return::no_permission, Absence::no_permission},
                                                               {Return::invalid_argument, Absence::failed}}) {
    gpu_ = NvmlGpu(0);
    driver.gpm_mig_sample = code;
    sample();
    sample();
    EXPECT_EQ(part().why_missing(Metric::util), absence);
    EXPECT_EQ(part().device_absence, Absence::none);
    driver.gpm_mig_sample = Return::success;
  }
  sample();
  EXPECT_EQ(part().why_missing(Metric::util), Absence::no_baseline);
  EXPECT_EQ(part().device_absence, Absence::none);
  sample();
  driver.gpm_results = {{1, Return::not_supported}};
  sample();
  EXPECT_TRUE(std::isnan(part()[Metric::util])) << "multiprocessors alone do not tell that nothing works";
  driver.gpm_results.clear();
  driver.gpm_values[1] = -3;
  sample();
  EXPECT_EQ(part().why_missing(Metric::util), Absence::implausible);
}

TEST_F(Counters, MultiprocessorsThatWorkAreNeverIdle) {
  cut(1);
  driver.gpm_values = {{1, 0}, {2, 35}, {5, 0}, {10, 0}};
  sample();
  sample();
  EXPECT_EQ(part()[Metric::util], 35);
}

TEST_F(Counters, BuffersOfMigDevicesThatAreGoneAreGivenBack) {
  cut(2);
  sample();
  sample();
  EXPECT_EQ(driver.gpm_samples.size(), 6U);
  cut(0);
  sample(20s);
  sample(20s);
  EXPECT_TRUE(answer_.parts.empty());
  EXPECT_EQ(driver.gpm_samples.size(), 3U) << "those of the whole card";
  cut(1);
  sample(20s);
  sample(20s);
  EXPECT_EQ(part()[Metric::util], 50);
}

// A card and a MIG device that work all the time, looked at at any distances while every call fails now and then: what
// is known is never less than they do, and is of all the time since the sample before.
TEST_F(Counters, AnUnknownNeverMakesWhoWorksIdle) {
  std::mt19937 random(7);
  constexpr std::array kCodes = {Return::success,     Return::no_permission, Return::not_supported,
                                 Return::timeout,     Return::unknown,       Return::invalid_argument,
                                 Return::gpu_is_lost, Return::in_use,        Return::insufficient_resources};
  constexpr std::array<double, 5> kNonsense = {-1, 1e9, 100.01, std::numeric_limits<double>::infinity(), kUnknown};
  const auto code = [&] { return random() % 8 == 0 ? kCodes[random() % kCodes.size()] : Return::success; };
  driver.gpm_now = [this] { return clock_.at.time_since_epoch() / 1ms; };
  unsigned known = 0;
  for (const unsigned parts : {0U, 2U}) {
    cut(parts);
    gpu_ = NvmlGpu(0);
    for (int i = 0; i < 20'000; ++i) {
      for (Return Driver::* call : {&Driver::gpm_alloc, &Driver::gpm_sample, &Driver::gpm_mig_sample, &Driver::gpm_get})
        driver.*call = code();
      driver.gpm_query = random() % 50 == 0 ? Return::timeout : Return::success;
      driver.everything = random() % 100 == 0 ? Return::gpu_is_lost : Return::success;
      driver.gpm_values = {{1, 70}, {2, 60}, {5, 50}, {10, 40}};
      driver.gpm_results.clear();
      for (const unsigned id : {1U, 2U, 5U, 10U}) {
        if (random() % 9 == 0) driver.gpm_values[id] = kNonsense[random() % kNonsense.size()];
        if (random() % 9 == 0) driver.gpm_results[id] = code();
        if (random() % 30 == 0) driver.gpm_values.erase(id);
      }
      const Duration after = std::array<Duration, 5>{1ms, 60ms, 99ms, 130ms, 4s}[random() % 5];
      const Duration paused = paused_;
      sample(after);
      std::vector<const Reading*> readings = {&answer_.gpu};
      for (const Reading& one : answer_.parts) readings.push_back(&one);
      for (const Reading* one : readings) {
        const bool mig = one != &answer_.gpu;
        for (const auto& [metric, least] : {std::pair{Metric::sm, 60.0},
                                            {Metric::tensor, 50.0},
                                            {Metric::dram, 40.0},
                                            {Metric::util, mig ? 60.0 : 40.0}}) {
          const double value = (*one)[metric];
          ASSERT_FALSE(value < least - 1e-9) << info(metric).name << ' ' << value << " at " << i;
          known += value >= least - 1e-9 ? 1 : 0;
        }
        if (!std::isnan((*one)[Metric::sm]) && paused_ == paused) {
          ASSERT_GE(one->counters_span, after) << i;
        }
      }
    }
  }
  EXPECT_GT(known, 50'000U);
}

// They are asked for after all else: on some drivers they spoil what is asked of MIG devices right after.
TEST_F(Counters, AreAskedForLast) {
  cut(2);
  sample();
  driver.gpm_asked.clear();
  calls_.DeviceGetMemoryInfo_v2 = [](nvml::Device, nvml::MemoryV2* out) {
    EXPECT_TRUE(driver.gpm_asked.empty());
    *out = driver.memory;
    return Return::success;
  };
  sample();
  EXPECT_EQ(driver.gpm_asked.size(), 4U);
}

}  // namespace
}  // namespace lull
