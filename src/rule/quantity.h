#pragma once
// Numbers with units, as rules compare signals with: 5%, 120W, 1GiB, 80C, 10m. Which
// units fit depends on the signal; what does not fit is refused with what would.

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "gpu/metric.h"
#include "rule/rule.h"

namespace lull {

struct Quantity {
  double value = 0;
  bool share = false;  // a % of the signal's whole
};

// `number` is digits, perhaps with a point; `unit` may be empty, in any case of letters.
Result<Quantity> read_limit(Metric metric, std::string_view number, std::string_view unit);
// What may follow `for`: 20m, 1h30m, 5 samples. A bare number is refused: it could be either.
Result<Span> read_span(std::string_view number, std::string_view unit);
// A text that is a span and nothing else.
Result<Span> parse_span(std::string_view text);
// Whether a text is a number with its unit and nothing else, as no rule is.
bool is_quantity(std::string_view text);
// What --idle says: a rule, or a time alone: then `otherwise` for so long.
Result<Rule> rule_or_span(std::string_view text, std::string_view otherwise);
// A span that must be a time, above 0.
Result<Duration> read_window(std::string_view number, std::string_view unit);

// Whether a word is the unit of anything: what may stand apart from its number.
bool is_unit(std::string_view word);

std::string exact_duration(Duration duration);                             // parses back to the same
std::string exact_limit(const MetricInfo& row, double value, bool share);  // likewise
std::string_view unit_name(Unit unit);                                     // "W"; empty: none

}  // namespace lull
