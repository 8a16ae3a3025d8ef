#pragma once
// Readings as the text of a trace: one row per GPU per sample, as CSV with a header
// whose names carry their unit, or as NDJSON. Unknown is an empty cell or null. Who has
// the GPU comes last, where it is wanted: several words in one cell, with blanks
// between; "none" is no job (trace/holders.h reads it).

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "base/result.h"
#include "gpu/metric.h"
#include "gpu/snapshot.h"
#include "trace/schema.h"

namespace lull::trace {

inline constexpr std::string_view kNobodyText = "none";
// As an architecture: cards whose idle may look like a hang.
inline constexpr std::string_view kRdnaText = "rdna";
inline constexpr std::string_view kIntelText = "intel";

// Empty: not known.
struct UserCells {
  std::string host;
  std::string users;
  std::string pids;
  std::string command;
  std::string lease;
  std::string job;
};

// What is in a row.
struct RowLayout {
  Format format = Format::csv;
  std::vector<Metric> metrics;
  bool who = false;
  bool architecture = false;  // of AMD's and Intel's cards: whether the rule for hangs may be asked of them
};

// Cheap to read; else a recording has it only where it is named.
inline bool is_recorded_unasked(Metric metric) {
  return metric != Metric::pcie && metric != Metric::openers && !is_counter(metric) && !is_learned(metric);
}
// Puts those signals into it that a person names: "util,power,who"; empty: all that are cheap to read, and who.
// `own`: signals of the user's own that have a source.
Result<> choose_signals(std::string_view text, RowLayout& layout, std::span<const Metric> own = {});

// What a row is of.
struct RowFacts {
  WallTime at{};
  const Device& device;
  const Reading& reading;
  const Facts& job;
  const Facts& machine;
  const UserCells& who;
};

// With its newline; NDJSON has none.
std::string header_line(const RowLayout& layout);
void append_row(std::string& out, const RowLayout& layout, const RowFacts& facts);
// A row of which nothing is known, for its keys.
std::string empty_row(const RowLayout& layout);

}  // namespace lull::trace
