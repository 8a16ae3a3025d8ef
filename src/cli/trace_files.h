#pragma once
// What the commands that read traces share: a progress bar, what was odd about the
// files, a page that is written whole or not at all and never over a trace.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/reader.h"

namespace lull {

// A bar on the terminal for what takes longer than a second.
class ProgressBar {
 public:
  void operator()(double part);
  void clear() const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point drawn_{};
  bool shown_ = false;
};

// What an hour of a GPU costs; empty: not said.
Result<std::optional<double>> read_price(const std::string& text);
// What was odd about the files; the result stands all the same.
void tell_about(const trace::TraceReport& report);
// What is read must not be written: neither the page nor standard output may be one of the traces, whatever it is
// called there.
Result<> check_outputs(const std::vector<std::string>& traces, const std::string& html);
// Written whole or not at all: a page from an earlier run is not lost to a full disk.
Result<> write_page(const std::string& path, const std::string& page);

}  // namespace lull
