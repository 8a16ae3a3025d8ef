#pragma once
// Return addresses: the place behind a call in machine code. For x86-64 and aarch64.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace lull {

enum class Processor : std::uint8_t { x86_64, aarch64 };
#ifdef __aarch64__
inline constexpr Processor kThisProcessor = Processor::aarch64;
#else
inline constexpr Processor kThisProcessor = Processor::x86_64;
#endif

inline constexpr std::size_t kLongestCall = 7;

// `code`: the kLongestCall bytes before the place. Old return addresses and numbers may look the same.
inline bool ends_with_call(std::string_view code, Processor processor = kThisProcessor) {
  if (code.size() != kLongestCall) return false;
  if (processor == Processor::aarch64) {
    std::uint32_t word = 0;
    std::memcpy(&word, code.data() + kLongestCall - sizeof word, sizeof word);
    const bool to_a_place = (word & 0xFC000000) == 0x94000000;              // BL
    const bool by_register = (word & 0xFFFFFC1F) == 0xD63F0000;             // BLR
    return to_a_place || by_register || (word & 0xFEFFF800) == 0xD63F0800;  // BLRAA and its like check a signature
  }
  const auto byte = [&](std::size_t back) { return static_cast<unsigned char>(code[kLongestCall - back]); };
  if (byte(5) == 0xE8) return true;  // call to a place
  for (const std::size_t length : {2U, 3U, 4U, 6U, 7U})
    if (byte(length) == 0xFF && (byte(length - 1) >> 3 & 7) == 2) return true;  // call by register or memory
  return false;
}

// A return address on a stack of aarch64 may be signed, in the bits that no address of a program has.
inline std::uint64_t without_signature(std::uint64_t word, Processor processor = kThisProcessor) {
  constexpr std::uint64_t kAddress = (std::uint64_t{1} << 48) - 1;
  return processor == Processor::aarch64 ? word & kAddress : word;
}

}  // namespace lull
