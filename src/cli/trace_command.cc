#include "cli/trace_command.h"

#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "cli/shared_options.h"
#include "gpu/own_signal.h"

namespace lull {

void describe_traces(CommandLine& line, TraceArguments& arguments) {
  line.arguments(
          "TRACE", arguments.traces,
          "files to read, or a folder of `lull record --history`; - is standard input, prometheus:URL a Prometheus")
      .required()
      .value("TRACE");
  line.option("--last", arguments.last, "only the time from so long ago until now (default: all)").value("TIME");
  line.option("--from", arguments.from, "only from this time on: a day, or a time of it (default: all)").value("TIME");
  line.option("--to", arguments.to, "only up to this time; a day counts to its end (default: all)").value("TIME");
}

void describe_prometheus(CommandLine& line, TraceArguments& arguments) {
  line.option(shared::kMatch, arguments.match, "Hostname=~\"gpu.*\"");
  line.option(shared::kLabels, arguments.labels, ", such as job=hpc_job,user=user (default: by its name)");
  line.option(shared::kTokenFile, arguments.token_file, "the bearer token of prometheus:URL");
  line.option("--save", arguments.save, "of prometheus:URL: keep what it answers, to be read again (default: none)")
      .value("FILE");
}

void describe_idle(CommandLine& line, std::string& idle) {
  const auto known = Settings::load();
  idle = known ? known->text(Setting::idle) : std::string(info(Setting::idle).otherwise);
  const Settings::NamedRule* named = known ? known->find_rule(idle) : nullptr;
  line.option(shared::kIdle, idle, std::string("that must hold") + shared::kIdleForms,
              named == nullptr ? "" : named->name + ": " + named->value.text);
}

void describe_signals(CommandLine& line, TraceArguments& arguments) {
  line.each("--signal-from", arguments.signal_from,
            "a signal of your own that a rule may name, which the recording has as signal_NAME, or --columns says "
            "where; its source is not asked (default: those of lull.toml)")
      .value("NAME[=SOURCE]");
}

Result<Settings> settings_with(const TraceArguments& arguments) {
  for (const std::string& text : arguments.signal_from) {
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) {
      TRY(parse_signal_from(text));
    } else if (const auto named = name_signal(text); !named) {
      return std::unexpected(Error(named.error()).during("--signal-from"));
    }
  }
  return Settings::load();
}

void describe_price(CommandLine& line, TraceArguments& arguments) {
  if (const auto known = Settings::load()) arguments.price = known->text(Setting::price);
  line.option(shared::kPrice, arguments.price, "", arguments.price.empty() ? "none" : "");
}

void describe_threads(CommandLine& line, TraceArguments& arguments) {
  line.option(shared::kThreads, arguments.threads);
}

std::function<void(double part)> ReadingProgress::shown() {
  if (::isatty(STDERR_FILENO) != 1) return nullptr;
  return [this](double part) { (void)write_all(STDERR_FILENO, bar_.draw(part, clock_.now())); };
}

void ReadingProgress::clear() { (void)write_all(STDERR_FILENO, bar_.clear()); }

void warn_of_oddities(const trace::TraceReport& report) {
  for (const std::string& line : trace::oddities(report)) complain(line);
}

int give_answer(const TraceArguments& arguments, const std::function<std::string()>& page, const std::string& text) {
  if (!arguments.html.empty())
    if (auto written = replay::write_page(arguments.html, page()); !written) return complain(written.error().message());
  if (auto written = write_all(STDOUT_FILENO, text); !written && written.error().errno_value != EPIPE)
    return complain(std::move(written).error().during("standard output").message());
  return 0;
}

}  // namespace lull
