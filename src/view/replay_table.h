#pragma once
// A replay's result as text for a person: totals, what would have been ended, the sweep with the recommended value.

#include <cstddef>
#include <optional>
#include <string>

#include "replay/output.h"
#include "replay/report_output.h"
#include "view/columns.h"

namespace lull {

inline constexpr std::size_t kShownEnds = 40;

// The first kShownEnds of the jobs that would have been ended, or `all` of them; verbose: every firing as well.
std::string replay_table(const replay::ReplayResult& result, const replay::OutputOptions& how, bool all,
                         const Screen& screen);

// A report on the use of GPUs as a table for people.
std::string report_table(const replay::ReportResult& result, replay::ReportBy by, std::optional<double> price,
                         const Screen& screen);

}  // namespace lull
