#include "trace/history.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <set>

#include "base/fd.h"
#include "base/text.h"

namespace lull::trace {
namespace {

constexpr std::string_view kEnding = ".csv.zst";
constexpr unsigned kMostParts = 99;

std::string date_of(Day day) {
  const std::chrono::year_month_day date(day);
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

}  // namespace

Day local_day(WallTime at) {
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(at).time_since_epoch().count();
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return std::chrono::year(parts.tm_year + 1900) / (parts.tm_mon + 1) / parts.tm_mday;
}

std::string day_file_name(Day day, unsigned part) {
  return date_of(day) + (part > 1 ? "_" + std::to_string(part) : "") + std::string(kEnding);
}

std::optional<DayFile> parse_day_file(std::string_view name) {
  constexpr std::size_t kDate = 10;
  if (name.size() < kDate + kEnding.size() || !name.ends_with(kEnding)) return std::nullopt;
  const auto year = to_unsigned(name.substr(0, 4));
  const auto month = to_unsigned(name.substr(5, 2));
  const auto day = to_unsigned(name.substr(8, 2));
  if (!year || !month || !day) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return std::nullopt;
  DayFile file{date, 1, std::string(name)};
  const std::string_view part = name.substr(kDate, name.size() - kDate - kEnding.size());
  if (!part.empty()) file.part = static_cast<unsigned>(to_unsigned(part.substr(1)).value_or(0));
  // Only what we would write ourselves.
  if (file.part < 1 || file.part > kMostParts || day_file_name(file.day, file.part) != name) return std::nullopt;
  return file;
}

bool is_folder(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

Result<std::vector<DayFile>> list_days(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (open == nullptr) return fail(errno, "read " + folder);
  std::vector<DayFile> days;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr) break;
    if (auto file = parse_day_file(entry->d_name)) days.push_back(*std::move(file));
  }
  if (errno != 0) return fail(errno, "read " + folder);
  std::ranges::sort(
      days, [](const DayFile& a, const DayFile& b) { return a.day != b.day ? a.day < b.day : a.part < b.part; });
  return days;
}

Result<std::vector<std::string>> days_within(const std::string& folder, const TimeRange& range) {
  const std::vector<DayFile> days = TRY(list_days(folder));
  if (days.empty())
    return fail(fmt::format("{} has no file such as {}, which `lull record --history` writes: name the files to read",
                            printable(folder), day_file_name(Day(std::chrono::days(20774)), 1)));
  // The zone of the recording may be another one: a day more on both sides.
  const auto day_of = [](const TimeRange::Bound& bound) { return local_day(WallTime(Duration(bound.moment))); };
  std::vector<std::string> paths;
  for (const DayFile& file : days) {
    if (range.from && file.day + std::chrono::days(1) < day_of(*range.from)) continue;
    if (range.to && file.day - std::chrono::days(1) > day_of(*range.to)) continue;
    paths.push_back(folder + (folder.ends_with('/') ? "" : "/") + file.name);
  }
  if (paths.empty())
    return fail(fmt::format("{} has nothing {}: its days are {} to {}", printable(folder), format_range(range),
                            date_of(days.front().day), date_of(days.back().day)));
  return paths;
}

Result<std::size_t> remove_old_days(const std::string& folder, std::size_t keep) {
  const std::vector<DayFile> files = TRY(list_days(folder));
  std::set<Day> days;
  for (const DayFile& file : files) days.insert(file.day);
  if (days.size() <= keep) return 0;
  const Day oldest_kept = *std::next(days.begin(), static_cast<std::ptrdiff_t>(days.size() - keep));
  std::size_t removed = 0;
  for (const DayFile& file : files) {
    if (file.day >= oldest_kept) break;
    const std::string path = folder + "/" + file.name;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail(errno, "remove " + path);
    ++removed;
  }
  return removed;
}

}  // namespace lull::trace
