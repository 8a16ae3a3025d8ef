#include "trace/prometheus.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace lull::trace {

bool is_prometheus(std::string_view head, const ReadHow&) {
  const std::string_view start = trim(head.substr(0, std::min<std::size_t>(head.size(), 4096)));
  if (!start.starts_with('{') && !start.starts_with('[')) return false;
  const bool answer =
      start.find("\"resultType\"") != std::string_view::npos || start.find("\"errorType\"") != std::string_view::npos;
  const bool series =
      start.find("\"metric\"") != std::string_view::npos && start.find("\"values\"") != std::string_view::npos;
  return answer || series;
}

Result<Schema> open_prometheus(std::string_view head, const ReadHow& how) {
  const std::string_view start = head.substr(0, std::min<std::size_t>(head.size(), 4096));
  if (start.find("\"errorType\"") != std::string_view::npos)
    return fail(fmt::format("it is an error of Prometheus, not readings: {}", printable(trim(start).substr(0, 200))));
  Schema schema = schema_of_samples(how.wanted);
  schema.lines = false;
  schema.partial = true;
  schema.time = TimeKind::seconds;
  schema.choices = how.columns;
  return schema;
}

void PrometheusParser::parse(const Chunk& chunk, Batch& batch) {
  batch.reset(schema_.metrics.size());
  rows_.next_batch();
  batch_ = &batch;
  lines_before_ = stream_.line() - 1;
  stream_.feed(chunk.text(), *this);
  batch.lines = stream_.line() - 1 - lines_before_;
}

void PrometheusParser::finish(Batch& batch) {
  batch.reset(schema_.metrics.size());
  rows_.next_batch();
  batch_ = &batch;
  lines_before_ = stream_.line() - 1;
  stream_.finish(*this);
}

void PrometheusParser::open(bool object) {
  ++depth_;
  if (object && key_ == "metric" && values_at_ == 0) {
    labels_at_ = depth_;
    labels_.clear();
  } else if (!object && (key_ == "values" || key_ == "value") && values_at_ == 0) {
    // An instant query has one point and no list around it.
    values_at_ = key_ == "values" ? depth_ : depth_ - 1;
    point_.clear();
    if (!labelled_) place_ = {};
  }
  if (values_at_ != 0 && depth_ == values_at_ + 1) point_.clear();
  key_.clear();
}

void PrometheusParser::close() {
  if (depth_ == labels_at_) {
    labels_at_ = 0;
    labelled_ = true;
    SeriesName series = series_of(labels_);
    if (series.gpu.gpu.empty() && series.gpu.uuid.empty()) series.gpu.gpu.assign(1, '0');
    place_ = rows_.place(series);
  }
  if (values_at_ != 0 && depth_ == values_at_ + 1) add_point();
  if (values_at_ != 0 && depth_ == values_at_) {
    values_at_ = 0;
    labelled_ = false;
  }
  if (depth_ > 0) --depth_;
  key_.clear();
}

void PrometheusParser::value(std::string_view text, bool) {
  if (labels_at_ != 0 && depth_ == labels_at_) {
    if (labels_.size() < 200) labels_.emplace_back(key_, text);
  } else if (values_at_ != 0 && depth_ == values_at_ + 1 && point_.size() < 3) {
    point_.emplace_back(text);
  }
}

void PrometheusParser::add_point() {
  if (point_.size() != 2) return batch_->add_bad(here(), "a point that is not a time and a value");
  if (place_.slot == kNoSlot) return;
  const auto at = parse_time(point_[0], schema_.time);
  if (!at) return batch_->add_bad(here(), fmt::format("'{}' is not a time", printable(point_[0])));
  if (point_[1] == "+Inf" || point_[1] == "-Inf") point_[1] = "NaN";
  const auto value = series_cell(point_[1], place_.meaning, false);
  if (!value) return batch_->add_bad(here(), fmt::format("'{}' is not a number", printable(point_[1])));
  rows_.add(place_, *at, *value, *batch_);
}

void PrometheusParser::broken() {
  batch_->add_bad(here(), "the JSON breaks off here");
  depth_ = 0;
  labels_at_ = 0;
  values_at_ = 0;
  labelled_ = false;
  key_.clear();
}

}  // namespace lull::trace
