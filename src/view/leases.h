#pragma once
// The lease folder for people and programs: who holds which GPU, and who waits.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json_writer.h"
#include "gpu/metric.h"
#include "lease/folder.h"
#include "view/columns.h"
#include "view/live.h"

namespace lull {

// By GPU, as people count them: 2 before 10, 3:1 after 3:0.
void sort_by_gpu(std::vector<LeaseInfo>& leases);

// What a leased GPU does now, as far as that was seen.
struct LeasedGpu {
  double util = kUnknown;
  std::optional<Duration> idle_for = {};
  bool idle_for_longer = false;  // it was so when we first looked: at least that long
  std::string trouble = {};      // why that is not known
};
using LeasedGpus = std::map<std::string, LeasedGpu>;  // by UUID

// The folder at one moment, and what was seen of its GPUs then. Its rows are the leases, then those who wait.
struct LeasesView {
  FolderState state;
  LeasedGpus gpus;
  WallTime now{};
  bool empty() const { return state.leases.empty() && state.tickets.empty(); }
};

std::vector<std::string> leases_table(const LeasesView& view, const Screen& screen);
std::string leases_summary(const LeasesView& view);  // "3 leases of 2 GPUs, 1 waits"
std::string leases_json(const LeasesView& view, const std::string& path);
void put_queue(JsonWriter& json, const FolderState& state);  // its list of those who wait

// The same as rows of a live screen.
class LeaseRows : public LiveRows {
 public:
  explicit LeaseRows(const LeasesView& view) : view_(view) {}

  std::size_t size() const override { return view_.state.leases.size() + view_.state.tickets.size(); }
  std::string_view noun() const override { return "lease"; }
  std::span<const std::string_view> orders() const override;
  double weight(std::size_t row, std::size_t order) const override;
  std::string search_text(std::size_t row) const override;
  std::string summary() const override { return leases_summary(view_); }
  std::vector<std::string> table(std::span<const std::size_t> rows, std::optional<std::size_t> marked,
                                 const Screen& screen) const override;
  std::vector<std::string> why(std::size_t row) const override;

 private:
  const LeasesView& view_;
};

}  // namespace lull
