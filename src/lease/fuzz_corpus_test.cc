#include "../../fuzz/corpus.h"
#include "../../fuzz/lease_fuzz.cc"

namespace lull {
namespace {

TEST(LeaseFuzz, TheCorpusAndChangedCopiesOfItDoNoHarm) {
  EXPECT_GE(replay_corpus("lease", 2000, LLVMFuzzerTestOneInput), 6U);
}

}  // namespace
}  // namespace lull
