#pragma once
// Reads one device into one reading: a GPU, or a MIG device of one. Ends early where
// the device as a whole is gone. For values.cc, which knows when to read what.

#include "sense/nvml/gpu.h"

namespace lull {

class Reader {
 public:
  Reader(const NvmlCalls& calls, nvml::Device handle, const Device& device, NvmlMemory& memory, const Needs& needs,
         Instant now, NvmlRoom& room, Reading& reading)
      : calls_(calls),
        handle_(handle),
        device_(device),
        memory_(memory),
        needs_(needs),
        now_(now),
        room_(room),
        reading_(reading) {}

  void gpu(bool display_active);
  void part();  // a MIG device has memory and tenants; all else belongs to the whole card
  void look();  // what the means need, and nothing into the reading

  nvml::Return fatal() const { return fatal_; }      // the device, or the driver, is gone
  bool invalid() const { return invalid_; }          // the handle may be void
  bool from_memory() const { return from_memory_; }  // the tenants are those of an earlier sample

 private:
  nvml::Return note(nvml::Return code);
  template <class Function, class... Arguments>
  nvml::Return call(Function* function, Arguments... arguments) {
    return note(ask(function, handle_, arguments...));
  }
  template <class Function, class... Arguments>
  void number(Metric metric, double scale, Function* function, Arguments... arguments);

  // A momentary value, and why it is not there.
  struct Moment {
    std::optional<double> value;
    Absence why = Absence::none;
    bool other = false;  // another source (ring, counter) answered
  };
  Moment look_util(bool ring, nvml::Utilization& rates);
  RingLook look_ring();
  void ask_for_module();
  Moment look_power(std::optional<std::uint64_t>& millijoules);
  Moment momentary_power();
  void publish(Metric metric, const MeterTake& take, const Moment& moment, Basis& basis, double& coverage);

  bool util();
  void power();
  void details();
  bool device_memory(bool for_tenants);
  void estimate_memory();
  void list(bool all);
  void tenants();
  void pcie();
  bool shows_everybody();
  const Clock& clock() const;

  const NvmlCalls& calls_;
  nvml::Device handle_;
  const Device& device_;
  NvmlMemory& memory_;
  const Needs& needs_;
  const Instant now_;
  NvmlRoom& room_;
  Reading& reading_;
  nvml::Return fatal_ = nvml::Return::success;
  bool invalid_ = false;
  bool from_memory_ = false;
  bool unified_ = false;        // the card has no memory of its own
  std::optional<double> used_;  // bytes
};

}  // namespace lull
