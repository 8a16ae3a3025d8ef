#pragma once
// `lull status` as text: a table for people, JSON and CSV for programs. Pure:
// a snapshot in, text out.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
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
  std::optional<Duration> idle_for;  // how long we have seen it idle without a break
  std::optional<LeaseView> lease;
};

struct StatusView {
  const Snapshot& snapshot;
  std::vector<std::size_t> devices;  // which entries of the inventory, in order
  std::vector<StatusExtra> extras;   // one for each of `devices`, or none at all
};

std::vector<std::string> status_table(const StatusView& view, const Screen& screen);

// One object; one line where `indent` is negative. Numbers are numbers, unknown is null.
std::string status_json(const StatusView& view, int indent = 2);

std::string status_csv_header();
std::string status_csv(const StatusView& view);  // rows, each with its line end

// "GPU is lost", "driver has not answered for 12s": why there is nothing to show of
// this device. Empty where there is.
std::string device_trouble(const Device& device, const Reading& reading);

}  // namespace lull
