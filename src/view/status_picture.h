#pragma once
// One picture of the GPUs after the other: drawn over the last on a terminal, appended anywhere else.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "view/status.h"

namespace lull {

enum class StatusFormat : std::uint8_t { table, json, csv };

class StatusPictures {
 public:
  // `every`: again so often; nothing: there will be one picture.
  StatusPictures(StatusFormat format, std::optional<Duration> every, bool terminal)
      : format_(format), every_(every), terminal_(terminal) {}

  std::string next(const StatusView& view, const Screen& screen);
  // Leaves the last picture where it is, with the cursor below it.
  std::string last() const { return drawn_ > 0 ? "\033[?25h" : ""; }

 private:
  std::string redrawn(const StatusView& view, const std::vector<std::string>& lines, const Screen& screen);

  StatusFormat format_;
  std::optional<Duration> every_;
  bool terminal_;
  bool headed_ = false;
  std::size_t drawn_ = 0;  // lines that the picture on the screen takes
};

}  // namespace lull
