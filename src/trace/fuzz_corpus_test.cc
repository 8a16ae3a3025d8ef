#include "../../fuzz/corpus.h"
#include "../../fuzz/trace_fuzz.cc"

namespace lull {
namespace {

TEST(TraceFuzz, TheCorpusDoesNoHarm) { EXPECT_GE(replay_corpus("trace", 0, LLVMFuzzerTestOneInput), 10U); }

}  // namespace
}  // namespace lull
