#include "sim/toml.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_HEADER_ONLY 1
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "base/text.h"

namespace lull::sim {
namespace {

Node convert(const toml::node& from) {
  Node node;
  node.line = from.source().begin.line;
  node.column = from.source().begin.column;
  if (const auto* text = from.as_string()) {
    node.kind = Node::Kind::text;
    node.text = text->get();
  } else if (const auto* whole = from.as_integer()) {
    node.kind = Node::Kind::number;
    node.number = static_cast<double>(whole->get());
    node.whole = true;
  } else if (const auto* number = from.as_floating_point()) {
    node.kind = Node::Kind::number;
    node.number = number->get();
  } else if (const auto* truth = from.as_boolean()) {
    node.kind = Node::Kind::boolean;
    node.truth = truth->get();
  } else if (const auto* list = from.as_array()) {
    node.kind = Node::Kind::list;
    for (const toml::node& element : *list) node.list.push_back(convert(element));
  } else if (const auto* table = from.as_table()) {
    node.kind = Node::Kind::table;
    for (const auto& [key, value] : *table) node.members.emplace_back(std::string(key.str()), convert(value));
  }
  return node;
}

}  // namespace

const Node* Node::find(std::string_view name) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == name; });
  return found == members.end() ? nullptr : &found->second;
}

std::string_view Node::kind_name() const {
  switch (kind) {
    case Kind::text: return "a text";
    case Kind::number: return "a number";
    case Kind::boolean: return "true or false";
    case Kind::list: return "a list";
    case Kind::table: return "a table";
    case Kind::other: break;
  }
  return "a date or time";
}

Result<Node> parse_toml(std::string_view text, std::string_view name) {
  const toml::parse_result result = toml::parse(text);
  if (!result) {
    const auto& where = result.error().source().begin;
    return fail(fmt::format("{}:{}:{}: not TOML: {}", printable(name), where.line, where.column,
                            printable(result.error().description())));
  }
  return convert(result.table());
}

}  // namespace lull::sim
