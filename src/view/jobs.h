#pragma once
// The jobs that have GPUs on this machine, for people and programs: `lull jobs`. Pure: rows in, text out. What is
// unknown is "-" in the table and null in JSON.

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json_writer.h"
#include "gpu/metric.h"
#include "view/columns.h"
#include "view/live.h"

namespace lull {

struct JobGpu {
  std::string label;  // "3", "3:1"
  std::string uuid = {};
  double util = kUnknown;
};

struct JobRow {
  std::string job;  // "slurm:22", "tree:4711", "lease:…"; empty: unknown
  std::vector<std::string> users = {};
  std::string nodes = {};  // all of them, as Slurm writes them; else this machine
  std::vector<JobGpu> gpus = {};
  std::string command = {};  // of one of its processes
  std::size_t processes = 0;
  std::vector<pid_t> pids = {};  // of these
  // By a watcher; nothing: there is no watcher, or it is unknown.
  bool watched = false;
  std::optional<Duration> idle_for = {};
  std::string next = {};  // the action
  std::optional<Duration> next_in = {};
  bool dry_run = false;
  std::optional<WallTime> kept_until = {};
};

struct JobsView {
  std::vector<JobRow> rows;
  WallTime now{};
};

// The mean of its GPUs; unknown where that of one is.
double util_of(const JobRow& row);

std::vector<std::string> jobs_table(const JobsView& view, const Screen& screen);
std::string jobs_summary(const JobsView& view);  // "3 jobs have GPUs: 2 idle"
std::string jobs_json(const JobsView& view, const std::string& host);
void put_jobs(JsonWriter& json, const JobsView& view);  // its list of jobs

// The same as rows of a live screen.
class JobRows : public LiveRows {
 public:
  explicit JobRows(const JobsView& view) : view_(view) {}

  std::size_t size() const override { return view_.rows.size(); }
  std::string_view noun() const override { return "job"; }
  std::span<const std::string_view> orders() const override;
  double weight(std::size_t row, std::size_t order) const override;
  std::string search_text(std::size_t row) const override;
  std::string summary() const override { return jobs_summary(view_); }
  std::vector<std::string> table(std::span<const std::size_t> rows, std::optional<std::size_t> marked,
                                 const Screen& screen) const override;
  std::vector<std::string> why(std::size_t row) const override;

 private:
  const JobsView& view_;
};

}  // namespace lull
