#include "slurm/node_list.h"

#include <fmt/format.h>

#include "base/text.h"

namespace lull::slurm {
namespace {

std::unexpected<Error> wrong(std::string_view text) {
  return fail(fmt::format("'{}' is not a list of nodes", printable(text.substr(0, 200))));
}

bool is_name(std::string_view text) { return text.find_first_of(" \t\n[]") == std::string_view::npos; }

// At the commas that are in no bracket.
Result<std::vector<std::string_view>> split_names(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && !inside)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == ']') {
      if (inside == (text[i] == '[')) return wrong(text);
      inside = !inside;
    }
  }
  if (inside) return wrong(text);
  return parts;
}

// "1-3,07": with as many digits as the first of each range has.
Result<std::vector<std::string>> numbers_in(std::string_view ranges, std::string_view all) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split(ranges, ',')) {
    const std::size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const auto low = to_unsigned(first);
    const auto high = dash == std::string_view::npos ? low : to_unsigned(range.substr(dash + 1));
    if (!low || !high || *high < *low || *high - *low >= kMostNodes || first.size() > 18) return wrong(all);
    for (std::uint64_t n = *low; n <= *high; ++n) numbers.push_back(fmt::format("{:0{}}", n, first.size()));
    if (numbers.size() > kMostNodes) return wrong(all);
  }
  return numbers;
}

Result<> add_names(std::string_view pattern, std::string_view all, std::vector<std::string>& names) {
  std::vector<std::string> made = {""};
  while (!pattern.empty()) {
    const std::size_t open = pattern.find('[');
    const std::string_view plain = pattern.substr(0, open);
    if (!is_name(plain)) return wrong(all);
    for (std::string& one : made) one += plain;
    if (open == std::string_view::npos) break;
    const std::size_t close = pattern.find(']', open);
    const auto numbers = TRY(numbers_in(pattern.substr(open + 1, close - open - 1), all));
    if (made.size() * numbers.size() > kMostNodes) return wrong(all);
    std::vector<std::string> longer;
    for (const std::string& one : made)
      for (const std::string& number : numbers) longer.push_back(one + number);
    made = std::move(longer);
    pattern.remove_prefix(close + 1);
  }
  if (made.front().empty() || names.size() + made.size() > kMostNodes) return wrong(all);
  names.insert(names.end(), made.begin(), made.end());
  return {};
}

}  // namespace

Result<std::vector<std::string>> parse_node_list(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view part : TRY(split_names(text))) TRY(add_names(part, text, names));
  return names;
}

}  // namespace lull::slurm
