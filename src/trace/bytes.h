#pragma once
// The bytes of a trace, unpacked on the way, in chunks that end at the end of a line
// (or anywhere, where lines mean nothing). Files are read, not mapped, so that a
// trace of any size costs a few chunks of memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace lull::trace {

// Packed bytes into plain ones: gzip, zstd, xz and bzip2, told by their first bytes.
// Several members, frames or streams in a row are one, as the tools read them.
enum class Packing : std::uint8_t { none, gzip, zstd, xz, bzip2 };
Packing packing_by_magic(std::string_view first_bytes);
Packing packing_by_name(std::string_view path);  // .gz, .zst, .xz, .bz2

class Unpacker {
 public:
  Unpacker() = default;
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;
  virtual ~Unpacker() = default;

  struct Step {
    std::size_t taken = 0;  // of the input
    std::size_t made = 0;   // of the output
    bool between = false;   // all frames so far are complete
  };
  virtual Result<Step> unpack(std::string_view from, char* to, std::size_t capacity) = 0;

  static std::unique_ptr<Unpacker> create(Packing packing);  // null: nothing to unpack
};

class ByteSource {
 public:
  static Result<ByteSource> open(const std::string& path);
  // Takes over a descriptor that can be read from its present position on.
  static Result<ByteSource> from(Fd fd, std::string name);

  // Fills `to`; fewer bytes than `capacity` only at the end.
  Result<std::size_t> read(char* to, std::size_t capacity);

  std::uint64_t taken() const { return taken_; }  // bytes of the file so far
  std::uint64_t size() const { return size_; }    // of the file; 0: not known
  bool packed() const { return unpacker_ != nullptr; }
  // Non-empty: the packed stream broke off or is damaged; what came before was used.
  const std::string& damage() const { return damage_; }

 private:
  Result<std::size_t> read_raw(char* to, std::size_t capacity);

  Fd fd_;
  std::string name_;
  std::unique_ptr<Unpacker> unpacker_;  // null: plain
  std::vector<char> packed_;
  std::size_t packed_from_ = 0;
  std::size_t packed_to_ = 0;
  bool between_ = true;
  bool ended_ = false;
  std::uint64_t taken_ = 0;
  std::uint64_t size_ = 0;
  std::string damage_;
};

// Whole lines. Room for a vector load follows the last byte, which is a newline.
struct Chunk {
  std::vector<char> bytes;
  std::size_t size = 0;
  bool first = false;         // begins with the first byte of the file
  bool unterminated = false;  // the last line of the file had no end; it got one
  std::uint64_t taken = 0;    // bytes of the file that were read so far

  const char* begin() const { return bytes.data(); }
  const char* end() const { return bytes.data() + size; }
  std::string_view text() const { return {bytes.data(), size}; }
};

class Chunker {
 public:
  static constexpr std::size_t kPadding = 64;
  static constexpr std::size_t kLongestLine = 1U << 20;

  explicit Chunker(ByteSource source, std::size_t target = 1U << 20, bool lines = true)
      : source_(std::move(source)), target_(target), lines_(lines) {}

  // False at the end.
  Result<bool> next(Chunk& chunk);
  const ByteSource& source() const { return source_; }

 private:
  Result<bool> next_piece(Chunk& chunk);

  ByteSource source_;
  std::size_t target_;
  bool lines_;  // false: a chunk may end anywhere
  std::string carry_;
  bool first_ = true;
  bool skipping_ = false;  // the rest of a line that is too long to be one
  bool ended_ = false;
};

}  // namespace lull::trace
