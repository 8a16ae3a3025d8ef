#include "../../fuzz/corpus.h"

// The name is taken by the other fuzzer of this module.
#define LLVMFuzzerTestOneInput http_fuzz_one_input
#include "../../fuzz/http_fuzz.cc"
#undef LLVMFuzzerTestOneInput

namespace lull {
namespace {

TEST(HttpFuzz, WhateverComesTheNextRequestIsAnswered) {
  EXPECT_GE(replay_corpus("http", 20, http_fuzz_one_input), 10U);
}

}  // namespace
}  // namespace lull
