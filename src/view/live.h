#pragma once
// The screen of `lull status --watch`: what is shown of a snapshot, and what keys change about that. Pure: keys and
// views in, lines out; whoever owns the terminal draws them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "view/columns.h"
#include "view/keys.h"
#include "view/status.h"

namespace lull {

class LiveScreen {
 public:
  enum class Sort : std::uint8_t { gpu, util, memory, idle };

  // False: the person wants to leave.
  bool press(const Key& key);

  // Exactly as many lines as the screen is high, none wider than it. `heading` stands at the top ("11:04:29  every
  // 1s").
  std::vector<std::string> draw(const StatusView& view, const std::string& heading, const Screen& screen);

 private:
  StatusView chosen(const StatusView& view) const;
  std::vector<std::string> below(const StatusView& view, const Screen& screen) const;
  std::vector<std::string> why(const StatusView& view, const Screen& screen) const;
  std::string foot(std::size_t hidden_above, std::size_t hidden_below) const;

  Sort sort_ = Sort::gpu;
  std::string filter_;
  bool typing_ = false;  // letters go into the filter
  bool processes_ = false;
  bool why_ = false;
  bool help_ = false;
  std::size_t marked_ = 0;  // the row that the arrows are on
  std::size_t top_ = 0;     // the first row that is shown
  std::size_t rows_ = 0;    // how many there were when it was last drawn
  std::size_t page_ = 1;
};

}  // namespace lull
