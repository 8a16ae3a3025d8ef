#pragma once
// Packed bytes into plain ones: gzip, zstd, xz and bzip2, told by their first bytes.
// Several members, frames or streams in a row are one, as the tools read them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace lull::trace {

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

}  // namespace lull::trace
