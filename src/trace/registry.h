#pragma once
// Which GPU a row is of. A UUID names a GPU for good, in every file; an index (or
// whatever --columns gpu= chose) names one within its host. Rows whose UUID reads
// "[GPU is lost]" are told by their index.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trace/reader.h"
#include "trace/schema.h"

namespace lull::trace {

class Registry {
 public:
  // `scope` keeps the indexes of different files apart; empty: they are the same GPUs.
  struct Found {
    std::uint32_t gpu = 0;
    bool by_uuid = false;
    bool fresh = false;
  };
  Found resolve(const std::vector<Role>& roles, const std::vector<std::string>& cells, std::string_view scope);

  std::size_t size() const { return gpus_.size(); }
  std::vector<TraceGpu>& gpus() { return gpus_; }

 private:
  std::uint32_t create(std::string label, std::string uuid);

  std::vector<TraceGpu> gpus_;
  std::map<std::string, std::uint32_t, std::less<>> by_uuid_;
  std::map<std::string, std::uint32_t, std::less<>> by_label_;  // scope, host and index
};

// Labels that several GPUs share get part of the UUID, so that people can tell them apart.
void make_labels_unique(std::vector<TraceGpu>& gpus);

}  // namespace lull::trace
