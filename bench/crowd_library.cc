// A stand-in for the driver's library, for bench/figure_crowd.py: GPUs at work on which thousands of processes are
// listed, for next to nothing. $LULL_CROWD is a file of their numbers, 32 bits each: the same count for each of the
// 8 GPUs, one GPU after the other.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "nvml/abi.h"

namespace {

using lull::nvml::Device;
using lull::nvml::Return;

constexpr unsigned kGpus = 8;
const std::uint32_t* pids = nullptr;
unsigned each = 0;  // processes to a GPU

unsigned number(Device device) { return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device) - 1); }

Return text(char* out, unsigned length, std::string_view words, unsigned gpu) {
  std::snprintf(out, length, "%.*s%u", static_cast<int>(words.size()), words.data(), gpu);
  return Return::success;
}

}  // namespace

#define LULL_CALL extern "C" __attribute__((visibility("default"))) Return

LULL_CALL nvmlInit_v2() {
  const char* path = std::getenv("LULL_CROWD");
  const int file = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  struct stat about{};
  if (file < 0 || ::fstat(file, &about) != 0) return Return::unknown;
  const auto size = static_cast<std::size_t>(about.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return Return::unknown;
  pids = static_cast<const std::uint32_t*>(memory);
  each = static_cast<unsigned>(size / sizeof(std::uint32_t) / kGpus);
  return Return::success;
}
LULL_CALL nvmlShutdown() { return Return::success; }
LULL_CALL nvmlDeviceGetCount_v2(unsigned* count) { return *count = kGpus, Return::success; }
LULL_CALL nvmlSystemGetDriverVersion(char* out, unsigned length) { return text(out, length, "550.54.1", 5); }
LULL_CALL nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = reinterpret_cast<Device>(std::uintptr_t{index} + 1);  // NOLINT(performance-no-int-to-ptr): any pointer
  return index < kGpus ? Return::success : Return::invalid_argument;
}
LULL_CALL nvmlDeviceGetUUID(Device device, char* out, unsigned length) {
  return text(out, length, "GPU-crowd-", number(device));
}
LULL_CALL nvmlDeviceGetName(Device device, char* out, unsigned length) {
  return text(out, length, "Crowded ", number(device));
}
LULL_CALL nvmlDeviceGetMinorNumber(Device device, unsigned* out) { return *out = number(device), Return::success; }
LULL_CALL nvmlDeviceGetUtilizationRates(Device, lull::nvml::Utilization* out) {
  return *out = {80, 20}, Return::success;
}
LULL_CALL nvmlDeviceGetMemoryInfo(Device, lull::nvml::Memory* out) {
  constexpr unsigned long long kTotal = 80ULL << 30;
  *out = {kTotal, kTotal / 4, kTotal / 4 * 3};
  return Return::success;
}
LULL_CALL nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, lull::nvml::Process* out) {
  const unsigned room = *count;
  *count = each;
  if (room < each) return Return::insufficient_size;
  for (unsigned i = 0; i < each; ++i)
    out[i] = {pids[number(device) * each + i], 32ULL << 20, lull::nvml::kNoInstance, lull::nvml::kNoInstance};
  return Return::success;
}
