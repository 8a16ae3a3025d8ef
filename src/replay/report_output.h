#pragma once
// A report on the use of GPUs for people in a sentence, for programs (JSON, CSV) and for
// a browser (one page that needs no network and no script).

#include <optional>
#include <string>
#include <string_view>

#include "replay/report.h"

namespace lull::replay {

std::string_view by_text(ReportBy by);  // "user"
// Whose time it is, by what was added up: "alice", "nobody", "not told".
std::string owner_text(const UseOf& of, ReportBy by);
// "Of 120 GPU-hours seen, 60 % were busy, 25 % held idle, …"
std::string report_answer(const ReportResult& result, std::optional<double> price);
std::string report_basis(const ReportResult& result);

std::string report_json(const ReportResult& result, std::optional<double> price);
std::string report_csv(const ReportResult& result, ReportBy by, std::optional<double> price);
std::string report_html(const ReportResult& result, std::optional<double> price);

}  // namespace lull::replay
