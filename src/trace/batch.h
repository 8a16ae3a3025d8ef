#pragma once
// A Batch is what one chunk of a trace came to: rows as columns, in the order of
// the file, and what was wrong with the lines that gave none.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/schema.h"

namespace lull::trace {

struct BadLine {
  std::uint64_t line = 0;  // from 1, in the chunk
  std::string why;
};

// What the numbers of a column tell of its unit, if it is not given.
struct UnitHint {
  std::uint64_t known = 0;
  std::uint64_t above_2000 = 0;
  float most = 0;
  bool decimals = false;

  void see(std::span<const float> column) {
    for (const float value : column) {
      if (std::isnan(value)) continue;
      ++known;
      above_2000 += value > 2000 ? 1 : 0;
      most = std::max(most, value);
      decimals = decimals || value != std::floor(value);
    }
  }
  UnitHint& operator+=(const UnitHint& more) {
    known += more.known;
    above_2000 += more.above_2000;
    most = std::max(most, more.most);
    decimals = decimals || more.decimals;
    return *this;
  }
};

struct Batch {
  static constexpr std::size_t kShown = 5;  // bad lines that are kept in words

  std::size_t rows = 0;
  std::uint64_t lines = 0;
  std::uint64_t bad = 0;
  std::vector<BadLine> first_bad;
  std::uint64_t implausible = 0;       // values that their metric cannot have
  std::string first_implausible = {};  // "util 250"
  std::optional<BadLine> new_header;   // the columns change: the rest cannot be read as before
  std::vector<std::size_t> starts;     // rows before which a header came again: a recording begins there
  std::vector<std::int64_t> at;
  std::vector<std::uint32_t> gpu;  // in the Identities of the parser
  std::vector<std::vector<float>> value;
  std::vector<UnitHint> hints;  // by slot

  // Before implausible values are dropped.
  void look_at_units(const Schema& schema) {
    hints.assign(value.size(), {});
    for (std::size_t slot = 0; slot < std::min(value.size(), schema.doubtful.size()); ++slot)
      if (!schema.doubtful[slot].empty()) hints[slot].see({value[slot].data(), rows});
  }
  // Leaves the rows from `lowest` on, before `end`.
  void drop_outside(std::int64_t lowest, std::int64_t end) {
    std::size_t left = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      if (at[row] < lowest || at[row] >= end) continue;
      at[left] = at[row];
      gpu[left] = gpu[row];
      for (auto& column : value) column[left] = column[row];
      ++left;
    }
    rows = left;
  }
  void reset(std::size_t metrics) {
    rows = 0;
    lines = 0;
    bad = 0;
    first_bad.clear();
    implausible = 0;
    first_implausible.clear();
    new_header.reset();
    starts.clear();
    value.resize(metrics);
    for (auto& column : value) column.resize(at.size());
  }
  // What its metric cannot be is unknown, as from a sensor. Straight over the columns, which costs next to nothing.
  void drop_implausible(const std::vector<Metric>& metrics) {
    for (std::size_t slot = 0; slot < value.size() && slot < metrics.size(); ++slot) {
      // Compared as floats: a limit is in its range also where a float cannot hold it.
      const auto lowest = static_cast<float>(info(metrics[slot]).range.lowest);
      const auto highest = static_cast<float>(info(metrics[slot]).range.highest);
      float* const column = value[slot].data();
      unsigned odd = 0;
      for (std::size_t row = 0; row < rows; ++row) odd += column[row] < lowest || column[row] > highest ? 1U : 0U;
      if (odd == 0) continue;
      implausible += odd;
      for (std::size_t row = 0; row < rows; ++row) {
        if (!(column[row] < lowest || column[row] > highest)) continue;
        if (first_implausible.empty()) first_implausible = name_odd(metrics[slot], column[row]);
        column[row] = kUnknownSample;
      }
    }
  }
  static std::string name_odd(Metric metric, float value);
  bool full() const { return rows == at.size(); }
  void make_space() {
    const std::size_t capacity = std::max<std::size_t>(64, rows * 2);
    at.resize(capacity);
    gpu.resize(capacity);
    for (auto& column : value) column.resize(capacity);
  }
  // A row of which nothing is known yet, however many there are already; returns its place.
  std::size_t add_row(std::int64_t when, std::uint32_t of) {
    if (full()) make_space();
    for (auto& column : value) column[rows] = kUnknownSample;
    at[rows] = when;
    gpu[rows] = of;
    return rows++;
  }
  void add_row(std::int64_t when, std::uint32_t of, const std::vector<float>& values) {
    const std::size_t row = add_row(when, of);
    for (std::size_t slot = 0; slot < values.size(); ++slot) value[slot][row] = values[slot];
  }
  void add_bad(std::uint64_t line, std::string why) {
    ++bad;
    if (first_bad.size() < kShown) first_bad.push_back({line, std::move(why)});
  }
};

// The GPUs that a parser has met, by the cells that name them. Rows mostly come in
// the same order again and again, so each GPU remembers who followed it last.
class Identities {
 public:
  using Cells = std::array<std::string_view, kMaxIdentity>;

  explicit Identities(const std::vector<Role>& roles) : roles_(roles), parts_(roles.size()) {}

  std::uint32_t find(const Cells& cells) {
    if (!known_.empty() && std::equal(next().cells.begin(), next().cells.end(), cells.begin())) return accept_guess();
    return find_slowly(cells);
  }
  // The cells of who should come next, which a table writes as they are; nullptr: none, or with quotes. That it did
  // come says accept_guess.
  const std::string* guess() const { return known_.empty() || !next().plain ? nullptr : next().cells.data(); }
  std::uint32_t accept_guess() { return last_ = known_[last_].next; }
  std::size_t size() const { return known_.size(); }
  const std::vector<Role>& roles() const { return roles_; }
  const std::vector<std::string>& cells(std::size_t i) const { return known_[i].cells; }
  // The cells do name a GPU; "[GPU is lost]" does not.
  bool usable(std::uint32_t i) const { return known_[i].usable; }

 private:
  struct Known {
    std::vector<std::string> cells;
    std::uint32_t next = 0;
    bool usable = true;
    bool plain = true;
  };
  const Known& next() const { return known_[known_[last_].next]; }
  std::uint32_t find_slowly(const Cells& cells);

  std::vector<Role> roles_;
  std::size_t parts_;
  std::vector<Known> known_;
  std::unordered_map<std::string, std::uint32_t> by_key_;
  std::uint32_t last_ = 0;
};

}  // namespace lull::trace
