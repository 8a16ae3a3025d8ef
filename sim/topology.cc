#include "sim/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/text.h"

namespace lull::sim {
namespace {

constexpr std::array<std::string_view, 3> kPresets = {"dgx", "bridges", "pcie"};

std::uint32_t links_of(const Scenario& scenario, std::size_t gpu) { return scenario.gpus[gpu].gpu.link_count; }

// Eight (or any number) of GPUs on NVSwitch: pairs share a PCIe switch, halves a NUMA node.
void make_dgx(Scenario& scenario) {
  const std::size_t count = scenario.gpus.size();
  scenario.topology.nvswitch = true;
  for (std::size_t i = 0; i < count; i += 2) {
    scenario.topology.switches.push_back({i});
    if (i + 1 < count) scenario.topology.switches.back().push_back(i + 1);
  }
  for (std::size_t i = 0; i < count; ++i) scenario.gpus[i].numa = i < (count + 1) / 2 ? 0 : 1;
}

// Neighbours joined by an NVLink bridge, as in a workstation with 3090s.
void make_bridges(Scenario& scenario) {
  for (std::size_t i = 0; i + 1 < scenario.gpus.size(); i += 2)
    scenario.topology.nvlinks.push_back({i, i + 1, links_of(scenario, i)});
}

Result<> read_preset(const Reader& reader, const Node& node, Scenario& scenario) {
  const std::string name = TRY(reader.text(node, "preset"));
  if (name == "pcie") return {};
  if (name != "dgx" && name != "bridges")
    return reader.refuse(node,
                         fmt::format("there is no preset '{}': {} are", printable(name), fmt::join(kPresets, ", ")));
  for (const GpuSpec& gpu : scenario.gpus)
    if (gpu.gpu.link_count == 0)
      return reader.refuse(node, fmt::format("{} has no NVLink, which preset \"{}\" needs", gpu.gpu.name, name));
  name == "dgx" ? make_dgx(scenario) : make_bridges(scenario);
  return {};
}

Result<> read_pair(const Reader& reader, const Node& entry, Scenario& scenario) {
  const Node* pair = &entry;
  std::uint32_t links = 0;
  if (entry.kind == Node::Kind::table) {
    TRY(reader.known(entry, "nvlink", {"pair", "links"}));
    pair = entry.find("pair");
    if (pair == nullptr) return reader.refuse(entry, "an nvlink needs a pair, such as { pair = [0, 1], links = 4 }");
    if (const Node* node = entry.find("links"))
      links = static_cast<std::uint32_t>(TRY(reader.number(*node, "links", 1, 18)));
  }
  const auto gpus = TRY(reader.gpus(*pair, vendors_of(scenario.gpus)));
  if (gpus.size() != 2) return reader.refuse(*pair, "an nvlink joins two different GPUs, such as [0, 1]");
  for (const std::size_t gpu : gpus)
    if (links_of(scenario, gpu) == 0)
      return reader.refuse(*pair, fmt::format("GPU {} ({}) has no NVLink", gpu, scenario.gpus[gpu].gpu.name));
  const std::uint32_t most = std::min(links_of(scenario, gpus[0]), links_of(scenario, gpus[1]));
  if (links > most) return reader.refuse(entry, fmt::format("{} links: these GPUs have {}", links, most));
  scenario.topology.nvlinks.push_back({gpus[0], gpus[1], links == 0 ? most : links});
  return {};
}

Result<> check_links(const Reader& reader, const Node& table, const Scenario& scenario) {
  for (std::size_t gpu = 0; gpu < scenario.gpus.size(); ++gpu) {
    std::uint32_t used = 0;
    for (const auto& link : scenario.topology.nvlinks)
      if (link.a == gpu || link.b == gpu) used += link.links;
    if (used > links_of(scenario, gpu))
      return reader.refuse(table, fmt::format("GPU {} would have {} NVLinks: {} has {}", gpu, used,
                                              scenario.gpus[gpu].gpu.name, links_of(scenario, gpu)));
  }
  return {};
}

// A list of lists of GPUs, none of them in two lists.
Result<std::vector<std::vector<std::size_t>>> read_groups(const Reader& reader, const Node& node, std::string_view key,
                                                          const Scenario& scenario) {
  TRY(reader.expect(node, Node::Kind::list, key, "a list of lists of GPUs such as [[0, 1], [2, 3]]"));
  std::vector<std::vector<std::size_t>> groups;
  std::vector<bool> seen(scenario.gpus.size());
  for (const Node& entry : node.list) {
    groups.push_back(TRY(reader.gpus(entry, vendors_of(scenario.gpus))));
    for (const std::size_t gpu : groups.back()) {
      if (seen[gpu]) return reader.refuse(entry, fmt::format("GPU {} is in two lists of {}", gpu, key));
      seen[gpu] = true;
    }
  }
  return groups;
}

}  // namespace

Result<> read_topology(const Reader& reader, const Node& table, Scenario& scenario) {
  TRY(reader.known(table, "[topology]", {"preset", "nvlink", "nvswitch", "switch", "numa"}));
  scenario.topology.said = true;
  if (const Node* node = table.find("preset")) TRY(read_preset(reader, *node, scenario));
  if (const Node* node = table.find("nvswitch")) scenario.topology.nvswitch = TRY(reader.truth(*node, "nvswitch"));
  if (const Node* node = table.find("nvlink")) {
    TRY(reader.expect(*node, Node::Kind::list, "nvlink", "a list of pairs such as [[0, 1], [2, 3]]"));
    scenario.topology.nvlinks.clear();
    for (const Node& entry : node->list) TRY(read_pair(reader, entry, scenario));
  }
  TRY(check_links(reader, table, scenario));
  if (const Node* node = table.find("switch"))
    scenario.topology.switches = TRY(read_groups(reader, *node, "switch", scenario));
  if (const Node* node = table.find("numa")) {
    const auto nodes = TRY(read_groups(reader, *node, "numa", scenario));
    for (std::uint32_t number = 0; number < nodes.size(); ++number)
      for (const std::size_t gpu : nodes[number]) scenario.gpus[gpu].numa = number;
  }
  return {};
}

}  // namespace lull::sim
