// `lull record`: readings of the GPUs as a trace, until told to stop.

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <string>

#include "base/clock.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "config/settings.h"
#include "session/machine.h"
#include "session/trace_session.h"

namespace lull {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""h;

int record(TraceSettings settings) {
  ignore_sigpipe();  // a reader that went away is an error of write(), like a full disk
  std::signal(SIGXFSZ, SIG_IGN);
  return on_machine(SystemClock(), [&](Machine& machine) {
    return TraceSession(std::move(settings), machine, [](std::string_view what) { complain(what); }).run();
  });
}

}  // namespace

int record_command(int argc, char** argv) {
  CommandLine line(
      "Writes what the GPUs show as a trace, one row per GPU per sample, for `lull replay` and other programs.\n"
      "Unknown is an empty cell (null in NDJSON), never 0. An existing file is appended to.",
      "lull record");
  std::string every = "1s";
  std::string keep = "90d";
  std::string length;
  std::string format;
  std::string signals;
  std::vector<std::string> signal_from;
  bool no_who = false;
  TraceSettings settings;
  const auto every_option = line.option(shared::kEvery, every, "", "1s; with --history 5s");
  line.option(shared::kFor, length, "to record (default: until Ctrl-C)");
  line.option("-o,--output", settings.output,
              "the file to write, or to append to; .gz and .zst are compressed (default: standard output)")
      .value("FILE");
  line.option(shared::kHistory, settings.history,
              "the folder of a history, with a file for each day: 2026-11-17.csv.zst");
  const auto keep_option = line.option("--keep", keep, "of a history: how many recorded days stay").value("TIME");
  line.option("--format", format, "what is written (default: by the file's name, else csv)").value("csv|ndjson");
  line.option(shared::kGpus, settings.gpus, std::string(shared::kOnlyThese) + " (default: all)");
  line.option("--signals", signals, "only these, such as util,power,who (default: all that are cheap to read, and who)")
      .value("LIST");
  line.each(shared::kSignalFrom, signal_from);
  line.flag("--no-who", no_who, "leave out who has the GPUs: host, users, pids, command, lease, job");
  line.footer(
      "Examples:\n  lull record --every 1s --for 2h -o night.csv.zst\n"
      "  lull record --history /var/lib/lull/history --keep 90d");
  if (const auto status = line.parse(argc, argv)) return *status;

  const auto wrong = [](const Error& error) {
    return complain(fmt::format("record: {}", error.message()), kExitUsage);
  };
  if (!settings.history.empty()) {
    if (!settings.output.empty()) return complain("record: --history or --output, not both", kExitUsage);
    if (!format.empty()) return complain("record: a history is .csv.zst: --format does not go with it", kExitUsage);
    if (!every_option.given()) every = "5s";
  }
  const auto keep_read = duration_option("--keep", keep);
  if (!keep_read) return wrong(keep_read.error());
  if (*keep_read < 24h) return complain("record: --keep must be at least 1d", kExitUsage);
  if (keep_option.given() && settings.history.empty())
    return complain("record: --keep is for a history: --history DIR", kExitUsage);
  settings.days_kept = static_cast<std::size_t>(*keep_read / 24h);
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
  constexpr std::array<std::string_view, 2> kFormats = {"csv", "ndjson"};
  if (!format.empty())
    if (const auto known = choice_option("--format", format, kFormats); !known) return wrong(known.error());
  if (settings.output == "-") settings.output.clear();
  const trace::Packing packing = trace::packing_by_name(settings.output);
  if (packing == trace::Packing::xz || packing == trace::Packing::bzip2)
    return complain(
        fmt::format("record: '{}': a trace is packed as .gz or .zst, as it is written; .xz and .bz2 are only read",
                    printable(settings.output)),
        kExitUsage);
  settings.layout.format = format.empty()       ? trace::format_by_name(settings.output)
                           : format == "ndjson" ? trace::Format::ndjson
                                                : trace::Format::csv;
  const auto known = Settings::load();
  if (!known) return complain(known.error().message(), kExitUsage);
  const auto sources = signals_with(known->signals(), signal_from);
  if (!sources) return wrong(sources.error());
  std::vector<Metric> own;
  for (const SignalSource& source : *sources) own.push_back(source.metric);
  if (const auto read = trace::choose_signals(signals, settings.layout, own); !read) return wrong(read.error());
  settings.signals = sources_of(*sources, settings.layout.metrics);
  if (no_who) settings.layout.who = false;
  return record(std::move(settings));
}

}  // namespace lull
