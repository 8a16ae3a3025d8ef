// What Prometheus (or Thanos, Mimir, VictoriaMetrics) answers to a range query: a list of
// series, each with its labels and then all of its values. Read as it comes in: one such
// answer is a single line of any length.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trace/format.h"
#include "trace/ndjson.h"
#include "trace/rows.h"
#include "trace/series_rows.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

class PrometheusParser final : public JsonRowParser<JsonHandler, SeriesRows> {
 public:
  explicit PrometheusParser(const Schema& schema) : JsonRowParser(schema) {}

  void parse(const Chunk& chunk, Batch& batch) override;
  void finish(Batch& batch) override;

 private:
  void open(bool object) override;
  void close() override;
  void key(std::string_view name) override { key_ = name; }
  void value(std::string_view text, bool quoted) override;
  void document_end() override { release(); }
  void broken() override;
  std::string_view take_points(std::string_view text);
  void add_point(std::string_view time, std::string_view value);
  void add_job(std::int64_t at, double number);
  void release() { answer_.release(identities_, *batch_); }

  AnswerRows answer_;
  std::optional<double> job_;  // that of the value before
  std::string key_;
  std::size_t depth_ = 0;
  std::size_t labels_at_ = 0;  // the depth of the labels' object; 0: not in it
  std::size_t values_at_ = 0;  // the depth of the list of points
  bool labelled_ = false;      // this series has had its labels
  Labels labels_;
  SeriesPlace place_;
  std::vector<std::string> point_;  // a time and a value
  std::string value_text_;          // the value before, and what it means: most samples of an idle GPU are the same
  std::optional<float> value_;
  TimeReader times_{TimeKind::seconds};
};

}  // namespace

static bool is_prometheus(std::string_view head, const ReadHow&) {
  const std::string_view start = trim(head.substr(0, 4096));
  if (!start.starts_with('{') && !start.starts_with('[')) return false;
  const bool answer =
      start.find("\"resultType\"") != std::string_view::npos || start.find("\"errorType\"") != std::string_view::npos;
  const bool series =
      start.find("\"metric\"") != std::string_view::npos && start.find("\"values\"") != std::string_view::npos;
  return answer || series;
}

static Result<Schema> open_prometheus(std::string_view head, const ReadHow& how) {
  const std::string_view start = head.substr(0, 4096);
  if (start.find("\"errorType\"") != std::string_view::npos)
    return fail(fmt::format("it is an error of Prometheus, not readings: {}", printable(trim(start).substr(0, 200))));
  for (const ColumnChoice& choice : how.columns)
    if (choice.role == "time" || choice.role == "lease" || choice.column == "none")
      return fail(
          fmt::format("--columns {}={} cannot be obeyed: this is an answer of Prometheus, where labels are chosen",
                      choice.role, printable(choice.column)));
  Schema schema = schema_of_samples(how.wanted);
  schema.identity = kSeriesRoles;
  schema.lines = false;
  schema.partial = true;
  schema.time = TimeKind::seconds;
  schema.choices = how.columns;
  return schema;
}

void PrometheusParser::parse(const Chunk& chunk, Batch& batch) {
  begin(batch);
  for (std::string_view text = chunk.text(); !text.empty();) {
    if (values_at_ != 0 && depth_ == values_at_ && stream_.behind_value()) text = take_points(text);
    if (text.empty()) break;
    const std::string_view piece = text.substr(0, std::min(text.find(']'), text.size() - 1) + 1);
    stream_.feed(piece, *this);
    text.remove_prefix(piece.size());
  }
  batch.lines = stream_.line() - 1 - lines_before_;
}

void PrometheusParser::finish(Batch& batch) {
  JsonRowParser::finish(batch);
  release();
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
    if (!labelled_) place_ = {};  // none of ours
  }
  if (values_at_ != 0 && depth_ == values_at_ + 1) point_.clear();
  key_.clear();
}

void PrometheusParser::close() {
  if (depth_ == labels_at_) {
    labels_at_ = 0;
    labelled_ = true;
    SeriesName series = series_of(labels_);
    place_ = place(series);
    value_text_.clear();  // another series may have another unit
    if (place_.gpu.gpu.empty() && place_.gpu.uuid.empty()) place_.gpu.gpu.assign(1, '0');
    job_.reset();
    answer_.series(place_.cells(), place_.is_job ? kNoSlot : place_.slot);
  }
  if (values_at_ != 0 && depth_ == values_at_ + 1) {
    if (point_.size() == 2)
      add_point(point_[0], point_[1]);
    else
      batch_->add_bad(here(), "a point that is not a time and a value");
  }
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

// Of a list of points, those that are written as Prometheus does: ,[1794960171.546,"90"]. They are nearly all of such
// a file, and need no state. What is left begins with something else, or with a point that the chunk cuts.
std::string_view PrometheusParser::take_points(std::string_view text) {
  while (text.starts_with(",[")) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) break;
    const std::string_view point = text.substr(2, end - 2);
    const std::size_t comma = point.find(',');
    if (comma == std::string_view::npos || point.size() < comma + 3 || point[comma + 1] != '"' || point.back() != '"')
      break;
    const std::string_view time = point.substr(0, comma);
    const std::string_view value = point.substr(comma + 2, point.size() - comma - 3);
    if (time.empty() || time.find_first_not_of("0123456789.") != std::string_view::npos ||
        value.find_first_not_of("0123456789.+-eENaInf") != std::string_view::npos)
      break;
    add_point(time, value);
    text.remove_prefix(end + 1);
  }
  return text;
}

void PrometheusParser::add_point(std::string_view time, std::string_view value) {
  if (place_.slot == kNoSlot && !place_.is_job) return;
  std::int64_t ns = 0;
  // What follows a time in the text ends it.
  if (times_.read(time.data(), ns) != time.data() + time.size()) {
    const auto at = parse_time(time, schema_.time);
    if (!at) return batch_->add_bad(here(), fmt::format("'{}' is not a time", printable(time)));
    ns = *at;
  }
  if (value == "+Inf" || value == "-Inf") value = "NaN";
  if (place_.is_job) return add_job(ns, to_double(value).value_or(std::nan("")));
  if (value != value_text_ || value_text_.empty()) {
    value_ = series_cell(value, place_.meaning, false);
    value_text_ = value;
  }
  if (!value_) return batch_->add_bad(here(), fmt::format("'{}' is not a number", printable(value)));
  if (answer_.full()) release();
  answer_.add(ns, *value_);
}

// Of a series of jobs' numbers, which a float would round, or of one whose labels are all that it says.
void PrometheusParser::add_job(std::int64_t at, double number) {
  if (std::isnan(number) || (place_.is_info && number <= 0)) return;
  if (!place_.is_info && job_ != number) {
    place_.who = {};
    place_.who.job = number > 0 ? fmt::format("{:.0f}", number) : std::string(kNobodyText);
    answer_.series(place_.cells(), kNoSlot);
    job_ = number;
  }
  if (answer_.full()) release();
  answer_.add(at, 0);
}

void PrometheusParser::broken() {
  batch_->add_bad(here(), "the JSON breaks off here");
  depth_ = 0;
  labels_at_ = 0;
  values_at_ = 0;
  labelled_ = false;
  key_.clear();
}

const TraceFormat kPrometheus{"an answer of Prometheus", is_prometheus, open_prometheus,
                              make_row_parser<PrometheusParser>, true};

}  // namespace lull::trace
