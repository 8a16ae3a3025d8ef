#include "sim/scenario_read.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "sim/trace_csv.h"

namespace lull::sim {
namespace {

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

bool lengths(std::string_view text, char separator, std::initializer_list<std::size_t> wanted) {
  const auto parts = split(text, separator);
  return parts.size() == wanted.size() &&
         std::equal(parts.begin(), parts.end(), wanted.begin(),
                    [](std::string_view part, std::size_t size) { return part.size() == size && is_hex(part); });
}

}  // namespace

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

Result<std::vector<std::size_t>> Reader::gpus(const Node& node, const std::vector<Vendor>& vendors) const {
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
  auto list = parse_gpu_list(text, vendors);
  if (!list) return refuse(node, list.error().what);
  return *std::move(list);
}

Result<std::string> Reader::uuid(const Node& node, Vendor vendor) const {
  std::string uuid = TRY(text(node, "uuid"));
  if (vendor == Vendor::intel) return refuse(node, "Intel's GPUs have no uuid");
  if (vendor == Vendor::amd) {
    if (uuid.starts_with("GPU-") && lengths(std::string_view(uuid).substr(4), '-', {16})) return uuid;
    return refuse(node, "a uuid of AMD looks like \"GPU-5d1f000000000065\"");
  }
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
