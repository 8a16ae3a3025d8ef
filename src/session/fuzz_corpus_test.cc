// Replays the fuzzer's corpus, so that what it once found stays found, and some thousand changed copies of it.

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "../../fuzz/control_fuzz.cc"
#include "base/fd.h"

namespace lull {
namespace {

constexpr int kCopies = 20;  // of each seed

// A byte replaced, doubled, dropped, or all that follows it cut off.
void change(std::string& bytes, std::mt19937& dice) {
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

TEST(ControlFuzz, TheCorpusAndChangedCopiesOfItDoNoHarm) {
  std::mt19937 dice(1);
  std::size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(LULL_SOURCE_DIR) / "fuzz" / "corpus" / "control")) {
    const std::string seed = read_file(entry.path().string()).value();
    for (int copy = 0; copy <= kCopies; ++copy) {
      std::string bytes = seed;
      if (copy > 0) change(bytes, dice);
      EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
    }
    ++count;
  }
  EXPECT_GE(count, 7U);
}

}  // namespace
}  // namespace lull
