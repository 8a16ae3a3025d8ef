// What goes wrong with a call: the second half of evaluate.h.
#include <algorithm>
#include <cstring>

#include "nvml/abi.h"
#include "sim/evaluate.h"

namespace lull::sim {
namespace {

bool begins(const char* text, const char* with) { return std::strncmp(text, with, std::strlen(with)) == 0; }

// Calls about no GPU in particular: a fault that names one of them is the whole driver's, whichever GPU it was given
// to.
bool names_driver_calls(const char* pattern) {
  return begins(pattern, "nvmlInit") || begins(pattern, "nvmlSystem") || begins(pattern, "nvmlDeviceGetCount");
}

bool in_force(const Fault& fault, std::int64_t at_ns) { return fault.from_ns <= at_ns && at_ns < fault.to_ns; }

bool concerns(const Fault& fault, std::int32_t gpu) {
  if (fault.gpu == kWholeDriver) return true;
  return gpu >= 0 ? fault.gpu == kEveryGpu || fault.gpu == gpu : names_driver_calls(fault.function);
}

}  // namespace

bool names(const char* pattern, const char* function) {
  if (pattern[0] == 0) return true;
  const std::size_t length = std::strlen(pattern);
  if (pattern[length - 1] == '*') return std::strncmp(pattern, function, length - 1) == 0;
  // A function goes by several names: nvmlDeviceGetCount also means nvmlDeviceGetCount_v2.
  return std::strncmp(pattern, function, length) == 0 &&
         (function[length] == 0 || std::strncmp(function + length, "_v", 2) == 0);
}

Trouble trouble(const Live& live, std::int32_t gpu, const char* function, bool about_util, std::int64_t at_ns) {
  Trouble found;
  for (unsigned i = 0; i < std::min(live.fault_count, kMaxFaults); ++i) {
    const Fault& fault = live.faults[i];
    if (!in_force(fault, at_ns) || !concerns(fault, gpu) || !names(fault.function, function)) continue;
    if (fault.kind == FaultKind::file) {
      found.file = true;
      found.file_error = fault.code;
      continue;
    }
    if (fault.kind == FaultKind::no_util) {
      if (about_util && found.code == 0) found.code = static_cast<std::int32_t>(nvml::Return::not_supported);
      continue;
    }
    found.dstate = found.dstate || fault.kind == FaultKind::dstate;
    found.garbage = found.garbage || fault.kind == FaultKind::garbage;
    found.hang_ns = std::max(found.hang_ns, fault.hang_ns);
    // A lost GPU is lost even if its utilisation was unsupported before; a lost driver beats both.
    if (fault.code != 0) found.code = fault.code;
    if (fault.gpu == kWholeDriver && fault.code != 0) return found;
  }
  return found;
}

bool stuck(const Live& live, std::int32_t gpu, std::int64_t at_ns) {
  return std::any_of(live.faults, live.faults + std::min(live.fault_count, kMaxFaults), [&](const Fault& fault) {
    return fault.kind == FaultKind::dstate && in_force(fault, at_ns) && concerns(fault, gpu);
  });
}

std::uint32_t driver_epoch(const Live& live, std::int64_t at_ns) {
  std::uint32_t losses = live.driver_losses;
  for (unsigned i = 0; i < std::min(live.fault_count, kMaxFaults); ++i) {
    const Fault& fault = live.faults[i];
    if (unloads_driver(fault) && fault.from_ns <= at_ns) ++losses;
  }
  return losses;
}

bool unloads_driver(const Fault& fault) {
  return fault.gpu == kWholeDriver && fault.function[0] == 0 &&
         fault.code == static_cast<std::int32_t>(nvml::Return::driver_not_loaded);
}

bool driver_loaded(const Live& live, std::int64_t at_ns) {
  return std::none_of(live.faults, live.faults + std::min(live.fault_count, kMaxFaults),
                      [&](const Fault& fault) { return unloads_driver(fault) && in_force(fault, at_ns); });
}

}  // namespace lull::sim
