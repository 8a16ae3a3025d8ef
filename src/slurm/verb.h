#pragma once
// What can be done to a job through Slurm, and with which commands. Whether it may be done is decided by what squeue
// says of the job now: it runs, is the same user's, on the same nodes, and has been restarted as often as when it was
// judged. squeue is asked for fields that
// users cannot choose: `scontrol show job` prints the job's name and comment as they are, which may look like any other
// field.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/text.h"

namespace lull::slurm {

using Command = std::vector<std::string>;

// Every Slurm command ends within this, or is ended.
inline constexpr Duration kCommandLimit = std::chrono::seconds(5);
// What changes the job before the verb is answered within this, or the verb is not sent: a controller that takes longer
// may do it after kCommandLimit, when nothing is known of the job any more.
inline constexpr Duration kSoon = std::chrono::seconds(2);
// How long a verb that had no answer may still be done: munge's credentials are good for that long, unless AuthInfo has
// another ttl.
inline constexpr Duration kMayStillBeDone = std::chrono::minutes(5);

enum class VerbKind : std::uint8_t { comment, signal, requeue, requeuehold, cancel };
struct Verb {
  VerbKind kind = VerbKind::comment;
  std::string signal = {};  // "TERM"
};
// comment, signal:TERM, requeue, requeuehold, cancel
Result<Verb> parse_verb(std::string_view text);
std::string to_text(const Verb& verb);
inline bool requeues(const Verb& verb) { return verb.kind == VerbKind::requeue || verb.kind == VerbKind::requeuehold; }

// A job as squeue shows it.
struct JobState {
  std::uint64_t job = 0;
  std::string state;  // "RUNNING"
  unsigned restarts = 0;
  bool batch = false;     // else it is interactive (salloc, srun): it cannot be requeued
  bool requeue = false;   // else its owner said --no-requeue
  std::string array_job;  // empty: of no array
  std::string array_task;
  std::string het_job;  // the number of its first component; empty: it has no components
  std::optional<uid_t> user = {};
  std::optional<std::size_t> node_count = {};
  std::string nodes;                       // empty: not shown as a whole
  std::optional<std::uint64_t> gpus = {};  // on all nodes; nothing: Slurm does not account for them
  std::string partition;
  std::string qos;
  std::string account;
  // As scontrol and scancel take it. The last task of an array has the number of the array itself.
  std::string id() const;
};
Command squeue_command(std::uint64_t job);
// Nothing: the job is not among the lines. An error: these are not lines of squeue.
Result<std::optional<JobState>> read_squeue(std::string_view output, std::uint64_t job);

// A component of a het job. Slurm requeues and cancels all of them together, by the number of the first one.
struct Component {
  std::uint64_t job = 0;
  unsigned group = 0;  // as srun's --het-group counts
  std::string state = {};
  unsigned restarts = 0;
  std::string nodes = {};
  bool operator==(const Component&) const = default;
};
Command components_command(std::uint64_t het_job);
// In the order of their groups. An error: not each of them is among the lines, as a whole.
Result<std::vector<Component>> read_components(std::string_view output, std::uint64_t het_job);

struct ActPolicy {
  unsigned restarts_at_most = 3;  // then requeue is requeuehold
  // An interactive job (salloc, srun) cannot be requeued.
  enum class Interactive : std::uint8_t {
    cancel_alone,  // it can be cancelled
    leave,         // nothing is done to it but to say something
    cancel,        // a requeue cancels it
  };
  Interactive interactive = Interactive::cancel_alone;
  // Nothing is done to jobs of these.
  std::set<std::string> except_partitions = {};
  std::set<std::string> except_qos = {};
  std::set<std::string> except_accounts = {};
};

using NodeGpu = std::pair<std::string, unsigned>;  // a GPU of that node, as Slurm counts them

// The job that was judged. What is not set is not compared.
struct Judged {
  std::uint64_t job = 0;
  std::optional<unsigned> restarts = {};
  std::optional<uid_t> user = {};
  std::string nodes = {};
  std::optional<std::uint64_t> gpus = {};  // that its nodes have answered for
};

// What to do about the job now.
struct Doing {
  enum class Kind : std::uint8_t {
    act,
    no_longer,  // it does not run, or is another run of it, or another job
    not_now,    // not all of it was judged
    refused,    // it cannot be done to such a job
  };
  Kind kind = Kind::act;
  std::string why = {};
  Verb verb = {};  // that is done: requeue may have become requeuehold or cancel
  std::vector<Command> before = {};
  std::vector<Command> undo = {};  // of what was done before
  Command command = {};
};
Doing plan(const std::optional<JobState>& state, const Judged& judged, const Verb& verb, const ActPolicy& policy,
           const std::string& reason);

Command comment_command(const std::string& id, const std::string& text);  // AdminComment
Command start_now_command(const std::string& id);

// All nodes of the job are asked, as its user, by a step that takes nothing from it. `group`: those of one component of
// the het job `job`.
Command ask_command(std::uint64_t job, const std::string& user, std::size_t nodes, const Command& question,
                    std::optional<unsigned> group = {});

// The controller is not there, or does not answer: later, perhaps.
bool is_silence(std::string_view output);
std::string silence_text(std::string_view output);  // with what the command said: it may be its configuration
// Of a command that had no answer: it did not reach a controller that would do it.
bool was_not_sent(std::string_view output);
// There is no such job any more.
bool is_unknown_job(std::string_view output);

// ---- squeue

// A field of squeue's --Format, and the cells of a line that it prints for them. A cell as wide as its field may have
// been cut off.
struct Field {
  std::string_view name;
  std::size_t width;
};

template <std::size_t N>
std::string format_option(const std::array<Field, N>& fields) {
  std::string format = "--Format=";
  for (const Field& field : fields) {
    if (&field != fields.data()) format += ',';
    format.append(field.name).append(":").append(std::to_string(field.width));
  }
  return format;
}

template <std::size_t N>
std::array<std::string_view, N> cells_of(std::string_view line, const std::array<Field, N>& fields) {
  std::array<std::string_view, N> cells;
  std::size_t at = 0;
  for (std::size_t i = 0; i < N && at < line.size(); at += fields[i].width, ++i)
    cells[i] = trim(line.substr(at, fields[i].width));
  return cells;
}

inline std::string name_or_none(std::string_view cell) {
  return cell == "(null)" || cell == "N/A" ? "" : std::string(cell);
}

}  // namespace lull::slurm
