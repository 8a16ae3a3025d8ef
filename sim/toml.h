#pragma once
// A TOML document as plain values that remember where they stood, so that every
// complaint about one can name its line and column. toml++ itself stays in toml.cc.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull::sim {

struct Member;

struct Node {
  enum class Kind : std::uint8_t { text, number, boolean, list, table, other };
  Kind kind = Kind::other;
  std::string text;  // of a text
  double number = 0;
  bool whole = false;  // a number written without a point
  bool truth = false;
  std::vector<Node> list;
  std::vector<Member> members;  // of a table, in the order of their names
  std::uint32_t line = 0;
  std::uint32_t column = 0;

  const Node* find(std::string_view name) const;
  std::string_view kind_name() const;  // "a text", "a list"
};

struct Member {
  std::string name;
  Node value;
};

// `name` is what a complaint calls the document: "night.toml:3:7: …".
Result<Node> parse_toml(std::string_view text, std::string_view name);

}  // namespace lull::sim
