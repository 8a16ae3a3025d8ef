#pragma once
// The board: all that a sampler and its sensor process share. One mapping, made before the fork (or of a file without a
// name, where the sensor is a program); a sensor that is left behind in a hanging call keeps a hold of its own on it,
// and nobody else looks at it any more.
//
// The parent writes which round it wants. The sensor's hands (threads) fill one slot a GPU, then the one of the machine
// (processes, holders of device files, topology), and ring the bell (an eventfd). A slot belongs to the hand that has
// set `busy_since`; its boxes are written before `round`, and read by the parent only while `round` is the wanted one,
// which no hand touches again. What the parent reads may all the same be nonsense, as a driver can write anywhere.
//
// Nothing of pthread stands here: where the driver has written over a mutex, glibc would end the parent.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lull {

inline constexpr unsigned kMostGpus = 128;

// A message: its size and its seal are written with it. Not cleared when it is made: the mapping is zeros already, and
// a page that nobody touches costs nothing.
template <std::size_t Bytes>
struct Box {
  std::uint32_t size;
  std::uint64_t seal;
  std::array<std::byte, Bytes> bytes;
  Box() {}  // NOLINT: that is the point
};

// Copies a message out before anybody judges it; false: it is not whole. `seal_of` is wire.h's.
std::uint64_t seal_of(std::span<const std::byte> bytes, std::uint64_t round);
template <std::size_t Bytes>
bool copy_box(const Box<Bytes>& box, std::uint64_t round, std::vector<std::byte>& room) {
  const std::size_t size = box.size;
  const std::uint64_t seal = box.seal;
  if (size > Bytes) return false;
  room.assign(box.bytes.data(), box.bytes.data() + size);
  return seal_of(room, round) == seal;
}

struct Slot {
  std::atomic<std::int64_t> busy_since{0};   // ns since boot: a hand has this GPU; 0: none has
  std::atomic<std::int64_t> attach_took{0};  // ns; 0: it is not attached yet
  std::atomic<std::uint32_t> attaching{0};   // 1: that is what the hand does
  std::atomic<std::int32_t> hand{0};         // its thread, while it attaches
  std::atomic<std::uint32_t> identity{0};    // version of the identity in its box; 0: none
  std::atomic<std::uint64_t> round{0};       // that the answer is of
  std::atomic<std::int64_t> done_at{0};      // ns since boot, when it was written
};

enum class Stage : std::uint32_t {
  opening,
  open,
  failed,  // the driver cannot be opened: the report says why; the sensor has ended
  over,    // the driver was exchanged, or every GPU sleeps: a fresh sensor is wanted
};

struct Board {
  // Written by the parent.
  std::atomic<std::uint64_t> wanted{0};                      // the round
  std::atomic<std::uint64_t> lists{0};                       // the round that wants process lists of now
  std::atomic<std::uint32_t> calls{0};                       // for hands that did not come yet; a futex
  std::array<std::atomic<std::uint8_t>, kMostGpus> avoid{};  // GPUs to leave alone

  std::atomic<std::int32_t> pid{0};  // of a sensor that is apart; by who started it
  Box<(64 << 10) - 16> task;         // of a sensor that is a program: what it is told at its birth

  // Written by the sensor.
  std::atomic<std::uint32_t> let_go{0};  // 1: it ends because somebody sent it SIGUSR1
  std::atomic<Stage> stage{Stage::opening};
  std::atomic<std::uint32_t> count{0};
  std::atomic<std::int64_t> round_began{0};     // ns since boot: when the first hand took up the wanted round
  std::atomic<std::uint32_t> machine_knows{0};  // how many GPUs' answers the machine's report is of
  Slot machine;
  std::array<Slot, kMostGpus> slots;
  Box<(16 << 10) - 16> driver;
  Box<(1 << 20) - 16> report;  // of the machine
  std::array<Box<(16 << 10) - 16>, kMostGpus> identities;
  std::array<Box<(64 << 10) - 16>, kMostGpus> answers;
};

}  // namespace lull
