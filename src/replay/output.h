#pragma once
// A replay's result for programs (JSON, CSV) and for a browser (one page that needs
// no network). Unknown is null; names carry their unit.

#include <optional>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "replay/replay.h"

namespace lull::replay {

// A moment of the trace as its files write moments: with a zone, without, or from the start.
std::string moment_text(const ReplayResult& result, Instant at);
std::string_view ending_text(StretchEnd ending);  // "came back", "unknown", "gap", "end of trace", "job ended"
std::string_view leaving_text(Leaving how);       // "worked again", "released", "end of trace"
std::string gpu_text(const ReplayResult& result, std::size_t gpu);

double hours(double seconds);
std::optional<double> percent(double part, double whole);

void put_result(JsonWriter& json, const ReplayResult& result, std::optional<double> price, bool with_events);
std::string to_json(const ReplayResult& result, std::optional<double> price);
// A row a combination where there is a sweep, else a row a firing.
std::string to_csv(const ReplayResult& result, std::optional<double> price);
std::string to_html(const ReplayResult& result, std::optional<double> price);

}  // namespace lull::replay
