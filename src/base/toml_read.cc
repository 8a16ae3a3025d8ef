#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/toml.h"
#include "base/units.h"

namespace lull::toml {

std::unexpected<Error> Reader::refuse(const Node& node, std::string_view what) const {
  return fail(fmt::format("{}:{}:{}: {}", printable(name_), std::max(node.line, 1U), std::max(node.column, 1U), what));
}

Result<> Reader::known(const Node& table, std::string_view where, std::span<const std::string_view> names) const {
  TRY(expect(table, Node::Kind::table, where, "a table"));
  for (const auto& [key, node, line, column] : table.members) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    const std::string hint = did_you_mean(key, names);
    return refuse(node, fmt::format("'{}' means nothing{}{}{}", printable(key), where.empty() ? " here" : " in ", where,
                                    hint.empty() ? fmt::format(": it may have {}", fmt::join(names, ", ")) : hint));
  }
  return {};
}

Result<> Reader::expect(const Node& node, Node::Kind kind, std::string_view key, std::string_view right) const {
  if (node.kind == kind) return {};
  return refuse(node, fmt::format("{} is {}: {} would be right", key, node.kind_name(), right));
}

Result<std::string> Reader::text(const Node& node, std::string_view key) const {
  TRY(expect(node, Node::Kind::text, key, "a text in quotes"));
  if (node.text.find('\0') != std::string::npos || node.text.size() > 4096)
    return refuse(node, fmt::format("{} is too long or has a zero byte in it", key));
  return node.text;
}

Result<bool> Reader::truth(const Node& node, std::string_view key) const {
  TRY(expect(node, Node::Kind::boolean, key, "true or false"));
  return node.truth;
}

Result<double> Reader::number(const Node& node, std::string_view key, double low, double high) const {
  TRY(expect(node, Node::Kind::number, key, fmt::format("a number from {:g} to {:g}", low, high)));
  if (!(node.number >= low && node.number <= high))
    return refuse(node, fmt::format("{} is {:g}: {:g} to {:g} would be right", key, node.number, low, high));
  return node.number;
}

Result<Duration> Reader::duration(const Node& node, std::string_view key) const {
  if (node.kind == Node::Kind::number) {
    constexpr double kTooLong = 4e9;  // seconds: more than a century
    return Duration(std::llround(TRY(number(node, key, 0, kTooLong)) * 1e9));
  }
  TRY(expect(node, Node::Kind::text, key, "a duration such as \"10s\""));
  const auto parsed = parse_duration(node.text);
  if (!parsed) return refuse(node, fmt::format("{} = {}", key, parsed.error().what));
  return *parsed;
}

Result<std::uint64_t> Reader::size(const Node& node, std::string_view key) const {
  constexpr double kTooMuch = 1e18;
  if (node.kind == Node::Kind::number) return static_cast<std::uint64_t>(TRY(number(node, key, 0, kTooMuch)));
  TRY(expect(node, Node::Kind::text, key, "a size such as \"8GiB\""));
  const auto parsed = parse_size(node.text);
  if (!parsed) return refuse(node, fmt::format("{} = {}", key, parsed.error().what));
  return *parsed;
}

Result<std::span<const Node>> Reader::tables(const Node& root, std::string_view key) const {
  const Node* node = root.find(key);
  if (node == nullptr) return std::span<const Node>();
  TRY(expect(*node, Node::Kind::list, key, fmt::format("tables with double brackets, [[{}]],", key)));
  for (const Node& entry : node->list) TRY(expect(entry, Node::Kind::table, key, fmt::format("a table, [[{}]],", key)));
  return std::span<const Node>(node->list);
}

}  // namespace lull::toml
