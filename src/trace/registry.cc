#include "trace/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "trace/cells.h"

namespace lull::trace {

std::uint32_t Registry::create(std::string label, std::string uuid) {
  TraceGpu gpu;
  gpu.label = std::move(label);
  gpu.uuid = std::move(uuid);
  gpus_.push_back(std::move(gpu));
  return static_cast<std::uint32_t>(gpus_.size() - 1);
}

Registry::Found Registry::resolve(const std::vector<Role>& roles, const std::vector<std::string>& cells,
                                  std::string_view scope) {
  std::string uuid;
  std::string host;
  std::string index;
  std::string pci;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (means_unknown(cells[i])) continue;
    if (roles[i] == Role::uuid) uuid = cells[i];
    if (roles[i] == Role::host) host = cells[i];
    if (roles[i] == Role::pci) pci = cells[i];
    if (roles[i] != Role::gpu) continue;
    if (!index.empty()) index += '/';
    index += cells[i];
  }
  if (index.empty()) index = pci;
  if (index.empty() && std::all_of(roles.begin(), roles.end(), is_owner)) index.assign(1, '0');
  std::string name = index;
  if (!name.empty() && !host.empty()) name = fmt::format("{}/{}", host, name);
  if (!name.empty() && !scope.empty()) name = fmt::format("{}:{}", scope, name);

  if (!uuid.empty()) {
    if (const auto known = by_uuid_.find(uuid); known != by_uuid_.end()) {
      if (!name.empty()) by_label_[name] = known->second;
      return {known->second, true, false};
    }
    // A GPU that was lost before it could say its UUID may be known by its index.
    if (const auto known = by_label_.find(name);
        !name.empty() && known != by_label_.end() && gpus_[known->second].uuid.empty()) {
      gpus_[known->second].uuid = uuid;
      by_uuid_[uuid] = known->second;
      return {known->second, true, false};
    }
    const std::uint32_t fresh = create(name.empty() ? uuid : name, uuid);
    gpus_[fresh].host = host.empty() ? std::string(scope) : host;
    by_uuid_[uuid] = fresh;
    if (!name.empty()) by_label_[name] = fresh;
    return {fresh, true, true};
  }
  if (const auto known = by_label_.find(name); known != by_label_.end())
    return {known->second, !gpus_[known->second].uuid.empty(), false};
  const std::uint32_t fresh = create(name, "");
  gpus_[fresh].host = host.empty() ? std::string(scope) : host;
  by_label_[name] = fresh;
  return {fresh, false, true};
}

void make_labels_unique(std::vector<TraceGpu>& gpus) {
  std::map<std::string, int> seen;
  for (const TraceGpu& gpu : gpus) ++seen[gpu.label];
  for (TraceGpu& gpu : gpus)
    if (seen[gpu.label] > 1 && !gpu.uuid.empty()) gpu.label += fmt::format(" ({})", gpu.uuid.substr(0, 12));
}

}  // namespace lull::trace
