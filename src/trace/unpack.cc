#include "trace/unpack.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>

namespace lull::trace {
namespace {

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
