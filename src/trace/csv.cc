#include "trace/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/text.h"
#include "trace/cells.h"
#include "trace/names.h"
#include "trace/number.h"

namespace lull::trace {
namespace {

// The first separator, quote or newline at or after `p`.
inline const char* cell_end(const char* p, char separator) {
#ifdef __SSE2__
  const __m128i separators = _mm_set1_epi8(separator);
  const __m128i quotes = _mm_set1_epi8('"');
  const __m128i newlines = _mm_set1_epi8('\n');
  for (;; p += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i hit = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, separators), _mm_cmpeq_epi8(bytes, quotes)),
                                     _mm_cmpeq_epi8(bytes, newlines));
    if (const auto mask = static_cast<unsigned>(_mm_movemask_epi8(hit)); mask != 0) return p + std::countr_zero(mask);
  }
#else
  while (*p != separator && *p != '"' && *p != '\n') ++p;
  return p;
#endif
}

// The newline at or after `p`, and how many separators come before it; nullptr
// where a quote does, since a separator inside quotes is none.
inline const char* row_end(const char* p, char separator, std::size_t& separators) {
#ifdef __SSE2__
  const __m128i commas = _mm_set1_epi8(separator);
  const __m128i quotes = _mm_set1_epi8('"');
  const __m128i newlines = _mm_set1_epi8('\n');
  for (;; p += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const auto newline = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, newlines)));
    auto comma = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, commas)));
    auto quote = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, quotes)));
    if (newline != 0) {
      const unsigned before = (newline & -newline) - 1;
      comma &= before;
      quote &= before;
    }
    for (; comma != 0; comma &= comma - 1) ++separators;  // few; popcount is a call on a plain x86-64
    if (quote != 0) return nullptr;
    if (newline != 0) return p + std::countr_zero(newline);
  }
#else
  for (; *p != '\n'; ++p) {
    if (*p == '"') return nullptr;
    separators += *p == separator ? 1 : 0;
  }
  return p;
#endif
}

// A number that is off by at most a rounding or two makes the same sample as the
// exact one, unless the two lie on either side of a boundary: then the slow way decides.
inline bool to_sample(double number, bool exact, float& value) {
  value = static_cast<float>(number);
  if (exact) return true;
  constexpr double kSlack = 0x1p-50;
  return static_cast<float>(number * (1 - kSlack)) == static_cast<float>(number * (1 + kSlack));
}

// A cell of a signal the fast way: returns its separator or newline, or nullptr.
inline const char* fast_cell(const char* p, char separator, const FastColumn& column, float& value) {
  if (!is_digit(*p)) {
    if (*p == separator || *p == '\n') {
      value = kUnknownSample;
      return p;
    }
    if (*p == '[') {
      const char* const stop = cell_end(p, separator);
      if (stop[-1] != ']' || stop - p < 2) return nullptr;
      value = kUnknownSample;
      return stop;
    }
    if (*p == 'P' && column.pstate) ++p;
  }
  double number = 0;
  bool exact = true;
  p = read_number(p, number, exact);
  if (p == nullptr) return nullptr;
  if (*p == '\r' && p[1] == '\n') ++p;
  if (*p == separator || *p == '\n') return to_sample(number * column.scale, exact, value) ? p : nullptr;
  // "1024 MiB": the unit this file has always used in this column, or the slow way.
  const std::size_t unit = column.unit.size();
  if (*p != ' ' || unit == 0 || unit >= Chunker::kPadding / 2 || std::memcmp(p + 1, column.unit.data(), unit) != 0)
    return nullptr;
  p += 1 + unit;
  if (*p == '\r' && p[1] == '\n') ++p;
  if (*p != separator && *p != '\n') return nullptr;
  return to_sample(number * column.unit_scale, exact, value) ? p : nullptr;
}

// The cell at `p` is just this.
inline bool is_cell(const char* p, const char* end, const std::string& cell, char separator) {
  const std::size_t size = cell.size();
  if (size >= static_cast<std::size_t>(end - p) || std::memcmp(p, cell.data(), size) != 0) return false;
  return p[size] == separator || p[size] == '\n';
}

std::string_view without_blanks(const char* from, const char* to) {
  while (from < to && (*from == ' ' || *from == '\r' || *from == '\t')) ++from;
  while (from < to && (to[-1] == ' ' || to[-1] == '\r' || to[-1] == '\t')) --to;
  return {from, static_cast<std::size_t>(to - from)};
}

}  // namespace

CsvParser::CsvParser(const Schema& schema) : RowParser(schema), time_(schema.time, schema.zoned) {
  slow_ = !schema.timed;  // a header is told by its time
  for (const Column& column : schema.columns)
    fast_.push_back({column.role, column.wanted, column.metric == Metric::pstate, column.slot, nullptr, column.scale,
                     column.unit_scale, column.unit});
}

// The columns of the batch have moved.
void CsvParser::aim(Batch& batch) {
  for (FastColumn& column : fast_)
    if (column.wanted && column.role == Role::metric) column.values = batch.value[column.slot].data();
}

const char* CsvParser::fast_time(const char* p, std::int64_t& ns) {
  if (same_time_ != nullptr && p[same_time_size_] == schema_.separator &&
      std::memcmp(p, same_time_, same_time_size_) == 0) {
    ns = same_time_ns_;
    return p + same_time_size_;
  }
  const char* const from = p;
  p = time_.read(p, ns);
  if (p == nullptr) return nullptr;
  same_time_size_ = static_cast<std::size_t>(p - from);
  same_time_ = same_time_size_ < Chunker::kPadding ? from : nullptr;
  same_time_ns_ = ns;
  while (*p == ' ' || *p == '\r') ++p;
  return p;
}

const char* CsvParser::fast_row(const char* p, const char* end, Batch& batch) {
  const char separator = schema_.separator;
  const std::size_t row = batch.rows;
  // Rows mostly come in the same order again and again: looking whether it is the one that should come is cheaper than
  // finding where its names end.
  const std::string* guess = identities_.guess();
  const FastColumn* const last = fast_.data() + schema_.last_wanted;
  for (const FastColumn* column = fast_.data();; ++column) {
    while (*p == ' ') ++p;
    if (!column->wanted) {
      p = cell_end(p, separator);
    } else if (column->role == Role::metric) {
      p = fast_cell(p, separator, *column, column->values[row]);
      if (p == nullptr) return nullptr;
    } else if (column->role == Role::time) {
      p = fast_time(p, batch.at[row]);
      if (p == nullptr) return nullptr;
    } else if (guess != nullptr && is_cell(p, end, guess[column->slot], separator)) {
      p += guess[column->slot].size();
    } else {
      if (guess != nullptr) std::copy_n(guess, schema_.identity.size(), names_.begin());
      guess = nullptr;
      const char* const from = p;
      p = cell_end(p, separator);
      names_[column->slot] = without_blanks(from, p);
    }
    if (column == last) break;
    if (*p != separator) return nullptr;
    ++p;
  }
  std::size_t separators = schema_.last_wanted;
  if (*p == separator) p = row_end(p, separator, separators);
  if (p == nullptr || *p != '\n' || separators + 1 != fast_.size()) return nullptr;
  batch.gpu[row] = guess != nullptr ? identities_.accept_guess() : identities_.find(names_);
  if (!identities_.usable(batch.gpu[row])) return nullptr;
  ++batch.rows;
  return p + 1;
}

// Enough to tell a heading: no cell where the time should be, and one that names it.
bool CsvParser::is_header(const std::vector<std::string>& cells) const {
  if (cells.size() == schema_.columns.size()) {
    bool same = true;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const Column& column = schema_.columns[i];
      if (column.role == Role::time && parse_time(cells[i], schema_.time)) return false;
      same = same && heading_of(cells[i]).name == column.name;
    }
    if (same) return true;
  }
  return std::any_of(cells.begin(), cells.end(),
                     [](const std::string& cell) { return cell == "timestamp" || cell == "time"; });
}

bool CsvParser::slow_time(const std::vector<std::string>& cells, const std::string& cell, std::uint64_t number,
                          Batch& batch) {
  std::string text = cell;
  for (std::size_t i = 0; i < schema_.columns.size(); ++i)
    if (schema_.columns[i].role == Role::date) text = cells[i] + " " + cell;
  const auto ns = parse_time(text, schema_.time);
  if (!ns) {
    batch.add_bad(number, fmt::format("'{}' is not a time", printable(std::string_view(text).substr(0, 60))));
    return false;
  }
  if (schema_.time == TimeKind::calendar && zone_mismatch(text, schema_.zoned)) {
    batch.add_bad(number,
                  fmt::format("'{}' {} a time zone, unlike the first rows",
                              printable(std::string_view(text).substr(0, 60)), schema_.zoned ? "lacks" : "has"));
    return false;
  }
  batch.at[batch.rows] = *ns;
  return true;
}

bool CsvParser::slow_value(const std::string& cell, const Column& column, std::uint64_t number, Batch& batch) {
  const auto value = parse_cell(cell, column, schema_.decimal_comma);
  if (value) {
    batch.value[column.slot][batch.rows] = *value;
    return true;
  }
  batch.add_bad(number, fmt::format("{}: '{}' is not a number{}", printable(column.name), printable(cell.substr(0, 60)),
                                    to_double(trim(cell).substr(0, 1)) ? " of its unit" : ""));
  return false;
}

void CsvParser::slow_row(std::string_view line, std::uint64_t number, Batch& batch) {
  if (trim(line).empty() || is_remark(trim(line))) return;
  const auto cells = split_line(line, schema_.separator);
  if (!cells) return batch.add_bad(number, "a quote is not closed");
  std::size_t count = cells->size();
  while (count > schema_.columns.size() && (*cells)[count - 1].empty()) --count;
  if (schema_.header && is_header(*cells)) {
    bool same = count == schema_.columns.size();
    for (std::size_t i = 0; same && i < count; ++i) same = heading_of((*cells)[i]).name == schema_.columns[i].name;
    if (!same && !batch.new_header) batch.new_header = BadLine{number, printable(trim(line).substr(0, 200))};
    if (batch.starts.empty() || batch.starts.back() != batch.rows) batch.starts.push_back(batch.rows);
    return;
  }
  if (count != schema_.columns.size())
    return batch.add_bad(number, fmt::format("{} cell{} where there should be {}", count, count == 1 ? "" : "s",
                                             schema_.columns.size()));
  const std::size_t row = batch.rows;
  if (!schema_.timed) batch.at[row] = 0;
  Identities::Cells identity{};
  for (std::size_t i = 0; i < count; ++i) {
    const Column& column = schema_.columns[i];
    const std::string& cell = (*cells)[i];
    if (!column.wanted) continue;
    if (column.role == Role::time) {
      if (!slow_time(*cells, cell, number, batch)) return;
    } else if (column.role == Role::metric) {
      if (!slow_value(cell, column, number, batch)) return;
    } else if (column.role != Role::date) {
      identity[column.slot] = cell;
    }
  }
  batch.gpu[row] = identities_.find(identity);
  if (!identities_.usable(batch.gpu[row])) return batch.add_bad(number, "it does not say which GPU");
  ++batch.rows;
}

void CsvParser::parse(const Chunk& chunk, Batch& batch) {
  const char* p = chunk.begin();
  const char* const end = chunk.end();
  batch.reset(schema_.metrics.size());
  aim(batch);
  same_time_ = nullptr;
  std::uint64_t number = 0;
  if (chunk.first && chunk.text().starts_with("\xEF\xBB\xBF")) p += 3;
  // What we wrote ourselves ends in a newline: without one, the last number may lack digits.
  const char* whole = end;
  if (chunk.unterminated && schema_.ours)
    for (--whole; whole > p && whole[-1] != '\n';) --whole;
  while (p < whole) {
    ++number;
    if (batch.full()) {
      batch.make_space();
      aim(batch);
    }
    if (!slow_) {
      if (const char* const next = fast_row(p, end, batch); next != nullptr) {
        p = next;
        continue;
      }
    }
    const auto* const newline = static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p)));
    const std::string_view line(p, static_cast<std::size_t>(newline - p));
    slow_row(line, number, batch);
    p = newline + 1;
  }
  if (whole != end) batch.add_bad(++number, "cut off in the middle");
  batch.lines = number;
}

}  // namespace lull::trace
