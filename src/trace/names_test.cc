#include "trace/names.h"

#include <gtest/gtest.h>

namespace lull::trace {
namespace {

struct Case {
  const char* name;
  Metric metric;
  double scale;
};

TEST(Names, InAnyCaseAndWithTheUsualSuffixes) {
  constexpr double kMiB = 1 << 20;
  for (const Case& one :
       {Case{"gpu_util_pct", Metric::util, 1}, Case{"GPU Util", Metric::util, 1}, Case{"GpuUtil", Metric::util, 1},
        Case{"GPU-Util", Metric::util, 1}, Case{"DCGM_FI_DEV_GPU_UTIL", Metric::util, 1},
        Case{"nvidia_smi_utilization_gpu_ratio", Metric::util, 100}, Case{"gpu_percent", Metric::util, 1},
        Case{"power_w", Metric::power, 1}, Case{"POWER_MW", Metric::power, 1e-3},
        Case{"nvidia_gpu_power_usage_milliwatts", Metric::power, 1e-3}, Case{"mem_used_mib", Metric::mem_used, kMiB},
        Case{"Mem Used MiB", Metric::mem_used, kMiB}, Case{"memory_used_gb", Metric::mem_used, 1024 * kMiB},
        Case{"nvidia_smi_memory_used_bytes", Metric::mem_used, 1}, Case{"DCGM_FI_DEV_FB_USED", Metric::mem_used, kMiB},
        Case{"temp_c", Metric::temp, 1}, Case{"nvidia_smi_clocks_current_sm_clock_hz", Metric::clock, 1e-6},
        Case{"utilization.gpu", Metric::util, 1}, Case{"util_percent", Metric::util, 1}}) {
    const auto meaning = meaning_of(one.name);
    ASSERT_TRUE(meaning) << one.name;
    EXPECT_EQ(meaning->role, Role::metric) << one.name;
    EXPECT_EQ(meaning->metric, one.metric) << one.name;
    EXPECT_DOUBLE_EQ(meaning->scale, one.scale) << one.name;
    EXPECT_FALSE(meaning->size_unclear) << one.name;
  }
}

TEST(Names, WhatMeansSomethingElseIsNothing) {
  for (const char* name : {"mem_used_pct", "memory_percent", "memory_utilization", "cpu_temp_c", "name", "id", "step",
                           "encoder_util", "mem_clock_mhz", "gpu_name", "util_w", ""}) {
    const auto meaning = meaning_of(name);
    EXPECT_FALSE(meaning && meaning->role == Role::metric) << name;
  }
}

TEST(Names, MemoryWithoutAUnitIsTakenBySize) {
  const auto meaning = meaning_of("memory_used");
  ASSERT_TRUE(meaning && meaning->size_unclear);
  EXPECT_EQ(sample_of(*meaning, 1024), 1073741824.F);
  EXPECT_EQ(sample_of(*meaning, 1073741824), 1073741824.F);
}

TEST(Names, OfASeriesItsGpuAndWhatIsMeasured) {
  struct Series {
    const char* name;
    GpuName gpu;
    std::optional<Metric> metric;
  };
  for (const Series& one :
       {Series{"gpu0_util", {"0", "", ""}, Metric::util}, Series{"GPU 12 power (W)", {"12", "", ""}, Metric::power},
        Series{"util_gpu_2", {"2", "", ""}, Metric::util}, Series{"GPU 3", {"3", "", ""}, std::nullopt},
        Series{"system.gpu.1.powerWatts", {"1", "", ""}, Metric::power},
        Series{"a - b - system/gpu.0.gpu", {"0", "", "a - b"}, Metric::util},
        Series{"system.gpu.process.0.gpu", {"", "", ""}, std::nullopt},
        Series{"DCGM_FI_DEV_GPU_UTIL{gpu=\"0\", UUID=\"GPU-a\", instance=\"x:1\", Hostname=\"n\"}",
               {"0", "GPU-a", "n"},
               Metric::util},
        Series{"{gpu=\"0\"}", {"0", "", ""}, std::nullopt},
        Series{"DCGM_FI_DEV_XID_ERRORS{gpu=\"0\"}", {"0", "", ""}, std::nullopt}}) {
    const SeriesName series = series_of(one.name);
    EXPECT_EQ(series.gpu, one.gpu) << one.name;
    EXPECT_EQ(series.meaning.has_value(), one.metric.has_value()) << one.name;
    if (series.meaning && one.metric) {
      EXPECT_EQ(series.meaning->metric, *one.metric) << one.name;
    }
  }
}

}  // namespace
}  // namespace lull::trace
