#pragma once
// For the tests of this module: a trace in a file that goes away, read back as plain
// rows per GPU, which is easy to compare.

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "trace/reader.h"

namespace lull::trace {

class TempFile {
 public:
  explicit TempFile(std::string_view text, const std::string& ending = ".csv") {
    path_ = "/tmp/lull-trace-test-XXXXXX" + ending;
    const Fd fd(::mkstemps(path_.data(), static_cast<int>(ending.size())));
    if (!write_all(fd.get(), text)) ::abort();
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Sample {
  std::int64_t at = 0;
  std::vector<float> values;
  // Unknown equals unknown here: tests compare what was read, not what it means.
  bool operator==(const Sample& other) const {
    if (at != other.at || values.size() != other.values.size()) return false;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] != other.values[i] && !(values[i] != values[i] && other.values[i] != other.values[i])) return false;
    return true;
  }
};

class Rows final : public TraceSink {
 public:
  explicit Rows(std::vector<Metric> metrics) : metrics_(std::move(metrics)) {}
  void restart() override {
    ++restarts;
    of.clear();
    ticks.clear();
    next_part();
  }
  bool wants(std::size_t) override { return wanted_++ < most_gpus; }
  void next_part() override {
    ++parts;
    wanted_ = 0;
  }
  void block(std::size_t gpu, const Block& block) override {
    largest = std::max(largest, block.size());
    for (std::size_t i = 0; i < block.size(); ++i) of[gpu].push_back(sample(block, i));
  }
  void frames(std::span<const Block> gpus) override {
    for (std::size_t i = 0; i < gpus[0].size(); ++i) {
      std::vector<Sample> tick;
      for (const Block& gpu : gpus) tick.push_back(sample(gpu, i));
      ticks.push_back(std::move(tick));
    }
  }

  int restarts = 0;
  int parts = 0;
  std::size_t most_gpus = static_cast<std::size_t>(-1);  // at a time
  std::size_t largest = 0;
  std::map<std::size_t, std::vector<Sample>> of;
  std::vector<std::vector<Sample>> ticks;  // [tick][gpu]

 private:
  Sample sample(const Block& block, std::size_t i) const {
    Sample one{block.at[i].time_since_epoch().count(), {}};
    for (const Metric metric : metrics_)
      one.values.push_back(block[metric].empty() ? kUnknownSample : block[metric][i]);
    return one;
  }
  std::vector<Metric> metrics_;
  std::size_t wanted_ = 0;
};

struct ReadBack {
  TraceReport report;
  std::map<std::string, std::vector<Sample>> of;  // by label
  std::vector<std::vector<Sample>> ticks;
  int restarts = 0;
  int parts = 0;
};

inline Result<ReadBack> read_back(TraceOptions options, std::size_t most_gpus = static_cast<std::size_t>(-1)) {
  Rows rows(options.metrics);
  rows.most_gpus = most_gpus;
  auto reader = TRY(TraceReader::open(std::move(options)));
  ReadBack back;
  back.report = TRY(reader.read(rows));
  for (const auto& [gpu, samples] : rows.of) back.of[back.report.gpus[gpu].label] = samples;
  back.ticks = rows.ticks;
  back.restarts = rows.restarts;
  back.parts = rows.parts;
  return back;
}

inline Result<ReadBack> read_text(std::string_view text, std::vector<Metric> metrics = {Metric::util, Metric::power},
                                  std::string_view columns = "") {
  const TempFile file(text);
  TraceOptions options;
  options.paths = {file.path()};
  options.metrics = std::move(metrics);
  options.columns = TRY(parse_columns(columns));
  return read_back(std::move(options));
}

}  // namespace lull::trace
