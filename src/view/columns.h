#pragma once
// Text laid out for a terminal: how wide it is on the screen, cutting it to fit,
// and tables that give up columns one by one when the screen is narrow.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lull {

// What the screen that we write to can show.
struct Screen {
  std::size_t width = 80;
  std::size_t height = 24;
  bool utf8 = true;
  bool colour = false;
};

// Cells that the text takes on the screen: combining marks none, wide letters two.
std::size_t display_width(std::string_view text);

// The text cut to at most `width` cells, the cut marked; never longer, never half a letter.
std::string fit(std::string_view text, std::size_t width, bool utf8 = true);

// A sentence in lines of at most `width` cells, broken at blanks; those after the first begin with `indent` of them. A
// word that is longer than a line is left whole: what it names can then still be copied.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent = 0);

// The text as fit() cuts it, padded with blanks to exactly `width` cells.
enum class Align : bool { left, right };
std::string pad(std::string_view text, std::size_t width, Align align, bool utf8 = true);

// Without UTF-8, what is outside ASCII becomes '?'.
std::string for_screen(std::string_view text, const Screen& screen);

enum class Tone : unsigned char { plain, dim, good, warn, bad, strong };
std::string paint(std::string_view text, Tone tone, const Screen& screen);

struct Cell {
  std::string text;
  Tone tone = Tone::plain;
};

struct Column {
  std::string title;
  Align align = Align::left;
  int give_up = 0;            // the highest goes first when there is no room; 0: never
  std::size_t shrink_to = 0;  // is cut down to so many cells before it goes; 0: takes what it needs
  std::vector<Cell> cells;    // one per row
  std::size_t enough = 0;     // before any column goes, it is cut down only to so many; 0: to shrink_to
};

// A text that takes a row's place from a column on ("GPU is lost").
struct RowText {
  std::size_t row;
  std::size_t from_column;
  Cell cell;
};

// Lines without trailing blanks, the first one the titles.
std::vector<std::string> layout(const std::vector<Column>& columns, const std::vector<RowText>& spans,
                                const Screen& screen);

}  // namespace lull
