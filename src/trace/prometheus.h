#pragma once
// What Prometheus (or Thanos, Mimir, VictoriaMetrics) answers to a range query: a list of
// series, each with its labels and then all of its values. Read as it comes in: one such
// answer is a single line of any length.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/format.h"
#include "trace/json_stream.h"
#include "trace/series_rows.h"

namespace lull::trace {

bool is_prometheus(std::string_view head, const ReadHow& how);
Result<Schema> open_prometheus(std::string_view head, const ReadHow& how);

class PrometheusParser final : public RowParser, private JsonHandler {
 public:
  explicit PrometheusParser(const Schema& schema) : schema_(schema), rows_(schema) {}

  void parse(const Chunk& chunk, Batch& batch) override;
  void finish(Batch& batch) override;
  const Identities& identities() const override { return rows_.identities(); }
  std::vector<std::string> strangers() const override { return rows_.strangers(); }
  std::vector<int> best_ranks() const override { return rows_.best_ranks(); }

 private:
  void open(bool object) override;
  void close() override;
  void key(std::string_view name) override { key_ = name; }
  void value(std::string_view text, bool quoted) override;
  void document_end() override {}
  void broken() override;
  void add_point();
  std::uint64_t here() const { return stream_.line() - lines_before_; }

  const Schema& schema_;
  JsonStream stream_;
  SeriesRows rows_;
  Batch* batch_ = nullptr;
  std::uint64_t lines_before_ = 0;
  std::string key_;
  std::size_t depth_ = 0;
  std::size_t labels_at_ = 0;  // the depth of the labels' object; 0: not in it
  std::size_t values_at_ = 0;  // the depth of the list of points
  bool labelled_ = false;      // this series has had its labels
  std::vector<std::pair<std::string, std::string>> labels_;
  SeriesPlace place_;
  std::vector<std::string> point_;  // a time and a value
};

}  // namespace lull::trace
