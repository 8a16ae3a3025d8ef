// Writes a history as `lull record --history` does: history_bench FOLDER DAYS GPUS EVERY_SECONDS. Each sample goes
// through the recorder's own writer; days that are over are packed anew as the recorder does it, and today is not.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gpu/snapshot.h"
#include "session/trace_log.h"
#include "trace/history.h"

namespace {

using namespace lull;

struct Use {
  double left = 0;  // seconds
  double level = 0;
  std::string user;
};

Snapshot snapshot_of(int gpus) {
  auto inventory = std::make_shared<Inventory>();
  for (int i = 0; i < gpus; ++i) {
    Device device;
    device.index = static_cast<unsigned>(i);
    char uuid[64];
    std::snprintf(uuid, sizeof uuid, "GPU-%08d-0000-0000-0000-000000000000", i);
    device.uuid = uuid;
    inventory->devices.push_back(device);
  }
  Snapshot snapshot;
  snapshot.inventory = inventory;
  snapshot.readings.resize(static_cast<std::size_t>(gpus));
  return snapshot;
}

void fill(Reading& reading, const Use& use, std::mt19937& dice) {
  const double util = use.level > 0 ? std::clamp(std::normal_distribution(use.level, 5.0)(dice), 0.0, 100.0) : 0;
  const bool held = !use.user.empty();
  reading.set(Metric::util, std::round(util * 10) / 10);
  reading.set(Metric::mem_util, std::round(util / 2));
  reading.set(Metric::mem_used, held ? 60e9 : 4e6);
  reading.set(Metric::mem_free, 20e9);
  reading.set(Metric::mem_total, 85899345920.0);
  reading.set(Metric::power, std::round((65 + util * 5) * 10) / 10);
  reading.set(Metric::power_limit, 700);
  reading.set(Metric::temp, 40);
  reading.set(Metric::clock, 1980);
  reading.set(Metric::procs, held ? 1 : 0);
}

// The first of all days begins so long ago that the last one is today.
Result<> write(const std::string& folder, int days, int gpus, int every) {
  std::mt19937 dice(1);
  Snapshot snapshot = snapshot_of(gpus);
  std::vector<Use> uses(static_cast<std::size_t>(gpus));
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < uses.size(); ++i) places.push_back(i);
  const trace::RowLayout layout = RecordingSink::layout("day.csv.zst");
  const trace::Day today = trace::local_day(SystemClock().wall());
  for (int day = days - 1; day >= 0; --day) {
    const trace::Day date = today - std::chrono::days(day);
    auto log = TRY(TraceLog::open(folder + "/" + trace::day_file_name(date, 1), layout, true));
    for (int second = 0; second < 86400; second += every) {
      snapshot.wall = WallTime(date.time_since_epoch()) + std::chrono::seconds(second) +
                      std::chrono::milliseconds(120 + dice() % 4);
      if (snapshot.wall > SystemClock().wall()) break;
      snapshot.at = Instant(snapshot.wall.time_since_epoch());
      if (second == 0) log.begin(snapshot);
      std::vector<trace::UserCells> who(uses.size());
      for (std::size_t i = 0; i < uses.size(); ++i) {
        Use& use = uses[i];
        if ((use.left -= every) <= 0) {
          const unsigned what = dice() % 4;
          use = {std::exponential_distribution(1 / 3600.0)(dice),
                 what == 0   ? 95.0
                 : what == 1 ? 60.0
                             : 0.0,
                 what == 3   ? ""
                 : what == 1 ? "bob"
                             : "alice"};
        }
        fill(snapshot.readings[i], use, dice);
        const bool held = !use.user.empty();
        who[i].host = "node1";
        who[i].users = held ? use.user : std::string(trace::kNobodyText);
        who[i].pids = held ? "1234" : std::string(trace::kNobodyText);
        if (held) who[i].command = "train.py";
      }
      TRY(log.add(snapshot, places, {}, {}, who));
    }
    TRY(log.close());
  }
  return trace::repack_days(folder, today);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "history_bench FOLDER DAYS GPUS EVERY_SECONDS\n");
    return 2;
  }
  const auto done = write(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
