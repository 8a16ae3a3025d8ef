#pragma once
// Takes typed values out of a scenario's TOML and refuses wrong ones with file,
// line and column, what was there and what would be right.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/toml.h"
#include "sim/scenario.h"

namespace lull::sim {

using toml::Node;

class Reader : public toml::Reader {
 public:
  Reader(std::string_view name, const FileReader& read) : toml::Reader(name), read_(read) {}

  Result<double> value(const Node& node, const ValueInfo& info) const;
  Result<std::vector<std::size_t>> gpus(const Node& node,
                                        const std::vector<Vendor>& vendors) const;  // 0, [0, 2], "1-3", "amd:0", "all"
  Result<std::string> uuid(const Node& node, Vendor vendor) const;
  Result<std::string> pci(const Node& node) const;
  Result<std::string> function(const Node& node) const;

  // The steps of a recorded trace; `of` says which GPU of it, else the `nth` one after it.
  Result<> trace(const Node& file, const Node* of, std::size_t nth, GpuSpec& gpu) const;

 private:
  const FileReader& read_;
};

// One [[gpu]] table, `every` being what the scenario says of all cards (scenario_gpu.cc).
Result<> read_gpu(const Reader& reader, const Node& table, const GpuSpec& every, Scenario& scenario);
Result<std::uint32_t> read_process_view(const Reader& reader, const Node& node);

}  // namespace lull::sim
