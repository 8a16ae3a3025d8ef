#pragma once
// More time for a job by its Comment, which its owner may change while it runs, from any machine of the cluster, and a
// stranger may not: the word lull-keep=2026-11-18T12:00:00Z in it. `lull keep` writes it, and leaves all else in the
// comment as it was; a watcher reads it before it acts, and gives no more than its own limit.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "slurm/act_on_job.h"
#include "slurm/verb.h"

namespace lull::slurm {

Command comment_query(std::uint64_t job);
// By the number of the job: of one, of all tasks of an array, or of all components of a het job. An error: these are no
// lines of squeue's, or a comment has several.
Result<std::map<std::uint64_t, std::string>> read_comments(std::string_view output);

// The latest time that the comment asks for. What cannot be read as one asks for nothing.
std::optional<WallTime> kept_until(std::string_view comment);
// The comment with this time in it, or with the later one that it has already.
std::string with_keep(std::string_view comment, WallTime until);
Command set_comment_command(const std::string& id, const std::string& comment);  // the user's

// Asks for time as whoever runs it: Slurm says who may.
class KeepByComment {
 public:
  struct Outcome {
    bool kept = false;
    std::string text = {};  // until when, or why not
  };
  using Done = std::function<void(const Outcome&)>;
  KeepByComment(Run run, std::uint64_t job, WallTime until, Done done)
      : run_(std::move(run)), job_(job), until_(until), done_(std::move(done)) {}
  KeepByComment(const KeepByComment&) = delete;
  KeepByComment& operator=(const KeepByComment&) = delete;

  void start();

 private:
  void looked(const HelperResult& result);
  void read(const HelperResult& result);
  void refuse(std::string_view program, const HelperResult& result);

  Run run_;
  std::uint64_t job_;
  WallTime until_;
  Done done_;
  std::string id_;
};

}  // namespace lull::slurm
