#pragma once
// Which job has a GPU, if a trace says so: the columns of a row that name a job, its
// processes, their users and commands, or a lease. Each combination gets a number, so
// that blocks can carry it beside the signals; 0 is none, NaN is unknown.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/schema.h"

namespace lull::trace {

inline constexpr float kNobody = 0;
inline constexpr float kNoRow = -1;  // on common ticks: the GPU showed nothing at all

struct RecordedJob {
  std::string job;
  std::vector<std::string> pids;
  std::vector<std::string> users;
  std::string command;
  std::string lease;
  std::string host;

  // Whether the one may be the other a little later: a job whose set of processes changes is still there while one of
  // them is. Where nothing can be compared they are taken for the same: that a job ended must be seen.
  bool same_job(const RecordedJob& later) const { return compare(later).value_or(true); }
  // Nothing where the two have nothing in common that could be compared.
  std::optional<bool> compare(const RecordedJob& other) const;
  std::string user_text() const;  // "alice", "alice, bob"; empty: not told
};

class Holders {
 public:
  static constexpr std::size_t kMost = 1U << 23;  // more combinations than that are unknown

  Holders() : all_(1) {}  // 0: none

  // The number of what the cells of a row say.
  float find(const std::vector<Role>& roles, const std::vector<std::string>& cells);
  const RecordedJob& operator[](float number) const { return all_[static_cast<std::size_t>(number)]; }
  std::size_t size() const { return all_.size(); }
  void append(const RecordedJob& holder) { all_.push_back(holder); }

 private:
  std::vector<RecordedJob> all_;
  std::unordered_map<std::string, float> known_;
};

// What is known of jobs over many rows: a row that lacks a cell takes nothing away from what others of the same job
// said. Serves several readings of one trace, in which the numbers of holders are the same.
class KnownHolders {
 public:
  void meet(const Holders& told) { told_ = &told; }

  // Of the trace, or joined.
  const RecordedJob& operator[](float number) const;
  bool same_job(float a, float b) const { return a == b || (*this)[a].same_job((*this)[b]); }
  // What `now` says, and what it lacks as `before` had it: the same job a little earlier, or not told.
  float joined(float before, float now);
  // Appends the joined ones to those of the trace; then `number_in` is the number of any of ours among those.
  void append_to(Holders& told);
  float number_in(float number) const { return number < kFirst ? number : number - kFirst + offset_; }

 private:
  static constexpr float kFirst = Holders::kMost;
  const Holders* told_ = nullptr;
  std::vector<RecordedJob> joined_;
  std::map<std::pair<float, float>, float> by_pair_;
  float offset_ = 0;
};

}  // namespace lull::trace
