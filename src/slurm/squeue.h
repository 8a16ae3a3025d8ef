#pragma once
// Fields of squeue's --Format, and the cells of a line that it prints for them. A cell as wide as its field may have
// been cut off.

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/text.h"

namespace lull::slurm {

struct Field {
  std::string_view name;
  std::size_t width;
};

template <std::size_t N>
std::string format_option(const std::array<Field, N>& fields) {
  std::string format = "--Format=";
  for (const Field& field : fields) {
    if (&field != fields.data()) format += ',';
    format.append(field.name).append(":").append(std::to_string(field.width));
  }
  return format;
}

template <std::size_t N>
std::array<std::string_view, N> cells_of(std::string_view line, const std::array<Field, N>& fields) {
  std::array<std::string_view, N> cells;
  std::size_t at = 0;
  for (std::size_t i = 0; i < N && at < line.size(); at += fields[i].width, ++i)
    cells[i] = trim(line.substr(at, fields[i].width));
  return cells;
}

inline std::string name_or_none(std::string_view cell) {
  return cell == "(null)" || cell == "N/A" ? "" : std::string(cell);
}

}  // namespace lull::slurm
