// Any bytes as a rule: refused or understood, never a crash. What is understood must
// parse back from its own text and be judged without harm.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "fuzz/require.h"
#include "rule/evaluator.h"
#include "rule/reason.h"
#include "rule/rule.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lull;
  const auto rule = parse_rule({reinterpret_cast<const char*>(data), size});
  if (!rule) {
    for (const char c : rule.error().what)
      require(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));  // nothing that moves a cursor
    return 0;
  }
  const auto again = parse_rule(to_text(*rule));
  require(to_text(*rule).size() > kMaxRuleText || (again.has_value() && *again == *rule));
  require(!describe(*rule).empty());
  (void)remarks(*rule);

  Evaluator evaluator = Evaluator::compile(*rule, {.gpus = 2});
  std::vector<Instant> at;
  std::vector<float> values;
  for (int i = 0; i < 70; ++i) {
    at.emplace_back(std::chrono::seconds(i < 50 ? i : i + 100));
    values.push_back(i % 13 == 12 ? kUnknownSample : static_cast<float>(i % 7 * 20));
  }
  std::vector<Block> scope(2, Block{.at = at, .value = {}});
  for (Block& block : scope)
    for (auto& column : block.value) column = values;
  Answers answers;
  require(evaluator.feed(scope, answers).has_value());
  for (std::size_t w = 0; w < words_for(at.size()); ++w) require((answers.yes[w] & answers.no[w]) == 0);
  return 0;
}
