// How the cards are wired: PCIe, NUMA, NVLink.
#include <cstdio>

#include "sim/library/client.h"

using namespace lull::sim;
namespace nvml = lull::nvml;

namespace {

// Calls about two cards: either may be lost.
template <class Answer>
Return on_pair(const char* function, Device one, Device other, Answer&& answer) {
  Target second;
  if (!target_of(other, second) || second.is_mig())
    return on_gpu(function, one, [](const Look&) { return Return::invalid_argument; });
  const Return reachable = on_gpu(function, other, [](const Look&) { return Return::success; });
  if (reachable != Return::success) return reachable;
  return on_gpu(function, one, [&](const Look& look) { return answer(look, static_cast<unsigned>(second.gpu)); });
}

bool linked(const State& state, unsigned one, unsigned other) {
  const Gpu& from = state.gpus[one];
  const Gpu& to = state.gpus[other];
  for (unsigned i = 0; i < from.link_count && i < kMaxLinks; ++i) {
    if (from.link[i] == other + 1) return true;
    if (from.link[i] == kLinkSwitch && to.link_count > 0 && to.link[0] == kLinkSwitch) return true;
  }
  return false;
}

// Clients ask for all links that any card may have: `nvidia-smi topo -m` gives up when one that this card lacks is
// called invalid.
template <class Answer>
Return on_link(const char* function, Device device, unsigned link, Answer&& answer) {
  return on_gpu(function, device, [&](const Look& look) {
    if (link >= kMaxLinks) return Return::invalid_argument;
    return link >= look.card.link_count ? Return::not_supported : answer(look, look.card.link[link]);
  });
}

Return copy_set(unsigned words, unsigned long* out, const std::uint64_t* set, unsigned available) {
  if (out == nullptr || words == 0) return Return::invalid_argument;
  for (unsigned i = 0; i < words; ++i) out[i] = i < available ? set[i] : 0;
  return Return::success;
}

// Those of the cards that match; without a place to put them, how many there are.
template <class Matches>
Return give_gpus(const State& state, unsigned capacity, unsigned* count, Device* devices, Matches&& matches) {
  if (count == nullptr) return Return::invalid_argument;
  unsigned found = 0;
  for (unsigned gpu = 0; gpu < state.nvml_count; ++gpu) {
    if (!matches(gpu)) continue;
    if (found < capacity) devices[found] = handle_of(gpu);
    ++found;
  }
  *count = found;
  return devices != nullptr && found > capacity ? Return::insufficient_size : Return::success;
}

}  // namespace

LULL_EXPORT Return nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, unsigned* level) {
  return on_pair(__func__, one, other, [&](const Look& look, unsigned second) {
    return give(level, look.scene.state.topology[look.gpu][second]);
  });
}

LULL_EXPORT Return nvmlDeviceGetTopologyNearestGpus(Device device, unsigned level, unsigned* count, Device* devices) {
  const unsigned capacity = count == nullptr || devices == nullptr ? 0 : *count;
  return on_gpu(__func__, device, [&](const Look& look) {
    const State& state = look.scene.state;
    return give_gpus(state, capacity, count, devices,
                     [&](unsigned gpu) { return gpu != look.gpu && state.topology[look.gpu][gpu] == level; });
  });
}

// The cards that are near a CPU.
LULL_EXPORT Return nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned* count, Device* devices) {
  const unsigned capacity = count == nullptr || devices == nullptr ? 0 : *count;
  return on_driver(__func__, [&](const Look& look) {
    const State& state = look.scene.state;
    return give_gpus(state, capacity, count, devices, [&](unsigned gpu) {
      return cpu < kCpuWords * 64 && (state.gpus[gpu].cpu_set[cpu / 64] >> (cpu % 64) & 1) != 0;
    });
  });
}

LULL_EXPORT Return nvmlDeviceGetP2PStatus(Device one, Device other, unsigned index, unsigned* status) {
  return on_pair(__func__, one, other, [&](const Look& look, unsigned second) {
    if (index > nvml::kP2pProprietary) return Return::invalid_argument;
    const bool link = linked(look.scene.state, look.gpu, second);
    const bool near = look.scene.state.topology[look.gpu][second] < nvml::kTopologySystem;
    if (index == nvml::kP2pNvlink || index == nvml::kP2pAtomics)
      return give(status, link ? nvml::kP2pOk : nvml::kP2pNotSupported);
    return give(status, link || near ? nvml::kP2pOk : nvml::kP2pTopologyNotSupported);
  });
}

LULL_EXPORT Return nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* active) {
  return on_link(__func__, device, link, [&](const Look&, std::uint8_t to) { return give(active, to != 0 ? 1U : 0U); });
}
LULL_EXPORT Return nvmlDeviceGetNvLinkVersion(Device device, unsigned link, unsigned* version) {
  return on_link(__func__, device, link,
                 [&](const Look& look, std::uint8_t) { return give(version, look.card.link_version); });
}
LULL_EXPORT Return nvmlDeviceGetNvLinkCapability(Device device, unsigned link, unsigned capability, unsigned* result) {
  return on_link(__func__, device, link, [&](const Look&, std::uint8_t) {
    return capability >= nvml::kNvlinkCaps ? Return::invalid_argument : give(result, capability == 4 ? 0U : 1U);
  });
}
LULL_EXPORT Return nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned* type) {
  return on_link(__func__, device, link, [&](const Look&, std::uint8_t to) {
    if (to == 0) return Return::not_supported;
    return give(type, to == kLinkSwitch ? nvml::kNvlinkToSwitch : nvml::kNvlinkToGpu);
  });
}

namespace {

Return remote_pci(const Look& look, unsigned link, std::uint8_t to, nvml::PciInfo* pci, bool with_long_id) {
  if (pci == nullptr) return Return::invalid_argument;
  if (to == 0) return Return::not_supported;
  nvml::PciInfo far{};
  const bool is_switch = to == kLinkSwitch;
  if (!is_switch && to - 1U >= look.scene.state.nvml_count) return Return::unknown;
  const Gpu* gpu = is_switch ? nullptr : &look.scene.state.gpus[to - 1U];
  far.domain = is_switch ? 0 : gpu->pci_domain;
  far.bus = is_switch ? 0xF0 + link % 6 : gpu->pci_bus;  // six switches, as in an eight-card server
  far.device = is_switch ? 0 : gpu->pci_device;
  far.pci_device_id = is_switch ? 0x22A310DE : gpu->pci_device_id;
  std::snprintf(far.bus_id_legacy, sizeof far.bus_id_legacy, "%04X:%02X:%02X.0", far.domain & 0xFFFF, far.bus & 0xFF,
                far.device & 0xFF);
  std::snprintf(far.bus_id, sizeof far.bus_id, "%08X:%02X:%02X.0", far.domain, far.bus & 0xFF, far.device & 0xFF);
  std::memcpy(static_cast<void*>(pci), &far, with_long_id ? sizeof far : offsetof(nvml::PciInfo, bus_id));
  return Return::success;
}

}  // namespace

LULL_EXPORT Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, nvml::PciInfo* pci) {
  return on_link(__func__, device, link,
                 [&](const Look& look, std::uint8_t to) { return remote_pci(look, link, to, pci, true); });
}
LULL_EXPORT Return nvmlDeviceGetNvLinkRemotePciInfo(Device device, unsigned link, nvml::PciInfo* pci) {
  return on_link(__func__, device, link,
                 [&](const Look& look, std::uint8_t to) { return remote_pci(look, link, to, pci, false); });
}

LULL_EXPORT Return nvmlDeviceGetNumaNodeId(Device device, unsigned* node) {
  return on_gpu(__func__, device, [&](const Look& look) {
    return look.card.numa_node < 0 ? Return::not_supported : give(node, look.card.numa_node);
  });
}
LULL_EXPORT Return nvmlDeviceGetCpuAffinity(Device device, unsigned words, unsigned long* set) {
  return on_gpu(__func__, device, [&](const Look& look) { return copy_set(words, set, look.card.cpu_set, kCpuWords); });
}
LULL_EXPORT Return nvmlDeviceGetCpuAffinityWithinScope(Device device, unsigned words, unsigned long* set, unsigned) {
  return on_gpu(__func__, device, [&](const Look& look) { return copy_set(words, set, look.card.cpu_set, kCpuWords); });
}
LULL_EXPORT Return nvmlDeviceGetMemoryAffinity(Device device, unsigned words, unsigned long* set, unsigned) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (look.card.numa_node < 0 || look.card.numa_node > 63) return Return::not_supported;
    const std::uint64_t nodes = 1ULL << look.card.numa_node;
    return copy_set(words, set, &nodes, 1);
  });
}
