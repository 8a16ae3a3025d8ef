// `lull record`: readings of the GPUs as a trace, until told to stop.

#include <fmt/format.h>

#include <csignal>
#include <string>

#include "base/clock.h"
#include "base/option_value.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "session/machine.h"
#include "session/trace_session.h"

namespace lull {
namespace {

using std::chrono_literals::operator""ms;

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
  std::string length;
  std::string format;
  std::string signals;
  bool no_who = false;
  TraceSettings settings;
  line.option("--every", every, "time between two samples").value("DURATION");
  line.option("--for", length, "stop after this long (default: on Ctrl-C)").value("DURATION");
  line.option("-o,--output", settings.output,
              "the file to write, or to append to; .gz and .zst are compressed (default: standard output)")
      .value("FILE");
  line.option("--format", format, "csv or ndjson (default: by the file's name, else csv)").value("FORMAT");
  line.option("--gpus", settings.gpus, "only these: 0,2 or 0-3, UUIDs, 3:1 for a MIG device (default: all)")
      .value("LIST")
      .not_empty("0,2");
  line.option("--signals", signals, "only these, such as util,power,who (default: all that are cheap to read, and who)")
      .value("LIST");
  line.flag("--no-who", no_who, "leave out who has the GPUs: host, users, pids, command, lease, job");
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
  const trace::Packing packing = trace::packing_by_name(settings.output);
  if (packing == trace::Packing::xz || packing == trace::Packing::bzip2)
    return complain(
        fmt::format("record: '{}': a trace is packed as .gz or .zst, as it is written; .xz and .bz2 are only read",
                    printable(settings.output)),
        kExitUsage);
  settings.layout.format = format.empty()       ? trace::format_by_name(settings.output)
                           : format == "ndjson" ? trace::Format::ndjson
                                                : trace::Format::csv;
  if (const auto read = trace::choose_signals(signals, settings.layout); !read) return wrong(read.error());
  if (no_who) settings.layout.who = false;
  return record(std::move(settings));
}

}  // namespace lull
