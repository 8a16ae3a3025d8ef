#pragma once
// `lull status` as text: a table for people, JSON and CSV for programs. Pure:
// a snapshot in, text out.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "gpu/snapshot.h"
#include "view/columns.h"

namespace lull {

// Who holds a GPU through `lull pick`, as far as people want to know.
struct LeaseView {
  std::string user;
  pid_t pid = 0;
  std::string command;
  std::optional<WallTime> since;
};

// What is known of a device beyond the snapshot itself.
struct StatusExtra {
  std::optional<Duration> idle_for;    // how long we have seen it idle without a break
  bool idle_for_longer = false;        // it was so when we first looked: at least that long
  std::vector<LeaseView> leases = {};  // of all who share it
  std::set<pid_t> fillers = {};        // those of its processes that a `lull fill` runs
  bool lease_unknown = false;          // leases could not be read
  std::vector<float> history = {};     // of util, the oldest first, for `lull status --watch`
};

struct StatusView {
  const Snapshot& snapshot;
  std::vector<std::size_t> devices;        // which entries of the inventory, in order
  std::vector<StatusExtra> extras;         // one for each of `devices`, or none at all
  std::optional<std::size_t> marked = {};  // the row that a person is on
};

std::vector<std::string> status_table(const StatusView& view, const Screen& screen);
// Every process on those GPUs, one per line below its titles; nothing but them where there is none.
std::vector<std::string> process_table(const StatusView& view, const Screen& screen);

// What one GPU is good for now.
enum class Use : std::uint8_t { busy, held_idle, filled, free, unknown };
Use use_of(const Device& device, const Reading& reading, const StatusExtra& extra);
// "8 GPUs: 3 busy, 2 held idle, 3 free"; a GPU that is cut into MIG devices counts through them.
std::string status_summary(const StatusView& view);

// One object; one line where `indent` is negative. Numbers are numbers, unknown is null.
std::string status_json(const StatusView& view, int indent = 2);

std::string status_csv_header();
std::string status_csv(const StatusView& view);  // rows, each with its line end

// "GPU is lost", "driver has not answered for 12s": why there is nothing to show of
// this device. Empty where there is.
std::string device_trouble(const Device& device, const Reading& reading);

// What is shown of a process that uses a GPU.
//
// Its command, with what has to be said of who it is.
inline std::string command_text(const GpuProcess& process) {
  if (process.proof == Proof::stale) return "(has ended, others may hold its memory)";
  if (process.info == nullptr) return "(not visible from here)";
  return printable(process.info->command_line()) + (process.proof == Proof::unproven ? " (unproven)" : "");
}

// The processes that count: an MPS server does so through its clients.
inline std::vector<GpuProcess> users(const Reading& reading) {
  std::vector<GpuProcess> result = reading.processes.value_or(std::vector<GpuProcess>{});
  std::erase_if(result, &GpuProcess::mps_server);
  return result;
}

// One picture of the GPUs after the other, each below the last. (A terminal that is looked at live is view/live.h's.)
enum class StatusFormat : std::uint8_t { table, json, csv };

class StatusPictures {
 public:
  // `every`: again so often; nothing: there will be one picture.
  StatusPictures(StatusFormat format, std::optional<Duration> every, bool processes)
      : format_(format), every_(every), processes_(processes) {}

  std::string next(const StatusView& view, const Screen& screen);

 private:
  StatusFormat format_;
  std::optional<Duration> every_;
  bool processes_;  // each of them below the table
  bool headed_ = false;
};

}  // namespace lull
