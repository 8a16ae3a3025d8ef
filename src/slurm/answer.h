#pragma once
// What one node says about a job when it is asked, and whether all nodes of the job agree. Nothing is done to
// a job unless each of its nodes has said yes, for the same run of it, by a sample of now. One no, one silence, one old
// sample, one node that is missing or answers twice: nothing is done.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "slurm/verb.h"

namespace lull::slurm {

enum class Says : std::uint8_t {
  yes,
  no,
  unknown,  // its GPUs cannot be read, or what it shows is too old
  nobody,   // no watcher for the job there
};
std::string_view to_text(Says says);

struct Answer {
  std::uint64_t job = 0;
  std::string node;
  Says says = Says::nobody;
  std::optional<unsigned> restarts = {};  // of the run of the job that was judged
  std::optional<unsigned> gpus = {};      // how many the job has there
  std::vector<unsigned> numbers = {};     // which, as Slurm counts them
  Duration age{};                         // of the newest sample
  Duration every{};                       // between two samples
  Duration held{};                        // for how long the rule has held
  std::optional<Duration> yes_in = {};    // when a no could become a yes, if nothing changes
  std::string why = {};                   // in words
  bool operator==(const Answer&) const = default;
};

// One line of words that the other side reads: "lull-answer job=22 node=gpu1 says=yes …".
std::string to_line(const Answer& answer);
std::optional<Answer> read_answer(std::string_view line);
std::string to_json(const Answer& answer);

// A sample counts for so many intervals.
inline constexpr int kFreshIntervals = 3;
bool is_fresh(const Answer& answer);

struct Agreement {
  bool agreed = false;
  std::string why = {};                   // not agreed: in words
  std::optional<Duration> again_in = {};  // then it could be: the largest of what those who said no said
  std::size_t answers = 0;                // of how many nodes
  std::vector<NodeGpu> judged = {};       // in the order of the nodes
  bool complete = false;                  // each node has said which GPUs it judged
  std::string leader = {};                // the first of the nodes that says it has some
};
// `output`: what all nodes printed. `nodes`: each of them has to say yes, for this run of the job.
Agreement agree(std::uint64_t job, unsigned restarts, const std::vector<std::string>& nodes, std::string_view output);

// The question to the watcher of a node, and back.
struct Question {
  std::uint64_t job = 0;
  std::string node;
  std::string rule = {};  // as text; empty: the last step
};
std::string to_line(const Question& question);
std::optional<Question> read_question(std::string_view line);

}  // namespace lull::slurm
