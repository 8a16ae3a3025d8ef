#pragma once
// What a sampler and its sensor process share: one mapping, made before the fork (or of a file without a name, where
// the sensor is a program), and the messages in it. A sensor that is left behind in a hanging call keeps its
// mapping, and no other process reads it any more.
//
// The parent writes which round it wants. The sensor's worker threads fill one slot a GPU, then the one of the machine
// (processes, holders of device files, topology), and signal the wake-up (an eventfd). A slot belongs to the worker
// that has set `busy_since`; its messages are written before `round`, and read by the parent only while `round` is the
// wanted one, which no worker touches again.
//
// A driver can write anywhere, so messages are read as input from outside: every length is checked against what is
// there, every enum against its values, every number against its metric's range. A message that makes no sense is
// refused as a whole. Nothing of pthread stands here: where a mutex is overwritten, glibc would end the parent.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "gpu/snapshot.h"
#include "gpu/topology.h"
#include "sense/source.h"

namespace lull {

// Where a message is written to.
class Encoder {
 public:
  explicit Encoder(std::span<std::byte> buffer) : buffer_(buffer) {}

  void add(const void* from, std::size_t size) {
    if (full_ || size > buffer_.size() - used_) {
      full_ = true;
      return;
    }
    if (size > 0) std::memcpy(buffer_.data() + used_, from, size);
    used_ += size;
  }
  bool full() const { return full_; }  // something did not fit: what was written is of no use
  std::size_t size() const { return used_; }

 private:
  std::span<std::byte> buffer_;
  std::size_t used_ = 0;
  bool full_ = false;
};

// Of the driver as a whole, once it was opened or could not be.
struct DriverReport {
  DriverState state;
  std::string version;
  std::string library;
};

// Of what does not belong to one GPU: processes, holders of device files, topology.
struct MachineReport {
  std::vector<ProcessInfo> process_info;
  struct Holders {
    Absence absence = Absence::none;
    std::uint32_t count = 0;
  };
  std::vector<Holders> holders;  // of each GPU
  Instant holders_began{};       // all of them are newer
  std::optional<Topology> topology;
};

struct SamplerOptions;  // sampler.h: to a sensor that is a program, the other way

void encode(Encoder& out, const SamplerOptions& options);
void encode(Encoder& out, const DriverReport& report);
void encode(Encoder& out, const Identity& identity);
void encode(Encoder& out, const Answer& answer);
void encode(Encoder& out, const MachineReport& report);

// False: not a message of this kind.
bool decode(std::span<const std::byte> bytes, SamplerOptions& options);
bool decode(std::span<const std::byte> bytes, DriverReport& report);
bool decode(std::span<const std::byte> bytes, Identity& identity);
bool decode(std::span<const std::byte> bytes, Answer& answer);
bool decode(std::span<const std::byte> bytes, MachineReport& report);

// Pages of slots that no GPU has are never touched, and cost nothing.
inline constexpr unsigned kMostGpus = 512;
inline constexpr unsigned kMostCounted = 4096;  // those beyond are known to be there, and not read

// A message, with its size and a checksum over all of it: a stray write of the driver does not look like a message. Not
// cleared when it is made: the mapping is zeros already, and a page that is not touched costs nothing.
template <std::size_t Bytes>
struct SharedMessage {
  std::uint32_t size;
  std::uint64_t checksum;
  std::array<std::byte, Bytes> bytes;
  SharedMessage() {}  // NOLINT: that is the point
};

std::uint64_t checksum_of(std::span<const std::byte> bytes, std::uint64_t round);
// Copies a message out before it is checked; false: it is not complete.
template <std::size_t Bytes>
bool copy_message(const SharedMessage<Bytes>& message, std::uint64_t round, std::vector<std::byte>& copied) {
  const std::size_t size = message.size;
  const std::uint64_t checksum = message.checksum;
  if (size > Bytes) return false;
  copied.assign(message.bytes.data(), message.bytes.data() + size);
  return checksum_of(copied, round) == checksum;
}

struct Slot {
  std::atomic<std::int64_t> busy_since{0};   // ns since boot: a worker has this GPU; 0: none has
  std::atomic<std::int64_t> attach_took{0};  // ns; 0: it is not attached yet
  std::atomic<std::uint32_t> attaching{0};   // 1: that is what the worker does
  std::atomic<std::int32_t> worker{0};       // its thread, while it attaches
  std::atomic<std::uint32_t> identity{0};    // version of the identity in its message; 0: none
  std::atomic<std::uint64_t> round{0};       // that the answer is of
  std::atomic<std::int64_t> done_at{0};      // ns since boot, when it was written
};

enum class Stage : std::uint32_t {
  opening,
  open,
  failed,  // the driver cannot be opened: the report says why; the sensor has ended
  over,    // the driver was exchanged, or every GPU sleeps: a fresh sensor is wanted
};

struct SensorMemory {
  // Written by the parent.
  std::atomic<std::uint64_t> wanted{0};                      // the round
  std::atomic<std::uint64_t> lists{0};                       // the round that wants process lists of now
  std::atomic<std::uint32_t> calls{0};                       // for workers that did not come yet; a futex
  std::array<std::atomic<std::uint8_t>, kMostGpus> avoid{};  // GPUs to leave alone

  SharedMessage<(64 << 10) - 16> options;  // of a sensor that is a program: what it is told at its birth

  // Written by the sensor.
  std::atomic<std::uint32_t> release_driver{0};  // 1: it ends because of SIGUSR1
  std::atomic<Stage> stage{Stage::opening};
  std::atomic<std::uint32_t> count{0};
  std::atomic<std::uint32_t> unread{0};         // GPUs beyond these, of which nothing is read
  std::atomic<std::int64_t> round_began{0};     // ns since boot: when the first worker took up the wanted round
  std::atomic<std::uint32_t> machine_knows{0};  // how many GPUs' answers the machine's report is of
  Slot machine;
  std::array<Slot, kMostGpus> slots;
  SharedMessage<(16 << 10) - 16> driver;
  SharedMessage<(2 << 20) - 16> report;  // of the machine
  std::array<SharedMessage<(16 << 10) - 16>, kMostGpus> identities;
  std::array<SharedMessage<(128 << 10) - 16>, kMostGpus> answers;
};

}  // namespace lull
