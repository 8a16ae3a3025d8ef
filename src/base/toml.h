#pragma once
// A TOML document as plain values that remember where they stood, so that every complaint about one can name its line
// and column; and a reader that takes typed values out of it, or says what was there and what would be right. toml++
// itself stays in toml.cc.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace lull::toml {

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
  std::uint32_t line = 0;  // of the name
  std::uint32_t column = 0;
};

// `name` is what a complaint calls the document: "night.toml:3:7: …".
Result<Node> parse(std::string_view text, std::string_view name);

class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  // "night.toml:3:7: " and what is wrong there.
  std::unexpected<Error> refuse(const Node& node, std::string_view what) const;

  // Every member of `table` has one of these names.
  Result<> known(const Node& table, std::string_view where, std::span<const std::string_view> names) const;
  Result<> known(const Node& table, std::string_view where, std::initializer_list<std::string_view> names) const {
    return known(table, where, std::span(names.begin(), names.size()));
  }
  Result<> expect(const Node& node, Node::Kind kind, std::string_view key, std::string_view right) const;

  Result<std::string> text(const Node& node, std::string_view key) const;
  Result<bool> truth(const Node& node, std::string_view key) const;
  Result<double> number(const Node& node, std::string_view key, double low, double high) const;
  Result<Duration> duration(const Node& node, std::string_view key) const;             // "10s" or 0
  Result<std::uint64_t> size(const Node& node, std::string_view key) const;            // "8GiB" or 0
  Result<std::span<const Node>> tables(const Node& root, std::string_view key) const;  // [[key]]

 protected:
  std::string_view name_;
};

}  // namespace lull::toml
