#pragma once
// What `lull replay` and `lull report` share: the traces that they read, how far they have come, and where the answer
// goes.

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/options.h"
#include "trace/reader.h"
#include "view/progress_bar.h"

namespace lull {

struct TraceArguments {
  std::vector<std::string> traces;
  std::string gap;
  std::string every;
  std::string price;
  std::string columns;
  std::string html;
  unsigned threads = 0;
  bool json = false;
  bool csv = false;
};

void describe_traces(CommandLine& line, TraceArguments& arguments);   // TRACE
void describe_price(CommandLine& line, TraceArguments& arguments);    // --price
void describe_threads(CommandLine& line, TraceArguments& arguments);  // --threads

// A bar on the terminal while a trace is read.
class ReadingProgress {
 public:
  ReadingProgress() : bar_(clock_.now()) {}
  std::function<void(double part)> shown();  // nothing where nobody would see it
  void clear();

 private:
  SystemClock clock_;
  ProgressBar bar_;
};

// What was odd about the trace, the page where one was asked for, and the text: the exit status.
int give_answer(const TraceArguments& arguments, const std::function<std::string()>& page, const std::string& text);
void say_oddities(const trace::TraceReport& report);

}  // namespace lull
