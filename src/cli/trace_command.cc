#include "cli/trace_command.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "config/settings.h"

namespace lull {

void describe_traces(CommandLine& line, TraceArguments& arguments) {
  line.arguments("TRACE", arguments.traces, "files to read; - is standard input").required().value("TRACE");
}

void describe_price(CommandLine& line, TraceArguments& arguments) {
  if (const auto known = Settings::load()) arguments.price = known->text(Setting::price);
  line.option("--price", arguments.price, "what an hour of a GPU costs", arguments.price.empty() ? "none" : "")
      .value("MONEY");
}

void describe_threads(CommandLine& line, TraceArguments& arguments) {
  line.option("--threads", arguments.threads, "how many cores to use, 8 at most; 0: all").value("N");
}

std::function<void(double part)> ReadingProgress::shown() {
  if (::isatty(STDERR_FILENO) != 1) return nullptr;
  return [this](double part) { (void)write_all(STDERR_FILENO, bar_.draw(part, clock_.now())); };
}

void ReadingProgress::clear() { (void)write_all(STDERR_FILENO, bar_.clear()); }

void say_oddities(const trace::TraceReport& report) {
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
