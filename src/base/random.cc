#include "base/random.h"

#include <sys/random.h>
#include <unistd.h>

#include <ctime>

namespace lull {

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) == sizeof bits) return bits;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_nsec) << 32U ^ static_cast<std::uint64_t>(now.tv_sec) << 22U ^
         static_cast<std::uint64_t>(::getpid());
}

}  // namespace lull
