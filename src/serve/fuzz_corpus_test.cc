#include "../../fuzz/corpus.h"
#include "../../fuzz/serve_fuzz.cc"

namespace lull {
namespace {

TEST(ServeFuzz, TheCorpusAndChangedCopiesOfItDoNoHarm) {
  EXPECT_GE(replay_corpus("serve", 200, LLVMFuzzerTestOneInput), 8U);
}

}  // namespace
}  // namespace lull
