#pragma once
// The chance that a job which was ended would have worked again within so long, as Kaplan and Meier estimate it: a job
// of which the recording ended counts for as long as it was followed, not as one that stayed idle. A job that was
// released cannot return (Aalen and Johansen's estimate, which is Kaplan and Meier's where nothing is released). Times
// are whole seconds, rounded up, so that any number of jobs takes little memory.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace lull::replay {

enum class Leaving : std::uint8_t { came_back, released, cut_off };

// What `seen` of so many jobs did up to this share of all jobs may do: the upper end of Clopper and Pearson's 95 %
// interval.
double share_up_to(std::uint64_t seen, std::uint64_t jobs);

// An estimate with its 95 % interval.
struct Chance {
  double ratio = 0;
  double low = 0;
  double high = 0;
  std::uint64_t at_risk = 0;  // jobs still followed at that time: neither back, nor released, nor cut off before
};

class Survival {
 public:
  static constexpr Duration kLongest = std::chrono::hours(24);  // not needed beyond it
  static constexpr std::uint64_t kFewest = 10;                  // at risk; fewer support no statement

  void add(Duration after, Leaving how);
  // Nothing where no job was ended.
  std::optional<Chance> estimate(Duration limit) const;
  // The same, and nothing with fewer than kFewest at risk.
  std::optional<Chance> chance_within(Duration limit) const;

  Survival& operator+=(const Survival& more);
  std::uint64_t count() const { return count_; }

 private:
  struct Moment {
    std::uint32_t second = 0;
    std::uint32_t back = 0;
    std::uint32_t released = 0;
    std::uint32_t cut = 0;
  };
  void merge();  // moments of the same second become one, in order of time

  std::uint64_t count_ = 0;
  std::vector<Moment> moments_;  // within kLongest
  std::size_t merged_ = 0;       // the first so many are in order
};

// How sure the share of the work is that a policy would have lost: a 95 % interval by bootstrap over jobs. 1 000 times
// as many jobs as there are are drawn, with replacement, from a fixed seed: the same recording gives the same figures,
// however it was read. Above kGroups jobs are put together at random into so many groups, which are drawn instead.
//
// A job of the recording: what it was judged as, and since when.
struct JobKey {
  std::size_t subject = 0;
  Instant began{};
  auto operator<=>(const JobKey&) const = default;
};

struct Interval {
  double low = 0;
  double high = 0;
};

class LossIntervals {
 public:
  static constexpr std::size_t kDraws = 1000;
  static constexpr std::size_t kGroups = 10'000;

  struct Loss {
    JobKey job;
    double seconds = 0;
  };

  // All that a job did.
  void add_job(const JobKey& job, double work) { jobs_.push_back({job, work}); }
  void clear() { jobs_.clear(); }

  // For each policy, of the losses that it would have caused. `all_work` is that of the jobs and that without a
  // job. Nothing where there are fewer than two jobs, or no work.
  std::vector<std::optional<Interval>> of(const std::vector<std::vector<Loss>>& policies, double all_work) const;

 private:
  std::vector<Loss> jobs_;
};

}  // namespace lull::replay
