#include "trace/history.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "trace/bytes.h"
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

constexpr std::size_t kLargeFrame = 4U << 20;  // of rows
constexpr std::size_t kSmallFrame = 1U << 20;
constexpr int kLevel = 6;

struct Sum {
  std::uint64_t bytes = 0;
  uLong crc = ::crc32(0, nullptr, 0);
  void add(std::string_view text) {
    bytes += text.size();
    crc = ::crc32_z(crc, reinterpret_cast<const Bytef*>(text.data()), text.size());
  }
  bool operator==(const Sum&) const = default;
};

// Gives all text of a packed file, in pieces; whether it ends with a whole frame.
template <typename Take>
Result<bool> unpack_all(int fd, const std::string& path, Take take) {
  std::string bytes(256U << 10, '\0');
  std::string out(1U << 20, '\0');
  const auto unpacker = Unpacker::create(Packing::zstd);
  bool between = true;
  for (off_t offset = 0;;) {
    const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno, "read " + path);
    if (got == 0) return between;
    offset += got;
    std::string_view left(bytes.data(), static_cast<std::size_t>(got));
    for (std::size_t made = 1; !left.empty() || made > 0;) {
      const auto step = unpacker->unpack(left, out.data(), out.size());
      if (!step) return fail(fmt::format("{} is damaged near byte {}", printable(path), offset));
      made = step->made;
      left.remove_prefix(step->taken);
      between = step->between;
      if (made > 0) TRY(take(std::string_view(out.data(), made)));
      if (between && left.empty()) break;
    }
  }
}

class LargeFrames {
 public:
  explicit LargeFrames(int fd) : fd_(fd), context_(::ZSTD_createCCtx(), &::ZSTD_freeCCtx) {}

  Result<> add(std::string_view text) {
    rows_ += text;
    // The first line is a frame of its own, by which the writer knows its files.
    if (!begun_) {
      const std::size_t end = rows_.find('\n');
      if (end == std::string::npos) return {};
      begun_ = true;
      TRY(put(end + 1));
    }
    while (rows_.size() >= kLargeFrame) {
      const std::size_t end = rows_.rfind('\n', kLargeFrame - 1);
      if (end == std::string::npos) return fail("it has a row without an end");
      TRY(put(end + 1));
    }
    return {};
  }
  // Half a row goes.
  Result<Sum> finish() {
    TRY(put(rows_.rfind('\n') + 1));  // npos + 1 is 0
    return sum_;
  }

 private:
  Result<> put(std::size_t size) {
    if (size == 0) return {};
    const std::string_view text(rows_.data(), size);
    std::string frame(::ZSTD_compressBound(size), '\0');
    const std::size_t packed = context_ == nullptr ? 0
                                                   : ::ZSTD_compressCCtx(context_.get(), frame.data(), frame.size(),
                                                                         text.data(), size, kLevel);
    if (packed == 0 || ::ZSTD_isError(packed) != 0) return fail("zstd: it cannot be packed");
    TRY(write_all(fd_, std::string_view(frame).substr(0, packed)));
    sum_.add(text);
    rows_.erase(0, size);
    return {};
  }

  int fd_;
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context_;
  std::string rows_;
  Sum sum_;
  bool begun_ = false;
};

struct Place {
  std::string folder;
  std::string name;
  std::string whole() const { return folder + "/" + name; }
  std::string unfinished() const { return folder + "/." + name + std::string(kUnfinishedEnding); }
};

Place place_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

Result<> write_anew(const Fd& from, const struct stat& status, const Place& place) {
  const std::string path = place.unfinished();
  const Fd to = TRY(open_file(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
  TRY(share_as(status, to.get(), path));
  LargeFrames frames(to.get());
  TRY(unpack_all(from.get(), place.whole(), [&](std::string_view text) { return frames.add(text); }));
  const Sum written = TRY(frames.finish());
  Sum read;
  const bool complete = TRY(unpack_all(to.get(), path, [&](std::string_view text) {
    read.add(text);
    return Result<>();
  }));
  if (!complete || read != written) return fail(printable(path) + " is not what was written");
  const std::array times = {status.st_atim, status.st_mtim};
  if (::futimens(to.get(), times.data()) != 0 || ::fsync(to.get()) != 0) return fail(errno, "write " + path);
  return {};
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
  const Duration silence = std::max(kShortestSilence, kSilentIntervals * state.every);
  if (seen.last_row && now - *seen.last_row <= silence) return {};
  std::string text = seen.last_row ? "nothing has been recorded since " +
                                         format_rfc3339(std::chrono::floor<std::chrono::seconds>(*seen.last_row), 0)
                                   : printable(folder) + " has no day yet";
  // Only a reason where nothing comes: a mount that is read-only here may not be for the recorder.
  if (seen.read_only) return text + ": the folder is on a read-only file system";
  if (seen.free_bytes == 0) return text + ": the disk is full";
  return seen.last_row ? text : text + ": `lull record --history` writes it";
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

// ---- packing days anew

Result<bool> has_small_frames(const std::string& path) {
  const Fd fd = TRY(open_file(path, O_RDONLY | O_NOFOLLOW));
  std::string head(kSmallFrame, '\0');
  const ssize_t got = ::pread(fd.get(), head.data(), head.size(), 0);
  if (got < 0) return fail(errno, "read " + path);
  std::string_view left(head.data(), static_cast<std::size_t>(got));
  // The first is the header's. The second is small, and not the last.
  for (int frame = 0; frame < 2; ++frame) {
    const unsigned long long size = ::ZSTD_getFrameContentSize(left.data(), left.size());
    if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR || size >= kSmallFrame) return false;
    const std::size_t packed = ::ZSTD_findFrameCompressedSize(left.data(), left.size());
    if (::ZSTD_isError(packed) != 0) return false;
    left.remove_prefix(packed);
  }
  return !left.empty();
}

Result<std::uint64_t> repack(const std::string& path) {
  const Place place = place_of(path);
  const Fd from = TRY(open_file(path, O_RDWR | O_NOFOLLOW));
  // Until it is replaced, so that no recorder appends to the old file.
  if (::flock(from.get(), LOCK_EX | LOCK_NB) != 0) return fail(errno, "lock " + path);
  struct stat status{};
  if (::fstat(from.get(), &status) != 0) return fail(errno, "stat " + path);
  const std::string unfinished = place.unfinished();
  if (auto written = write_anew(from, status, place); !written) {
    ::unlink(unfinished.c_str());
    return std::unexpected(std::move(written).error());
  }
  struct stat now{};
  if (::stat(unfinished.c_str(), &now) != 0 || ::rename(unfinished.c_str(), path.c_str()) != 0)
    return fail(errno, "rename " + unfinished);
  const Fd folder = TRY(open_file(place.folder, O_RDONLY | O_DIRECTORY));
  (void)::fsync(folder.get());
  return static_cast<std::uint64_t>(now.st_size);
}

namespace {

Result<> pack(const std::string& path) {
  if (TRY(has_small_frames(path))) TRY(repack(path));
  return roll_up(path);
}

// A file that was not finished, or the roll-up of a day that is gone.
bool is_left_over(const std::string& folder, std::string_view name) {
  if (!name.starts_with('.')) return false;
  name.remove_prefix(1);
  const bool unfinished = name.ends_with(kUnfinishedEnding);
  if (unfinished) name.remove_suffix(kUnfinishedEnding.size());
  const bool rollup = name.ends_with(kRollUpEnding);
  if (rollup) name.remove_suffix(kRollUpEnding.size());
  if (!parse_day_file(name)) return false;
  return unfinished || (rollup && ::access((folder + "/" + std::string(name)).c_str(), F_OK) != 0 && errno == ENOENT);
}

}  // namespace

Result<> repack_days(const std::string& folder, Day today) {
  if (const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir); open != nullptr)
    while (const dirent* entry = ::readdir(open.get())) {
      if (is_left_over(folder, entry->d_name)) ::unlink((folder + "/" + entry->d_name).c_str());
    }
  std::optional<Error> first;
  for (const DayFile& file : TRY(list_days(folder))) {
    if (file.day >= today) continue;
    const std::string path = folder + "/" + file.name;
    auto done = pack(path);
    if (!done && !first) first = std::move(done).error();
  }
  if (first) return std::unexpected(*std::move(first));
  return {};
}

}  // namespace lull::trace
