#include "trace/bytes.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lull::trace {
namespace {

constexpr std::size_t kRawBytes = 64U << 10;

}  // namespace

Result<ByteSource> ByteSource::open(const std::string& path) {
  return from(TRY(open_file(path, O_RDONLY | O_NOCTTY)), path);
}

Result<ByteSource> ByteSource::from(Fd fd, std::string name) {
  ByteSource source;
  source.fd_ = std::move(fd);
  source.name_ = std::move(name);
  struct stat status{};
  if (::fstat(source.fd_.get(), &status) != 0) return fail(errno, "stat " + source.name_);
  if (S_ISDIR(status.st_mode)) return fail(EISDIR, "read " + source.name_);
  if (S_ISREG(status.st_mode)) source.size_ = static_cast<std::uint64_t>(status.st_size);
  ::posix_fadvise(source.fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  source.packed_.resize(kRawBytes);
  source.packed_to_ = TRY(source.read_raw(source.packed_.data(), kRawBytes));
  source.unpacker_ = Unpacker::create(packing_by_magic({source.packed_.data(), source.packed_to_}));
  return source;
}

Result<std::size_t> ByteSource::read_raw(char* to, std::size_t capacity) {
  std::size_t total = 0;
  while (total < capacity) {
    const ssize_t got = ::read(fd_.get(), to + total, capacity - total);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno, "read " + name_);
    if (got == 0) break;
    total += static_cast<std::size_t>(got);
  }
  taken_ += total;
  return total;
}

Result<std::size_t> ByteSource::read(char* to, std::size_t capacity) {
  std::size_t made = 0;
  while (made < capacity && !ended_) {
    const std::size_t left = packed_to_ - packed_from_;
    if (unpacker_ == nullptr) {
      const std::size_t part = std::min(left, capacity - made);
      std::memcpy(to + made, packed_.data() + packed_from_, part);
      packed_from_ += part;
      made += part;
      if (made == capacity) break;
      const std::size_t got = TRY(read_raw(to + made, capacity - made));
      if (got < capacity - made) ended_ = true;
      made += got;
      break;
    }
    if (left == 0) {
      packed_from_ = 0;
      packed_to_ = TRY(read_raw(packed_.data(), packed_.size()));
    }
    const bool dry = packed_to_ == packed_from_;
    if (dry && between_) {
      ended_ = true;
      break;
    }
    auto step =
        unpacker_->unpack({packed_.data() + packed_from_, packed_to_ - packed_from_}, to + made, capacity - made);
    if (!step) {
      damage_ = std::move(step).error().what;
      ended_ = true;
      break;
    }
    packed_from_ += step->taken;
    made += step->made;
    between_ = step->between;
    if (dry && step->made == 0) {
      if (!between_) damage_ = "the packed data breaks off";
      ended_ = true;
    }
  }
  return made;
}

// As many bytes as fit, whatever they are.
Result<bool> Chunker::next_piece(Chunk& chunk) {
  chunk.bytes.resize(std::max(chunk.bytes.size(), target_ + kPadding));
  chunk.size = TRY(source_.read(chunk.bytes.data(), target_));
  chunk.taken = source_.taken();
  std::memset(chunk.bytes.data() + chunk.size, '\n', kPadding);
  first_ = false;
  return chunk.size > 0;
}

Result<bool> Chunker::next(Chunk& chunk) {
  chunk.size = 0;
  chunk.first = first_;
  chunk.unterminated = false;
  if (!lines_) return next_piece(chunk);
  if (ended_ && carry_.empty()) return false;
  chunk.bytes.resize(std::max(chunk.bytes.size(), std::max(target_, carry_.size()) + kPadding));
  std::memcpy(chunk.bytes.data(), carry_.data(), carry_.size());
  std::size_t used = carry_.size();
  carry_.clear();
  const char* last = nullptr;
  while (last == nullptr && !ended_) {
    if (used + kPadding >= chunk.bytes.size()) chunk.bytes.resize(chunk.bytes.size() * 2);
    const std::size_t capacity = chunk.bytes.size() - kPadding - used;
    const std::size_t got = TRY(source_.read(chunk.bytes.data() + used, capacity));
    ended_ = got < capacity;
    const char* const fresh = chunk.bytes.data() + used;
    last = static_cast<const char*>(::memrchr(fresh, '\n', got));
    used += got;
    if (skipping_) {
      // Nobody writes a row this long: only its beginning was kept, to be counted as bad.
      const auto* const line_end = static_cast<const char*>(std::memchr(fresh, '\n', got));
      const std::size_t drop = line_end == nullptr ? got : static_cast<std::size_t>(line_end - fresh);
      std::memmove(chunk.bytes.data() + (used - got), fresh + drop, got - drop);
      used -= drop;
      if (last != nullptr) last -= drop;
      skipping_ = line_end == nullptr;
    } else if (last == nullptr && used > kLongestLine) {
      used = 4096;
      skipping_ = true;
    }
  }
  chunk.taken = source_.taken();
  if (used == 0) return false;
  first_ = false;
  if (last == nullptr) {  // the end of the file, in the middle of a line
    chunk.bytes[used++] = '\n';
    chunk.unterminated = true;
    last = chunk.bytes.data() + used - 1;
  }
  chunk.size = static_cast<std::size_t>(last - chunk.bytes.data()) + 1;
  carry_.assign(chunk.bytes.data() + chunk.size, used - chunk.size);
  std::memset(chunk.bytes.data() + chunk.size, '\n', kPadding);
  // A machine that crashed leaves runs of them where it had not written yet.
  if (std::memchr(chunk.bytes.data(), '\0', chunk.size) != nullptr)
    std::replace(chunk.bytes.begin(), chunk.bytes.begin() + static_cast<std::ptrdiff_t>(chunk.size), '\0', ' ');
  return true;
}

}  // namespace lull::trace
