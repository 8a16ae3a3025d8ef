#include "act/call_site.h"

#include <gtest/gtest.h>

#include <string>

namespace lull {
namespace {

using namespace std::string_literals;

bool on_x86(const std::string& code) {
  return ends_with_call(std::string(kLongestCall - code.size(), '\x90') + code, Processor::x86_64);
}

bool on_arm(std::uint32_t word) {
  std::string code(kLongestCall, '\0');
  std::memcpy(code.data() + kLongestCall - sizeof word, &word, sizeof word);
  return ends_with_call(code, Processor::aarch64);
}

TEST(CallSite, CallsOfX86) {
  EXPECT_TRUE(on_x86("\xE8\x10\x20\x30\x00"s)) << "call 0x302010";
  EXPECT_TRUE(on_x86("\xFF\xD0"s)) << "call rax";
  EXPECT_TRUE(on_x86("\x41\xFF\x54\x24\x08"s)) << "call [r12 + 8]";
  EXPECT_TRUE(on_x86("\xFF\x15\x10\x20\x30\x00"s)) << "call [rip + 0x302010]";
  EXPECT_FALSE(on_x86("\xE9\x10\x20\x30\x00"s)) << "jmp";
  EXPECT_FALSE(on_x86("\xFF\xE0"s)) << "jmp rax";
  EXPECT_FALSE(on_x86("\x48\x89\xC7"s)) << "mov rdi, rax";
  EXPECT_FALSE(ends_with_call("\xFF\xD0", Processor::x86_64)) << "too little was read";
}

TEST(CallSite, CallsOfArm) {
  EXPECT_TRUE(on_arm(0x94000001)) << "bl";
  EXPECT_TRUE(on_arm(0x97FFFFFF)) << "bl, backwards";
  EXPECT_TRUE(on_arm(0xD63F0100)) << "blr x8";
  EXPECT_TRUE(on_arm(0xD63F091F)) << "blraaz x8";
  EXPECT_TRUE(on_arm(0xD73F0909)) << "blraa x8, x9";
  EXPECT_TRUE(on_arm(0xD73F0D09)) << "blrab x8, x9";
  EXPECT_FALSE(on_arm(0x14000001)) << "b";
  EXPECT_FALSE(on_arm(0xD61F0100)) << "br x8";
  EXPECT_FALSE(on_arm(0xD65F03C0)) << "ret";
  EXPECT_FALSE(on_arm(0xD503201F)) << "nop";
  EXPECT_FALSE(on_arm(0xAA0003F3)) << "mov x19, x0";
}

TEST(CallSite, ASignedAddressIsReadWithoutItsSignature) {
  EXPECT_EQ(without_signature(0x002A'FFFF'8123'4568, Processor::aarch64), 0xFFFF'8123'4568U);
  EXPECT_EQ(without_signature(0x002A'FFFF'8123'4568, Processor::x86_64), 0x002A'FFFF'8123'4568U);
}

}  // namespace
}  // namespace lull
