#pragma once
// What the sensor process writes for its parent, as bytes in memory that both map. The writer may be a process whose
// driver library has gone mad, so reading back is done as with input from outside: every length is checked against
// what is there, every enum against its values, every number against its metric's range. A message that makes no sense
// is refused as a whole.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gpu/snapshot.h"
#include "gpu/topology.h"
#include "sense/source.h"

namespace lull {

class Encoder {
 public:
  explicit Encoder(std::span<std::byte> room) : room_(room) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    bytes(&value, sizeof value);
  }
  void text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    bytes(text.data(), text.size());
  }
  template <class T>
  void maybe(const std::optional<T>& value) {
    put(static_cast<std::uint8_t>(value.has_value()));
    if (value) put(*value);
  }

  bool full() const { return full_; }  // something did not fit: what was written is of no use
  std::size_t size() const { return used_; }

 private:
  void bytes(const void* from, std::size_t size) {
    if (full_ || size > room_.size() - used_) {
      full_ = true;
      return;
    }
    if (size > 0) std::memcpy(room_.data() + used_, from, size);
    used_ += size;
  }

  std::span<std::byte> room_;
  std::size_t used_ = 0;
  bool full_ = false;
};

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  bool get(T& value) {
    if (bytes_.size() < sizeof value) return false;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return true;
  }
  bool flag(bool& value) {
    std::uint8_t byte = 0;
    if (!get(byte) || byte > 1) return false;
    value = byte == 1;
    return true;
  }
  template <class Enum>
  bool one_of(Enum& value, Enum last) {
    std::underlying_type_t<Enum> number = 0;
    if (!get(number) || number > static_cast<std::underlying_type_t<Enum>>(last)) return false;
    value = static_cast<Enum>(number);
    return true;
  }
  bool text(std::string& value, std::size_t most);
  // How many of something follow, each of which takes at least one byte.
  bool count(std::size_t& value, std::size_t most);
  template <class T>
  bool maybe(std::optional<T>& value) {
    bool there = false;
    if (!flag(there)) return false;
    if (!there) return value.reset(), true;
    return get(value.emplace());
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

// Of the driver as a whole, once it was opened or could not be.
struct DriverReport {
  DriverState state;
  std::string version;
  std::string library;
};

// Of what does not belong to one GPU: processes, holders of device files, topology.
struct MachineReport {
  std::vector<ProcessInfo> processes;
  struct Holders {
    Absence absence = Absence::none;
    std::uint32_t count = 0;
  };
  std::vector<Holders> holders;  // of each GPU
  std::optional<Topology> topology;
};

struct SensorTask;  // sensor.h: to a sensor that is a program, the other way

void encode(Encoder& out, const SensorTask& task);
void encode(Encoder& out, const DriverReport& report);
void encode(Encoder& out, const Identity& identity);
void encode(Encoder& out, const Answer& answer);
void encode(Encoder& out, const MachineReport& report);

// False: not a message of this kind.
bool decode(std::span<const std::byte> bytes, SensorTask& task);
bool decode(std::span<const std::byte> bytes, DriverReport& report);
bool decode(std::span<const std::byte> bytes, Identity& identity);
bool decode(std::span<const std::byte> bytes, Answer& answer);
bool decode(std::span<const std::byte> bytes, MachineReport& report);

// (seal_of() in board.h is over all of it: a stray write of the driver's does not look like a message.)

}  // namespace lull
