#include "compat/argparse.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/calendar.h"
#include "base/exit_status.h"
#include "base/text.h"

namespace lull {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// -5 and -.5, as argparse knows them: not -1e3, nor -inf.
bool is_negative_number(std::string_view word) {
  if (!word.starts_with('-')) return false;
  word.remove_prefix(1);
  const std::size_t point = word.find('.');
  const std::string_view last = point == std::string_view::npos ? word : word.substr(point + 1);
  return !last.empty() && std::ranges::all_of(last, is_digit) &&
         std::ranges::all_of(word.substr(0, std::min(point, word.size())), is_digit);
}

// What begins with a dash is an option, unless it is a number or has a blank in it: no option of ours looks like that.
bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-' && !is_negative_number(word) &&
         word.find(' ') == std::string_view::npos;
}

bool is_of(Value value, std::string_view text) {
  switch (value) {
    case Value::text: return true;
    case Value::integer: return python_int(text).has_value();
    case Value::fraction: return std::isfinite(python_float(text).value_or(std::numeric_limits<double>::infinity()));
    case Value::real: return python_float(text).has_value();
  }
  return false;
}

// Without its blanks, its sign and its underscores, which may only stand between digits.
struct Unsigned {
  std::string text;
  bool negative = false;
};
std::optional<Unsigned> without_sign(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\f\v";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
  Unsigned number{.text = "", .negative = text.front() == '-'};
  if (text.front() == '-' || text.front() == '+') text.remove_prefix(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_')
      number.text += text[i];
    else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1]))
      return std::nullopt;
  }
  return number;
}

class Parser {
 public:
  Parser(std::span<const ArgparseOption> options, std::span<const std::string> words)
      : options_(options), words_(words) {}

  Result<ArgparseResult> parse(bool command) {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_];
      if ((command && !is_option(word)) || word == "--") break;
      ++next_;
      if (!is_option(word)) {
        unrecognized_.push_back(word);
        continue;
      }
      TRY(word.starts_with("--") ? long_option(word) : short_options(word));
      if (help_) return std::move(result_);
    }
    if (next_ < words_.size() && words_[next_] == "--") ++next_;
    const auto rest = words_.subspan(next_);
    (command ? result_.command : unrecognized_)
        .insert(command ? result_.command.end() : unrecognized_.end(), rest.begin(), rest.end());
    // Said last: a value of the wrong kind that comes after it is complained about first.
    if (!unrecognized_.empty())
      return fail(printable(fmt::format("unrecognized arguments: {}", fmt::join(unrecognized_, " "))));
    return std::move(result_);
  }

 private:
  Result<> long_option(std::string_view word) {
    const auto equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    std::vector<const ArgparseOption*> meant;
    std::vector<std::string> spelled;
    for (const ArgparseOption& option : options_) {
      if (std::ranges::count(option.names, name) > 0 || std::ranges::count(option.aliases, name) > 0)
        return take(option, joined(word, equals));
      const auto fits = [&](std::string_view known) { return known.starts_with("--") && known.starts_with(name); };
      for (const std::string_view known : option.names)
        if (fits(known)) spelled.emplace_back(known);
      if (std::ranges::any_of(option.names, fits) || std::ranges::any_of(option.aliases, fits))
        meant.push_back(&option);
    }
    if (meant.empty()) return unrecognized(word);
    if (meant.size() > 1)
      return fail(fmt::format("ambiguous option: {} could match {}", printable(name), fmt::join(spelled, ", ")));
    return take(*meant.front(), joined(word, equals));
  }

  Result<> unrecognized(std::string_view word) {
    unrecognized_.emplace_back(word);
    return {};
  }

  static std::optional<std::string> joined(std::string_view word, std::size_t equals) {
    if (equals == std::string_view::npos) return std::nullopt;
    return std::string(word.substr(equals + 1));
  }

  Result<> short_options(std::string_view word) {
    const ArgparseOption* before = nullptr;
    for (std::string_view rest = word.substr(1); !rest.empty();) {
      const std::string name = fmt::format("-{}", rest.front());
      const auto found = std::ranges::find_if(options_, [&](const ArgparseOption& one) {
        return std::ranges::count(one.names, std::string_view(name)) > 0;
      });
      if (found == options_.end() && before != nullptr)
        return argparse_complaint(*before, fmt::format("ignored explicit argument '{}'", printable(rest)));
      if (found == options_.end()) return unrecognized(word);
      rest.remove_prefix(1);
      before = &*found;
      if (found->takes == Takes::nothing || found->takes == Takes::help) {
        TRY(take(*found, std::nullopt));
        continue;
      }
      if (rest.starts_with('=')) rest.remove_prefix(1);
      return take(*found, rest.empty() ? std::nullopt : std::optional(std::string(rest)));
    }
    return {};
  }

  Result<> take(const ArgparseOption& option, std::optional<std::string> value) {
    std::vector<std::string>& values = result_.values[option.key];
    values.clear();
    if (option.takes == Takes::nothing || option.takes == Takes::help) {
      help_ = help_ || option.takes == Takes::help;
      if (value) return argparse_complaint(option, fmt::format("ignored explicit argument '{}'", printable(*value)));
      return {};
    }
    if (value) {
      values.push_back(*std::move(value));
    } else {
      while (next_ < words_.size() && !is_option(words_[next_]) && (option.takes == Takes::many || values.empty()))
        values.push_back(words_[next_++]);
      if (option.takes == Takes::one && values.empty()) return argparse_complaint(option, "expected one argument");
    }
    // Each as it comes: a wrong one is complained about though a right one follows.
    for (const std::string& text : values) TRY(check(option, text));
    return {};
  }

  static Result<> check(const ArgparseOption& option, const std::string& text) {
    if (!is_of(option.value, text))
      return argparse_complaint(option, fmt::format("invalid {} value: '{}'",
                                                    option.value == Value::real ? "float" : "int", printable(text)));
    if (!option.choices.empty() && std::ranges::count(option.choices, text) == 0)
      return argparse_complaint(option, fmt::format("invalid choice: '{}' (choose from '{}')", printable(text),
                                                    fmt::join(option.choices, "', '")));
    return {};
  }

  std::span<const ArgparseOption> options_;
  std::span<const std::string> words_;
  std::size_t next_ = 0;
  bool help_ = false;
  std::vector<std::string> unrecognized_;
  ArgparseResult result_;
};

}  // namespace

std::string_view ArgparseResult::text(std::string_view key, std::string_view otherwise) const {
  const auto found = values.find(key);
  return found == values.end() || found->second.empty() ? otherwise : std::string_view(found->second.front());
}

Result<ArgparseResult> argparse(std::span<const ArgparseOption> options, std::span<const std::string> words,
                                bool command) {
  auto parsed = Parser(options, words).parse(command);
  if (!parsed) parsed.error().errno_value = kExitUsage;
  return parsed;
}

std::optional<std::int64_t> python_int(std::string_view text) {
  const auto number = without_sign(text);
  if (!number || number->text.empty() || !std::ranges::all_of(number->text, is_digit)) return std::nullopt;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto size = static_cast<std::int64_t>(std::min(kMost, to_unsigned(number->text).value_or(kMost)));
  return number->negative ? -size : size;
}

std::optional<double> python_float(std::string_view text) {
  const auto number = without_sign(text);
  if (!number) return std::nullopt;
  const double sign = number->negative ? -1 : 1;
  const std::string word = lowered(number->text);
  if (word == "inf" || word == "infinity") return sign * std::numeric_limits<double>::infinity();
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word.empty() || word.find_first_not_of("0123456789.e+-") != std::string::npos || word.front() == '-' ||
      word.front() == '+')
    return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (end != word.data() + word.size() || error == std::errc::invalid_argument) return std::nullopt;
  // Too large, or too small for any digit.
  if (error == std::errc::result_out_of_range) value = std::strtod(word.c_str(), nullptr);
  return sign * value;
}

std::string python_log_time(WallTime at) {
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(at.time_since_epoch()).count() % 1000;
  return fmt::format("{},{:03}", format_local(at, "%Y-%m-%d %H:%M:%S"), milliseconds);
}

std::unexpected<Error> argparse_complaint(const ArgparseOption& option, const std::string& what) {
  return std::unexpected(Error{fmt::format("argument {}: {}", fmt::join(option.names, "/"), what), kExitUsage});
}

}  // namespace lull
