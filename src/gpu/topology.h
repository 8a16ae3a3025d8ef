#pragma once
// How closely the GPUs of a machine are joined: by NVLinks, and by what lies
// between them on PCIe. A value; sense/nvml/source.cc reads it, lease/choice.h uses it.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lull {

// What two GPUs have in common on the way to each other; the greater, the nearer.
enum class Nearness : std::uint8_t {
  unknown,      // could not be read
  system,       // nothing but the link between the sockets
  numa_node,    // host bridges of one NUMA node
  host_bridge,  // one host bridge
  switches,     // several PCIe switches
  one_switch,   // one PCIe switch
  shared,       // the same card (or MIG devices of one GPU)
};

struct Join {
  unsigned nvlinks = 0;
  Nearness nearness = Nearness::unknown;
  bool operator==(const Join&) const = default;
};

// Symmetric, by position in the inventory.
class Topology {
 public:
  Topology() = default;
  explicit Topology(std::size_t devices) : devices_(devices), joins_(devices * devices) {}

  std::size_t devices() const { return devices_; }
  Join between(std::size_t a, std::size_t b) const {
    return a < devices_ && b < devices_ ? joins_[a * devices_ + b] : Join{};
  }
  void set(std::size_t a, std::size_t b, Join join) {
    joins_[a * devices_ + b] = join;
    joins_[b * devices_ + a] = join;
  }

 private:
  std::size_t devices_ = 0;
  std::vector<Join> joins_;
};

}  // namespace lull
