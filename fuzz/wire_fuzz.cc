// What a sensor process writes for its parent: any bytes at all are refused or make sense.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "sense/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  lull::Answer answer;
  lull::Identity identity;
  lull::MachineReport machine;
  lull::DriverReport driver;
  switch (data[0] % 4) {
    case 0:
      if (!lull::decode(bytes, answer)) break;
      for (std::size_t m = 0; m < lull::kMetrics; ++m)
        if ((answer.gpu.absence[m] == lull::Absence::none) != std::isfinite(answer.gpu.value[m])) std::abort();
      break;
    case 1: (void)lull::decode(bytes, identity); break;
    case 2: (void)lull::decode(bytes, machine); break;
    default: (void)lull::decode(bytes, driver); break;
  }
  return 0;
}
