#pragma once
// A replay's result for programs (JSON, CSV) and for a browser (one page that needs
// no network). Unknown is null; names carry their unit.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "replay/replay.h"

namespace lull::replay {

// A moment of the trace as its files write moments: with a zone, without, or from the start.
std::string moment_text(const trace::TraceReport& trace, Instant at);
std::string_view ending_text(StretchEnd ending);  // "came back", "unknown", "gap", "end of trace", "job ended"
std::string_view leaving_text(Leaving how);       // "worked again", "released", "end of trace"
std::string gpu_text(const ReplayResult& result, std::size_t gpu);

double hours(double seconds);
std::optional<double> percent(double part, double whole);

// What JSON and CSV have alike. Unknown is null, and an empty cell.
using Fields = std::vector<std::pair<std::string, std::optional<double>>>;
void put_fields(JsonWriter& json, const Fields& fields);
std::string csv_names(const Fields& fields);  // each with a comma behind it
std::string csv_values(const Fields& fields);
std::string csv_text(std::string_view text);  // in quotes where it must be

struct OutputOptions {
  std::optional<double> price = {};  // of a GPU-hour
  bool verbose = false;              // the account of stretches as well
  std::size_t most_ends = static_cast<std::size_t>(-1);
};

void put_result(JsonWriter& json, const ReplayResult& result, const OutputOptions& how);
void put_axes(JsonWriter& json, const std::vector<Axis>& axes);
std::string to_json(const ReplayResult& result, const OutputOptions& how);
// A row a combination where there is a sweep, else a row for each job that would have been ended (verbose: each
// firing).
std::string to_csv(const ReplayResult& result, const OutputOptions& how);
std::string to_html(const ReplayResult& result, std::optional<double> price);

}  // namespace lull::replay
