// NVIDIA's GPUs as a Source: the library, one NvmlGpu a card, and which of them sleep.
#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>
#include <tuple>
#include <utility>

#include "sense/nvml/gpu.h"
#include "sense/nvml/library.h"
#include "sense/nvml/sleep.h"
#include "sense/source.h"
#include "sense/wire.h"

namespace lull {
namespace {

using Bus = std::tuple<unsigned, unsigned, unsigned>;
Bus bus_of(const nvml::PciInfo& pci) { return {pci.domain, pci.bus, pci.device}; }

// One GPU, and where its NVLinks lead to.
struct LinkedCard {
  nvml::Device handle = nullptr;
  std::optional<Bus> bus;
  std::vector<Bus> linked;
  unsigned to_switch = 0;
};

LinkedCard read_card(const NvmlCalls& calls, nvml::Device handle) {
  LinkedCard card;
  if (handle == nullptr) return card;
  card.handle = handle;
  nvml::PciInfo pci{};
  if (ask(calls.DeviceGetPciInfo_v3, handle, &pci) == nvml::Return::success) card.bus = bus_of(pci);
  for (unsigned link = 0; link < nvml::kNvlinkMax; ++link) {
    unsigned active = 0;
    if (ask(calls.DeviceGetNvLinkState, handle, link, &active) != nvml::Return::success || active == 0) continue;
    unsigned type = nvml::kNvlinkToUnknown;
    (void)ask(calls.DeviceGetNvLinkRemoteDeviceType, handle, link, &type);
    nvml::PciInfo remote{};
    if (type == nvml::kNvlinkToSwitch)
      ++card.to_switch;
    else if (ask(calls.DeviceGetNvLinkRemotePciInfo_v2, handle, link, &remote) == nvml::Return::success)
      card.linked.push_back(bus_of(remote));
  }
  return card;
}

unsigned links_between(const LinkedCard& a, const LinkedCard& b) {
  const auto direct = b.bus ? std::count(a.linked.begin(), a.linked.end(), *b.bus) : 0;
  return static_cast<unsigned>(direct) + std::min(a.to_switch, b.to_switch);  // a switch joins all that hang on it
}

Nearness nearness(unsigned level) {
  switch (level) {
    case nvml::kTopologyInternal: return Nearness::shared;
    case nvml::kTopologySingle: return Nearness::one_switch;
    case nvml::kTopologyMultiple: return Nearness::switches;
    case nvml::kTopologyHostBridge: return Nearness::host_bridge;
    case nvml::kTopologyNode: return Nearness::numa_node;
    case nvml::kTopologySystem: return Nearness::system;
    default: return Nearness::unknown;
  }
}

// How the GPUs are joined: NVLinks (direct, or through switches) and what lies between them on PCIe. By the order of
// the handles; null: a GPU that cannot be read. What the driver does not tell is unknown.
Topology read_topology(const NvmlCalls& calls, const std::vector<nvml::Device>& handles) {
  std::vector<LinkedCard> cards;
  cards.reserve(handles.size());
  for (const nvml::Device handle : handles) cards.push_back(read_card(calls, handle));
  Topology topology(cards.size());
  for (std::size_t i = 0; i < cards.size(); ++i) {
    for (std::size_t j = i + 1; j < cards.size(); ++j) {
      Join join{links_between(cards[i], cards[j]), Nearness::unknown};
      unsigned level = 0;
      if (cards[i].handle != nullptr && cards[j].handle != nullptr &&
          ask(calls.DeviceGetTopologyCommonAncestor, cards[i].handle, cards[j].handle, &level) == nvml::Return::success)
        join.nearness = nearness(level);
      topology.set(i, j, join);
    }
  }
  return topology;
}

// ---- the source

class NvmlSource final : public Source {
 public:
  NvmlSource(std::string library, const Root& root, const Clock& clock)
      : library_(std::move(library)), root_(root), clock_(clock), sleepers_(root) {}

  // Where every card sleeps, nothing is loaded: that alone would wake them sooner or later.
  DriverState open() override {
    if (sleepers_.all_asleep()) {
      make_gpus(static_cast<unsigned>(sleepers_.count()));
      return {};
    }
    DriverState state;
    nvml_ = Nvml::open(library_, state);
    if (nvml_ != nullptr) make_gpus(nvml_->gpu_count());
    return state;
  }

  unsigned count() const override { return static_cast<unsigned>(gpus_.size()); }
  std::string driver_version() const override { return nvml_ != nullptr ? nvml_->driver_version() : std::string(); }
  std::string library() const override { return nvml_ != nullptr ? nvml_->path() : std::string(); }

  bool attach(unsigned gpu, Instant now) override {
    Card& card = gpus_[gpu];
    if (asleep(gpu) || nvml_ == nullptr) return false;
    const nvml::Return code = identify(nvml_->calls(), card.gpu, now);
    note_identity(card);
    return code == nvml::Return::success;
  }

  const Identity& identity(unsigned gpu) override { return gpus_[gpu].identity; }

  void sample(unsigned gpu, const Needs& needs, Instant now, Answer& answer) override {
    Card& card = gpus_[gpu];
    if (asleep(gpu)) return all_asleep(card, needs, answer);
    if (nvml_ == nullptr) {  // it woke up while nothing was loaded: a fresh start reads it
      answer.gpu.miss_all(Absence::no_baseline);
      answer.parts.clear();
      answer.driver_gone = true;
      return;
    }
    sample_gpu(nvml_->calls(), card.gpu, needs, now, buffers(), answer);
    if (card.changes != card.gpu.changes) note_identity(card);
  }

  void look(unsigned gpu, Instant now) override {
    if (nvml_ != nullptr && !asleep(gpu)) look_gpu(nvml_->calls(), gpus_[gpu].gpu, now, buffers());
  }
  Duration look_within(unsigned gpu) const override { return lull::look_within(gpus_[gpu].gpu); }

  bool wants_release() const override { return nvml_ != nullptr && sleepers_.all_asleep(); }

  Topology topology() override {
    // Of those that have said who they are: a card that sleeps is not woken for this.
    std::vector<nvml::Device> handles;
    for (unsigned i = 0; i < std::min<std::size_t>(gpus_.size(), kMostGpus); ++i)
      handles.push_back(asleep(i) ? nullptr : gpus_[i].handle.load());
    return nvml_ != nullptr ? read_topology(nvml_->calls(), handles) : Topology(gpus_.size());
  }

 private:
  struct Card {
    explicit Card(unsigned index) : gpu(index) {
      identity.device.index = index;
      identity.device.absence = Absence::no_answer;  // until it says who it is
    }
    NvmlGpu gpu;
    std::atomic<nvml::Device> handle{nullptr};  // for whoever does not have the GPU in hand
    unsigned changes = 0;
    Identity identity;
    std::atomic<std::ptrdiff_t> sleeper{-1};  // its place among the PCI devices, where that is known
  };

  void make_gpus(unsigned count) {
    gpus_.clear();
    for (unsigned i = 0; i < count; ++i) gpus_.emplace_back(i);
    const std::vector<std::ptrdiff_t> places = places_of_sleepers();
    for (unsigned i = 0; i < count && !places.empty(); ++i) {
      Card& card = gpus_[i];
      card.sleeper = places[i];
      if (!asleep(i)) continue;
      card.identity.device = sleepers_.device(static_cast<std::size_t>(places[i]));
      card.identity.device.index = i;
      ++card.identity.version;
    }
  }

  // Which card each number means, found out without waking those that sleep: the awake ones are asked by their PCI
  // address, and what is left are the sleepers. Empty: that is unknown, or none sleeps and each GPU will say so
  // itself.
  std::vector<std::ptrdiff_t> places_of_sleepers() {
    const std::size_t count = gpus_.size();
    std::vector<std::ptrdiff_t> places(count, -1);
    std::vector<std::ptrdiff_t> sleeping;
    if (sleepers_.count() != count || !any_asleep()) return {};
    for (std::size_t card = 0; card < count; ++card) {
      if (sleepers_.asleep(card)) {
        sleeping.push_back(static_cast<std::ptrdiff_t>(card));
        continue;
      }
      nvml::Device handle = nullptr;
      unsigned index = 0;
      if (nvml_ == nullptr) continue;
      if (ask(nvml_->calls().DeviceGetHandleByPciBusId_v2, sleepers_.address(card).c_str(), &handle) !=
              nvml::Return::success ||
          ask(nvml_->calls().DeviceGetIndex, handle, &index) != nvml::Return::success || index >= count)
        return {};
      places[index] = static_cast<std::ptrdiff_t>(card);
    }
    if (sleeping.empty()) return {};
    auto next = sleeping.begin();
    for (std::ptrdiff_t& place : places)
      if (place < 0 && next != sleeping.end()) place = *next++;
    return places;
  }

  bool any_asleep() const {
    for (std::size_t card = 0; card < sleepers_.count(); ++card)
      if (sleepers_.asleep(card)) return true;
    return false;
  }

  void note_identity(Card& card) {
    card.changes = card.gpu.changes;
    card.handle = card.gpu.identified ? card.gpu.handle : nullptr;
    ++card.identity.version;
    card.identity.device = card.gpu.device;
    card.identity.parts.clear();
    for (const NvmlPart& part : card.gpu.parts) card.identity.parts.push_back(part.device);
    if (card.gpu.device.pci.empty()) return;
    const std::optional<std::size_t> place = sleepers_.find(card.gpu.device.pci);
    card.sleeper = place ? static_cast<std::ptrdiff_t>(*place) : -1;
  }

  bool asleep(unsigned gpu) const {
    const std::ptrdiff_t place = gpus_[gpu].sleeper;
    return place >= 0 && sleepers_.asleep(static_cast<std::size_t>(place));
  }

  void all_asleep(const Card& card, const Needs& needs, Answer& answer) const {
    answer.driver_gone = false;
    say_asleep(needs, answer.gpu);
    answer.gpu.awake_ms = sleepers_.awake_ms(static_cast<std::size_t>(card.sleeper.load()));
    answer.parts.resize(card.gpu.parts.size());
    for (Reading& part : answer.parts) say_asleep(needs, part);
  }

  // One for all GPUs that a thread samples, so that it stays near; of the source that the thread serves now.
  NvmlBuffers& buffers() const {
    static thread_local std::pair<unsigned, NvmlBuffers> mine;
    if (mine.first != number_) {
      mine = {number_, NvmlBuffers()};
      mine.second.root = root_;
      mine.second.clock = &clock_;
    }
    return mine.second;
  }

  static unsigned next_number() {
    static std::atomic<unsigned> made{0};
    return ++made;
  }

  std::string library_;
  Root root_;
  const Clock& clock_;
  const unsigned number_ = next_number();  // of all sources of this process
  Sleepers sleepers_;
  std::shared_ptr<Nvml> nvml_;
  std::deque<Card> gpus_;  // they do not move
};

}  // namespace

std::unique_ptr<Source> make_nvml_source(std::string library, Root root, const Clock& clock) {
  return std::make_unique<NvmlSource>(std::move(library), root, clock);
}

}  // namespace lull
