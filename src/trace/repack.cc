#include "trace/repack.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>

#include "base/fd.h"
#include "base/text.h"
#include "trace/bytes.h"
#include "trace/rollup.h"

namespace lull::trace {
namespace {

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
  // Until it is replaced, so that nobody appends to what goes.
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
