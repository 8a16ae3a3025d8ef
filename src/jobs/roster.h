#pragma once
// Who is judged, where each GPU or each job is judged by itself: the census of every sample becomes subjects for the
// engine. Pure: no clock, no file.
//
// A subject stays itself only as long as nobody new holds its GPUs: with a process that was not there before it begins
// anew, under a new id, and what had fired for the old one is called off. So nobody is ever ended for what another did.
// What cannot be seen is not judged, and said.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "act/holder.h"
#include "engine/event.h"
#include "gpu/snapshot.h"
#include "jobs/census.h"

namespace lull {

enum class Per : std::uint8_t { gpu, job };

struct RosterOptions {
  Per per = Per::gpu;
  std::set<uid_t> except = {};     // users whose processes are left alone
  std::set<uid_t> only = {};       // not empty: nobody else's
  bool free_too = false;           // a GPU that nobody holds is judged as well
  bool stricter_with_more = true;  // as in ScopeOptions
};

struct Member {
  std::string key;    // the same as long as the GPU or the job is there: "gpu:GPU-…", "job:slurm:12"
  std::string title;  // "GPU 3", "job 4711 (python3) of ada on GPUs 0, 1"
  std::string job;    // "tree:4711"; empty: it is a GPU
  Subject subject;
  std::vector<Holder> holders;  // that are on watched GPUs now, without those who are left alone
};

class Roster {
 public:
  explicit Roster(RosterOptions options) : options_(std::move(options)) {}

  // `scope`: the GPUs that count. The answer is good until the next look.
  const std::vector<Member>& look(const std::vector<Device>& scope, const std::vector<Card>& cards);
  const std::vector<Member>& members() const { return members_; }
  const Member* find(const SubjectId& id) const;

 private:
  using Name = std::pair<pid_t, std::uint64_t>;
  struct Life {
    std::set<Name> seen;  // who held it when it was last looked at
    std::uint64_t number = 0;
    std::string title;
    std::map<DeviceId, Device> devices;  // of a job
    std::map<DeviceId, Device> drawn;    // where it draws, and computes nothing
    bool watched = false;                // one of them at least
    void meet(const std::set<Name>& now);
  };
  void look_at_gpus(const std::vector<Device>& scope, const std::vector<Card>& cards);
  void look_at_jobs(const std::vector<Device>& scope, const std::vector<Card>& cards);
  void note_where_jobs_are(const Card& card);
  void add_job(const std::string& job, Life& life, const std::vector<Device>& scope, const std::vector<Card>& cards);
  bool left_alone(const Holder& one) const;
  void add(Member member, const Life& life);

  RosterOptions options_;
  std::map<std::string, Life> lives_;  // by key
  std::uint64_t next_number_ = 0;
  std::vector<Member> members_;
};

}  // namespace lull
