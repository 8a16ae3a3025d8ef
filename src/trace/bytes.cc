#include "trace/bytes.h"

#include <bzlib.h>
#include <fmt/format.h>
#include <lzma.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lull::trace {
namespace {

constexpr std::size_t kRawBytes = 64U << 10;

class Gunzip final : public Unpacker {
 public:
  Gunzip() { ready_ = inflateInit2(&stream_, 15 + 16) == Z_OK; }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;
  ~Gunzip() override {
    if (ready_) inflateEnd(&stream_);
  }

  Result<Step> unpack(std::string_view from, char* to, std::size_t capacity) override {
    if (!ready_) return fail("gzip: no memory");
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(from.data()));
    stream_.avail_in = static_cast<uInt>(from.size());
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(capacity, 1U << 30));
    const uInt offered = stream_.avail_out;
    const int state = inflate(&stream_, Z_NO_FLUSH);
    const bool damaged = state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR;
    // What came out before the damage counts; inflate() will say it again.
    if (damaged && stream_.avail_out == offered) return fail("the gzip data is damaged");
    Step step{from.size() - stream_.avail_in, offered - stream_.avail_out, state == Z_STREAM_END};
    if (state == Z_STREAM_END) inflateReset(&stream_);
    return step;
  }

 private:
  z_stream stream_{};
  bool ready_ = false;
};

class Unzstd final : public Unpacker {
 public:
  Unzstd() : stream_(ZSTD_createDStream()) {}
  Unzstd(const Unzstd&) = delete;
  Unzstd& operator=(const Unzstd&) = delete;
  ~Unzstd() override { ZSTD_freeDStream(stream_); }

  Result<Step> unpack(std::string_view from, char* to, std::size_t capacity) override {
    if (stream_ == nullptr) return fail("zstd: no memory");
    ZSTD_inBuffer in{from.data(), from.size(), 0};
    ZSTD_outBuffer out{to, capacity, 0};
    const std::size_t state = ZSTD_decompressStream(stream_, &out, &in);
    if (ZSTD_isError(state) != 0) return fail("the zstd data is damaged");
    return Step{in.pos, out.pos, state == 0};
  }

 private:
  ZSTD_DStream* stream_;
};

class Unxz final : public Unpacker {
 public:
  Unxz() = default;
  Unxz(const Unxz&) = delete;
  Unxz& operator=(const Unxz&) = delete;
  ~Unxz() override { lzma_end(&stream_); }

  Result<Step> unpack(std::string_view from, char* to, std::size_t capacity) override {
    Step step;
    if (!open_) {  // between streams there may be zeros, to fill up to four bytes
      while (step.taken < from.size() && from[step.taken] == '\0') ++step.taken;
      step.between = true;
      if (step.taken == from.size()) return step;
      if (lzma_stream_decoder(&stream_, kMostMemory, 0) != LZMA_OK) return fail("xz: no memory");
      open_ = true;
    }
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(from.data()) + step.taken;
    stream_.avail_in = from.size() - step.taken;
    stream_.next_out = reinterpret_cast<std::uint8_t*>(to);
    stream_.avail_out = capacity;
    const lzma_ret state = lzma_code(&stream_, LZMA_RUN);
    if (state == LZMA_MEMLIMIT_ERROR) return fail("the xz data needs more than 256 MiB of memory to be unpacked");
    const bool damaged = state != LZMA_OK && state != LZMA_STREAM_END && state != LZMA_BUF_ERROR;
    step.made = capacity - stream_.avail_out;
    if (damaged && step.made == 0) return fail("the xz data is damaged");
    step.taken = from.size() - stream_.avail_in;
    step.between = state == LZMA_STREAM_END;
    open_ = !step.between;
    return step;
  }

 private:
  static constexpr std::uint64_t kMostMemory = std::uint64_t{256} << 20;  // xz -9 asks for 65 MiB
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool open_ = false;
};

class Bunzip2 final : public Unpacker {
 public:
  Bunzip2() = default;
  Bunzip2(const Bunzip2&) = delete;
  Bunzip2& operator=(const Bunzip2&) = delete;
  ~Bunzip2() override { close(); }

  Result<Step> unpack(std::string_view from, char* to, std::size_t capacity) override {
    if (!open_) {
      if (from.empty()) return Step{0, 0, true};
      stream_ = {};
      if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) return fail("bzip2: no memory");
      open_ = true;
    }
    stream_.next_in = const_cast<char*>(from.data());
    stream_.avail_in = static_cast<unsigned>(from.size());
    stream_.next_out = to;
    stream_.avail_out = static_cast<unsigned>(std::min<std::size_t>(capacity, 1U << 30));
    const unsigned offered = stream_.avail_out;
    const int state = BZ2_bzDecompress(&stream_);
    const Step step{from.size() - stream_.avail_in, offered - stream_.avail_out, state == BZ_STREAM_END};
    if (state != BZ_OK && state != BZ_STREAM_END && step.made == 0) return fail("the bzip2 data is damaged");
    if (step.between) close();
    return step;
  }

 private:
  void close() {
    if (open_) BZ2_bzDecompressEnd(&stream_);
    open_ = false;
  }
  bz_stream stream_{};
  bool open_ = false;
};

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
      // Too long for a row: only its beginning was kept, to be counted as bad.
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

// ---- unpacking

Packing packing_by_magic(std::string_view first_bytes) {
  if (first_bytes.starts_with("\x1f\x8b")) return Packing::gzip;
  if (first_bytes.starts_with("\x28\xb5\x2f\xfd")) return Packing::zstd;
  if (first_bytes.starts_with("\xfd"
                              "7zXZ"))
    return Packing::xz;
  // "BZh", the size of its blocks, and the first block's mark or that of the end.
  if (first_bytes.starts_with("BZh") && first_bytes.size() > 9 && first_bytes[3] >= '1' && first_bytes[3] <= '9' &&
      (first_bytes.substr(4, 6) == "1AY&SY" || first_bytes.substr(4, 6) == "\x17\x72\x45\x38\x50\x90"))
    return Packing::bzip2;
  return Packing::none;
}

Packing packing_by_name(std::string_view path) {
  if (path.ends_with(".gz")) return Packing::gzip;
  if (path.ends_with(".zst") || path.ends_with(".zstd")) return Packing::zstd;
  if (path.ends_with(".xz")) return Packing::xz;
  if (path.ends_with(".bz2")) return Packing::bzip2;
  return Packing::none;
}

std::unique_ptr<Unpacker> Unpacker::create(Packing packing) {
  switch (packing) {
    case Packing::none: return nullptr;
    case Packing::gzip: return std::make_unique<Gunzip>();
    case Packing::zstd: return std::make_unique<Unzstd>();
    case Packing::xz: return std::make_unique<Unxz>();
    case Packing::bzip2: return std::make_unique<Bunzip2>();
  }
  return nullptr;
}

}  // namespace lull::trace
