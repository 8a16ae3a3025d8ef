#pragma once
// What `lull replay` and `lull report` are told about the traces, each value as it was written, and what that means.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "replay/replay.h"
#include "replay/report.h"
#include "replay/survey.h"

namespace lull::replay {

struct TraceCommandOptions {
  std::vector<std::string> traces;
  std::string last;
  std::string from;
  std::string to;
  std::string gap;
  std::string every;
  std::string columns;
  unsigned threads = 0;
  // Of prometheus:URL alone.
  std::string match;
  std::string labels;
  std::string token_file;
  std::string save;
};
Result<> settle(const TraceCommandOptions& options, TracesToRead& traces);

Result<Per> read_per(const std::string& text);                              // gpu, job, host, all
Result<ReportBy> read_by(const std::string& text);                          // user, command, host, all
Result<double> read_share(std::string_view option, std::string_view text);  // "1%"
// "ada,bob", also several times; as the trace has them, which may be another machine's.
Result<std::vector<std::string>> read_users(std::string_view option, const std::vector<std::string>& texts);
Result<std::size_t> read_memory(std::string_view option, std::string_view text);  // enough to replay with

// What an hour of a GPU costs; empty: not said.
Result<std::optional<double>> read_price(const std::string& text);
// What is read must not be written: neither the page nor standard output may be one of the traces, whatever it is
// called there.
Result<> check_outputs(const std::vector<std::string>& traces, const std::string& html);
// Written whole or not at all: a page from an earlier run is not lost to a full disk.
Result<> write_page(const std::string& path, const std::string& page);

}  // namespace lull::replay
