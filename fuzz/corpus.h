#pragma once
// For the unit tests of a fuzzed reader: its corpus replayed, so that what the fuzzer once found stays found, and
// changed copies of it.

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

#include "base/fd.h"
#include "tests/places.h"

namespace lull {

// A byte replaced, doubled, dropped, or all that follows it cut off.
inline void change(std::string& bytes, std::mt19937& dice) {
  for (unsigned times = 1 + dice() % 8; times > 0 && !bytes.empty(); --times) {
    const std::size_t at = dice() % bytes.size();
    switch (dice() % 8) {
      case 0: bytes.erase(at, 1); break;
      case 1: bytes.insert(at, bytes.substr(at, dice() % 32)); break;
      case 2: bytes.resize(at); break;
      default: bytes[at] = static_cast<char>(dice()); break;
    }
  }
}

// `name`: its folder in fuzz/corpus; `copies` of each seed. How many seeds there are.
template <typename Fuzz>
std::size_t replay_corpus(const char* name, int copies, Fuzz fuzz) {
  std::mt19937 dice(1);
  std::size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(source_dir()) / "fuzz" / "corpus" / name)) {
    const std::string seed = read_file(entry.path().string()).value();
    for (int copy = 0; copy <= copies; ++copy) {
      std::string bytes = seed;
      if (copy > 0) change(bytes, dice);
      EXPECT_EQ(fuzz(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
    }
    ++count;
  }
  return count;
}

}  // namespace lull
