#pragma once
// The functions and variables that an ELF file names: where another process is, told without stopping it. The file is
// input from outside: every offset is checked against its size.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

class ElfSymbols {
 public:
  // Of a 64-bit file of this machine's byte order. What is not one is an error.
  static Result<ElfSymbols> read(const std::string& path);
  // `bytes(offset, size)` gives a part of the file: less at its end. It is not mapped: another process may truncate it.
  using Bytes = std::function<std::string(std::uint64_t offset, std::uint64_t size)>;
  static Result<ElfSymbols> parse(const Bytes& bytes);

  // The address that the file gives a symbol.
  std::optional<std::uint64_t> find(std::string_view name) const;
  // The function that this address of the file is in. Empty: none that is named.
  std::string function_at(std::uint64_t address) const;
  // The address of the file's first byte, which its first mapping shows.
  std::uint64_t base() const { return base_; }

 private:
  struct Symbol {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    bool function = false;
    std::string name;
  };
  std::uint64_t base_ = 0;
  std::vector<Symbol> symbols_;  // by address
};

}  // namespace lull
