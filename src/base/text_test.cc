#include "base/text.h"

#include <gtest/gtest.h>

#include <array>

namespace lull {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"util", "mem_used", "power", "temp"};

TEST(Nearest, FindsTheWordMeant) {
  EXPECT_EQ(nearest("utl", kWords), "util");
  EXPECT_EQ(nearest("UTIL", kWords), "util");
  EXPECT_EQ(nearest("pwoer", kWords), "power");
  EXPECT_EQ(nearest("memory_used", kWords), "mem_used");
  EXPECT_EQ(nearest("temperature", kWords), "temp");
}

TEST(Nearest, DoesNotGuessWildly) {
  EXPECT_EQ(nearest("xyzzy", kWords), "");
  EXPECT_EQ(nearest("", kWords), "");
  EXPECT_EQ(nearest(std::string(100000, 'u'), kWords), "");
}

TEST(Numbers, AreWholeOrNothing) {
  EXPECT_EQ(to_double("1.5"), 1.5);
  EXPECT_EQ(to_double("1.5x"), std::nullopt);
  EXPECT_EQ(to_double(""), std::nullopt);
  EXPECT_EQ(to_double("nan"), std::nullopt);
  EXPECT_EQ(to_double("inf"), std::nullopt);
  EXPECT_EQ(to_unsigned("7"), 7U);
  EXPECT_EQ(to_unsigned("-7"), std::nullopt);
  EXPECT_EQ(to_unsigned("99999999999999999999"), std::nullopt);
}

TEST(Printable, DisarmsWhatMovesTheCursor) {
  EXPECT_EQ(printable("train.py\n\x1b[2J"), "train.py ?[2J");
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(printable("\xff\xc3"), "??");
  EXPECT_EQ(printable("\xc2\x9bX"), "?X");
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ',').size(), 3U);
  EXPECT_EQ(split("", ',').size(), 1U);
  EXPECT_EQ(trim(" \t x y \n"), "x y");
}

TEST(Text, PrintableLetsNothingReorderOrHideText) {
  // Marks that turn the direction of what follows, line separators, invisible letters.
  for (const char* mark :
       {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066",
        "\u2067", "\u2068", "\u2069", "\u206f", "\ufeff", "\ufff9", "\U000e0001", "\U000e0061"})
    EXPECT_EQ(printable(std::string("a") + mark + "b"), "a?b") << mark;
  const std::string letters = "ä € عربي עברית 漢字 👩\u200d🔬 \u2026 \u2070 \U000e0100";
  EXPECT_EQ(printable(letters), letters);
}

TEST(Text, LinesStayLines) {
  EXPECT_EQ(printable_lines("\na\rb\n\x1b[2J\n"), "\na b\n?[2J\n");
  EXPECT_EQ(printable_lines(""), "");
}

TEST(Text, OneOfSeveralWords) {
  constexpr std::array<std::string_view, 3> kThree = {"confirm", "stop", "pause"};
  EXPECT_EQ(one_of("confirm", kThree), 0U);
  EXPECT_EQ(one_of("pause", kThree), 2U);
  EXPECT_EQ(one_of("stopp", kThree).error().what,
            "'stopp': confirm, stop or pause would be right; did you mean 'stop'?");
  EXPECT_EQ(one_of("\x1b", kThree).error().what, "'?': confirm, stop or pause would be right");
  EXPECT_FALSE(one_of("", kThree));
  constexpr std::array<std::string_view, 2> kTwo = {"text", "json"};
  EXPECT_EQ(one_of("xml", kTwo).error().what, "'xml': text or json would be right");
}

TEST(Text, ListsWithCommas) {
  EXPECT_EQ(comma_list(std::array<std::string, 2>{"ada, bob", "eve"}), (std::vector<std::string>{"ada", "bob", "eve"}));
  EXPECT_TRUE(comma_list({}).empty());
}

}  // namespace
}  // namespace lull
