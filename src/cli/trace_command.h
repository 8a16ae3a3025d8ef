#pragma once
// What `lull replay` and `lull report` share: the traces that they read, how far they have come, and where the answer
// goes.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/command.h"
#include "cli/options.h"
#include "config/settings.h"
#include "replay/trace_options.h"
#include "trace/reader.h"
#include "view/screen.h"

namespace lull {

struct TraceArguments : replay::TraceCommandOptions {
  std::vector<std::string> signal_from;
  std::string price;
  std::string html;
  bool json = false;
  bool csv = false;
};

void describe_traces(CommandLine& line, TraceArguments& arguments);      // TRACE, --last, --from, --to
void describe_prometheus(CommandLine& line, TraceArguments& arguments);  // what is asked of prometheus:URL
void describe_idle(CommandLine& line, std::string& idle);                // --idle, by default the rule of `lull run`
void describe_signals(CommandLine& line, TraceArguments& arguments);     // --signal-from
// The settings, with these signals' names known to rules; the recording has their values.
Result<Settings> settings_with(const TraceArguments& arguments);
void describe_price(CommandLine& line, TraceArguments& arguments);    // --price
void describe_threads(CommandLine& line, TraceArguments& arguments);  // --threads

// A bar on the terminal while a trace is read.
class ReadingProgress {
 public:
  ReadingProgress() : bar_(clock_.now()) {}
  std::function<void(double part)> shown();  // nothing if stderr is not a terminal
  void clear();

 private:
  SystemClock clock_;
  ProgressBar bar_;
};

// The page where one was asked for, and the text: the exit status.
int give_answer(const TraceArguments& arguments, const std::function<std::string()>& page, const std::string& text);
void warn_of_oddities(const trace::TraceReport& report);

// From the words to the answer: `read` makes a result of the traces, `show` gives it. The exit status.
template <typename Options, typename Answer>
int answer_from_traces(std::string_view command, const TraceArguments& arguments, Result<Options> options,
                       Result<Answer> (*read)(Options),
                       const std::function<int(const Answer&, std::optional<double> price)>& show) {
  const auto wrong = [&](const Error& error) {
    return complain(std::string(command) + ": " + error.message(), kExitUsage);
  };
  if (!options) return wrong(options.error());
  const auto price = replay::read_price(arguments.price);
  if (!price) return wrong(price.error());
  if (const auto apart = replay::check_outputs(arguments.traces, arguments.html); !apart) return wrong(apart.error());
  ReadingProgress progress;
  options->progress = progress.shown();
  if (options->prometheus)
    options->prometheus->note = [&](const std::string& text) {
      progress.clear();
      complain(text);
    };
  const auto result = read(*std::move(options));
  progress.clear();
  if (!result) return complain(result.error().message());
  warn_of_oddities(result->trace);
  return show(*result, *price);
}

}  // namespace lull
