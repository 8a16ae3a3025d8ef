#pragma once
// What the options of gpuselect mean to our picker, and what came of it in the predecessor's words.

#include <string>
#include <vector>

#include "compat/gpuselect.h"
#include "lease/picker.h"

namespace lull {

PickSettings gpuselect_settings(const GpuselectOptions& options);
// What was read of each GPU in scope, and why it suits or not.
std::vector<std::string> gpuselect_debug(const Picker& picker);
// Whole lines.
std::string gpuselect_refusal(const Refusal& refusal, const GpuselectOptions& options);

}  // namespace lull
