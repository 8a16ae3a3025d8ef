#include "slurm/keep_comment.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/calendar.h"
#include "base/text.h"

namespace lull::slurm {
namespace {

constexpr std::string_view kKeepWord = "lull-keep=";

}  // namespace

// %A is the number of a task of an array, too; %k is last, since it may be anything.
Command comment_query(std::uint64_t job) {
  return {"squeue", "--noheader", "--jobs=" + std::to_string(job), "--states=all", "--format=%A %k"};
}

Result<std::map<std::uint64_t, std::string>> read_comments(std::string_view output) {
  std::map<std::uint64_t, std::string> comments;
  if (output.ends_with('\n')) output.remove_suffix(1);
  if (output.empty()) return comments;
  for (const std::string_view line : split(output, '\n')) {
    const std::size_t blank = std::min(line.find(' '), line.size());
    const auto number = to_unsigned(line.substr(0, blank));
    if (!number || blank == line.size())
      return fail(fmt::format("squeue: '{}' is not a job id with its comment", printable(line.substr(0, 80))));
    const std::string_view comment = line.substr(blank + 1);
    if (!comments.emplace(*number, trim(comment) == "(null)" ? "" : comment).second)
      return fail(fmt::format("squeue: job {} is there twice", *number));
  }
  return comments;
}

std::optional<WallTime> kept_until(std::string_view comment) {
  std::optional<WallTime> latest;
  std::string words(comment);
  std::ranges::replace_if(words, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  for (const std::string_view word : split(words, ' ')) {
    if (!word.starts_with(kKeepWord)) continue;
    const auto until = parse_rfc3339(word.substr(kKeepWord.size()));
    if (until && (!latest || *until > *latest)) latest = until;
  }
  return latest;
}

std::string with_keep(std::string_view comment, WallTime until) {
  until = std::max(until, kept_until(comment).value_or(until));
  std::string made;
  bool first = true;
  for (const std::string_view word : split(comment, ' ')) {
    if (word.starts_with(kKeepWord)) continue;
    if (!std::exchange(first, false)) made += ' ';
    made += word;
  }
  if (!made.empty() && !made.ends_with(' ')) made += ' ';
  return made + std::string(kKeepWord) + format_rfc3339(until, 0);
}

Command set_comment_command(const std::string& id, const std::string& comment) {
  return {"scontrol", "update", "jobid=" + id, "Comment=" + comment};
}

void KeepByComment::refuse(std::string_view program, const HelperResult& result) {
  if (result.timed_out || is_silence(result.output)) return done_({.kept = false, .text = silence_text(result.output)});
  const std::string said = printable(trim(std::string_view(result.output).substr(0, 300)));
  done_({.kept = false, .text = fmt::format("{}: {}", program, said.empty() ? result.trouble : said)});
}

void KeepByComment::start() {
  run_(squeue_command(job_), kCommandLimit, [this](const HelperResult& result) { looked(result); });
}

void KeepByComment::looked(const HelperResult& result) {
  if (!result.ok() && !is_unknown_job(result.output)) return refuse("squeue", result);
  const auto state = result.ok() ? read_squeue(result.output, job_) : std::optional<JobState>();
  if (!state) return done_({.kept = false, .text = state.error().message()});
  if (!*state) return done_({.kept = false, .text = fmt::format("Slurm knows no job {}", job_)});
  // By the number of its first component alone, a het job is changed as a whole, with the comments of all others.
  const bool leads = (*state)->het_job == std::to_string(job_);
  id_ = (*state)->het_job.empty() ? (*state)->id() : std::to_string(job_) + (leads ? "+0" : "");
  run_(comment_query(job_), kCommandLimit, [this](const HelperResult& asked) { read(asked); });
}

void KeepByComment::read(const HelperResult& result) {
  if (!result.ok()) return refuse("squeue", result);
  const auto comments = read_comments(result.output);
  if (!comments) return done_({.kept = false, .text = comments.error().message()});
  const auto comment = comments->find(job_);
  if (comment == comments->end()) return done_({.kept = false, .text = fmt::format("Slurm knows no job {}", job_)});
  const std::string made = with_keep(comment->second, until_);
  run_(set_comment_command(id_, made), kCommandLimit, [this, made](const HelperResult& set) {
    if (!set.ok()) return refuse("scontrol", set);
    done_(
        {.kept = true,
         .text = fmt::format("job {} until {}", id_, format_local(kept_until(made).value_or(until_), "%F %H:%M:%S"))});
  });
}

}  // namespace lull::slurm
