#pragma once
// What the terminal (or pipe, or file) behind a descriptor can show, from the
// terminal itself and from the environment.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "view/columns.h"

namespace lull {

Screen screen_of(int fd);

// What `--help` says, laid out for a terminal: sentences and descriptions are broken where the screen ends.
struct HelpRow {
  std::string name;  // "-o,--output FILE"
  std::string text;
};

struct Help {
  std::string about;
  std::string usage;  // "lull status [options]"
  std::vector<HelpRow> arguments;
  std::vector<HelpRow> options;
  std::string more;  // below the options: exit status, examples
};

std::string help_text(const Help& help, std::size_t width);

// Sentences over several lines, set anew. Lines that begin with a blank are a list: one whose text stands two blanks
// or more behind its name goes on below that text, any other (an example to copy) is left as it is.
std::string set_paragraphs(std::string_view text, std::size_t width);

// As wide as people read well: the screen's width, 100 at most, and 80 if it is not a screen.
std::size_t help_width(int fd);

// A bar on the terminal for what takes longer than a second: what to write, when.
class ProgressBar {
 public:
  explicit ProgressBar(Instant start) : start_(start) {}

  // `part`: how much is done, 0 to 1. Empty: nothing yet, or it stands there already.
  std::string draw(double part, Instant now);
  std::string clear() const { return shown_ ? "\r\033[K" : ""; }

 private:
  Instant start_;
  Instant drawn_{};
  bool shown_ = false;
};

}  // namespace lull
