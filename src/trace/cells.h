#pragma once
// The cells of tables: how a line falls into them and what a number in one is worth, the
// slow, obvious way.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/schema.h"

namespace lull::trace {

// What a number with `unit` must be multiplied with to be in the unit of the metric.
std::optional<double> unit_factor(Unit of_metric, std::string_view unit);

// The lines of a head that are not empty, a thousand at most; the separator that the first one shows.
std::vector<std::string_view> lines_of(std::string_view head);
std::vector<std::string_view> data_lines_of(
    std::string_view head);  // without remarks (#…, WARNING: …) and a spreadsheet's "sep=,"
bool is_remark(std::string_view line);
char likely_separator(std::string_view line);

// Words in place of a number that mean "not known": [N/A], [GPU is lost], nan, …
bool means_unknown(std::string_view cell);

// The cells of one line, unquoted and trimmed; nothing where a quote is not closed.
std::optional<std::vector<std::string>> split_line(std::string_view line, char separator);

// A signal's cell as the slow, obvious way reads it; nothing if it makes no sense.
std::optional<float> parse_cell(std::string_view cell, const Column& column, bool decimal_comma = false);

// "1,721,992.25" and, where a comma is known to be the decimal point, "45,5" as a plain number; nothing where it could
// be either.
std::optional<std::string> without_grouping(std::string_view number, bool decimal_comma);

std::vector<std::string_view> words_of(std::string_view text);  // what blanks part

}  // namespace lull::trace
