// Every public name exists, as clients look for it: an absent one shows as ERR!,
// one that is not supported as N/A. Those that are simulated are defined elsewhere
// in this folder and win over these at link time.
#include "sim/library/client.h"

namespace lull::sim {
namespace {

// Most calls have the device first; then a fault of that GPU is met here too.
Return unsupported(const char* function, Device maybe) {
  Target target;
  if (!target_of(maybe, target)) target = Target{};
  return on_target(function, target, false, [](const Look&) { return Return::not_supported; });
}

}  // namespace
}  // namespace lull::sim

#define X(name)                                                                                               \
  extern "C" __attribute__((weak, visibility("default"))) lull::nvml::Return name(lull::nvml::Device maybe) { \
    return lull::sim::unsupported(#name, maybe);                                                              \
  }
#include "sim/library/names.inc"
#undef X
