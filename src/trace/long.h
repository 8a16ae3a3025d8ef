#pragma once
// Tables with a row for each value: time, GPU, the name of the signal, its value (and
// perhaps its unit), as CSV or as an object on each line. Old Grafana's "Series;Time;Value",
// InfluxDB's annotated CSV, what people melt with pandas.

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/format.h"
#include "trace/series_rows.h"

namespace lull::trace {

bool is_long(std::string_view head, const ReadHow& how);
Result<Schema> open_long(std::string_view head, const ReadHow& how);

class LongParser final : public RowParser {
 public:
  explicit LongParser(const Schema& schema);

  void parse(const Chunk& chunk, Batch& batch) override;
  const Identities& identities() const override { return rows_.identities(); }
  std::vector<std::string> strangers() const override { return rows_.strangers(); }
  std::vector<int> best_ranks() const override { return rows_.best_ranks(); }
  std::vector<std::string> doubtful() const override { return rows_.doubtful(); }
  std::vector<std::string> labelled() const override { return rows_.labelled(); }
  Result<> check_choices() const override { return rows_.check_choices(); }

 private:
  void line(std::string_view text, std::uint64_t number, Batch& batch);
  void learn_columns(const std::vector<std::string>& names);
  bool is_header(const std::vector<std::string>& cells) const;

  const Schema& schema_;
  SeriesRows rows_;
  // Where in a line, npos: nowhere.
  std::size_t count_ = 0;
  std::size_t time_ = kNoSlot;
  std::size_t name_ = kNoSlot;
  std::size_t value_ = kNoSlot;
  std::string value_name_;  // as the header has it
  std::size_t unit_ = kNoSlot;
  std::array<std::size_t, 7> roles_{};                       // of kSeriesRoles
  std::vector<std::pair<std::size_t, std::string>> labels_;  // every other column, for --columns
  std::unordered_map<std::string, SeriesPlace> places_;      // by what names a series
};

}  // namespace lull::trace
