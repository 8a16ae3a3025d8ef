#include "../../fuzz/corpus.h"
#include "../../fuzz/rule_fuzz.cc"

namespace lull {
namespace {

TEST(RuleFuzz, TheCorpusDoesNoHarm) { EXPECT_GE(replay_corpus("rule", 0, LLVMFuzzerTestOneInput), 20U); }

}  // namespace
}  // namespace lull
