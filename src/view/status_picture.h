#pragma once
// One picture of the GPUs after the other, each below the last. (A terminal that is looked at live is view/live.h's.)

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
  StatusPictures(StatusFormat format, std::optional<Duration> every, bool processes)
      : format_(format), every_(every), processes_(processes) {}

  std::string next(const StatusView& view, const Screen& screen);

 private:
  StatusFormat format_;
  std::optional<Duration> every_;
  bool processes_;  // each of them below the table
  bool headed_ = false;
};

}  // namespace lull
