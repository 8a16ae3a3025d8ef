#include "view/columns.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace lull {
namespace {

constexpr std::size_t kBetween = 2;  // blanks between two columns

struct Letter {
  std::uint32_t code;
  std::size_t bytes;
};

// The first letter of a text that is valid UTF-8 (printable() sees to that);
// a stray byte counts as a letter of its own, so that this always gets on.
Letter first_letter(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
  if (length == 1 || length > text.size()) return {first, 1};
  std::uint32_t code = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code = (code << 6) | (byte(i) & 0x3FU);
  return {code, length};
}

struct CodeRange {
  std::uint32_t first, last;
};
// The blocks that terminals draw two cells wide, and those they draw on top of the
// letter before. Coarse on purpose: wcwidth(3) would need the user's locale loaded.
constexpr std::array kWide = {CodeRange{0x1100, 0x115F},   CodeRange{0x2E80, 0x303E},  CodeRange{0x3041, 0xA4CF},
                              CodeRange{0xAC00, 0xD7A3},   CodeRange{0xF900, 0xFAFF},  CodeRange{0xFE30, 0xFE6F},
                              CodeRange{0xFF00, 0xFF60},   CodeRange{0xFFE0, 0xFFE6},  CodeRange{0x1F300, 0x1F64F},
                              CodeRange{0x1F900, 0x1F9FF}, CodeRange{0x20000, 0x3FFFD}};
constexpr std::array kCombining = {CodeRange{0x0300, 0x036F}, CodeRange{0x1AB0, 0x1AFF}, CodeRange{0x1DC0, 0x1DFF},
                                   CodeRange{0x200B, 0x200F}, CodeRange{0x20D0, 0x20FF}, CodeRange{0xFE00, 0xFE0F},
                                   CodeRange{0xFE20, 0xFE2F}};

template <std::size_t N>
bool within(const std::array<CodeRange, N>& ranges, std::uint32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [=](CodeRange r) { return code >= r.first && code <= r.last; });
}

std::size_t cells_of(std::uint32_t code) { return within(kCombining, code) ? 0 : within(kWide, code) ? 2 : 1; }

// A column as it will be drawn: which one it is, and how many cells it gets.
struct Slot {
  std::size_t column;
  std::size_t width;
};

std::size_t needed(const Column& column) {
  std::size_t width = display_width(column.title);
  for (const Cell& cell : column.cells) width = std::max(width, display_width(cell.text));
  return width;
}

std::size_t total(const std::vector<Slot>& slots) {
  std::size_t sum = 0;
  for (const Slot& slot : slots) sum += slot.width + kBetween;
  return sum == 0 ? 0 : sum - kBetween;
}

std::size_t too_wide(const std::vector<Slot>& slots, std::size_t space) {
  const std::size_t all = total(slots);
  return all > space ? all - space : 0;
}

// Takes from a column what the line is too wide by, down to `least`.
void narrow(Slot& slot, std::size_t least, std::size_t over) {
  if (least > 0 && slot.width > least) slot.width = std::max(least, slot.width - std::min(slot.width, over));
}

// Columns that have more than enough give from that, the last one first. Where that does not do, the least wanted one
// is cut down to its least, then left out, and what it leaves is there for the others; and so on. Those that are never
// left out are cut down last of all.
std::vector<Slot> choose_columns(const std::vector<Column>& columns, std::size_t space) {
  std::vector<std::size_t> least;  // of each column
  for (const Column& column : columns) least.push_back(column.enough > 0 ? column.enough : column.shrink_to);
  std::vector<bool> left_out(columns.size());
  for (;;) {
    std::vector<Slot> slots;
    for (std::size_t i = 0; i < columns.size(); ++i)
      if (!left_out[i]) slots.push_back({i, needed(columns[i])});
    for (std::size_t i = slots.size(); i-- > 0;) narrow(slots[i], least[slots[i].column], too_wide(slots, space));
    if (too_wide(slots, space) == 0) return slots;
    const auto victim = std::ranges::max_element(slots, {}, [&](const Slot& slot) {
      const Column& column = columns[slot.column];
      return column.give_up > 0 ? column.give_up : least[slot.column] > column.shrink_to ? 0 : -1;
    });
    if (victim == slots.end()) return slots;
    const Column& column = columns[victim->column];
    if (least[victim->column] > column.shrink_to)
      least[victim->column] = column.shrink_to;
    else if (column.give_up > 0)
      left_out[victim->column] = true;
    else
      return slots;
  }
}

void drop_trailing_blanks(std::string& line) { line.resize(line.find_last_not_of(' ') + 1); }

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t cells = 0;
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    cells += cells_of(letter.code);
    text.remove_prefix(letter.bytes);
  }
  return cells;
}

std::string fit(std::string_view text, std::size_t width, bool utf8) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return {};
  std::size_t cells = 0;
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const Letter letter = first_letter(text.substr(bytes));
    if (cells + cells_of(letter.code) > width - 1) break;
    cells += cells_of(letter.code);
    bytes += letter.bytes;
  }
  return std::string(text.substr(0, bytes)) + (utf8 ? "…" : "~");
}

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  if (display_width(text) <= width) return std::string(text);
  std::string out;
  std::size_t column = 0;
  for (bool first = true; !text.empty(); first = false) {
    // Blanks before a word stay with it: they may align what is on the line.
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::size_t cells = display_width(text.substr(0, end));
    if (!first && column + cells > width) {
      out += "\n" + std::string(indent, ' ');
      out += text.substr(begin, end - begin);
      column = indent + display_width(text.substr(begin, end - begin));
    } else {
      out += text.substr(0, end);
      column += cells;
    }
    text.remove_prefix(end);
  }
  return out;
}

std::string pad(std::string_view text, std::size_t width, Align align, bool utf8) {
  const std::string cut = fit(text, width, utf8);
  const std::string blanks(width - std::min(width, display_width(cut)), ' ');
  return align == Align::left ? cut + blanks : blanks + cut;
}

std::string for_screen(std::string_view text, const Screen& screen) {
  if (screen.utf8) return std::string(text);
  std::string ascii;
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    ascii += letter.code < 0x80 ? static_cast<char>(letter.code) : '?';
    text.remove_prefix(letter.bytes);
  }
  return ascii;
}

std::string paint(std::string_view text, Tone tone, const Screen& screen) {
  if (!screen.colour || tone == Tone::plain || text.empty()) return std::string(text);
  constexpr std::array<std::string_view, 6> kCodes = {"0", "2", "32", "33", "31", "1"};
  return "\033[" + std::string(kCodes[static_cast<std::size_t>(tone)]) + "m" + std::string(text) + "\033[0m";
}

std::vector<std::string> layout(const std::vector<Column>& columns, const std::vector<RowText>& spans,
                                const Screen& screen) {
  const std::vector<Slot> slots = choose_columns(columns, screen.width);
  std::vector<std::string> lines;
  std::string titles;
  for (const Slot& slot : slots)
    titles += pad(columns[slot.column].title, slot.width, columns[slot.column].align, screen.utf8) +
              std::string(kBetween, ' ');
  drop_trailing_blanks(titles);
  lines.push_back(paint(fit(titles, screen.width, screen.utf8), Tone::dim, screen));

  const std::size_t rows = columns.empty() ? 0 : columns.front().cells.size();
  for (std::size_t row = 0; row < rows; ++row) {
    const auto span = std::find_if(spans.begin(), spans.end(), [=](const RowText& s) { return s.row == row; });
    std::string line;
    std::size_t used = 0;
    std::size_t blanks = 0;  // owed, and paid only if something follows: no line ends in blanks
    const auto put = [&](std::string_view text, std::size_t width, const Cell& cell) {
      line += std::string(blanks, ' ') + paint(text, cell.tone, screen);
      used += blanks + width;
      blanks = kBetween;
    };
    for (const Slot& slot : slots) {
      if (span != spans.end() && slot.column >= span->from_column) break;
      const Cell& cell = columns[slot.column].cells[row];
      const std::size_t space = screen.width - std::min(screen.width, used + blanks);
      const std::size_t width = std::min(slot.width, space);
      std::string text = pad(cell.text, width, columns[slot.column].align, screen.utf8);
      drop_trailing_blanks(text);
      if (text.empty()) {
        blanks += width + kBetween;
        continue;
      }
      const std::size_t drawn = display_width(text);
      put(text, drawn, cell);
      blanks += width - drawn;
    }
    if (span != spans.end()) {
      const std::size_t space = screen.width - std::min(screen.width, used + blanks);
      if (space > 0) put(fit(span->cell.text, space, screen.utf8), space, span->cell);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace lull
