#pragma once
// A report on the use of GPUs as a table for people.

#include <optional>
#include <string>

#include "replay/report_output.h"
#include "view/columns.h"

namespace lull {

std::string report_table(const replay::ReportResult& result, replay::ReportBy by, std::optional<double> price,
                         const Screen& screen);

}  // namespace lull
