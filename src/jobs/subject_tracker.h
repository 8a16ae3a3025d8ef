#pragma once
// What is judged, if each GPU or each job is judged by itself: the answers of GpuUsers become subjects for the
// engine. Pure: no clock, no file.
//
// A subject stays the same only as long as no new process holds its GPUs. With a new process it becomes a new subject
// with a new id, and what had fired for the old one is called off. So no process is ended for the idle time of another.
// If the processes are unknown, the subject is not judged, and lull says so.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/users.h"
#include "engine/event.h"
#include "gpu/snapshot.h"
#include "jobs/gpu_users.h"

namespace lull {

enum class Per : std::uint8_t { gpu, job };
inline constexpr std::string_view kJobKey = "job:";  // the key of a job begins so

struct SubjectOptions {
  Per per = Per::gpu;
  std::set<uid_t> except = {};     // users whose processes are left alone
  std::set<uid_t> only = {};       // not empty: only of these users
  UserFiles user_files = {};       // whose subordinate uids are whose
  bool free_too = false;           // a GPU without processes is judged as well
  bool stricter_with_more = true;  // as in ScopeOptions
};

struct TrackedSubject {
  std::string key;    // the same as long as the GPU or the job is there: "gpu:GPU-…", "job:slurm:12"
  std::string title;  // "GPU 3", "job 4711 (python3) of ada on GPUs 0, 1"
  std::string job;    // "tree:4711"; empty: it is a GPU
  Subject subject;
  std::vector<GpuProcess> holders;  // that are on watched GPUs now, without those who are left alone
  std::optional<uid_t> owner = {};  // whose it is, with processes or without; nothing: its holders'
};

class SubjectTracker {
 public:
  explicit SubjectTracker(SubjectOptions options) : options_(std::move(options)) {}

  // `scope`: the GPUs that count. The answer is good until the next look.
  const std::vector<TrackedSubject>& look(const std::vector<Device>& scope, const std::vector<GpuUse>& uses);
  // Those from allocations (allocated_subjects()).
  const std::vector<TrackedSubject>& take(std::vector<TrackedSubject> made) { return subjects_ = std::move(made); }
  const std::vector<TrackedSubject>& subjects() const { return subjects_; }
  const TrackedSubject* find(const SubjectId& id) const;

 private:
  using ProcessIds = std::vector<ProcessId>;  // sorted
  struct Span {
    ProcessIds seen;  // of a GPU: who held it when it was last looked at; of a job: who drew for it
    std::uint64_t number = 0;
    std::string title;
    std::map<DeviceId, Device> devices;  // of a job
    std::map<DeviceId, Device> drawn;    // where it draws, and computes nothing
    std::vector<DeviceId> where;         // all of these, when it was last looked at
    bool watched = false;                // one of them at least
  };
  // A GPU, with who is there by job.
  struct Place {
    const GpuUse* use = nullptr;
    using ByJob = std::unordered_map<std::string_view, std::vector<const GpuProcess*>>;
    ByJob holders;
    ByJob drawers;
    ProcessIds names;     // of all who hold it
    ProcessIds arrivals;  // of those that did not at the previous look
  };
  void look_at_gpus(const std::vector<Device>& scope, const std::vector<GpuUse>& uses);
  void look_at_jobs(const std::vector<Device>& scope, const std::vector<GpuUse>& uses);
  std::vector<Place> places_of(const std::vector<GpuUse>& uses) const;
  void note_where_jobs_are(const Place& place);
  bool is_anew(const std::string& job, Span& span, const std::vector<Place>& places) const;
  void add_job(const std::string& job, Span& span, const std::vector<Device>& scope, const std::vector<Place>& places,
               const std::vector<GpuUse>& uses);
  bool left_alone(const GpuProcess& one) const;
  void add(TrackedSubject tracked, const Span& span);

  SubjectOptions options_;
  std::map<std::string, Span> spans_;      // by key
  std::map<DeviceId, ProcessIds> before_;  // who held each GPU at the previous look
  std::uint64_t next_number_ = 0;
  std::vector<TrackedSubject> subjects_;
};

// Subjects with allocated GPUs, as by Slurm: such a job is judged by all GPUs that it was given here, with processes on
// them or not. Which processes work there does not matter: another run of the job is another subject, another process
// of the same run is not, since lull acts on the job. Pure: no clock, no file.

// A GPU as its owner's book-keeping names it, by its device file.
struct AllocatedGpu {
  unsigned minor = 0;   // N of /dev/nvidiaN, or of /dev/dri/renderDN
  bool render = false;  // the second
  bool is(const Device& device) const {
    return device.kind == DeviceKind::gpu && (render ? device.render_minor : device.minor) == minor;
  }
};

struct AllocatedJob {
  std::string job;    // "slurm:22"
  std::string run;    // which run of it
  std::string title;  // "Slurm job 22 of ada"
  std::optional<uid_t> owner = {};
  std::vector<unsigned> gpus = {};       // as Slurm counts them
  std::vector<AllocatedGpu> files = {};  // those that it means
  bool by_index = false;                 // the numbers are those of the driver as well, or it is not judged
  std::string not_known = {};            // why it is unknown which GPUs it means: the job is not judged
};

// One for each job that has a GPU. What cannot be found among `uses` is not judged, and said. Nor is a job whose
// processes are on other GPUs than its own, or that has a GPU with another Slurm job's process on it: the numbers may
// mean other GPUs than those.
std::vector<TrackedSubject> allocated_subjects(const std::vector<AllocatedJob>& jobs, const std::vector<GpuUse>& uses);

}  // namespace lull
