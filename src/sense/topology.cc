#include "sense/topology.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "nvml/abi.h"

namespace lull {
namespace {

struct Calls {
  nvml::call::Init_v2* init = nullptr;
  nvml::call::Shutdown* shutdown = nullptr;
  nvml::call::DeviceGetHandleByIndex_v2* handle = nullptr;
  nvml::call::DeviceGetPciInfo_v3* pci = nullptr;
  nvml::call::DeviceGetTopologyCommonAncestor* ancestor = nullptr;
  nvml::call::DeviceGetNvLinkState* link_state = nullptr;
  nvml::call::DeviceGetNvLinkRemotePciInfo_v2* link_pci = nullptr;
  nvml::call::DeviceGetNvLinkRemoteDeviceType* link_type = nullptr;

  template <class Function>
  static void find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
  }
  explicit Calls(void* library) {
    find(library, "nvmlInit_v2", init);
    find(library, "nvmlShutdown", shutdown);
    find(library, "nvmlDeviceGetHandleByIndex_v2", handle);
    find(library, "nvmlDeviceGetPciInfo_v3", pci);
    find(library, "nvmlDeviceGetTopologyCommonAncestor", ancestor);
    find(library, "nvmlDeviceGetNvLinkState", link_state);
    find(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", link_pci);
    find(library, "nvmlDeviceGetNvLinkRemoteDeviceType", link_type);
  }
};

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

Card read_card(const Calls& calls, unsigned index) {
  Card card;
  if (calls.handle == nullptr || calls.handle(index, &card.handle) != kDone) return {};
  nvml::PciInfo pci{};
  if (calls.pci != nullptr && calls.pci(card.handle, &pci) == kDone) card.bus = bus_of(pci);
  for (unsigned link = 0; calls.link_state != nullptr && link < nvml::kNvlinkMax; ++link) {
    unsigned active = 0;
    if (calls.link_state(card.handle, link, &active) != kDone || active == 0) continue;
    unsigned type = nvml::kNvlinkToUnknown;
    if (calls.link_type != nullptr) (void)calls.link_type(card.handle, link, &type);
    nvml::PciInfo remote{};
    if (type == nvml::kNvlinkToSwitch)
      ++card.to_switch;
    else if (calls.link_pci != nullptr && calls.link_pci(card.handle, link, &remote) == kDone)
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

Topology ask_driver(const Calls& calls, const std::vector<Device>& devices) {
  std::vector<Card> cards;
  for (const Device& device : devices)
    if (device.index >= cards.size()) cards.resize(device.index + 1);
  for (const Device& device : devices)
    if (device.kind == DeviceKind::gpu) cards[device.index] = read_card(calls, device.index);
  Topology topology(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    for (std::size_t j = i + 1; j < devices.size(); ++j) {
      const Card& a = cards[devices[i].index];
      const Card& b = cards[devices[j].index];
      if (devices[i].index == devices[j].index) {
        topology.set(i, j, {0, Nearness::board});
        continue;
      }
      Join join{links_between(a, b), Nearness::unknown};
      unsigned level = 0;
      if (calls.ancestor != nullptr && a.handle != nullptr && b.handle != nullptr &&
          calls.ancestor(a.handle, b.handle, &level) == kDone)
        join.nearness = nearness(level);
      topology.set(i, j, join);
    }
  }
  return topology;
}

// Shared by the one who asks and the thread that may hang, for as long as either needs it.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::optional<Result<Topology>> answer;
};

}  // namespace

Result<Topology> read_topology(const Inventory& inventory, Duration deadline) {
  auto box = std::make_shared<Mailbox>();
  std::thread([box, library = inventory.library, devices = inventory.devices] {
    Result<Topology> answer = fail("the driver's library cannot be loaded");
    if (void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
      const Calls calls(handle);
      if (calls.init != nullptr && calls.init() == kDone) {
        answer = ask_driver(calls, devices);
        if (calls.shutdown != nullptr) calls.shutdown();
      }
    }
    const std::lock_guard lock(box->mutex);
    box->answer = std::move(answer);
    box->arrived.notify_one();
  }).detach();
  std::unique_lock lock(box->mutex);
  box->arrived.wait_for(lock, deadline, [&] { return box->answer.has_value(); });
  std::optional<Result<Topology>> answer = std::move(box->answer);
  if (!answer) return fail("the driver does not say how the GPUs are joined (it does not answer)");
  return *std::move(answer);
}

}  // namespace lull
