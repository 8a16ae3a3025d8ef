#pragma once
// A fact about a binary interface: a size, an offset, a constant, or the shape of a
// call, under NVML's own name for it. For the test that compares ours with theirs.

#include <string>
#include <type_traits>
#include <vector>

namespace lull::nvml {

struct Fact {
  std::string name;
  std::string value;
};

// The facts by the real header; empty: it is not installed.
std::vector<Fact> real_facts();

// "p8 u4": a pointer and four bytes. Enumerations and handles look like what they are passed as.
template <class T>
std::string shape_of_argument() {
  // NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer its own size is meant
  return (std::is_pointer_v<T> ? "p" : "n") + std::to_string(sizeof(T)) + " ";
}
template <class R, class... A>
std::string shape_of(R (*)(A...)) {
  return "r" + std::to_string(sizeof(R)) + " " + (shape_of_argument<A>() + ... + std::string());
}

}  // namespace lull::nvml
