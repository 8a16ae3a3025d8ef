#pragma once
// Which GPU Slurm means by a number. SLURM_JOB_GPUS of the Prolog counts the GPUs of the node in the order in which
// slurmd has them: by gres.conf and AutoDetect, not by the numbers of their device files. `slurmd -G` prints that
// order.
//
// What it prints counts only if the slurmd that runs has read the same. A slurmd keeps the order that it had at its
// start: the first order counts if slurmd began after gres.conf was last changed, another one only if a later slurmd
// runs. With AutoDetect the order can change without gres.conf. A job that began before the slurmd with this order is
// not told its GPUs. A job is never judged by a guess.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "act/children.h"
#include "base/clock.h"
#include "base/result.h"
#include "slurm/verb.h"

namespace lull::slurm {

// The device file of a whole GPU.
struct GpuFile {
  unsigned minor = 0;   // N of /dev/nvidiaN, or of /dev/dri/renderDN
  bool render = false;  // the second
  bool operator==(const GpuFile&) const = default;
};
// By Slurm's number. Nothing: no whole GPU (a part of one, several files), or none whose file can be looked at.
using GpuOrder = std::vector<std::optional<GpuFile>>;

Command gres_command(const std::string& node);
// By its device number, whatever it is called.
std::optional<GpuFile> gpu_file(const std::string& path);
Result<GpuOrder> read_gres(std::string_view output,
                           const std::function<std::optional<GpuFile>(const std::string&)>& file_of = gpu_file);

// When a slurmd began. Its ticks are its identity: a clock that is set does not move them.
struct SlurmdStart {
  WallTime at{};
  std::uint64_t ticks = 0;
};
// What says whether slurmd has read what is in gres.conf now.
struct GresFacts {
  std::optional<WallTime> changed = {};    // gres.conf, its contents or its inode; nothing: it cannot be found
  std::optional<SlurmdStart> slurmd = {};  // nothing: none runs
  bool same_as(const GresFacts& other) const {
    return changed == other.changed && slurmd.has_value() == other.slurmd.has_value() &&
           (!slurmd || slurmd->ticks == other.slurmd->ticks);
  }
};
std::optional<WallTime> changed_at(const std::string& path);
GresFacts gres_facts();

class GpuNumbers {
 public:
  using Facts = std::function<GresFacts()>;
  // `folder`: where the last order is kept, for who comes after us and for `lull jobs`.
  explicit GpuNumbers(std::string folder, Facts facts = gres_facts);
  explicit GpuNumbers(GpuOrder order) : order_(std::move(order)) {}

  // `slurmd -G` is to be run, and looked() called with what it printed. Nothing is asked of slurmctld.
  bool wants_look(Instant now);
  void looked(const HelperResult& result, Instant now,
              const std::function<std::optional<GpuFile>(const std::string&)>& file_of = gpu_file);
  // Those of a job that began then. An error says why they are unknown.
  Result<std::vector<GpuFile>> files_of(const std::vector<unsigned>& numbers, WallTime begin) const;
  // What a watcher found last is shown by `lull jobs`, which runs no slurmd.
  void use_last() { order_ = last_; }
  bool known() const { return order_.has_value(); }
  bool asked() const { return order_ || seen_; }  // slurmd has been, and said it or not
  std::size_t size() const { return order_ ? order_->size() : 0; }
  const std::string& why() const { return why_; }  // not known

 private:
  bool is_later(const std::optional<SlurmdStart>& slurmd) const;
  Result<> take(const HelperResult& result, const std::function<std::optional<GpuFile>(const std::string&)>& file_of);

  std::string folder_;
  Facts facts_;  // not set: the order was told
  std::optional<GpuOrder> order_;
  std::optional<GpuOrder> last_;            // the last that was known
  std::optional<SlurmdStart> last_slurmd_;  // that had it when lull looked; nothing: none ran
  WallTime since_{};                        // from then on slurmd has had it
  std::optional<GresFacts> seen_;
  bool looking_ = false;
  Instant again_{};
  std::string why_ = "`slurmd -G` has not said yet which GPUs Slurm means";
};

}  // namespace lull::slurm
