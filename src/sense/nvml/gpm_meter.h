#pragma once
// The chip's own counters (GPM, Hopper and newer): of a whole GPU, or of one GPU instance (MIG). A value is the mean of
// the time between two samples of the driver's, which is that between two of ours. It ends now, so it is the newest
// data as well. Samples less than 100 ms apart give invalid values, so the one before is taken then: a value is of all
// the time since our previous sample, or of that and a little more, or unknown.

#include <array>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "nvml/abi.h"
#include "sense/nvml/library.h"

namespace lull {

// One value, or why there is none.
struct GpmValue {
  double percent = kUnknown;
  Absence absence = Absence::not_asked;
};

struct GpmTake {
  GpmValue graphics;  // share of time in which any of the chip's engines worked
  GpmValue sm;
  GpmValue tensor;
  GpmValue dram;
  Duration span{};                            // so long before now the time begins that they are of; zero: of none
  bool first = false;                         // that time is not the time since our previous sample: there was none
  nvml::Return code = nvml::Return::success;  // what the driver said where it gave none of them
};

struct GpmFree {
  nvml::call::GpmSampleFree* free = nullptr;
  void operator()(nvml::GpmSample sample) const {
    if (free != nullptr) (void)free(sample);
  }
};
// A sample of the driver's. The buffer is the library's, and given back to it.
struct GpmBuffer {
  struct Time {
    Instant begin;
    Instant end;
  };
  std::unique_ptr<nvml::GpmSampleBuffer, GpmFree> buffer;
  std::optional<Time> taken;  // between these
};

class GpmMeter {
 public:
  // Whose counters: those of the card, or of an instance of it. Both are asked of the card: what is asked of the handle
  // of a MIG device spoils later calls about it, on some drivers.
  struct Target {
    nvml::Device card = nullptr;
    std::optional<unsigned> instance;
  };

  // A sample to compare the next with, where there has never been one. True: it was taken now, and take() has values
  // after kShortest.
  bool begin(const NvmlCalls& calls, const Target& target, const Clock& clock);
  GpmTake take(const NvmlCalls& calls, const Target& target, const Clock& clock);
  // The device was gone: the next take has nothing to compare with.
  void restart() { newer_.taken.reset(), older_.taken.reset(); }

  static constexpr Duration kShortest = std::chrono::milliseconds(100);

 private:
  nvml::Return fill_spare(const NvmlCalls& calls, const Target& target, const Clock& clock);
  nvml::Return look_for_support(const NvmlCalls& calls, nvml::Device card);

  std::optional<bool> supported_;  // as the driver said
  bool begun_ = false;
  bool waited_ = false;  // the newer sample was taken by begin()
  GpmBuffer older_;      // at least kShortest before newer_
  GpmBuffer newer_;
  GpmBuffer spare_;
};

}  // namespace lull
