// The real header's word on abi_facts.inc, in a file of its own: its names are not ours.
#if __has_include(<nvml.h>)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#endif

#include <cstddef>
#include <string>
#include <vector>

#include "nvml/abi_facts_test.h"

namespace lull::nvml {

std::vector<Fact> real_facts() {
  std::vector<Fact> facts;
#if __has_include(<nvml.h>)
#define SIZE(theirs, ours) facts.push_back({"sizeof " #theirs, std::to_string(sizeof(theirs))});
#define FIELD(theirs, their_field, ours, our_field) \
  facts.push_back({#theirs "." #their_field, std::to_string(offsetof(theirs, their_field))});
#define SAME(theirs, ours) facts.push_back({#theirs, std::to_string(static_cast<unsigned long long>(theirs))});
#define CALL(name) facts.push_back({"nvml" #name, shape_of(static_cast<decltype(&nvml##name)>(nullptr))});
#include "nvml/abi_facts.inc"
#endif
  return facts;
}

}  // namespace lull::nvml
