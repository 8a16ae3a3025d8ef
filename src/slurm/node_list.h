#pragma once
// Lists of nodes as Slurm writes them: "gpu[1-3,07],login", "r[1-2]n[1-4]".

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull::slurm {

inline constexpr std::size_t kMostNodes = 65536;

// The names, in Slurm's order.
Result<std::vector<std::string>> parse_node_list(std::string_view text);

}  // namespace lull::slurm
