#pragma once
// amdgpu's binary file gpu_metrics. Its layout differs from version to version, and versions share numbers: only 1.3 of
// 120 bytes is read. A field of all ones is not told by this card.

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace lull {

struct GpuMetrics {
  std::optional<double> gfx_percent;
  std::optional<double> umc_percent;  // memory controller
  std::optional<double> watts;
  std::optional<std::uint64_t> energy;         // in 15.259 µJ
  std::optional<std::uint32_t> activity;       // gfx_activity_acc: wraps
  std::optional<std::uint64_t> firmware_time;  // in 10 ns
};

inline constexpr double kMillijoulesPerEnergy = 0.015259;
inline constexpr double kFirmwareTicksPerMillisecond = 100'000;

// The format's first number: 1 of a card, 2 and 3 of an APU. Nothing: it is none, since it begins with its own size.
inline std::optional<unsigned> gpu_metrics_format(std::string_view bytes) {
  std::uint16_t size = 0;
  if (bytes.size() < 4) return std::nullopt;
  std::memcpy(&size, bytes.data(), sizeof size);
  return size == bytes.size() ? std::optional(static_cast<unsigned>(static_cast<unsigned char>(bytes[2])))
                              : std::nullopt;
}

// Nothing: another version, or not the size that this version has.
inline std::optional<GpuMetrics> parse_gpu_metrics(std::string_view bytes) {
  constexpr std::size_t kSize = 120;
  const auto field = [&]<class T>(std::size_t at, T) -> std::optional<T> {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value == static_cast<T>(~T{}) ? std::nullopt : std::optional(value);
  };
  if (bytes.size() != kSize || field(0, std::uint16_t{}) != kSize || bytes[2] != 1 || bytes[3] != 3)
    return std::nullopt;
  GpuMetrics metrics;
  metrics.gfx_percent = field(16, std::uint16_t{});
  metrics.umc_percent = field(18, std::uint16_t{});
  metrics.watts = field(22, std::uint16_t{});
  metrics.energy = field(24, std::uint64_t{});
  metrics.activity = field(80, std::uint32_t{});
  metrics.firmware_time = field(96, std::uint64_t{});
  return metrics;
}

}  // namespace lull
