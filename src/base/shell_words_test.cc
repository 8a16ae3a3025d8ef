#include "base/text.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using Words = std::vector<std::string>;

TEST(ShellWords, AreCutAsAShellWould) {
  const std::pair<const char*, Words> kRows[] = {
      {"", {}},
      {"  a  b\tc\n", {"a", "b", "c"}},
      {"miner-run --pool 'a b' \"c d\"", {"miner-run", "--pool", "a b", "c d"}},
      {"a'b'\"c\"d", {"abcd"}},
      {"'' \"\"", {"", ""}},
      {R"(a\ b \'x)", {"a b", "'x"}},
      {R"("a\"b" "c\d" 'e\f')", {"a\"b", "c\\d", "e\\f"}},
      {"$HOME *", {"$HOME", "*"}},
      {"a\\\nb", {"ab"}},
  };
  for (const auto& [text, words] : kRows) {
    const auto found = shell_words(text);
    ASSERT_TRUE(found) << text;
    EXPECT_EQ(*found, words) << text;
  }
}

TEST(ShellWords, WhatIsNotClosedIsRefused) {
  EXPECT_EQ(shell_words("a 'b").error().what, "a ' is not closed");
  EXPECT_EQ(shell_words("a \"b").error().what, "a \" is not closed");
  EXPECT_FALSE(shell_words("a \\"));
}

}  // namespace
}  // namespace lull
