#include "view/report_table.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "replay/output.h"

namespace lull {
namespace {

Column column(std::string title, Align align, int give_up = 0) {
  Column made;
  made.title = std::move(title);
  made.align = align;
  made.give_up = give_up;
  return made;
}

}  // namespace

std::string report_table(const replay::ReportResult& result, replay::ReportBy by, std::optional<double> price,
                         const Screen& screen) {
  using replay::ReportBy;
  const bool all = by == ReportBy::all;
  std::vector<Column> columns;
  const auto add = [&](std::string title, Align align, int give_up = 0) {
    columns.push_back(column(std::move(title), align, give_up));
    return columns.size() - 1;
  };
  if (all || by == ReportBy::user) add("USER", Align::left);
  if (all || by == ReportBy::command) add("COMMAND", Align::left);
  if (all || by == ReportBy::host) add("HOST", Align::left);
  add("GPU-HOURS", Align::right);
  add("BUSY", Align::right);
  add("HELD IDLE", Align::right);
  add("HUNG", Align::right);
  add("FREE", Align::right, 2);
  add("NOT KNOWN", Align::right, 3);
  add("kWh", Align::right, 1);
  if (price) add("WASTED", Align::right);
  const auto row = [&](const std::vector<std::string>& names, const replay::Use& use, Tone tone) {
    std::vector<Cell> cells;
    for (const std::string& name : names) cells.push_back({printable(name), tone});
    const auto hours = [](double seconds) { return fmt::format("{:.1f}", replay::hours(seconds)); };
    cells.push_back({hours(use.seconds()), tone});
    cells.push_back({hours(use.busy), tone});
    cells.push_back({hours(use.idle), use.idle > 0 ? Tone::warn : tone});
    cells.push_back({result.judges_hangs ? hours(use.hung) : "-", use.hung > 0 ? Tone::bad : tone});
    cells.push_back({hours(use.free), tone});
    cells.push_back({hours(use.unknown), tone});
    cells.push_back({use.powered > 0 ? fmt::format("{:.1f}", use.joules / 3.6e6) : "-", tone});
    if (price) cells.push_back({fmt::format("{:.2f}", replay::hours(use.idle + use.hung) * *price), tone});
    for (std::size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back(std::move(cells[i]));
  };
  for (const replay::UseOf& of : add_up(result, by)) {
    if (all)
      row({whose_text(of, ReportBy::user), of.nobody ? "" : whose_text(of, ReportBy::command),
           of.host.empty() ? "not told" : of.host},
          of.use, Tone::plain);
    else
      row({whose_text(of, by)}, of.use, Tone::plain);
  }
  std::vector<std::string> total(all ? 3 : 1);
  total[0] = "total";
  row(total, result.total, Tone::strong);
  std::string out =
      wrapped(report_answer(result, price), screen.width) + "\n" + wrapped(report_basis(result), screen.width) + "\n\n";
  for (const std::string& line : layout(columns, {}, screen)) out += line + "\n";
  return out;
}

}  // namespace lull
