#include "gpu/throttle.h"

#include <array>

namespace lull {
namespace {

struct Reason {
  std::uint64_t bit;
  std::string_view word;
};
// Left out on purpose: 0x1 idle, 0x2 applications clocks, 0x10 sync boost, 0x100 display clocks.
constexpr std::array kReasons = {
    Reason{0x04, "power_cap"},        Reason{0x08, "hardware_slowdown"},    Reason{0x20, "thermal"},
    Reason{0x40, "hardware_thermal"}, Reason{0x80, "hardware_power_brake"},
};

}  // namespace

bool is_throttling(std::uint64_t reasons) {
  for (const Reason& reason : kReasons)
    if ((reasons & reason.bit) != 0) return true;
  return false;
}

std::vector<std::string_view> throttle_words(std::uint64_t reasons) {
  std::vector<std::string_view> words;
  for (const Reason& reason : kReasons)
    if ((reasons & reason.bit) != 0) words.push_back(reason.word);
  return words;
}

}  // namespace lull
