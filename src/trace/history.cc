#include "trace/history.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <limits>
#include <memory>
#include <set>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "trace/rollup.h"

namespace lull::trace {
namespace {

constexpr std::string_view kEnding = ".csv.zst";
constexpr unsigned kMostParts = 99;
constexpr std::size_t kStateSize = 1024;
constexpr std::array<std::string_view, 4> kStateNames = {"none", "recording", "stopped", "failed"};
constexpr Duration kShortestSilence = std::chrono::seconds(60);  // before it is said that nothing comes
constexpr int kSilentIntervals = 4;

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

Result<> share_as(const struct stat& day, int file, const std::string& path) {
  if (::fchmod(file, day.st_mode & 07777) != 0) return fail(errno, "write " + path);
  if (::fchown(file, day.st_uid, day.st_gid) != 0 && errno != EPERM) return fail(errno, "write " + path);
  return {};
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
    ::unlink(rollup_path(path).c_str());
    ++removed;
  }
  return removed;
}

std::string lock_path(const std::string& folder) { return folder + "/.lock"; }

std::string RecorderState::to_text() const {
  return fmt::format("{}\n{}\n{}\n{}\n", kStateNames[static_cast<std::size_t>(kind)], since.time_since_epoch().count(),
                     every.count(), printable(why));
}

RecorderState RecorderState::parse(std::string_view text) {
  std::array<std::string_view, 4> lines;
  for (std::string_view& line : lines) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    line = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  const auto* const name = std::ranges::find(kStateNames, lines[0]);
  const auto since = to_unsigned(lines[1]);
  const auto every = to_unsigned(lines[2]);
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (name == kStateNames.end() || !since || !every || *since > kMost || *every > kMost) return {};
  return {static_cast<Kind>(name - kStateNames.begin()), WallTime(Duration(static_cast<std::int64_t>(*since))),
          Duration(static_cast<std::int64_t>(*every)), std::string(lines[3])};
}

Result<> write_state(int lock, const RecorderState& state) {
  std::string text = state.to_text();
  if (text.size() > kStateSize) text.replace(kStateSize - 1, std::string::npos, "\n");
  text.resize(kStateSize, '\n');
  if (::pwrite(lock, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return fail(errno, "write the state of the recording");
  return {};
}

namespace {

std::string trouble_of(const std::string& folder, const Recording& seen, WallTime now) {
  const RecorderState& state = seen.state;
  if (state.kind == RecorderState::Kind::failed)
    return fmt::format("recording failed {}: {}",
                       format_rfc3339(std::chrono::floor<std::chrono::seconds>(state.since), 0), state.why);
  if (seen.read_only)
    return fmt::format("{} is on a read-only file system: nothing can be recorded", printable(folder));
  const Duration silence = std::max(kShortestSilence, kSilentIntervals * state.every);
  if (!seen.last_row) return fmt::format("{} has no day yet: `lull record --history` writes it", printable(folder));
  if (now - *seen.last_row > silence)
    return fmt::format("nothing has been recorded since {}{}",
                       format_rfc3339(std::chrono::floor<std::chrono::seconds>(*seen.last_row), 0),
                       seen.free_bytes == 0 ? ": the disk is full" : "");
  return {};
}

}  // namespace

Recording look_at_recording(const std::string& folder, WallTime now) {
  Recording seen;
  const auto days = list_days(folder);
  if (!days) {
    seen.trouble = days.error().message();
    return seen;
  }
  std::set<Day> all;
  for (const DayFile& file : *days) {
    struct stat status{};
    if (::stat((folder + "/" + file.name).c_str(), &status) != 0) continue;
    all.insert(file.day);
    seen.bytes += static_cast<std::uint64_t>(status.st_size);
    const WallTime written(std::chrono::seconds(status.st_mtim.tv_sec) +
                           std::chrono::nanoseconds(status.st_mtim.tv_nsec));
    seen.last_row = std::max(seen.last_row.value_or(written), written);
  }
  seen.days = all.size();
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) == 0) {
    seen.free_bytes = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
    seen.read_only = (disk.f_flag & ST_RDONLY) != 0;
  }
  if (const auto text = read_file(AT_FDCWD, lock_path(folder), kStateSize)) seen.state = RecorderState::parse(*text);
  seen.trouble = trouble_of(folder, seen, now);
  return seen;
}

}  // namespace lull::trace
