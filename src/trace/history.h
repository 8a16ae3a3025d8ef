#pragma once
// A folder with a trace for each day, as `lull record --history` writes it: 2026-11-17.csv.zst. A day whose file could
// not be continued goes on in 2026-11-17_2.csv.zst.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/time_range.h"

struct stat;

namespace lull::trace {

using Day = std::chrono::sys_days;  // of the local calendar

struct DayFile {
  Day day;
  unsigned part = 1;
  std::string name;  // in its folder
};

Day local_day(WallTime at);
std::string day_file_name(Day day, unsigned part);
std::optional<DayFile> parse_day_file(std::string_view name);

bool is_folder(const std::string& path);
// All of a folder, oldest first. Other files are left alone.
Result<std::vector<DayFile>> list_days(const std::string& folder);
// The paths of those that may have rows of the range. None: said with what the folder has.
Result<std::vector<std::string>> days_within(const std::string& folder, const TimeRange& range);

inline constexpr std::string_view kUnfinishedEnding = ".new";  // of a hidden file that is being written
// Who can read the day that a file is made of can read the file.
Result<> share_as(const struct stat& day, int file, const std::string& path);

// Removes the oldest days until `keep` are left; how many files that were. It counts days that were recorded, so that a
// clock that was set wrong removes nothing.
Result<std::size_t> remove_old_days(const std::string& folder, std::size_t keep);

// What the recorder of a folder says of itself, in the file by which there is only one: .lock. Its room is taken when
// recording begins, so that a full disk can be said there.
struct RecorderState {
  enum class Kind : std::uint8_t { none, recording, stopped, failed };
  Kind kind = Kind::none;  // none: never recorded, or by an older version
  WallTime since{};
  Duration every{};
  std::string why = {};  // it failed
  std::string to_text() const;
  static RecorderState parse(std::string_view text);
};
std::string lock_path(const std::string& folder);
Result<> write_state(int lock, const RecorderState& state);

// Whether a folder is being recorded into, for a person.
struct Recording {
  RecorderState state;
  std::optional<WallTime> last_row;  // when the newest file was written to
  std::size_t days = 0;
  std::uint64_t bytes = 0;                  // of all days
  std::optional<std::uint64_t> free_bytes;  // on its disk, for whoever is not root
  bool read_only = false;
  std::string trouble;  // empty: all is well
};
Recording look_at_recording(const std::string& folder, WallTime now);

// ---- packing days anew
//
// A recorder writes a frame per sample, so that a crash loses little. Thousands of small frames take four times the
// space of large ones, and twice the time to read. So days that are over are packed anew, with the same rows.

// Whether the file begins with frames as a recorder writes them.
Result<bool> has_small_frames(const std::string& path);

// Replaces the file by one with the same rows in large frames, once that is whole on the disk and was read back. What a
// crash cut off is removed. A file that is damaged, or in use by a writer, is left unchanged: an error. How many bytes
// it has now.
Result<std::uint64_t> repack(const std::string& path);

// All days before `today` that need it, with their roll-ups (trace/rollup.h). What a repack that was killed left behind
// goes. The first error, after all of them were tried.
Result<> repack_days(const std::string& folder, Day today);

}  // namespace lull::trace
