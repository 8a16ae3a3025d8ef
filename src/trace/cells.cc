#include "trace/cells.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "base/units.h"

namespace lull::trace {

std::optional<double> unit_factor(Unit of_metric, std::string_view unit) {
  switch (of_metric) {
    case Unit::percent:
      if (unit == "%" || unit == "percent" || unit == "pct") return 1;
      if (unit == "fraction" || unit == "ratio") return 100;
      return std::nullopt;
    case Unit::bytes:
    case Unit::bytes_per_second: {
      if (of_metric == Unit::bytes_per_second && unit.ends_with("/s")) unit.remove_suffix(2);
      const double worth = size_unit(unit);
      return worth > 0 ? std::optional(worth) : std::nullopt;
    }
    case Unit::watts:
      if (unit == "W") return 1;
      if (unit == "mW") return 1e-3;
      if (unit == "kW") return 1e3;
      return std::nullopt;
    case Unit::celsius: return unit == "C" || unit == "°C" ? std::optional(1.0) : std::nullopt;
    case Unit::megahertz:
      if (unit == "MHz") return 1;
      if (unit == "GHz") return 1e3;
      if (unit == "kHz") return 1e-3;
      if (unit == "Hz") return 1e-6;
      return std::nullopt;
    case Unit::seconds: {
      const double worth = duration_unit(unit);
      return worth > 0 ? std::optional(worth / 1e9) : std::nullopt;
    }
    case Unit::count:
    case Unit::none: return std::nullopt;
  }
  return std::nullopt;
}

bool means_unknown(std::string_view cell) {
  cell = trim(cell);
  if (cell.empty() || (cell.front() == '[' && cell.back() == ']')) return true;
  if (cell.starts_with("N/A (")) return true;  // (Secondary die)
  constexpr std::array<std::string_view, 12> kWords = {"N/A", "n/a",  "NA",   "nan",  "NaN",           "NAN",
                                                       "-",   "null", "None", "ERR!", "Not Supported", "Unknown Error"};
  return std::find(kWords.begin(), kWords.end(), cell) != kWords.end();
}

std::optional<std::vector<std::string>> split_line(std::string_view line, char separator) {
  std::vector<std::string> cells;
  cells.reserve(static_cast<std::size_t>(std::count(line.begin(), line.end(), separator)) + 1);
  for (;;) {
    while (!line.empty() && (line.front() == ' ' || (line.front() == '\t' && separator != '\t'))) line.remove_prefix(1);
    if (!line.empty() && line.front() == '"') {
      line.remove_prefix(1);
      std::string cell;
      for (;;) {
        const std::size_t quote = line.find('"');
        if (quote == std::string_view::npos) return std::nullopt;
        cell += line.substr(0, quote);
        line.remove_prefix(quote + 1);
        if (line.empty() || line.front() != '"') break;
        cell += '"';
        line.remove_prefix(1);
      }
      const std::size_t end = std::min(line.find(separator), line.size());
      if (!trim(line.substr(0, end)).empty()) return std::nullopt;  // text after the closing quote
      cells.emplace_back(trim(cell));
      if (end == line.size()) return cells;
      line.remove_prefix(end + 1);
      continue;
    }
    const std::size_t end = std::min(line.find(separator), line.size());
    cells.emplace_back(trim(line.substr(0, end)));
    if (end == line.size()) return cells;
    line.remove_prefix(end + 1);
  }
}

std::optional<std::string> without_grouping(std::string_view number, bool decimal_comma) {
  const std::size_t comma = number.find(',');
  const std::size_t point = number.find('.');
  if (comma == std::string_view::npos) return std::string(number);
  const bool several = number.find(',', comma + 1) != std::string_view::npos;
  std::string plain;
  const bool as_point = !several && (point == std::string_view::npos || point < comma) &&
                        (decimal_comma || point != std::string_view::npos);
  if (!as_point && !several && point == std::string_view::npos) {
    // One comma and nothing else: three digits behind it could be thousands.
    if (number.size() - comma == 4) return std::nullopt;
  }
  const bool decimal = as_point || (!several && point == std::string_view::npos);
  for (const char c : number) {
    if (c == ',') {
      if (decimal) plain += '.';
    } else if (c != '.' || !decimal) {
      plain += c;
    }
  }
  return plain;
}

std::optional<float> parse_cell(std::string_view cell, const Column& column, bool decimal_comma) {
  cell = trim(cell);
  if (means_unknown(cell)) return kUnknownSample;
  if (column.metric == Metric::pstate && (cell.front() == 'P' || cell.front() == 'p')) cell.remove_prefix(1);
  if (!cell.empty() && cell.front() == '+') cell.remove_prefix(1);
  const std::size_t end = std::min(cell.find_first_not_of("0123456789.,eE+-"), cell.size());
  const auto plain = without_grouping(cell.substr(0, end), decimal_comma);
  const auto number = plain ? to_double(*plain) : std::nullopt;
  if (!number) return std::nullopt;
  const std::string_view unit = trim(cell.substr(end));
  double scale = column.scale;
  if (!unit.empty()) {
    const auto factor = unit_factor(info(column.metric).unit, unit);
    if (!factor) return std::nullopt;
    scale = *factor;
  }
  if (!(std::abs(*number * scale) <= std::numeric_limits<float>::max())) return std::nullopt;
  return static_cast<float>(*number * scale);
}

char likely_separator(std::string_view line) {
  char best = ',';
  auto most = std::count(line.begin(), line.end(), ',');
  for (const char candidate : {';', '\t'})
    if (const auto count = std::count(line.begin(), line.end(), candidate); count > most) {
      most = count;
      best = candidate;
    }
  return best;
}

std::vector<std::string_view> lines_of(std::string_view head) {
  std::vector<std::string_view> lines;
  while (!head.empty() && lines.size() < 1000) {
    const std::size_t end = std::min(head.find('\n'), head.size());
    if (const std::string_view line = trim(head.substr(0, end)); !line.empty()) lines.push_back(line);
    head.remove_prefix(std::min(end + 1, head.size()));
  }
  return lines;
}

bool is_remark(std::string_view line) {
  return line.starts_with('#') || line.starts_with("WARNING: ") || (line.starts_with("sep=") && line.size() <= 6);
}

std::vector<std::string_view> data_lines_of(std::string_view head) {
  std::vector<std::string_view> lines = lines_of(head);
  std::erase_if(lines, is_remark);
  return lines;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (const std::string_view word : split(trim(text), ' '))
    if (!trim(word).empty()) words.push_back(trim(word));
  return words;
}

}  // namespace lull::trace
