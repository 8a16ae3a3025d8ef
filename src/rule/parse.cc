// Text -> rule tree, by recursive descent of limited depth.
//
//   chain      = condition { ("and" | "or") condition | "for" SPAN }
//   condition  = "not" condition | "(" chain ")" | ("all" | "any") "(" chain ")" | comparison
//   comparison = value ("<" | "<=" | ">" | ">=" | "==" | "!=") limit
//   limit      = QUANTITY | "idle" [("+" | "-") QUANTITY]
//   value      = over "(" series ")" | series
//   series     = SIGNAL | "mean" "(" SIGNAL "," SPAN ")"
//   over       = "all" | "any" | "mean" | "max" | "min"
//
// A "for" covers all that stands before it, back to the "for" before it or the opening
// parenthesis. What it does not cover is joined as usual: "and" binds tighter than "or".

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "gpu/own_signal.h"
#include "rule/lexer.h"
#include "rule/quantity.h"
#include "rule/rule.h"

namespace lull {
namespace {

constexpr std::array kOvers = {Over::all, Over::any, Over::mean, Over::max, Over::min};
constexpr std::array kCompares = {Compare::below,    Compare::at_most, Compare::above,
                                  Compare::at_least, Compare::equal,   Compare::unequal};

struct Slip {
  std::string_view written;
  std::string_view meant;
};
constexpr std::array kSlips = {Slip{"=", "=="},  Slip{"=<", "<="}, Slip{"=>", ">="},  Slip{"<>", "!="},
                               Slip{"=!", "!="}, Slip{"!", "not"}, Slip{"&&", "and"}, Slip{"||", "or"},
                               Slip{"&", "and"}, Slip{"|", "or"}};

// What other tools call it.
constexpr std::array kSynonyms = {Slip{"gpu", "util"},
                                  Slip{"gpu_util", "util"},
                                  Slip{"gpu_utilization", "util"},
                                  Slip{"utilization", "util"},
                                  Slip{"utilisation", "util"},
                                  Slip{"usage", "util"},
                                  Slip{"load", "util"},
                                  Slip{"sm", "util"},
                                  Slip{"busy", "util"},
                                  Slip{"mem", "mem_used"},
                                  Slip{"memory", "mem_used"},
                                  Slip{"vram", "mem_used"},
                                  Slip{"memory_used", "mem_used"},
                                  Slip{"used", "mem_used"},
                                  Slip{"free", "mem_free"},
                                  Slip{"memory_free", "mem_free"},
                                  Slip{"watts", "power"},
                                  Slip{"watt", "power"},
                                  Slip{"power_draw", "power"},
                                  Slip{"temperature", "temp"},
                                  Slip{"processes", "procs"},
                                  Slip{"process", "procs"},
                                  Slip{"apps", "procs"},
                                  Slip{"disk", "io"},
                                  Slip{"average", "mean"},
                                  Slip{"avg", "mean"},
                                  Slip{"maximum", "max"},
                                  Slip{"highest", "max"},
                                  Slip{"minimum", "min"},
                                  Slip{"lowest", "min"},
                                  Slip{"every", "all"},
                                  Slip{"each", "all"},
                                  Slip{"some", "any"}};

std::string hint_for_word(std::string_view word, std::span<const std::string_view> known) {
  for (const Slip& synonym : kSynonyms)
    if (same_word(word, synonym.written)) return fmt::format("; did you mean '{}'?", synonym.meant);
  return did_you_mean(word, known);
}

std::string hint_for_symbol(const Token& token) {
  for (const Slip& slip : kSlips)
    if (token.is(slip.written)) return fmt::format("; did you mean '{}'?", slip.meant);
  return {};
}

std::string to_string(const Token& token) {
  return token.kind == Token::Kind::end ? "the end of the rule" : "'" + printable(token.text.substr(0, 40)) + "'";
}

bool joins(const Token& token) { return token.is("and") || token.is("or") || token.is("for"); }

std::optional<Over> over_by_name(const Token& token) {
  for (const Over over : kOvers)
    if (token.is(to_string(over))) return over;
  return std::nullopt;
}

std::optional<Metric> signal_by_name(const Token& token) {
  for (const MetricInfo& row : kMetricTable)
    if (token.is(row.name)) return row.metric;
  for (const MetricInfo& row : own_signals())
    if (token.is(row.name)) return row.metric;
  return std::nullopt;
}

enum class Joint : std::uint8_t { by_and, by_or };

// The same tree with every node right behind its operands, so that equal trees have
// equal vectors however they were written.
NodeId copy_in_order(const std::vector<Node>& nodes, NodeId id, std::vector<Node>& out) {
  Node node = nodes[id];
  if (auto* both = std::get_if<And>(&node)) {
    both->left = copy_in_order(nodes, both->left, out);
    both->right = copy_in_order(nodes, both->right, out);
  } else if (auto* either = std::get_if<Or>(&node)) {
    either->left = copy_in_order(nodes, either->left, out);
    either->right = copy_in_order(nodes, either->right, out);
  } else if (auto* opposite = std::get_if<Not>(&node)) {
    opposite->operand = copy_in_order(nodes, opposite->operand, out);
  } else if (auto* held = std::get_if<Held>(&node)) {
    held->operand = copy_in_order(nodes, held->operand, out);
  } else if (auto* each = std::get_if<Each>(&node)) {
    each->operand = copy_in_order(nodes, each->operand, out);
  }
  out.push_back(node);
  return static_cast<NodeId>(out.size() - 1);
}

std::vector<Node> in_order(const std::vector<Node>& nodes) {
  std::vector<Node> out;
  out.reserve(nodes.size());
  copy_in_order(nodes, static_cast<NodeId>(nodes.size() - 1), out);
  return out;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {}

  Result<Rule> parse() {
    if (lexer_.text().size() > kMaxRuleText)
      return fail(
          fmt::format("bad rule: it is {} characters long; {} are allowed", lexer_.text().size(), kMaxRuleText));
    if (lexer_.peek().kind == Token::Kind::end)
      return fail("bad rule: it is empty; a rule is such as 'util < 5 for 20m'");
    (void)TRY(chain(0));
    if (lexer_.peek().kind != Token::Kind::end) return unexpected_after_condition();
    return Rule{.nodes = in_order(nodes_), .text = std::string(trim(lexer_.text()))};
  }

 private:
  NodeId add(Node node) {
    nodes_.push_back(node);
    return static_cast<NodeId>(nodes_.size() - 1);
  }

  // Joins conditions: every run of "and" first, then what is left by "or".
  NodeId join(std::span<const NodeId> items, std::span<const Joint> joints) {
    std::size_t i = 0;
    const auto product = [&] {
      NodeId node = items[i++];
      for (; i < items.size() && joints[i - 1] == Joint::by_and; ++i) node = add(And{node, items[i]});
      return node;
    };
    NodeId sum = product();
    while (i < items.size()) sum = add(Or{sum, product()});
    return sum;
  }

  Result<NodeId> chain(std::size_t depth);
  Result<NodeId> condition(std::size_t depth);
  Result<NodeId> comparison(Comparison value);
  Result<> limit(Comparison& value);
  Result<NodeId> function(Over over, std::size_t depth);
  Result<Comparison> series(Over over);
  Result<> window(Comparison& value);
  Result<Span> span();
  Result<> expect(std::string_view symbol, std::string_view after);
  std::unexpected<Error> no_condition(const Token& token) const;
  std::unexpected<Error> unexpected_after_condition() const;

  Lexer lexer_;
  std::vector<Node> nodes_;
  std::size_t windows_ = 0;
};

std::unexpected<Error> Parser::unexpected_after_condition() const {
  const Token& token = lexer_.peek();
  if (token.is(")")) return lexer_.wrong(token, "this ')' closes nothing");
  constexpr std::array<std::string_view, 3> kWords = {"and", "or", "for"};
  std::string hint = hint_for_symbol(token);
  if (hint.empty() && token.kind == Token::Kind::word) hint = did_you_mean(token.text, kWords);
  return lexer_.wrong(token, fmt::format("expected 'and', 'or', 'for' or the end, not {}{}", to_string(token), hint));
}

std::unexpected<Error> Parser::no_condition(const Token& token) const {
  if (token.kind == Token::Kind::quantity)
    return lexer_.wrong(token, "the signal comes first, then the number: util < 5");
  if (token.kind != Token::Kind::word)
    return lexer_.wrong(token, fmt::format("expected a condition such as 'util < 5', not {}{}", to_string(token),
                                           hint_for_symbol(token)));
  std::vector<std::string_view> known = {"not"};
  for (const MetricInfo& row : kMetricTable) known.push_back(row.name);
  for (const MetricInfo& row : own_signals()) known.push_back(row.name);
  for (const Over over : kOvers) known.push_back(to_string(over));
  const std::string hint = hint_for_word(token.text, known);
  std::string all;
  for (const MetricInfo& row : kMetricTable) all += (all.empty() ? "" : ", ") + std::string(row.name);
  for (const MetricInfo& row : own_signals()) all += ", " + std::string(row.name);
  all += "; one of your own needs [signals] in lull.toml, or --signal-from";
  return lexer_.wrong(
      token, fmt::format("there is no signal {}{}", to_string(token), hint.empty() ? "; there are " + all : hint));
}

Result<> Parser::expect(std::string_view symbol, std::string_view after) {
  const Token& token = lexer_.peek();
  if (!token.is(symbol))
    return lexer_.wrong(token, fmt::format("expected '{}' after {}, not {}", symbol, after, to_string(token)));
  lexer_.take();
  return {};
}

Result<Span> Parser::span() {
  const Token token = lexer_.take();
  if (token.kind != Token::Kind::quantity)
    return lexer_.wrong(token,
                        fmt::format("expected a duration (20m, 90s, 1h30m) or '5 samples', not {}", to_string(token)));
  // "5 samplse": a word where a unit belongs is meant to be one.
  if (const Token next = lexer_.peek(); token.unit.empty() && next.kind == Token::Kind::word && !joins(next))
    if (auto read = read_span(token.number, next.text); !read) return lexer_.wrong(next, read.error().what);
  auto read = read_span(token.number, token.unit);
  if (!read) return lexer_.wrong(token, read.error().what);
  return *read;
}

Result<NodeId> Parser::chain(std::size_t depth) {
  if (depth >= kMaxRuleDepth)
    return lexer_.wrong(lexer_.peek(), fmt::format("nested more than {} deep", kMaxRuleDepth));
  std::vector<NodeId> items = {TRY(condition(depth))};
  std::vector<Joint> joints;  // joints[i] stands between items[i] and items[i + 1]
  std::size_t covered = 0;    // so many items are behind a "for" already
  for (;;) {
    const Token token = lexer_.peek();
    if (token.is("for")) {
      if (covered == items.size())
        return lexer_.wrong(token, "a second 'for' right behind the first: put the first in parentheses");
      lexer_.take();
      const Span needed = TRY(span());
      const NodeId operand = join(std::span(items).subspan(covered), std::span(joints).subspan(covered));
      items.resize(covered);
      joints.resize(covered);
      items.push_back(add(Held{operand, needed}));
      covered = items.size();
    } else if (token.is("and") || token.is("or")) {
      lexer_.take();
      joints.push_back(token.is("or") ? Joint::by_or : Joint::by_and);
      items.push_back(TRY(condition(depth)));
    } else {
      return join(items, joints);
    }
  }
}

Result<NodeId> Parser::condition(std::size_t depth) {
  const Token token = lexer_.peek();
  if (depth >= kMaxRuleDepth) return lexer_.wrong(token, fmt::format("nested more than {} deep", kMaxRuleDepth));
  if (token.is("not")) {
    lexer_.take();
    return add(Not{TRY(condition(depth + 1))});
  }
  if (token.is("(")) {
    lexer_.take();
    const NodeId inner = TRY(chain(depth + 1));
    if (!lexer_.peek().is(")")) {
      if (lexer_.peek().kind != Token::Kind::end) return unexpected_after_condition();
      return lexer_.wrong(token, "this '(' is never closed");
    }
    lexer_.take();
    return inner;
  }
  if (const auto over = over_by_name(token)) {
    lexer_.take();
    return function(*over, depth);
  }
  return comparison(TRY(series(Over::all)));
}

// SIGNAL or mean(SIGNAL, SPAN).
Result<Comparison> Parser::series(Over over) {
  const Token token = lexer_.peek();
  if (token.is("mean")) {
    lexer_.take();
    TRY(expect("(", "'mean'"));
    const Token inner = lexer_.peek();
    if (inner.is("mean")) return lexer_.wrong(inner, "a mean over time of a mean over time: one is enough");
    Comparison value = TRY(series(over));
    TRY(window(value));
    return value;
  }
  const auto metric = signal_by_name(token);
  if (!metric) return no_condition(token);
  lexer_.take();
  return Comparison{.over = over, .metric = *metric};
}

// What is behind the signal in mean(SIGNAL, SPAN).
Result<> Parser::window(Comparison& value) {
  const Token comma = lexer_.peek();
  TRY(expect(",", "the signal: a window, as in mean(util, 5m)"));
  const Token token = lexer_.take();
  if (value.window) return lexer_.wrong(comma, "a mean over time of a mean over time: one is enough");
  if (token.kind != Token::Kind::quantity)
    return lexer_.wrong(token, fmt::format("expected a window such as 5m, not {}", to_string(token)));
  auto read = read_window(token.number, token.unit);
  if (!read) return lexer_.wrong(token, read.error().what);
  if (++windows_ > kMaxRuleWindows)
    return lexer_.wrong(token, fmt::format("more than {} windows in one rule", kMaxRuleWindows));
  value.window = *read;
  return expect(")", "the window");
}

// What is behind all, any, mean, max or min.
Result<NodeId> Parser::function(Over over, std::size_t depth) {
  TRY(expect("(", fmt::format("'{}'", to_string(over))));
  const Token first = lexer_.peek();
  if (over == Over::all || over == Over::any) {
    // A value or a condition? Only what follows it tells: read it as a value first.
    const Lexer here = lexer_;
    const std::size_t windows = windows_;
    auto value = series(over);
    if (value && lexer_.peek().is(")")) {
      lexer_.take();
      return comparison(*value);
    }
    lexer_ = here;
    windows_ = windows;
    const NodeId inner = TRY(chain(depth + 1));
    if (!lexer_.peek().is(")") && lexer_.peek().kind != Token::Kind::end) return unexpected_after_condition();
    TRY(expect(")", "the condition"));
    return add(Each{inner, over == Over::all});
  }
  Comparison value = TRY(series(over));
  if (over == Over::mean && lexer_.peek().is(",")) {
    TRY(window(value));
    value.over = Over::all;  // the mean was over time; over the GPUs it is all, as ever
    return comparison(value);
  }
  if (lexer_.peek().is(",")) return lexer_.wrong(lexer_.peek(), "only mean takes a window: mean(util, 5m)");
  if (!lexer_.peek().is(")") && lexer_.peek().kind == Token::Kind::symbol)
    return lexer_.wrong(first, fmt::format("{0}(…) takes a signal: {0}(util) < 5; all(…) and any(…) take a condition",
                                           to_string(over)));
  TRY(expect(")", "the signal"));
  return comparison(value);
}

Result<NodeId> Parser::comparison(Comparison value) {
  const std::string_view name = info(value.metric).name;
  const Token operation = lexer_.take();
  const auto* found =
      std::find_if(kCompares.begin(), kCompares.end(), [&](Compare c) { return operation.is(symbol(c)); });
  if (found == kCompares.end())
    return lexer_.wrong(operation, fmt::format("expected <, <=, >, >=, == or != after '{}', not {}{}", name,
                                               to_string(operation), hint_for_symbol(operation)));
  value.compare = *found;
  TRY(limit(value));
  return add(value);
}

// A quantity; or idle+3W, of the power alone.
Result<> Parser::limit(Comparison& value) {
  Token token = lexer_.take();
  if (token.is("idle")) {
    if (value.metric != Metric::power)
      return lexer_.wrong(token, fmt::format("only power is compared with the card's own idle, not {}: power < idle+3W",
                                             info(value.metric).name));
    value.over_idle = true;
    const bool plus = lexer_.peek().is("+");
    const bool minus = lexer_.peek().is("-");  // with a blank behind it
    if (plus || minus) lexer_.take();
    const Token& next = lexer_.peek();
    const bool signed_number = next.kind == Token::Kind::quantity && next.number.starts_with('-');
    if (!plus && !minus && !signed_number) {
      if (next.kind == Token::Kind::quantity)
        return lexer_.wrong(next, "expected '+' or '-' between 'idle' and the number: power < idle+3W");
      return {};
    }
    token = lexer_.take();
    if (token.kind != Token::Kind::quantity || ((plus || minus) && signed_number))
      return lexer_.wrong(token, fmt::format("expected a number of watts, as in idle+3W, not {}", to_string(token)));
    const auto watts = read_limit(value.metric, token.number, token.unit);
    if (!watts) return lexer_.wrong(token, watts.error().what);
    if (watts->share) return lexer_.wrong(token, "a share of the limit does not add to watts: power < idle+3W");
    value.limit = minus ? -watts->value : watts->value;
    return {};
  }
  if (token.kind != Token::Kind::quantity)
    return lexer_.wrong(token, fmt::format("expected a number to compare {} with, not {}{}", info(value.metric).name,
                                           to_string(token), hint_for_symbol(token)));
  const auto limit = read_limit(value.metric, token.number, token.unit);
  if (!limit) return lexer_.wrong(token, limit.error().what);
  value.limit = limit->value;
  value.share = limit->share;
  return {};
}

}  // namespace

Result<Rule> parse_rule(std::string_view text) { return Parser(text).parse(); }

Result<Rule> with_limit(const Rule& rule, Metric metric, std::string_view limit) {
  Lexer lexer(limit);
  const Token token = lexer.take();
  if (token.kind != Token::Kind::quantity || lexer.peek().kind != Token::Kind::end)
    return fail(fmt::format("'{}' is not a limit for {}", printable(limit), info(metric).name));
  const Quantity read = TRY(read_limit(metric, token.number, token.unit));
  Rule changed = rule;
  bool any = false;
  for (Node& node : changed.nodes) {
    auto* comparison = std::get_if<Comparison>(&node);
    if (comparison == nullptr || comparison->metric != metric) continue;
    comparison->limit = read.value;
    comparison->share = read.share;
    comparison->over_idle = false;
    any = true;
  }
  if (!any) return fail(fmt::format("the rule '{}' does not look at {}", printable(rule.text), info(metric).name));
  changed.text = to_text(changed);
  return changed;
}

namespace {

constexpr std::size_t kShown = 72;  // of a long line: so much, around the place

bool letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool digit(char c) { return c >= '0' && c <= '9'; }
bool blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

bool Token::is(std::string_view word) const {
  return (kind == Kind::word || kind == Kind::symbol) && same_word(text, word);
}

void Lexer::skip_blanks() {
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '#')
      at_ = std::min(text_.find('\n', at_), text_.size() - 1);
    else if (!blank(text_[at_]))
      return;
  }
}

// A unit may hold digits: 1h30m is one quantity.
std::size_t Lexer::end_of_unit(std::size_t from) const {
  while (from < text_.size() && (letter(text_[from]) || digit(text_[from]) || text_[from] == '.' ||
                                 text_[from] == '%' || text_[from] == '/' || beyond_ascii(text_[from])))
    ++from;
  return from;
}

void Lexer::take_quantity() {
  const std::size_t begin = at_;
  if (text_[at_] == '-') ++at_;
  while (at_ < text_.size() && (digit(text_[at_]) || text_[at_] == '.')) ++at_;
  token_ = {.kind = Token::Kind::quantity, .text = {}, .number = text_.substr(begin, at_ - begin), .begin = begin};
  std::size_t end = end_of_unit(at_);
  if (end == at_) {  // "5 samples", "30 %": the unit may stand apart
    const std::size_t number_end = at_;
    skip_blanks();
    end = end_of_unit(at_);
    if (!is_unit(text_.substr(at_, end - at_))) end = at_ = number_end;
  }
  token_.unit = text_.substr(at_, end - at_);
  at_ = end;
  token_.text = text_.substr(begin, end - begin);
}

void Lexer::advance() {
  skip_blanks();
  token_ = {.kind = Token::Kind::end, .text = text_.substr(at_, 0), .begin = at_};
  if (at_ >= text_.size()) return;
  const char c = text_[at_];
  const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  if (digit(c) || (c == '.' && digit(next)) || (c == '-' && (digit(next) || next == '.'))) {
    take_quantity();
    return;
  }
  std::size_t end = at_ + 1;
  if (letter(c)) {
    token_.kind = Token::Kind::word;
    while (end < text_.size() && (letter(text_[end]) || digit(text_[end]))) ++end;
  } else {
    token_.kind = Token::Kind::symbol;
    constexpr std::string_view kDoubling = "<>=!&|";  // "<=", and what other languages write
    if (kDoubling.find(c) != std::string_view::npos && kDoubling.find(next) != std::string_view::npos && next != '\0' &&
        !(next == '!' && c != '='))
      ++end;
    while (beyond_ascii(c) && end < text_.size() && continues(text_[end])) ++end;
  }
  token_.text = text_.substr(at_, end - at_);
  at_ = end;
}

std::unexpected<Error> Lexer::wrong(const Token& where, std::string_view what) const {
  const std::size_t begin = std::min(where.begin, text_.size());
  std::size_t line_begin = begin == 0 ? 0 : text_.rfind('\n', begin - 1) + 1;  // npos + 1 is 0
  std::size_t line_end = std::min(text_.find('\n', begin), text_.size());
  const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(line_begin), '\n');
  const bool many_lines = text_.find('\n') != std::string_view::npos;
  const std::string place = fmt::format("{}column {}", many_lines ? fmt::format("line {}, ", line) : "",
                                        characters(text_.substr(line_begin, begin - line_begin)) + 1);
  if (begin - line_begin > kShown / 2) line_begin = begin - kShown / 2;
  while (line_begin < begin && continues(text_[line_begin])) ++line_begin;
  line_end = std::min(line_end, line_begin + kShown);
  while (line_end > begin && line_end < text_.size() && continues(text_[line_end])) --line_end;
  const std::string shown = printable(text_.substr(line_begin, line_end - line_begin));
  const std::size_t before = characters(printable(text_.substr(line_begin, begin - line_begin)));
  const std::size_t marked = std::min(where.text.size(), line_end > begin ? line_end - begin : 0);
  const std::size_t length = std::max<std::size_t>(1, characters(text_.substr(begin, marked)));
  return fail(fmt::format("bad rule, {}: {}\n  {}\n  {}^{}", place, what, shown, std::string(before, ' '),
                          std::string(length - 1, '~')));
}

}  // namespace lull
