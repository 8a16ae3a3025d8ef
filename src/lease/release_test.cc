#include "lease/release.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using Words = std::vector<std::string>;

TEST(ReleaseWords, ListsAndRangesAreReadAsElsewhere) {
  EXPECT_EQ(*release_words({"2,4, 6", "0-3", "GPU-8932f937", "all"}),
            (Words{"2", "4", "6", "0-3", "GPU-8932f937", "all"}));
}

TEST(ReleaseWords, WhatCannotBeMeantIsSaid) {
  EXPECT_EQ(release_words({"2,,4"}).error().message(), "'2,,4' has an empty entry: write it as 0,2");
  EXPECT_EQ(release_words({"7-0"}).error().message(), "'7-0' runs backwards: write 0-7");
}

}  // namespace
}  // namespace lull
