// `lull record`: readings of the GPUs as a trace, until told to stop.

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/watch_options.h"
#include "loop/loop.h"
#include "rule/timeline.h"
#include "sense/select.h"
#include "session/feed.h"
#include "session/loop_sampler.h"
#include "session/ticker.h"
#include "trace/rows.h"
#include "trace/writer.h"

namespace lull {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr Duration kFrame = 5s;  // packed rows wait at most so long for their frame
constexpr std::size_t kFrameBytes = 256 << 10;
constexpr Duration kClockSlack = 2s;  // the wall clock may wander so far before we mention it
constexpr int kGapsSaid = 3;

struct RecordSettings {
  Duration every = 1s;
  std::optional<Duration> length;
  std::string output;
  std::string gpus;
  std::vector<Metric> metrics;
  trace::Format format = trace::Format::csv;
};

void say(std::string_view what) { (void)complain(what); }

Result<std::vector<Metric>> read_signals(const std::string& text) {
  std::vector<Metric> metrics;
  if (text.empty()) {
    for (const MetricInfo& row : kMetricTable)
      if (row.of == Of::gpu && row.metric != Metric::pcie && row.metric != Metric::openers)
        metrics.push_back(row.metric);
    return metrics;
  }
  std::vector<std::string_view> names;
  for (const MetricInfo& row : kMetricTable)
    if (row.of == Of::gpu) names.push_back(row.name);
  for (const std::string_view part : split(text, ',')) {
    const std::string_view name = trim(part);
    const auto metric = metric_by_name(name);
    if (!metric || info(*metric).of != Of::gpu)
      return fail(fmt::format("--signals: '{}' is no signal of a GPU{}", printable(name), did_you_mean(name, names)));
    if (std::find(metrics.begin(), metrics.end(), *metric) == metrics.end()) metrics.push_back(*metric);
  }
  return metrics;
}

Result<trace::TraceWriter> open_writer(const RecordSettings& settings) {
  trace::WriterOptions options;
  options.path = settings.output;
  options.format = settings.format;
  options.packing = trace::packing_by_name(settings.output);
  options.header = trace::header_line(settings.format, settings.metrics);
  if (settings.format == trace::Format::ndjson)
    trace::append_row(options.like, settings.format, WallTime{}, Device{}, Reading{}, settings.metrics);
  return trace::TraceWriter::open(std::move(options));
}

class Recorder {
 public:
  Recorder(RecordSettings settings, Loop& loop)
      : settings_(std::move(settings)), loop_(loop), ticker_(loop, settings_.every, [this](std::uint64_t) {
          if (!settings_.length || loop_.now() < start_ + *settings_.length) sampler_->request(false);
        }) {}

  int run() {
    // Signals first: threads that are started later must not get them.
    if (auto set = listen_for_the_end(); !set) return complain(set.error().message());
    SamplerOptions sensing;
    sensing.want_only(settings_.metrics);
    sensing.deadline = std::clamp<Duration>(settings_.every, 100ms, 2s);
    sampler_.emplace(loop_, std::move(sensing), [this](const Snapshot& snapshot) {
      for (const SamplingCosts::Note& note : costs_.see(snapshot, settings_.every)) say(note.text);
      if ((!writer_ && !begin(snapshot)) || !add(snapshot)) loop_.stop();
    });
    sampler_->request(false);
    if (auto ran = loop_.run(); !ran && status_ == 0) status_ = complain(ran.error().message());
    return status_ == 0 && writer_ ? end() : status_;
  }

 private:
  Result<> listen_for_the_end() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&ends, signal);
    TRY(loop_.on_signals(ends, [this](const signalfd_siginfo& info) {
      if (info.ssi_signo == SIGUSR1) return sampler_->let_go();  // as every lull that watches
      loop_.stop();
    }));
    // A reader that went away is noticed at once, not at the next row.
    struct stat status{};
    if (settings_.output.empty() && ::fstat(STDOUT_FILENO, &status) == 0 && S_ISFIFO(status.st_mode))
      TRY(loop_.on_ready(STDOUT_FILENO, [this] {
        quiet_ = true;
        loop_.stop();
      }));
    return {};
  }

  // The first snapshot tells who is there. No file is made before that is known.
  bool begin(const Snapshot& first) {
    if (first.inventory->devices.empty()) {
      const bool driver = first.driver.absence == Absence::none;
      status_ = complain(driver ? "there is no GPU to record" : driver_words(first.driver));
      return false;
    }
    if (auto chosen = select_devices(settings_.gpus.empty() ? "all" : settings_.gpus, *first.inventory); !chosen) {
      status_ = complain(chosen.error().message(), kExitUsage);
      return false;
    }
    auto writer = open_writer(settings_);
    if (!writer) {
      status_ = complain(writer.error().message());
      return false;
    }
    writer_ = *std::move(writer);
    if (!writer_->note().empty()) say(writer_->note());
    start_ = first.at;
    anchor_ = said_anchor_ = first.wall.time_since_epoch() - first.at.time_since_epoch();
    if (settings_.length) loop_.at(start_ + *settings_.length, [this] { loop_.stop(); });
    ticker_.follow(start_);
    return true;
  }

  static std::string driver_words(const DriverState& driver) {
    return driver.detail.empty() ? std::string(words(driver.absence)) : printable(driver.detail);
  }

  void choose(const Snapshot& snapshot) {
    if (snapshot.inventory == inventory_) return;
    inventory_ = snapshot.inventory;
    if (auto chosen = select_devices(settings_.gpus.empty() ? "all" : settings_.gpus, *inventory_)) {
      devices_ = *std::move(chosen);
    } else {
      say(chosen.error().message());  // the GPU may come back: until then there is nothing to write
      devices_.clear();
    }
  }

  void mention_oddities(const Snapshot& snapshot) {
    if (last_ && snapshot.at - *last_ > longest_gap(settings_.every) && ++gaps_ <= kGapsSaid)
      say(fmt::format("no sample for {} before {}{}", format_duration(snapshot.at - *last_),
                      format_rfc3339(WallTime(snapshot.at.time_since_epoch() + anchor_)),
                      gaps_ == kGapsSaid ? "; further gaps are only counted" : ""));
    last_ = snapshot.at;
    const Duration anchor = snapshot.wall.time_since_epoch() - snapshot.at.time_since_epoch();
    if (std::chrono::abs(anchor - anchor_) > kClockSlack && std::chrono::abs(anchor - said_anchor_) > kClockSlack) {
      say(fmt::format("the clock was set by {}; the trace goes on by the old one", format_duration(anchor - anchor_)));
      said_anchor_ = anchor;
    }
    if (snapshot.driver.absence != driver_) {
      driver_ = snapshot.driver.absence;
      if (driver_ != Absence::none) say(driver_words(snapshot.driver) + "; rows are empty until it is back");
    }
  }

  // False: there is no going on.
  bool add(const Snapshot& snapshot) {
    choose(snapshot);
    mention_oddities(snapshot);
    rows_.clear();
    // Wall time that nobody can set: the samples are as far apart as they were.
    const WallTime at(std::chrono::round<std::chrono::milliseconds>(snapshot.at.time_since_epoch() + anchor_));
    for (const std::size_t i : devices_)
      trace::append_row(rows_, settings_.format, at, inventory_->devices[i], snapshot.readings[i], settings_.metrics);
    writer_->add(rows_);
    count_ += devices_.size();
    const bool packed = trace::packing_by_name(settings_.output) != trace::Packing::none;
    if (packed && writer_->pending() < kFrameBytes && snapshot.at - flushed_ < kFrame) return true;
    flushed_ = snapshot.at;
    auto put = writer_->flush();
    if (put) return true;
    status_ = failed(put.error());
    return false;
  }

  int failed(const Error& error) {
    quiet_ = quiet_ || (settings_.output.empty() && error.errno_value == EPIPE);
    if (quiet_) return 0;
    std::string what = error.message();
    if (!settings_.output.empty() &&
        (error.errno_value == ENOSPC || error.errno_value == EFBIG || error.errno_value == EDQUOT))
      what += "; what was written before is whole";
    return complain(what);
  }

  int end() {
    if (quiet_) return 0;
    if (auto closed = writer_->close(); !closed) return failed(closed.error());
    if (!settings_.output.empty())
      say(fmt::format("{} rows of {} GPU{} in {}{}", count_, devices_.size(), devices_.size() == 1 ? "" : "s",
                      printable(settings_.output), gaps_ > 0 ? fmt::format(", {} gaps", gaps_) : ""));
    return 0;
  }

  RecordSettings settings_;
  Loop& loop_;
  Ticker ticker_;
  std::optional<LoopSampler> sampler_;
  SamplingCosts costs_;
  std::optional<trace::TraceWriter> writer_;  // from the first snapshot on
  std::shared_ptr<const Inventory> inventory_;
  std::vector<std::size_t> devices_;
  std::string rows_;
  Instant start_{};
  Instant flushed_{};
  std::optional<Instant> last_;
  Duration anchor_{};
  Duration said_anchor_{};
  Absence driver_ = Absence::none;
  std::uint64_t count_ = 0;
  int gaps_ = 0;
  bool quiet_ = false;
  int status_ = 0;
};

int record(RecordSettings settings) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that went away is an error of write(), like a full disk
  std::signal(SIGXFSZ, SIG_IGN);
  const SystemClock clock;
  auto loop = Loop::create(clock);
  if (!loop) return complain(loop.error().message());
  return Recorder(std::move(settings), **loop).run();
}

}  // namespace

int record_command(int argc, char** argv) {
  CommandLine line(
      "Writes what the GPUs show as a trace, one row a GPU a sample, for `lull replay` and other programs.\n"
      "Unknown is an empty cell (null in NDJSON), never 0. An existing file is appended to.\n\n"
      "  lull record --every 1s -o day.csv.zst\n",
      "lull record");
  std::string every = "1s";
  std::string length;
  std::string format;
  std::string signals;
  RecordSettings settings;
  line.option("--every", every, "how often to look").value("DURATION");
  line.option("--for", length, "stop after this long (on Ctrl-C)").value("DURATION");
  line.option("-o,--output", settings.output, "file to write or go on with; .gz and .zst are packed (stdout)")
      .value("FILE");
  line.option("--format", format, "csv or ndjson (by the file's name, else csv)").value("FORMAT");
  line.option("--gpus", settings.gpus, "only these: 0,2 or 0-3, UUIDs, 3:1 for a MIG device (all)").value("LIST");
  line.option("--signals", signals, "only these, such as util,power (all that are cheap to read)").value("LIST");
  line.footer("Example:\n  lull record --every 1s --for 2h -o night.csv.zst");
  if (const auto status = line.parse(argc, argv)) return *status;

  const auto wrong = [](const Error& error) {
    return complain(fmt::format("record: {}", error.message()), kExitUsage);
  };
  const auto every_read = duration_option("--every", every);
  if (!every_read) return wrong(every_read.error());
  if (*every_read < 1ms) return complain("record: --every must be at least 1ms", kExitUsage);
  settings.every = *every_read;
  if (!length.empty()) {
    const auto length_read = duration_option("--for", length);
    if (!length_read) return wrong(length_read.error());
    if (*length_read <= Duration::zero())
      return complain("record: --for 0 would record nothing: more would be right, such as 2h", kExitUsage);
    settings.length = *length_read;
  }
  if (!format.empty() && format != "csv" && format != "ndjson")
    return complain(fmt::format("record: --format is csv or ndjson, not '{}'", printable(format)), kExitUsage);
  if (settings.output == "-") settings.output.clear();
  settings.format = format.empty()       ? trace::format_by_name(settings.output)
                    : format == "ndjson" ? trace::Format::ndjson
                                         : trace::Format::csv;
  auto metrics = read_signals(signals);
  if (!metrics) return wrong(metrics.error());
  settings.metrics = *std::move(metrics);
  return record(std::move(settings));
}

}  // namespace lull
