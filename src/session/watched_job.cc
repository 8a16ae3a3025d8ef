#include "session/watched_job.h"

#include <fmt/format.h>

#include "base/text.h"
#include "gpu/snapshot.h"

namespace lull {
namespace {

constexpr std::string_view kLine = "lull-job ";
constexpr double kMostSeconds = 1e9;

std::string seconds_text(const std::optional<Duration>& time) {
  return time ? fmt::format("{:.3f}", to_seconds(*time)) : "-";
}

// False: neither a time nor unknown.
bool read_seconds(std::string_view text, std::optional<Duration>& time) {
  if (text == "-") return true;
  const auto number = to_double(text);
  if (!number || !(*number >= 0) || *number > kMostSeconds) return false;
  time = Duration(static_cast<std::int64_t>(*number * 1e9));
  return true;
}

std::string_view take_word(std::string_view& rest) {
  const std::size_t blank = std::min(rest.find(' '), rest.size());
  const std::string_view word = rest.substr(0, blank);
  rest.remove_prefix(std::min(blank + 1, rest.size()));
  return word;
}

std::optional<WatchedJob> read_line(std::string_view line) {
  if (!line.starts_with(kLine)) return std::nullopt;
  line.remove_prefix(kLine.size());
  WatchedJob job;
  for (std::optional<Duration>* time : {&job.idle_for, &job.next_in, &job.kept_for})
    if (!read_seconds(take_word(line), *time)) return std::nullopt;
  const auto pid = to_unsigned(take_word(line));
  const auto start = to_unsigned(take_word(line));
  const std::string_view how = take_word(line);
  if (!pid || *pid > 0x7FFFFFFF || !start || (how != "acts" && how != "dry-run")) return std::nullopt;
  job.process = {static_cast<pid_t>(*pid), *start};
  job.dry_run = how == "dry-run";
  const std::string_view next = take_word(line);
  job.next = next == "-" ? "" : next;
  job.key = line;
  if (job.key.empty()) return std::nullopt;
  return job;
}

}  // namespace

std::string to_lines(const std::vector<WatchedJob>& jobs, std::size_t most) {
  std::string lines;
  for (const WatchedJob& job : jobs) {
    const std::string line =
        fmt::format("{}{} {} {} {} {} {} {} {}\n", kLine, seconds_text(job.idle_for), seconds_text(job.next_in),
                    seconds_text(job.kept_for), job.process.first, job.process.second, job.dry_run ? "dry-run" : "acts",
                    job.next.empty() ? "-" : one_word(job.next), printable(job.key));
    if (lines.size() + line.size() > most) break;
    lines += line;
  }
  return lines;
}

std::vector<WatchedJob> read_watched_jobs(std::string_view lines) {
  std::vector<WatchedJob> jobs;
  for (const std::string_view line : split(lines, '\n'))
    if (auto job = read_line(line)) jobs.push_back(*std::move(job));
  return jobs;
}

}  // namespace lull
