// `lull status`: the GPUs now, once or live.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "loop/loop.h"
#include "sense/sampler.h"
#include "sense/select.h"
#include "sense/visible.h"
#include "session/feed.h"
#include "session/loop_sampler.h"
#include "session/status_extras.h"
#include "session/ticker.h"
#include "view/screen.h"
#include "view/status.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 1500ms;  // how long a driver may take before its GPUs are shown as not answering

constexpr Duration kLongestWaking = 11s;  // real cards take up to 10 s without persistence mode

enum class Format : std::uint8_t { table, json, csv };

struct StatusOptions {
  Format format = Format::table;
  std::optional<Duration> every;  // --watch
  std::string gpus;
  bool visible = false;
};

Result<std::vector<std::size_t>> rows_of(const StatusOptions& options, const Snapshot& snapshot) {
  const Inventory& inventory = *snapshot.inventory;
  std::vector<std::size_t> rows;
  if (!options.gpus.empty()) return select_devices(options.gpus, inventory);
  if (options.visible) return visible_devices(inventory).devices;
  for (std::size_t i = 0; i < inventory.devices.size(); ++i) rows.push_back(i);
  return rows;
}

// One line: what was looked for and where, and how to go on without a driver.
int no_driver(const Snapshot& snapshot) {
  const DriverState& driver = snapshot.driver;
  std::string line = driver.detail.empty() ? std::string(words(driver.absence)) : driver.detail;
  if (driver.absence == Absence::no_driver) line += "; to try lull on simulated GPUs: lull sim --gpus 4 -- lull status";
  return complain(line);
}

// Redraws in place on a terminal; anywhere else, lines are appended.
class Picture {
 public:
  Picture(const StatusOptions& options, int fd) : options_(options), fd_(fd), terminal_(::isatty(fd) == 1) {}

  Result<> show(const StatusView& view) {
    const bool live = options_.every.has_value();
    switch (options_.format) {
      case Format::json: return write_all(fd_, status_json(view, live ? -1 : 2) + "\n");
      case Format::csv: {
        const std::string head = std::exchange(headed_, true) ? "" : status_csv_header();
        return write_all(fd_, head + status_csv(view));
      }
      case Format::table: break;
    }
    const Screen screen = screen_of(fd_);
    std::vector<std::string> lines = status_table(view, screen);
    if (view.devices.empty()) lines = {"no GPU"};
    return live && terminal_ ? redraw(view, lines, screen) : append(view, lines, live);
  }

  // Leaves the last picture where it is, with the cursor below it.
  void finish() {
    if (drawn_ > 0) (void)write_all(fd_, "\033[?25h");
  }

 private:
  Result<> append(const StatusView& view, const std::vector<std::string>& lines, bool live) {
    std::string text;
    if (live) text += format_rfc3339(view.snapshot.wall) + "\n";
    for (const std::string& line : lines) text += line + "\n";
    return write_all(fd_, text);
  }

  // Each line is cleared to its end after it is written, and the screen below the
  // last one: nothing flickers, and nothing of a longer picture is left over.
  Result<> redraw(const StatusView& view, const std::vector<std::string>& lines, const Screen& screen) {
    std::string text = drawn_ == 0 ? "\033[?25l" : fmt::format("\033[{}A\r", drawn_);
    const std::string when = fmt::format("{}   every {}, Ctrl-C ends", format_local(view.snapshot.wall, "%H:%M:%S"),
                                         format_duration(*options_.every));
    text += paint(fit(when, screen.width, screen.utf8), Tone::dim, screen) + "\033[K\n";
    // A picture taller than the screen cannot be drawn over: the rest is said, not shown.
    const std::size_t room = screen.height > 3 ? screen.height - 2 : 1;
    const bool cut = lines.size() > room;
    const std::size_t shown = cut ? room - 1 : lines.size();
    for (std::size_t i = 0; i < shown; ++i) text += lines[i] + "\033[K\n";
    if (cut) text += fmt::format("+{} more rows\033[K\n", lines.size() - shown);
    drawn_ = 1 + shown + (cut ? 1 : 0);
    return write_all(fd_, text + "\033[J");
  }

  const StatusOptions& options_;
  int fd_;
  bool terminal_;
  bool headed_ = false;
  std::size_t drawn_ = 0;  // lines that the picture on the screen takes
};

struct Session {
  const StatusOptions& options;
  Picture output;
  IdleTimes idle;
  bool driver_said = false;
  bool hinted = false;

  // A number: that is the end, and this the exit status.
  std::optional<int> show(const Snapshot& snapshot) {
    idle.see(snapshot);
    if (const std::string hint = persistence_hint(snapshot); !hint.empty() && ::isatty(STDERR_FILENO) == 1 && !hinted)
      hinted = complain(hint) != 0;
    if (snapshot.driver.absence != Absence::none) {
      if (!options.every) return no_driver(snapshot);
      if (!std::exchange(driver_said, true)) (void)no_driver(snapshot);
      if (snapshot.readings.empty()) return std::nullopt;  // none yet: the sampler keeps looking
    } else {
      driver_said = false;
    }
    const auto rows = rows_of(options, snapshot);
    if (!rows) return complain(rows.error().message(), kExitUsage);
    const StatusView view{snapshot, *rows, status_extras(snapshot, *rows, idle)};
    if (const auto shown = output.show(view); !shown) {
      if (shown.error().errno_value == EPIPE) return 0;  // the reader has seen enough
      return complain(shown.error().message());
    }
    return std::nullopt;
  }
};

// Until Ctrl-C, TERM, or the reader of our pipe is gone.
Result<int> watch(Session& session, SamplerOptions sampling) {
  const SystemClock clock;
  const std::unique_ptr<Loop> loop = TRY(Loop::create(clock));
  int status = 0;
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&set, signal);
  std::optional<LoopSampler> sampler;
  TRY(loop->on_signals(set, [&](const signalfd_siginfo& info) {
    if (info.ssi_signo == SIGUSR1) return sampler->let_go();  // as every lull that watches
    status = info.ssi_signo == SIGINT ? 0 : 128 + static_cast<int>(info.ssi_signo);
    loop->stop();
  }));
  sampler.emplace(*loop, std::move(sampling), [&](const Snapshot& snapshot) {
    if (const auto end = session.show(snapshot)) {
      status = *end;
      loop->stop();
    }
  });
  Ticker ticker(*loop, *session.options.every, [&](std::uint64_t) { sampler->request(false); });
  ticker.begin();
  TRY(loop->run());
  session.output.finish();
  return status;
}

}  // namespace

int status_command(int argc, char** argv) {
  StatusOptions options;
  CommandLine line("The GPUs now: what they do, who holds them, with what.", "lull status");
  bool json = false;
  bool csv = false;
  std::string every;
  line.flag("--json", json, "one JSON object; with --watch one a line");
  line.flag("--csv", csv, "CSV with a header").excludes("--json");
  const CommandLine::Option watch_option =
      line.option("--watch", every, "again every so often (1s)").optional_value().value("[SECONDS]");
  line.option("--gpus", options.gpus, "only these: 0,2 or a UUID or the beginning of one (all)").value("LIST");
  line.flag("--visible", options.visible, "only those of CUDA_VISIBLE_DEVICES").excludes("--gpus");
  line.footer("Example:\n  lull status --watch 2 --gpus 0,1");
  if (const auto done = line.parse(argc, argv)) return *done;
  options.format = json ? Format::json : csv ? Format::csv : Format::table;
  if (watch_option.given()) {
    const auto parsed = parse_duration(every.empty() ? "1s" : every);
    if (!parsed) return complain("--watch: " + parsed.error().message(), kExitUsage);
    if (*parsed < 10ms) return complain("--watch: at least 10ms is wanted between two pictures", kExitUsage);
    options.every = *parsed;
  }

  std::signal(SIGPIPE, SIG_IGN);
  SamplerOptions sampling;
  sampling.processes = true;
  sampling.deadline = kPatience;
  sampling.once = !options.every;
  sampling.wait_for_waking = sampling.once;
  sampling.attach_deadline = kLongestWaking;
  sampling.idle_before = true;
  Session session{options, Picture(options, STDOUT_FILENO), IdleTimes(options.every.value_or(1s))};
  if (!options.every) return session.show(Sampler::start(std::move(sampling))->sample()).value_or(0);
  const Result<int> ended = watch(session, std::move(sampling));
  return ended ? *ended : complain(ended.error().message());
}

}  // namespace lull
