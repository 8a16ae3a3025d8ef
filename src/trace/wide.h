#pragma once
// Tables with columns for each GPU: Grafana's "series joined by time", exports of Weights &
// Biases, what scripts write (time, gpu0_util, gpu0_power, gpu1_util, …), as CSV or as an
// object on each line. A column's name says which GPU and what; where it names the GPU
// alone, --columns 'util=GPU *' says what is measured, and * is the GPU.

#include <string>
#include <string_view>
#include <vector>

#include "trace/format.h"
#include "trace/names.h"

namespace lull::trace {

bool is_wide(std::string_view head, const ReadHow& how);
Result<Schema> open_wide(std::string_view head, const ReadHow& how);

class WideParser final : public RowParser {
 public:
  explicit WideParser(const Schema& schema);

  void parse(const Chunk& chunk, Batch& batch) override;
  const Identities& identities() const override { return identities_; }

 private:
  struct Source {
    std::size_t column;
    std::size_t slot;
    Meaning meaning;
  };
  struct Gpu {
    GpuName name;
    std::vector<Source> sources;
  };
  void line(std::string_view text, std::uint64_t number, Batch& batch);

  const Schema& schema_;
  Identities identities_;
  std::size_t time_ = 0;
  std::vector<Gpu> gpus_;
};

}  // namespace lull::trace
