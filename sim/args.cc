#include "sim/args.h"

#include <fmt/format.h>

#include "base/text.h"

namespace lull::sim {

bool Args::flag(std::string_view name, std::string_view short_name) {
  if (!more() || (peek() != name && (short_name.empty() || peek() != short_name))) return false;
  ++next_;
  return true;
}

std::optional<Result<std::string_view>> Args::option(std::string_view name, std::string_view what) {
  if (!more()) return std::nullopt;
  const std::string_view word = peek();
  if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
    ++next_;
    return word.substr(name.size() + 1);
  }
  if (word != name) return std::nullopt;
  ++next_;
  if (!more() || peek() == "--") return fail(fmt::format("{} needs {}", name, what));
  return take();
}

std::vector<std::string> Args::rest() {
  std::vector<std::string> out;
  while (more()) out.emplace_back(take());
  return out;
}

std::string unknown_option(std::string_view word, std::string_view command,
                           std::initializer_list<std::string_view> known) {
  const std::string_view name = word.substr(0, word.find('='));
  const std::string hint = did_you_mean(name, std::span(known.begin(), known.size()));
  return fmt::format("'{}' is not an option of lull {}{}", printable(name), command,
                     hint.empty() ? fmt::format("; `lull {} --help` lists them", command) : hint);
}

}  // namespace lull::sim
