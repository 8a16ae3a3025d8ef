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
#include <type_traits>

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

// What a call about one GPU gets to see.
struct Look {
  const Scene& scene;
  Target target;
  unsigned gpu;  // of the target, or of a MIG device's parent
  const Gpu& card;
  std::int64_t now;
  bool garbage;  // a fault asks for nonsense
  bool has(std::uint32_t quirk) const { return (card.quirks & quirk) != 0; }
  bool mig() const { return value(Metric::mig_mode) > 0; }
  double value(Metric metric) const { return has(kNvmlZeros) ? 0 : sim::value(scene, gpu, metric, now); }
};

// What a call has to say of it: any function of a Look, borrowed for the length of the call. It may run more than
// once, so it must not read what it writes.
class Answer {
 public:
  template <class Function>
  Answer(Function&& function)  // NOLINT(bugprone-forwarding-reference-overload): an Answer is copied as one
    requires(!std::is_same_v<std::decay_t<Function>, Answer>)
      : function_(&function), call_([](const void* called, const Look& look) -> Return {
          return (*static_cast<const std::remove_reference_t<Function>*>(called))(look);
        }) {}
  Return operator()(const Look& look) const { return call_(function_, look); }

 private:
  const void* function_;
  Return (*call_)(const void*, const Look&);
};

// Each gives the answer unless a fault is in the way: for a call about anything, the driver, a GPU or a MIG device
// of one, and what only a whole GPU has.
Return on_target(const char* function, Target target, bool about_util, Answer answer);
Return on_driver(const char* function, Answer answer);
Return on_device(const char* function, Device device, Answer answer, bool about_util = false);
Return on_gpu(const char* function, Device device, Answer answer, bool about_util = false);
// Finding a GPU attaches it, which may take its time.
Return on_lookup(const char* function, Target target, Answer answer);

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

// What a driver says that has lost its mind: all ones.
template <class T>
Return give_garbage(T* out) {
  return give(out, static_cast<T>(~T{0}));
}

}  // namespace lull::sim
