#pragma once
// A command line as Python's argparse reads it, so that scripts written for a
// predecessor work unchanged: long options may be shortened as long as that is
// unambiguous, values may follow or be joined (-s5, --sample-freq=5), and with
// `command` everything from the first word that is not an option on belongs to the
// command. Complaints are argparse's own.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

inline constexpr int kExitValue = 1;  // the originals' status for a value that makes no sense

enum class Takes : unsigned char { nothing, help, one, many };  // help: what comes after it does not matter
// `integer` as Python's int() reads it, `real` as its float(). `fraction` is one that a predecessor calls an integer,
// where we take parts of it as well.
enum class Value : unsigned char { text, integer, fraction, real };

struct ArgparseOption {
  std::string_view key;                 // what the caller asks for
  std::vector<std::string_view> names;  // "-t", "--threshhold-percentage"
  Takes takes = Takes::one;
  Value value = Value::text;
  std::vector<std::string_view> aliases = {};  // taken as well, and not named in complaints
  std::vector<std::string_view> choices = {};  // empty: any
};

struct ArgparseResult {
  std::map<std::string_view, std::vector<std::string>> values;  // key → what was given last
  std::vector<std::string> command;

  bool has(std::string_view key) const { return values.contains(key); }
  std::string_view text(std::string_view key, std::string_view otherwise) const;
};

// With `command`: options end at the first other word. Without: other words are refused. The errno_value of an error,
// here and in the drop-ins, is the exit status: kExitUsage.
Result<ArgparseResult> argparse(std::span<const ArgparseOption> options, std::span<const std::string> words,
                                bool command);

// As Python's int() reads it: blanks around it, a sign, digits with single underscores between them. One that is too
// large for us is the largest.
std::optional<std::int64_t> python_int(std::string_view text);
// As its float() does: also 1e3, .5, inf and nan.
std::optional<double> python_float(std::string_view text);

// "2024-03-15 11:04:29,052", as its logging writes times.
std::string python_log_time(WallTime at);

// "argument -t/--threshhold-percentage: invalid int value: 'x'"
std::unexpected<Error> argparse_complaint(const ArgparseOption& option, const std::string& what);

}  // namespace lull
