#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "replay/output.h"
#include "replay/page.h"
#include "trace/rows.h"

namespace lull::replay {
namespace {

constexpr std::size_t kMostColumns = 400'000;  // of all GPUs together: a few megabytes of page
constexpr std::size_t kMostMarks = 20'000;     // firings drawn one by one
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

std::string_view unit_text(Unit unit) {
  switch (unit) {
    case Unit::percent: return "%";
    case Unit::bytes: return "B";
    case Unit::watts: return "W";
    case Unit::celsius: return "°C";
    case Unit::megahertz: return "MHz";
    case Unit::bytes_per_second: return "B/s";
    case Unit::seconds: return "s";
    case Unit::count:
    case Unit::none: return "";
  }
  return "";
}

void append_strips(std::string& out, Picture picture) {
  std::size_t columns = 0;
  for (const Strip& strip : picture.gpus) columns += strip.columns().size();
  for (; columns > kMostColumns; columns /= 2)
    for (Strip& strip : picture.gpus) strip.widen();
  out += "\"metrics\":[";
  std::vector<double> tops;
  for (std::size_t m = 0; m < picture.metrics.size(); ++m) {
    tops.push_back(top_of(picture, m));
    const MetricInfo& row = info(picture.metrics[m]);
    out += fmt::format(R"({}{{"name":"{}","unit":"{}","meaning":"{}","top":{}}})", m == 0 ? "" : ",", row.name,
                       unit_text(row.unit), row.meaning, tops.back());
  }
  out += fmt::format("],\n\"width\":{},\"strips\":[",
                     picture.gpus.empty() ? 1.0 : seconds(picture.gpus.front().width().count()));
  for (std::size_t gpu = 0; gpu < picture.gpus.size(); ++gpu) {
    const Strip& strip = picture.gpus[gpu];
    std::vector<std::uint8_t> idle;
    for (const PictureColumn& column : strip.columns())
      idle.push_back(column.samples == 0 ? kNothing
                                         : static_cast<std::uint8_t>(std::lround(
                                               kSteps * static_cast<double>(column.idle) / column.samples)));
    out += fmt::format("{}{{\"from\":{},\"idle\":\"{}\",\"values\":[", gpu == 0 ? "\n" : ",\n",
                       seconds(strip.first() * strip.width().count()), base64(idle));
    for (std::size_t m = 0; m < picture.metrics.size(); ++m) {
      std::vector<std::uint8_t> low;
      std::vector<std::uint8_t> high;
      for (const Extent& extent : strip.extents(m)) {
        low.push_back(extent.known() ? step_of(extent.low, tops[m]) : kNothing);
        high.push_back(extent.known() ? step_of(extent.high, tops[m]) : kNothing);
      }
      out += fmt::format("{}[\"{}\",\"{}\"]", m == 0 ? "" : ",", base64(low), base64(high));
    }
    out += "]}";
  }
  out += ']';
}

// Marks: GPU, when, idle before, idle after, colour, how it ended; short, there may be many.
void append_marks(std::string& out, const ReplayResult& result) {
  out += "\"marks\":[";
  const std::size_t count = std::min(kMostMarks, result.firings.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Firing& firing = result.firings[i];
    const int kind = firing.regretted ? 2 : firing.ending == StretchEnd::came_back ? 1 : 0;
    out += fmt::format("{}[{},{},{},{},{},{}]", i == 0 ? "" : ",",
                       firing.gpu == kAllGpus ? -1 : static_cast<std::int64_t>(firing.gpu),
                       seconds(firing.at.time_since_epoch().count()), seconds(firing.idle.count()),
                       seconds(firing.after.count()), kind, static_cast<int>(firing.ending));
  }
  out += ']';
}

}  // namespace

std::string to_html(const ReplayResult& result, std::optional<double> price) {
  ReplayResult brief = result;  // the marks are drawn, not listed: once is enough
  brief.firings.clear();
  std::string data = "{\"result\":" + to_json(brief, price) + ",";
  data += fmt::format("\"from\":{},\"to\":{},\"epoch\":{},\"zoned\":{},\n",
                      seconds(result.first.time_since_epoch().count()), seconds(result.last.time_since_epoch().count()),
                      result.trace.from_epoch, result.trace.zoned);
  append_marks(data, result);
  data += ",\n";
  append_strips(data, result.picture);
  data += ",\"axes\":[";
  for (std::size_t a = 0; a < result.axes.size(); ++a) {
    data += fmt::format("{}{{\"name\":\"{}\",\"values\":[", a == 0 ? "" : ",", result.axes[a].name);
    for (std::size_t i = 0; i < result.axes[a].values.size(); ++i) {
      if (i > 0) data += ',';
      trace::append_json_text(data, printable(result.axes[a].values[i]));
    }
    data += "]}";
  }
  data += "]}";
  // Nothing in the data may end the script that holds it.
  std::string safe;
  safe.reserve(data.size());
  for (const char c : data) c == '<' ? safe += "\\u003c" : safe += c;
  return make_page(safe);
}

}  // namespace lull::replay
