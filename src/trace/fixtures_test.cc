// Every fixture under tests/fixtures/traces is read, and every value compared with the .expect file beside it, which
// was written by hand. The first lines of an .expect say what must be told about the file, the rest is a line for each
// sample:
//
//   reads as: nvidia-smi dmon        the row of the table of formats
//   signals: util power mem_used     all that the file has, in this order in the lines below
//   every: 1s  columns: util=*       what is given as --every and --columns
//   bad: 2  zone: +01:00  note: …    counts, the zone (none: no zone), words of a note
//   error: …                         instead: it is refused with these words
//   0 2024-03-15T11:04:29 45 70.12 1024M     GPU, time (seconds where it is counted), values; - is unknown

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "base/text.h"
#include "base/units.h"
#include "tests/places.h"
#include "trace/format.h"
#include "trace/test_trace.h"

namespace lull::trace {
namespace {

const std::filesystem::path kFolder = std::filesystem::path(source_dir()) / "tests" / "fixtures" / "traces";

struct Expectation {
  std::map<std::string, std::string> said;
  std::vector<Metric> signals;
  std::map<std::string, std::vector<std::pair<std::string, std::vector<std::string>>>> of;  // GPU: time and values
};

Expectation read_expectation(const std::filesystem::path& path) {
  Expectation expected;
  std::istringstream lines(read_file(path.string()).value());
  for (std::string line; std::getline(lines, line);) {
    if (trim(line).empty() || line.front() == ';') continue;
    constexpr std::array<std::string_view, 8> kWords = {"reads as", "signals", "every", "columns",
                                                        "bad",      "zone",    "note",  "error"};
    const std::size_t colon = line.find(':');
    const std::string word = line.substr(0, colon);
    if (colon != std::string::npos && std::find(kWords.begin(), kWords.end(), word) != kWords.end()) {
      expected.said[word] = trim(std::string_view(line).substr(colon + 1));
      continue;
    }
    std::istringstream words(line);
    std::string gpu;
    std::string time;
    words >> gpu >> time;
    std::vector<std::string> values;
    for (std::string value; words >> value;) values.push_back(value);
    expected.of[gpu].emplace_back(time, values);
  }
  std::istringstream signals(expected.said["signals"]);
  for (std::string name; signals >> name;) expected.signals.push_back(metric_by_name(name).value());
  return expected;
}

std::string shown(std::int64_t ns, const TraceReport& report) {
  if (!report.from_epoch) return fmt::format("{}", static_cast<double>(ns) / 1e9);
  std::string text = format_time(ns, false);
  if (text.ends_with(".000")) text.resize(text.size() - 4);
  return text;
}

float number(std::string text) {
  if (text == "-") return kUnknownSample;
  const bool mebibytes = text.ends_with('M');
  if (mebibytes) text.pop_back();
  return static_cast<float>(to_double(text).value() * (mebibytes ? 1048576 : 1));
}

std::vector<Metric> signals_of_gpus() {
  std::vector<Metric> all;
  for (const MetricInfo& row : kMetricTable)
    if (row.of == Of::gpu) all.push_back(row.metric);
  return all;
}

std::string zone_text(const TraceReport& report) {
  if (!report.zoned) return "none";
  const int minutes = std::abs(report.zone_minutes);
  return fmt::format("{}{:02}:{:02}", report.zone_minutes < 0 ? '-' : '+', minutes / 60, minutes % 60);
}

void compare(const Expectation& expected, const ReadBack& back, const std::vector<Metric>& all) {
  std::set<std::string> gpus;
  for (const auto& [gpu, samples] : back.of) gpus.insert(gpu);
  std::set<std::string> wanted;
  for (const auto& [gpu, samples] : expected.of) wanted.insert(gpu);
  ASSERT_EQ(gpus, wanted);
  std::set<Metric> there(back.report.metrics.begin(), back.report.metrics.end());
  EXPECT_EQ(there, std::set<Metric>(expected.signals.begin(), expected.signals.end()));
  for (const auto& [gpu, samples] : expected.of) {
    const auto& got = back.of.at(gpu);
    ASSERT_EQ(got.size(), samples.size()) << "GPU " << gpu;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(shown(got[i].at, back.report), samples[i].first) << "GPU " << gpu;
      ASSERT_EQ(samples[i].second.size(), expected.signals.size()) << "GPU " << gpu << " at " << samples[i].first;
      for (std::size_t k = 0; k < expected.signals.size(); ++k) {
        const auto slot = std::find(all.begin(), all.end(), expected.signals[k]) - all.begin();
        const float value = got[i].values[static_cast<std::size_t>(slot)];
        const float want = number(samples[i].second[k]);
        EXPECT_TRUE(value == want || (std::isnan(value) && std::isnan(want)))
            << "GPU " << gpu << " at " << samples[i].first << ": " << info(expected.signals[k]).name << " is " << value
            << ", expected " << samples[i].second[k];
      }
    }
  }
}

void check_fixture(const std::filesystem::path& path, std::size_t chunk_bytes, unsigned threads) {
  Expectation expected = read_expectation(path.string() + ".expect");
  TraceOptions options;
  options.paths = {path.string()};
  options.metrics = signals_of_gpus();
  options.columns = parse_columns(expected.said["columns"]).value();
  if (!expected.said["every"].empty()) options.every = parse_duration(expected.said["every"]).value();
  options.chunk_bytes = chunk_bytes;
  options.threads = threads;
  const auto back = read_back(options);
  if (!expected.said["error"].empty()) {
    ASSERT_FALSE(back);
    EXPECT_NE(back.error().message().find(expected.said["error"]), std::string::npos) << back.error().message();
    EXPECT_EQ(back.error().message().find('\n'), std::string::npos) << "one line";
    return;
  }
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->report.bad_rows, to_unsigned(expected.said["bad"]).value_or(0))
      << (back->report.first_bad.empty() ? "" : back->report.first_bad[0].why);
  if (!expected.said["zone"].empty()) {
    EXPECT_EQ(zone_text(back->report), expected.said["zone"]);
  }
  const auto& notes = back->report.notes;
  if (!expected.said["note"].empty()) {
    EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
      return note.find(expected.said["note"]) != std::string::npos;
    })) << (notes.empty() ? "no note" : notes[0]);
  } else {
    EXPECT_TRUE(notes.empty()) << notes[0];
  }
  compare(expected, *back, options.metrics);
}

std::vector<std::filesystem::path> fixtures() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().extension() != ".expect" && entry.path().extension() != ".md") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(TraceFixtures, EveryValueIsWhatWasWrittenByHand) {
  for (const auto& path : fixtures()) {
    SCOPED_TRACE(path.filename());
    check_fixture(path, 1U << 20, 1);
  }
}

TEST(TraceFixtures, ChunksOfAnySizeAndThreadsGiveTheSame) {
  for (const auto& path : fixtures())
    for (const std::size_t bytes : {64, 200, 1000}) {
      SCOPED_TRACE(fmt::format("{} in chunks of {}", path.filename().string(), bytes));
      check_fixture(path, bytes, 3);
    }
}

TEST(TraceFixtures, EveryFormatOfTheTableHasOne) {
  std::set<std::string> read;
  for (const auto& path : fixtures()) {
    const Expectation expected = read_expectation(path.string() + ".expect");
    if (!expected.said.contains("reads as")) continue;
    read.insert(expected.said.at("reads as"));
    const auto choices = parse_columns(expected.said.contains("columns") ? expected.said.at("columns") : "").value();
    const auto schema =
        recognise(read_file(path.string()).value(), {choices, signals_of_gpus(), expected.said.contains("every")});
    ASSERT_TRUE(schema) << path;
    EXPECT_EQ(schema->reads_as->name, expected.said.at("reads as")) << path;
  }
  for (const TraceFormat* format : formats()) EXPECT_TRUE(read.contains(std::string(format->name))) << format->name;
}

}  // namespace
}  // namespace lull::trace
