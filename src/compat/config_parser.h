#pragma once
// An INI file as Python's configparser.ConfigParser reads it, so that a predecessor's configuration means what it
// meant:
// `=` or `:`, comments on lines of their own, keys in any case, [DEFAULT] inherited, values that go on on indented
// lines, `%(name)s` and `%%`. What it refuses (a key or a section twice, a line that is neither) is refused here, with
// the line.
//
// No library of Debian reads this dialect. config_parser_test.cc holds it against Python's own on random files.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

class ConfigParser {
 public:
  static Result<ConfigParser> parse(std::string_view text);

  // All but [DEFAULT], in the order of the file.
  std::vector<std::string> sections() const;
  bool has(std::string_view section, std::string_view key) const;
  // The value with what it refers to put in. An error: there is none, or it refers to what is not there.
  Result<std::string> get(std::string_view section, std::string_view key) const;
  // Where it stands, for complaints; 0: nowhere.
  std::size_t line_of(std::string_view section, std::string_view key = {}) const;

 private:
  struct Value {
    std::string text;
    std::size_t line = 0;
  };
  struct Section {
    std::string name;
    std::size_t line = 0;
    std::map<std::string, Value, std::less<>> values;
  };
  class Reader;

  const Section* find(std::string_view section) const;
  const Value* value_of(std::string_view section, std::string_view key) const;
  Result<std::string> filled_in(std::string_view section, std::string_view key, std::string_view text, int depth) const;

  Section defaults_;
  std::vector<Section> sections_;
};

}  // namespace lull
