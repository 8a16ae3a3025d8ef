#pragma once
// The slow, obvious twin of the evaluator, for tests only: it keeps the whole series,
// answers one sample at a time by looking back over it, and shares no code with the
// evaluator. Written from docs/rules.md.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "gpu/block.h"
#include "rule/evaluator.h"
#include "rule/rule.h"
#include "rule/truth.h"

namespace lull::oracle {

// A series of `gpus` GPUs: value[gpu][metric][sample].
struct Series {
  std::vector<Instant> at;
  std::vector<std::array<std::vector<float>, kMetrics>> value;

  std::size_t samples() const { return at.size(); }
  std::size_t gpus() const { return value.size(); }
  // Samples [from, to) as a scope of blocks.
  std::vector<Block> blocks(std::size_t from, std::size_t to) const {
    std::vector<Block> out(gpus());
    for (std::size_t g = 0; g < gpus(); ++g) {
      out[g].at = std::span(at).subspan(from, to - from);
      for (std::size_t m = 0; m < kMetrics; ++m)
        if (!value[g][m].empty()) out[g].value[m] = std::span(value[g][m]).subspan(from, to - from);
    }
    return out;
  }
};

class Oracle {
 public:
  Oracle(const Rule& rule, const EvaluatorOptions& options, const Series& series, std::size_t begin = 0)
      : rule_(rule), options_(options), series_(series), begin_(begin) {
    for (std::size_t g = 0; g < series.gpus(); ++g) everyone_.push_back(g);
  }

  Truth answer(std::size_t sample) const { return truth(rule_.root(), sample, everyone_); }
  Truth condition(std::size_t sample) const { return truth(rule_.condition(), sample, everyone_); }
  bool gap_before(std::size_t sample) const {
    return sample > 0 && series_.at[sample] - series_.at[sample - 1] > options_.gap();
  }

 private:
  using Gpus = std::vector<std::size_t>;
  bool ignore() const { return options_.missing == WhenMissing::ignore; }

  static Truth opposite(Truth t) { return t == Truth::yes ? Truth::no : t == Truth::no ? Truth::yes : t; }
  static Truth both(Truth a, Truth b) {
    if (a == Truth::no || b == Truth::no) return Truth::no;
    return a == Truth::yes && b == Truth::yes ? Truth::yes : Truth::unknown;
  }

  Truth fold(const std::vector<Truth>& truths, bool all) const {
    if (truths.empty()) return Truth::unknown;
    std::size_t yes = 0;
    std::size_t no = 0;
    for (const Truth t : truths) {
      yes += t == Truth::yes ? 1 : 0;
      no += t == Truth::no ? 1 : 0;
    }
    const bool unknown = yes + no < truths.size() && !ignore();
    if (all) return no > 0 ? Truth::no : unknown || yes == 0 ? Truth::unknown : Truth::yes;
    return yes > 0 ? Truth::yes : unknown || no == 0 ? Truth::unknown : Truth::no;
  }

  std::optional<float> raw(const Comparison& c, std::size_t sample, std::size_t gpu) const {
    const auto read = [&](Metric metric) -> std::optional<float> {
      const auto& column = series_.value[gpu][index_of(metric)];
      if (column.empty() || !std::isfinite(column[sample])) return std::nullopt;
      return column[sample];
    };
    const auto value = read(c.metric);
    if (value && c.over_idle) {
      const auto idle = read(Metric::idle_power);
      return idle ? std::optional(*value - *idle) : std::nullopt;
    }
    if (!value || !c.share) return value;
    const auto whole = read(*info(c.metric).whole);
    if (!whole || *whole <= 0) return std::nullopt;
    return static_cast<float>(static_cast<double>(*value) * 100 / static_cast<double>(*whole));
  }

  // Time-weighted: walks back from `sample` until the window is full.
  std::optional<float> value(const Comparison& c, std::size_t sample, std::size_t gpu) const {
    if (!c.window) return raw(c, sample, gpu);
    double integral = 0;
    std::int64_t left = c.window->count();
    for (std::size_t i = sample; left > 0; --i) {
      if (i <= begin_ || gap_before(i)) return std::nullopt;
      const std::int64_t covers = (series_.at[i] - series_.at[i - 1]).count();
      if (covers == 0 && i != sample) continue;  // stands for no time at all
      const auto v = raw(c, i, gpu);
      if (!v) return std::nullopt;
      integral += static_cast<double>(*v) * static_cast<double>(std::min(covers, left));
      left -= covers;
    }
    return static_cast<float>(integral / static_cast<double>(c.window->count()));
  }

  static bool holds(float v, Compare compare, float limit) {
    switch (compare) {
      case Compare::below: return v < limit;
      case Compare::at_most: return v <= limit;
      case Compare::above: return v > limit;
      case Compare::at_least: return v >= limit;
      case Compare::equal: return v == limit;
      case Compare::unequal: return v != limit;
    }
    return false;
  }

  Truth truth(const Comparison& c, std::size_t sample, const Gpus& gpus) const {
    const auto limit = static_cast<float>(c.limit);
    if (c.over == Over::all || c.over == Over::any) {
      std::vector<Truth> each;
      for (const std::size_t g : gpus) {
        const auto v = value(c, sample, g);
        each.push_back(!v ? Truth::unknown : holds(*v, c.compare, limit) ? Truth::yes : Truth::no);
      }
      return fold(each, c.over == Over::all);
    }
    std::vector<double> known;
    for (const std::size_t g : gpus)
      if (const auto v = value(c, sample, g)) known.push_back(static_cast<double>(*v));
    const std::size_t unknown = ignore() ? 0 : gpus.size() - known.size();
    if (known.empty()) return Truth::unknown;
    if (c.over == Over::mean) {
      double sum = 0;
      for (const double v : known) sum += v;
      if (unknown > 0) return Truth::unknown;
      return holds(static_cast<float>(sum / static_cast<double>(known.size())), c.compare, limit) ? Truth::yes
                                                                                                  : Truth::no;
    }
    // The extreme of what is known; what is unknown could only push it further out.
    double extreme = known[0];
    for (const double v : known) extreme = c.over == Over::max ? std::max(extreme, v) : std::min(extreme, v);
    const bool now = holds(static_cast<float>(extreme), c.compare, limit);
    if (unknown == 0) return now ? Truth::yes : Truth::no;
    const bool at_the_end =
        holds(c.over == Over::max ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity(),
              c.compare, limit);
    const bool beyond = c.over == Over::max ? static_cast<float>(extreme) > limit : static_cast<float>(extreme) < limit;
    const bool equality = c.compare == Compare::equal || c.compare == Compare::unequal;
    if (equality) return beyond ? (c.compare == Compare::unequal ? Truth::yes : Truth::no) : Truth::unknown;
    return now == at_the_end ? (now ? Truth::yes : Truth::no) : Truth::unknown;
  }

  Truth truth(const Held& h, std::size_t sample, const Gpus& gpus) const {
    const Truth now = truth(h.operand, sample, gpus);
    if (now != Truth::yes) return now;
    std::size_t first = sample;
    while (first > begin_ && !gap_before(first) && truth(h.operand, first - 1, gpus) == Truth::yes) --first;
    const bool enough = h.span.samples != 0 ? sample - first + 1 >= h.span.samples
                                            : series_.at[sample] - series_.at[first] >= h.span.time;
    if (enough) return Truth::yes;
    const bool seen_to_turn = first > begin_ && !gap_before(first) && truth(h.operand, first - 1, gpus) == Truth::no;
    return seen_to_turn ? Truth::no : Truth::unknown;
  }
  Truth truth(const And& n, std::size_t sample, const Gpus& gpus) const {
    return both(truth(n.left, sample, gpus), truth(n.right, sample, gpus));
  }
  Truth truth(const Or& n, std::size_t sample, const Gpus& gpus) const {
    return opposite(both(opposite(truth(n.left, sample, gpus)), opposite(truth(n.right, sample, gpus))));
  }
  Truth truth(const Not& n, std::size_t sample, const Gpus& gpus) const {
    return opposite(truth(n.operand, sample, gpus));
  }
  Truth truth(const Each& n, std::size_t sample, const Gpus& gpus) const {
    std::vector<Truth> each;
    for (const std::size_t g : gpus) each.push_back(truth(n.operand, sample, Gpus{g}));
    return fold(each, n.all);
  }
  Truth truth(NodeId id, std::size_t sample, const Gpus& gpus) const {
    return std::visit([&](const auto& node) { return truth(node, sample, gpus); }, rule_[id]);
  }

  const Rule& rule_;
  EvaluatorOptions options_;
  const Series& series_;
  std::size_t begin_;
  Gpus everyone_;
};

}  // namespace lull::oracle
