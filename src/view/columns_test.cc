#include "view/columns.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/text.h"

namespace lull {
namespace {

TEST(Width, CountsCellsNotBytes) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("grüß"), 4U);
  EXPECT_EQ(display_width("漢字"), 4U);
  EXPECT_EQ(display_width("e\xcc\x81"), 1U);  // e and a combining accent
  EXPECT_EQ(display_width("\xff\xfe"), 2U);
}

TEST(Fit, CutsAtLetters) {
  EXPECT_EQ(fit("python train.py", 8), "python …");
  EXPECT_EQ(fit("python train.py", 8, false), "python ~");
  EXPECT_EQ(fit("漢字漢字", 4), "漢…");
  EXPECT_EQ(fit("abc", 3), "abc");
  EXPECT_EQ(fit("abc", 0), "");
  EXPECT_EQ(pad("7", 3, Align::right), "  7");
  EXPECT_EQ(pad("7", 3, Align::left), "7  ");
}

TEST(Fit, NeverLongerThanAsked) {
  EXPECT_TRUE(rc::check([](const std::string& any) {
    const auto width = *rc::gen::inRange<std::size_t>(0, 40);
    RC_ASSERT(display_width(fit(printable(any), width)) <= width);
    RC_ASSERT(display_width(pad(printable(any), width, Align::left)) == width);
  }));
}

std::vector<Column> example_columns() {
  return {{"GPU", Align::right, 0, 0, {{"0"}, {"1"}}},
          {"NAME", Align::left, 1, 6, {{"NVIDIA H100 80GB HBM3"}, {"Tesla T4"}}},
          {"COMMAND", Align::left, 2, 8, {{"python train.py --epochs 100"}, {""}}}};
}

TEST(Layout, WideScreensGetEverything) {
  const auto lines = layout(example_columns(), {}, {.width = 100});
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "GPU  NAME                   COMMAND");
  EXPECT_EQ(lines[1], "  0  NVIDIA H100 80GB HBM3  python train.py --epochs 100");
  EXPECT_EQ(lines[2], "  1  Tesla T4");
}

TEST(Layout, NarrowScreensShrinkThenGiveUpColumns) {
  EXPECT_EQ(layout(example_columns(), {}, {.width = 40})[1], "  0  NVIDIA H100 80GB HBM3  python trai…");
  EXPECT_EQ(layout(example_columns(), {}, {.width = 21})[1], "  0  NVIDI…  python …");
  EXPECT_EQ(layout(example_columns(), {}, {.width = 12})[1], "  0  NVIDIA…");
  EXPECT_EQ(layout(example_columns(), {}, {.width = 4})[1], "  0");
}

TEST(Layout, ASpanTakesTheRestOfTheRow) {
  const auto lines = layout(example_columns(), {{1, 1, {"GPU is lost", Tone::bad}}}, {.width = 100});
  EXPECT_EQ(lines[2], "  1  GPU is lost");
}

TEST(Layout, NoLineIsEverWiderThanTheScreen) {
  EXPECT_TRUE(rc::check([](const std::vector<std::string>& texts) {
    const auto width = *rc::gen::inRange<std::size_t>(3, 120);
    std::vector<Column> columns = example_columns();
    for (Column& column : columns)
      for (const std::string& text : texts) column.cells.push_back({printable(text)});
    for (const std::string& line : layout(columns, {{0, 1, {printable("driver does not answer"), Tone::bad}}}, {width}))
      RC_ASSERT(display_width(line) <= width);
  }));
}

TEST(Paint, OnlyWhereColourIsWanted) {
  EXPECT_EQ(paint("x", Tone::bad, {.colour = false}), "x");
  EXPECT_EQ(paint("x", Tone::bad, {.colour = true}), "\033[31mx\033[0m");
}

TEST(Wrapped, BreaksAtBlanksAndNowhereElse) {
  EXPECT_EQ(wrapped("one two three", 13), "one two three");
  EXPECT_EQ(wrapped("one two three", 8), "one two\nthree");
  EXPECT_EQ(wrapped("a   bb cc", 6, 4), "a   bb\n    cc");
  EXPECT_EQ(wrapped("unbreakably long", 4, 2), "unbreakably\n  long");
  EXPECT_EQ(wrapped("ää öö", 2), "ää\nöö");
  EXPECT_EQ(wrapped("", 5), "");
  EXPECT_EQ(wrapped("trailing blanks   ", 10), "trailing\nblanks");
}

}  // namespace
}  // namespace lull
