#include "../../fuzz/control_fuzz.cc"
#include "../../fuzz/corpus.h"

namespace lull {
namespace {

TEST(ControlFuzz, TheCorpusAndChangedCopiesOfItDoNoHarm) {
  EXPECT_GE(replay_corpus("control", 20, LLVMFuzzerTestOneInput), 7U);
}

}  // namespace
}  // namespace lull
