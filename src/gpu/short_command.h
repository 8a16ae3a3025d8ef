#pragma once
// What a process runs in a few words: "python train.py", "torchrun". Not its arguments: they
// tell a recording nothing, and may hold what is nobody's business.

#include <string>
#include <string_view>
#include <vector>

namespace lull {

// One word of a cell: without blanks, quotes and separators, so that rows stay quick to read.
std::string one_word(std::string_view text);
// `name` is what the kernel calls it, for one without arguments.
std::string short_command(const std::vector<std::string>& arguments, std::string_view name);

}  // namespace lull
