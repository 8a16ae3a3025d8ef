// Replays the fuzzer's corpus, so that what it once found stays found.

#include <gtest/gtest.h>

#include <filesystem>

#include "../../fuzz/trace_fuzz.cc"
#include "base/fd.h"

namespace lull {
namespace {

TEST(TraceFuzz, TheCorpusDoesNoHarm) {
  std::size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(LULL_SOURCE_DIR) / "fuzz" / "corpus" / "trace")) {
    const std::string bytes = read_file(entry.path().string()).value();
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
    ++count;
  }
  EXPECT_GE(count, 10U);
}

}  // namespace
}  // namespace lull
