#pragma once
// The simulated driver library as one client process sees it: whether it is
// initialised, the simulation it is attached to, and what every call does first
// (faults, hangs, the log). The rest of this folder is one function a NVML call.
//
// Calls may come from any thread at any time, also while another thread shuts the
// library down, and in a forked child. A call never waits for another.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "nvml/abi.h"
#include "sim/evaluate.h"
#include "sim/mapping.h"
#include "sim/state.h"

#define LULL_EXPORT extern "C" __attribute__((visibility("default")))

namespace lull::sim {

using nvml::Device;
using nvml::Return;

Return start(const char* function);
Return stop();

// ---- handles: one for each GPU and each of its MIG devices, good for ever -------
struct Target {
  std::int32_t gpu = kWholeDriver;
  std::uint32_t mig = kNone;
  bool is_mig() const { return mig != kNone; }
};
Device handle_of(unsigned gpu, std::uint32_t mig = kNone);
bool target_of(Device device, Target& target);  // false: not one of ours

// ---- calls ------------------------------------------------------------------------

// Attached to a simulation for the length of a call.
class Attached {
 public:
  Attached();
  ~Attached();
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
  explicit operator bool() const { return session_ != nullptr; }

  Mapping& mapping() const;
  // What stands in the way of the call at `now`: a fault, a driver that is gone or was.
  Trouble trouble_for(const Live& live, const char* function, Target target, bool about_util, std::int64_t now) const;
  // Blocks as a driver does that hangs; returns when the time is over or the fault is.
  void hang(const char* function, Target target, bool about_util, std::int64_t first_ns) const;

 private:
  struct Session* session_ = nullptr;
};

void log_call(const char* function, Target target, Return result);
bool logging();

// What a call about one GPU gets to see.
struct Look {
  const Scene& scene;
  Target target;
  unsigned gpu;  // of the target, or of a MIG device's parent
  const Gpu& card;
  std::int64_t now;
  double value(Metric metric) const { return sim::value(scene, gpu, metric, now); }
};

// Runs answer(const Look&) unless a fault is in the way. It may run more than once, so it must not read
// what it writes.
template <class Answer>
Return attached_call(const char* function, Target target, bool about_util, Answer&& answer) {
  const Attached attached;
  Return result = Return::uninitialized;
  if (attached) {
    for (bool hung = false;; hung = true) {
      Trouble trouble;
      Mapping& mapping = attached.mapping();
      result = mapping.read([&](const Live& live) {
        const std::int64_t now = mapping.now_ns();
        trouble = attached.trouble_for(live, function, target, about_util, now);
        if (trouble.hang_ns > 0 && !hung) return Return::success;
        if (trouble.code != 0) return static_cast<Return>(trouble.code);
        const unsigned gpu = target.gpu < 0 ? 0 : static_cast<unsigned>(target.gpu);
        const Scene scene{mapping.writable_state(), mapping.writable(), live, now};
        return answer(Look{scene, target, gpu, scene.state.gpus[gpu], now});
      });
      if (trouble.hang_ns <= 0 || hung) break;
      attached.hang(function, target, about_util, trouble.hang_ns);
    }
  }
  if (logging()) log_call(function, target, result);
  return result;
}

template <class Answer>
Return on_driver(const char* function, Answer&& answer) {
  return attached_call(function, Target{}, false, answer);
}

template <class Answer>
Return on_device(const char* function, Device device, Answer&& answer, bool about_util = false) {
  Target target;
  if (!target_of(device, target)) {
    return attached_call(function, Target{}, false, [](const Look&) { return Return::invalid_argument; });
  }
  return attached_call(function, target, about_util, [&](const Look& look) {
    if (look.gpu >= look.scene.state.gpu_count) return Return::invalid_argument;
    if (target.is_mig() && target.mig >= look.card.mig_count) return Return::invalid_argument;
    return answer(look);
  });
}

// The same for what only a whole GPU has.
template <class Answer>
Return on_gpu(const char* function, Device device, Answer&& answer, bool about_util = false) {
  return on_device(
      function, device, [&](const Look& look) { return look.target.is_mig() ? Return::not_supported : answer(look); },
      about_util);
}

// A moment as sample timestamps have it.
std::int64_t sample_stamp_us(const State& state, std::int64_t boot_ns);

// ---- answers ----------------------------------------------------------------------
inline Return give_text(char* out, unsigned length, const char* text) {
  if (out == nullptr) return Return::invalid_argument;
  const std::size_t size = std::strlen(text) + 1;
  if (size > length) return Return::insufficient_size;
  std::memcpy(out, text, size);
  return Return::success;
}

template <class T, class V>
Return give(T* out, V value) {
  if (out == nullptr) return Return::invalid_argument;
  *out = static_cast<T>(value);
  return Return::success;
}

// A measured value, rounded; kUnsupported says so.
template <class T>
Return give_value(T* out, double value) {
  if (out == nullptr) return Return::invalid_argument;
  if (!std::isfinite(value)) return Return::not_supported;
  *out = static_cast<T>(whole(value > 0 ? value : 0));
  return Return::success;
}

}  // namespace lull::sim
