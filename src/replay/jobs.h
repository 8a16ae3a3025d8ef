#pragma once
// Which GPUs each job of a trace has, as time goes on: what `--per job` judges. A job
// is told from others by the trace's column for it, else by its processes, else by its
// user, and never reaches over several hosts unless a column says so.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gpu/block.h"
#include "trace/holders.h"

namespace lull::replay {

class JobFinder {
 public:
  static constexpr std::size_t kNoJob = static_cast<std::size_t>(-1);

  JobFinder(std::size_t gpus, const std::vector<std::string>& host_of)
      : host_of_(host_of), now_(gpus, kUnknownSample), known_(gpus, kUnknownSample), job_(gpus, kNoJob) {}

  struct Job {
    float holder = kUnknownSample;
    std::vector<std::size_t> gpus;  // that it has now; none: it is over
    bool changed = false;           // by the last step
  };

  // The first sample from one on at which somebody else has a GPU than before; as many as there are: none.
  std::size_t next_change(std::span<const Block> gpus, std::size_t from) const;
  // Goes on by this sample. Jobs that it changed are marked.
  void step(std::span<const Block> gpus, std::size_t sample, trace::KnownHolders& holders);

  std::vector<Job>& jobs() { return jobs_; }

 private:
  bool told(float holder) const { return holder >= trace::kNobody; }
  std::size_t find(std::size_t gpu, float holder, const trace::KnownHolders& holders);
  void leave(std::size_t gpu);

  const std::vector<std::string>& host_of_;
  std::vector<float> now_;    // of each GPU, as last told
  std::vector<float> known_;  // the same, with what earlier rows of the same job said
  std::vector<std::size_t> job_;
  std::vector<Job> jobs_;
};

}  // namespace lull::replay
