#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "base/text.h"
#include "replay/answer.h"
#include "replay/output.h"
#include "replay/page.h"
#include "rule/quantity.h"

namespace lull::replay {
namespace {

constexpr std::size_t kMostColumns = 400'000;  // of all GPUs together: a few megabytes of page
constexpr std::size_t kMostMarks = 20'000;     // ends drawn one by one
constexpr std::size_t kMostListed = 500;       // and listed
constexpr std::uint8_t kNothing = 255;
constexpr double kSteps = 250;

std::string base64(const std::vector<std::uint8_t>& bytes) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t left = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k) three = three << 8 | (k < left ? bytes[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k) out += k <= left ? kLetters[three >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::uint8_t step_of(float value, double top) {
  return static_cast<std::uint8_t>(std::lround(std::clamp(static_cast<double>(value) / top, 0.0, 1.0) * kSteps));
}

double top_of(const Picture& picture, std::size_t metric) {
  if (info(picture.metrics[metric]).unit == Unit::percent) return 100;
  double top = 0;
  for (const Strip& strip : picture.gpus)
    for (const Extent& extent : strip.extents(metric))
      if (extent.known()) top = std::max(top, static_cast<double>(extent.high));
  return top > 0 ? top : 1;
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string_view unit_text(Unit unit) { return unit == Unit::celsius ? "°C" : unit_name(unit); }

// How much of each column was idle, and the lowest and highest of each signal in it.
void put_strip(JsonWriter& json, const Strip& strip, const std::vector<double>& tops) {
  std::vector<std::uint8_t> idle;
  for (const PictureColumn& column : strip.columns())
    idle.push_back(column.samples == 0 ? kNothing
                                       : static_cast<std::uint8_t>(std::lround(kSteps * column.idle / column.samples)));
  json.begin_object().member("from", seconds(strip.first() * strip.width().count())).member("idle", base64(idle));
  json.key("values").begin_array();
  for (std::size_t m = 0; m < tops.size(); ++m) {
    std::vector<std::uint8_t> low;
    std::vector<std::uint8_t> high;
    for (const Extent& extent : strip.extents(m)) {
      low.push_back(extent.known() ? step_of(extent.low, tops[m]) : kNothing);
      high.push_back(extent.known() ? step_of(extent.high, tops[m]) : kNothing);
    }
    json.begin_array().value(base64(low)).value(base64(high)).end_array();
  }
  json.end_array().end_object();
}

// A slice is never narrower than the samples are apart: most would look as if nothing had been seen in them.
void put_strips(JsonWriter& json, Picture picture, std::int64_t interval) {
  while (!picture.gpus.empty() && picture.gpus.front().width().count() < interval)
    for (Strip& strip : picture.gpus) strip.widen();
  std::size_t columns = 0;
  for (const Strip& strip : picture.gpus) columns += strip.columns().size();
  for (; columns > kMostColumns; columns /= 2)
    for (Strip& strip : picture.gpus) strip.widen();
  std::vector<double> tops;
  json.key("metrics").begin_array();
  for (std::size_t m = 0; m < picture.metrics.size(); ++m) {
    tops.push_back(top_of(picture, m));
    const MetricInfo& row = info(picture.metrics[m]);
    json.begin_object().member("name", row.name).member("unit", unit_text(row.unit));
    json.member("meaning", row.meaning).member("top", tops.back()).end_object();
  }
  json.end_array();
  json.member("width", picture.gpus.empty() ? 1.0 : seconds(picture.gpus.front().width().count()));
  json.key("strips").begin_array();
  for (const Strip& strip : picture.gpus) put_strip(json, strip, tops);
  json.end_array();
}

// Marks: GPU, when it was ended, for how long it was free, and what became of it; short, there may be many.
void put_marks(JsonWriter& json, const ReplayResult& result) {
  json.key("marks").begin_array();
  const std::size_t count = std::min(kMostMarks, result.ends.size());
  for (std::size_t i = 0; i < count; ++i) {
    const End& end = result.ends[i];
    json.begin_array().value(end.gpu == kAllGpus ? std::int64_t{-1} : static_cast<std::int64_t>(end.gpu));
    json.value(seconds(end.at.time_since_epoch().count()));
    json.value(seconds((end.back.value_or(end.last) - end.at).count()));
    json.value(static_cast<int>(end.how)).end_array();
  }
  json.end_array();
}

}  // namespace

std::string to_html(const ReplayResult& result, std::optional<double> price) {
  JsonWriter json;
  json.begin_object().key("result");
  put_result(json, result, {.price = price, .verbose = false, .most_ends = kMostListed});
  json.member("from", seconds(result.first.time_since_epoch().count()));
  json.member("to", seconds(result.last.time_since_epoch().count()));
  json.member("epoch", result.trace.from_epoch).member("zoned", result.trace.zoned);
  json.member("zone", result.trace.zone_minutes).member("name", result.name);
  json.key("subjects").begin_array();
  for (const Together& subject : result.subjects) {
    json.begin_object().member("label", printable(subject.label)).key("gpus").begin_array();
    for (const std::size_t gpu : subject.gpus) json.value(gpu);
    json.end_array().end_object();
  }
  json.end_array();
  put_marks(json, result);
  put_strips(json, result.picture, result.intervals.usual.count());
  put_axes(json, result.axes);
  json.end_object();
  // Nothing in the data may end the script that holds it.
  const std::string data = json.take();
  std::string safe;
  safe.reserve(data.size());
  for (const char c : data) c == '<' ? safe += "\\u003c" : safe += c;
  return make_page(safe);
}

std::string make_page(std::string_view data) {
  const std::string script = std::string(packed_base_js).append(packed_chart_js).append(packed_page_js);
  const std::array<std::pair<std::string_view, std::string_view>, 3> parts = {
      {{"@STYLE@", packed_page_css}, {"@DATA@", data}, {"@SCRIPT@", script}}};
  std::string page;
  page.reserve(packed_page_html.size() + packed_page_css.size() + data.size() + script.size());
  std::string_view rest = packed_page_html;
  for (const auto& [mark, text] : parts) {  // in the order of the page, so that nothing in a part is taken for a mark
    const std::size_t at = rest.find(mark);
    page.append(rest.substr(0, at)).append(text);
    rest.remove_prefix(at + mark.size());
  }
  return page.append(rest);
}

}  // namespace lull::replay
