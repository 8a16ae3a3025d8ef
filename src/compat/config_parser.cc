#include "compat/config_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "base/try.h"

namespace lull {
namespace {

constexpr std::string_view kDefaultSection = "DEFAULT";
constexpr int kDeepest = 10;                                        // references within references, as in Python
constexpr std::size_t kConfigParserLongest = std::size_t{1} << 20;  // they may double at every step
constexpr std::string_view kBlanks = " \t\n\r\f\v";

std::string_view stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string_view stripped_behind(std::string_view text) { return text.substr(0, text.find_last_not_of(kBlanks) + 1); }

std::unexpected<Error> at_line(std::size_t line, const std::string& what) {
  return fail(fmt::format("line {}: {}", line, what));
}

// "[name]" and whatever follows it; the name goes up to the last bracket, as in Python.
std::optional<std::string_view> header_in(std::string_view line) {
  if (!line.starts_with('[')) return std::nullopt;
  const std::size_t end = line.rfind(']');
  if (end == std::string_view::npos || end < 2) return std::nullopt;
  return line.substr(1, end - 1);
}

}  // namespace

// Goes through the lines; a value collects those that continue it.
class ConfigParser::Reader {
 public:
  explicit Reader(ConfigParser& into) : into_(into) {}

  Result<> line(std::string_view raw, std::size_t number) {
    const std::string_view text = stripped(raw);
    const bool comment = text.starts_with('#') || text.starts_with(';');
    if (text.empty() || comment) {
      if (!comment && value_ != nullptr) parts_.emplace_back();  // may stand inside a value
      return {};
    }
    const std::size_t indent = raw.find_first_not_of(kBlanks);
    if (section_ != nullptr && value_ != nullptr && indent > indent_) {
      parts_.emplace_back(text);
      return {};
    }
    indent_ = indent;
    if (const auto header = header_in(text)) return begin_section(*header, number);
    if (section_ == nullptr) return at_line(number, fmt::format("'{}' is before the first [section]", printable(text)));
    return begin_value(text, number);
  }

  void finish_value() {
    if (value_ == nullptr) return;
    std::string joined = fmt::format("{}", fmt::join(parts_, "\n"));
    joined.resize(stripped_behind(joined).size());
    value_->text = std::move(joined);
    value_ = nullptr;
    parts_.clear();
  }

 private:
  Result<> begin_section(std::string_view name, std::size_t number) {
    finish_value();
    if (name == kDefaultSection) {
      section_ = &into_.defaults_;
      return {};
    }
    if (const Section* before = into_.find(name))
      return at_line(number, fmt::format("section [{}] is there already, in line {}", printable(name), before->line));
    into_.sections_.push_back({std::string(name), number, {}});
    section_ = &into_.sections_.back();
    return {};
  }

  Result<> begin_value(std::string_view text, std::size_t number) {
    finish_value();
    const std::size_t delimiter = text.find_first_of("=:");
    const std::string key = lowered(stripped_behind(text.substr(0, delimiter)));
    if (delimiter == std::string_view::npos || key.empty())
      return at_line(number, fmt::format("'{}' is neither [section] nor key=value", printable(text)));
    const auto [place, is_new] = section_->values.try_emplace(key, Value{{}, number});
    if (!is_new)
      return at_line(number, fmt::format("'{}' is there already, in line {}", printable(key), place->second.line));
    value_ = &place->second;
    parts_.emplace_back(stripped(text.substr(delimiter + 1)));
    return {};
  }

  ConfigParser& into_;
  Section* section_ = nullptr;
  Value* value_ = nullptr;
  std::vector<std::string> parts_;
  std::size_t indent_ = 0;
};

Result<ConfigParser> ConfigParser::parse(std::string_view text) {
  ConfigParser parser;
  Reader reader(parser);
  std::size_t number = 0;
  while (!text.empty()) {
    // Python's universal newlines: \n, \r and \r\n end a line.
    const std::size_t end = text.find_first_of("\r\n");
    TRY(reader.line(text.substr(0, end), ++number));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + (text.substr(end).starts_with("\r\n") ? 2 : 1));
  }
  reader.finish_value();
  return parser;
}

std::vector<std::string> ConfigParser::sections() const {
  std::vector<std::string> names;
  for (const Section& section : sections_) names.push_back(section.name);
  return names;
}

const ConfigParser::Section* ConfigParser::find(std::string_view section) const {
  const auto found = std::ranges::find(sections_, section, &Section::name);
  return found == sections_.end() ? nullptr : &*found;
}

const ConfigParser::Value* ConfigParser::value_of(std::string_view section, std::string_view key) const {
  const std::string wanted = lowered(key);
  if (const Section* own = find(section))
    if (const auto found = own->values.find(wanted); found != own->values.end()) return &found->second;
  const auto inherited = defaults_.values.find(wanted);
  return inherited == defaults_.values.end() ? nullptr : &inherited->second;
}

bool ConfigParser::has(std::string_view section, std::string_view key) const {
  return find(section) != nullptr && value_of(section, key) != nullptr;
}

std::size_t ConfigParser::line_of(std::string_view section, std::string_view key) const {
  const Section* own = find(section);
  if (own == nullptr) return 0;
  const Value* value = key.empty() ? nullptr : value_of(section, key);
  return value != nullptr ? value->line : own->line;
}

Result<std::string> ConfigParser::get(std::string_view section, std::string_view key) const {
  const Section* own = find(section);
  if (own == nullptr) return fail(fmt::format("there is no section [{}]", section));
  const Value* value = value_of(section, key);
  if (value == nullptr) return at_line(own->line, fmt::format("section [{}] lacks '{}'", printable(section), key));
  return filled_in(section, key, value->text, 1);
}

Result<std::string> ConfigParser::filled_in(std::string_view section, std::string_view key, std::string_view text,
                                            int depth) const {
  const auto wrong = [&](const std::string& what) {
    return at_line(line_of(section, key), fmt::format("'{}': {}", printable(key), what));
  };
  if (depth > kDeepest) return wrong("its references go round in circles");
  std::string result;
  while (!text.empty()) {
    const std::size_t percent = text.find('%');
    result += text.substr(0, percent);
    if (percent == std::string_view::npos) break;
    text.remove_prefix(percent);
    if (text.starts_with("%%")) {
      result += '%';
      text.remove_prefix(2);
      continue;
    }
    const std::size_t end = text.find(')');
    if (!text.starts_with("%(") || end == std::string_view::npos || end < 3 || !text.substr(end).starts_with(")s"))
      return wrong("a '%' must be written as '%%'");
    const std::string_view name = text.substr(2, end - 2);
    const Value* other = value_of(section, name);
    if (other == nullptr) return wrong(fmt::format("it refers to '{}', which is not there", printable(name)));
    result += other->text.contains('%') ? TRY(filled_in(section, key, other->text, depth + 1)) : other->text;
    if (result.size() > kConfigParserLongest) return wrong("its references make it too long");
    text.remove_prefix(end + 2);
  }
  return result;
}

}  // namespace lull
