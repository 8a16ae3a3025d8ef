#pragma once
// The commands of `lull sim`, and what each says where it cannot do what was asked.

#include <string_view>

#include "base/result.h"

namespace lull {

int sim_set(int argc, char** argv);
int sim_load(int argc, char** argv);
int sim_fault(int argc, char** argv);
int sim_clear(int argc, char** argv);
int sim_reset(int argc, char** argv);
int sim_show(int argc, char** argv);
int sim_models(int argc, char** argv);

inline constexpr const char* kGpuWords = "a number, a list (0,2 or 1-3), amd:0, a UUID, or all";
Error one_too_many(std::string_view word);

// What every command of ours does with an error: one line, and the status for it.
int refuse(std::string_view command, const Error& error);  // the command line was wrong: 2
int cannot(std::string_view command, const Error& error);  // it could not be done: 125

}  // namespace lull
