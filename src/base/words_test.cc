#include "base/words.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using Words = std::vector<std::string>;

TEST(ShellWords, AreCutAsAShellDoes) {
  const std::vector<std::pair<std::string, Words>> cases = {
      {"", {}},
      {"  \t ", {}},
      {"miner-run", {"miner-run"}},
      {" a  b\tc\nd ", {"a", "b", "c", "d"}},
      {"sh -c 'echo \"x y\"; sleep 1'", {"sh", "-c", "echo \"x y\"; sleep 1"}},
      {R"(a "b \" c" 'd \ e')", {"a", "b \" c", "d \\ e"}},
      {R"("\n" "\\" \n)", {"\\n", "\\", "n"}},
      {R"(one\ word --x='a b'c"d e")", {"one word", "--x=a bcd e"}},
      {"'' \"\" x", {"", "", "x"}},
      {"a\\\nb", {"ab"}},
      {"$HOME `x` a|b", {"$HOME", "`x`", "a|b"}},
  };
  for (const auto& [text, words] : cases) {
    const auto read = shell_words(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(*read, words) << text;
  }
}

TEST(ShellWords, RefuseWhatIsNotClosed) {
  EXPECT_EQ(shell_words("a 'b").error().what, "a ' is not closed");
  EXPECT_EQ(shell_words("a \"b\\\"").error().what, "a \" is not closed");
  EXPECT_FALSE(shell_words("a \\"));
}

}  // namespace
}  // namespace lull
