#include "sim/scenario_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "sim/trace_csv.h"

namespace lull::sim {
namespace {

bool hex(std::string_view text) { return text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos; }

bool lengths(std::string_view text, char separator, std::initializer_list<std::size_t> wanted) {
  const auto parts = split(text, separator);
  return parts.size() == wanted.size() &&
         std::equal(parts.begin(), parts.end(), wanted.begin(),
                    [](std::string_view part, std::size_t size) { return part.size() == size && hex(part); });
}

}  // namespace

std::unexpected<Error> Reader::refuse(const Node& node, std::string_view what) const {
  return fail(fmt::format("{}:{}:{}: {}", printable(name_), std::max(node.line, 1U), std::max(node.column, 1U), what));
}

Result<> Reader::known(const Node& table, std::string_view where, std::span<const std::string_view> names) const {
  TRY(expect(table, Node::Kind::table, where, "a table"));
  for (const auto& [key, node] : table.members) {
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

Result<double> Reader::value(const Node& node, const ValueInfo& info) const {
  if (node.kind == Node::Kind::text) {
    const auto parsed = parse_value(info, node.text);
    if (!parsed) return refuse(node, parsed.error().what);
    return *parsed;
  }
  if (node.kind == Node::Kind::boolean && info.unit == ValueUnit::none && info.high == 1) return node.truth ? 1 : 0;
  TRY(expect(node, Node::Kind::number, info.name, fmt::format("a number or a text such as \"{}\"", info.example)));
  if (const auto checked = check_value(info, node.number); !checked) return refuse(node, checked.error().what);
  return node.number;
}

Result<std::vector<std::size_t>> Reader::gpus(const Node& node, std::size_t count) const {
  std::string text;
  const auto add = [&](const Node& one) -> Result<> {
    if (one.kind != Node::Kind::number || !one.whole || one.number < 0 || one.number >= 1e6)
      return refuse(one, "gpu is a number such as 0, a list such as [0, 2], or \"all\"");
    text += fmt::format("{}{:.0f}", text.empty() ? "" : ",", one.number);
    return {};
  };
  if (node.kind == Node::Kind::text) {
    text = node.text;
  } else if (node.kind == Node::Kind::list) {
    for (const Node& one : node.list) TRY(add(one));
  } else {
    TRY(add(node));
  }
  auto list = parse_gpu_list(text, count);
  if (!list) return refuse(node, list.error().what);
  return *std::move(list);
}

Result<std::string> Reader::uuid(const Node& node) const {
  std::string uuid = TRY(text(node, "uuid"));
  if (!uuid.starts_with("GPU-") || !lengths(std::string_view(uuid).substr(4), '-', {8, 4, 4, 4, 12}))
    return refuse(node, "a uuid looks like \"GPU-5c6a4ad0-9d8a-4d17-8f0e-1d0b6a3f2b11\"");
  return uuid;
}

Result<std::string> Reader::pci(const Node& node) const {
  std::string address = TRY(text(node, "pci"));
  if (address.size() == 7) address.insert(0, "0000:");
  const auto point = address.find('.');
  if (point == std::string::npos || !lengths(std::string_view(address).substr(point + 1), ' ', {1}) ||
      !(lengths(std::string_view(address).substr(0, point), ':', {4, 2, 2}) ||
        lengths(std::string_view(address).substr(0, point), ':', {8, 2, 2})))
    return refuse(node, "a pci address looks like \"0000:17:00.0\"");
  return address;
}

Result<std::string> Reader::function(const Node& node) const {
  auto name = parse_function(TRY(text(node, "function")));
  if (!name) return refuse(node, name.error().what);
  return *std::move(name);
}

Result<std::span<const Node>> Reader::tables(const Node& root, std::string_view key) const {
  const Node* node = root.find(key);
  if (node == nullptr) return std::span<const Node>();
  TRY(expect(*node, Node::Kind::list, key, fmt::format("tables with double brackets, [[{}]],", key)));
  for (const Node& entry : node->list) TRY(expect(entry, Node::Kind::table, key, fmt::format("a table, [[{}]],", key)));
  return std::span<const Node>(node->list);
}

Result<> Reader::trace(const Node& file, const Node* of, std::size_t nth, GpuSpec& gpu) const {
  const std::string path = TRY(text(file, "trace"));
  std::size_t first = 0;
  if (of != nullptr) first = static_cast<std::size_t>(TRY(number(*of, "trace_gpu", 0, 4096)));
  const auto bytes = read_(path);
  if (!bytes) return refuse(file, "the trace cannot be read: " + bytes.error().message());
  auto points = read_trace_csv(*bytes, path, first + nth);
  if (!points) return refuse(file, points.error().what);
  gpu.timeline.insert(gpu.timeline.end(), points->begin(), points->end());
  return {};
}

}  // namespace lull::sim
