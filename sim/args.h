#pragma once
// Reads the words of a `lull sim …` command line from left to right. The order
// matters here (each --then begins a new phase that the next --for belongs to),
// which is why this is a cursor and not a table of options.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull::sim {

class Args {
 public:
  Args(int argc, char** argv) : words_(argv + (argc > 0 ? 1 : 0), argv + argc) {}

  bool more() const { return next_ < words_.size(); }
  std::string_view peek() const { return words_[next_]; }
  std::string_view take() { return words_[next_++]; }
  bool at_option() const { return more() && peek().size() > 1 && peek().front() == '-'; }

  // True, and past it, if the next word is one of these.
  bool flag(std::string_view name, std::string_view short_name = "");

  // The value of `--name VALUE` or `--name=VALUE` if that is next; nothing if it is not.
  // A missing value is an error that says what it should be ("a number of GPUs, such as 4").
  std::optional<Result<std::string_view>> option(std::string_view name, std::string_view what);

  // What is left, verbatim.
  std::vector<std::string> rest();

 private:
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
};

// "'--gpu' is not an option of lull sim; did you mean '--gpus'?"
std::string unknown_option(std::string_view word, std::string_view command,
                           std::initializer_list<std::string_view> known);

}  // namespace lull::sim
