#include "sense/nvml/topology.h"

#include <algorithm>
#include <optional>
#include <tuple>

namespace lull {
namespace {

constexpr auto kDone = nvml::Return::success;

using Bus = std::tuple<unsigned, unsigned, unsigned>;
Bus bus_of(const nvml::PciInfo& pci) { return {pci.domain, pci.bus, pci.device}; }

// One GPU, and where its NVLinks lead to.
struct Card {
  nvml::Device handle = nullptr;
  std::optional<Bus> bus;
  std::vector<Bus> linked;
  unsigned to_switch = 0;
};

Card read_card(const NvmlCalls& calls, nvml::Device handle) {
  Card card;
  if (handle == nullptr) return card;
  card.handle = handle;
  nvml::PciInfo pci{};
  if (ask(calls.DeviceGetPciInfo_v3, handle, &pci) == kDone) card.bus = bus_of(pci);
  for (unsigned link = 0; link < nvml::kNvlinkMax; ++link) {
    unsigned active = 0;
    if (ask(calls.DeviceGetNvLinkState, handle, link, &active) != kDone || active == 0) continue;
    unsigned type = nvml::kNvlinkToUnknown;
    (void)ask(calls.DeviceGetNvLinkRemoteDeviceType, handle, link, &type);
    nvml::PciInfo remote{};
    if (type == nvml::kNvlinkToSwitch)
      ++card.to_switch;
    else if (ask(calls.DeviceGetNvLinkRemotePciInfo_v2, handle, link, &remote) == kDone)
      card.linked.push_back(bus_of(remote));
  }
  return card;
}

unsigned links_between(const Card& a, const Card& b) {
  const auto direct = b.bus ? std::count(a.linked.begin(), a.linked.end(), *b.bus) : 0;
  return static_cast<unsigned>(direct) + std::min(a.to_switch, b.to_switch);  // a switch joins all that hang on it
}

Nearness nearness(unsigned level) {
  switch (level) {
    case nvml::kTopologyInternal: return Nearness::board;
    case nvml::kTopologySingle: return Nearness::one_switch;
    case nvml::kTopologyMultiple: return Nearness::switches;
    case nvml::kTopologyHostBridge: return Nearness::host_bridge;
    case nvml::kTopologyNode: return Nearness::numa_node;
    case nvml::kTopologySystem: return Nearness::system;
    default: return Nearness::unknown;
  }
}

}  // namespace

Topology read_nvml_topology(const NvmlCalls& calls, const std::vector<nvml::Device>& handles) {
  std::vector<Card> cards;
  cards.reserve(handles.size());
  for (const nvml::Device handle : handles) cards.push_back(read_card(calls, handle));
  Topology topology(cards.size());
  for (std::size_t i = 0; i < cards.size(); ++i) {
    for (std::size_t j = i + 1; j < cards.size(); ++j) {
      Join join{links_between(cards[i], cards[j]), Nearness::unknown};
      unsigned level = 0;
      if (cards[i].handle != nullptr && cards[j].handle != nullptr &&
          ask(calls.DeviceGetTopologyCommonAncestor, cards[i].handle, cards[j].handle, &level) == kDone)
        join.nearness = nearness(level);
      topology.set(i, j, join);
    }
  }
  return topology;
}

}  // namespace lull
