#include "lease/release.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/users.h"

namespace lull {
namespace {

struct IndexRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};
std::optional<IndexRange> range_of(std::string_view word) {
  const std::size_t dash = word.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = to_unsigned(word.substr(0, dash));
  const auto last = to_unsigned(word.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  return IndexRange{*first, *last};
}

bool meant(const LeaseInfo& lease, const std::string& word) {
  const auto range = range_of(word);
  const auto index = to_unsigned(lease.record.label);
  if (range && index && *index >= range->first && *index <= range->last) return true;
  return word == "all" || lease.record.label == word || lease.record.id == word ||
         (word.size() >= 8 && lease.gpu.starts_with(word));
}

std::string named(const LeaseInfo& lease) {
  return fmt::format("GPU {}", lease.record.label.empty() ? lease.gpu : printable(lease.record.label));
}

std::string none_meant(const std::string& word) {
  if (range_of(word)) return fmt::format("none of GPUs {} is leased", printable(word));
  if (to_unsigned(word)) return fmt::format("GPU {} is not leased", word);
  return fmt::format("'{}' names no lease", printable(word));
}

// Why it may not be released as things are; empty: it may.
std::string objection(const LeaseInfo& lease, bool force) {
  const uid_t me = ::geteuid();
  if (me != 0 && lease.owner != me)
    return fmt::format("{} is leased to {}; only that user and root may release it", named(lease),
                       printable(user_name(lease.owner)));
  if (force || lease.record.kind == LeaseKind::hold || !lease.readable) return "";
  const auto lives = alive(lease.record.holder);
  if (lives == false) return "";
  return fmt::format("{} is in use by process {} ({}), which {}; --force takes the lease away and leaves it running",
                     named(lease), lease.record.holder.pid, printable(lease.record.command),
                     lives ? "is running" : "cannot be seen from here");
}

// All four of a process's user ids are this one: not a program that runs with more rights than its user has.
bool runs_as(pid_t pid, uid_t user) {
  const auto status = read_file(fmt::format("/proc/{}/status", pid));
  if (!status) return false;
  const std::string expected = fmt::format("Uid:\t{0}\t{0}\t{0}\t{0}\n", user);
  return status->find("\n" + expected) != std::string::npos;
}

bool has_open(pid_t pid, const struct stat& file) {
  std::error_code ignored;
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  for (std::filesystem::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    struct stat status{};
    if (::stat(at->path().c_str(), &status) == 0 && status.st_ino == file.st_ino && status.st_dev == file.st_dev)
      return true;
  }
  return false;
}

// A hold is nothing but its lease holder. A user can write any pid into a file of their own, so it is ended only if it
// provably is the lease holder: the process that the record means, by handle and start time, of the user whose file it
// is, with that very file open. `file` is what the name stood for before it was revoked.
void end_lease_holder(const LeaseFolder& folder, const LeaseInfo& lease, const struct stat& file) {
  if (lease.record.kind != LeaseKind::hold || file.st_uid != lease.owner) return;
  const auto left = folder.scan();
  if (!left) return;
  for (const LeaseInfo& other : left->leases)  // it may hold other GPUs still
    if (other.owner == lease.owner && other.record.holder == lease.record.holder) return;
  const auto process = Process::open(lease.record.holder.pid);
  if (!process || ProcessMark::of(*process) != lease.record.holder) return;
  if (runs_as(process->pid(), lease.owner) && has_open(process->pid(), file)) (void)process->signal(SIGTERM);
}

}  // namespace

Result<std::vector<std::string>> release_options(const std::vector<std::string>& written) {
  std::vector<std::string> words;
  for (const std::string& list : written) {
    for (const std::string_view raw : split(list, ',')) {
      const std::string_view word = trim(raw);
      if (word.empty()) return fail(fmt::format("'{}' has an empty entry: write it as 0,2", printable(list)));
      if (const auto range = range_of(word); range && range->first > range->last)
        return fail(fmt::format("'{}' runs backwards: write {}-{}", printable(word), range->last, range->first));
      words.emplace_back(word);
    }
  }
  return words;
}

Result<std::vector<Release>> release(const LeaseFolder& folder, const std::vector<std::string>& words, bool force) {
  const auto folder_lock = TRY(folder.enter());
  const auto state = TRY(folder.scan());
  std::vector<Release> done;
  for (const std::string& word : words) {
    bool found = false;
    // Of a GPU that several hold, one's own part is meant.
    const auto mine = [](const LeaseInfo& lease) { return ::geteuid() == 0 || lease.owner == ::geteuid(); };
    const bool only_mine = word == "all" || std::ranges::any_of(state.leases, [&](const LeaseInfo& lease) {
                             return meant(lease, word) && mine(lease);
                           });
    for (const LeaseInfo& lease : state.leases) {
      if (!meant(lease, word) || (only_mine && !mine(lease))) continue;
      found = true;
      if (const std::string why = objection(lease, force); !why.empty()) {
        done.push_back({.released = false, .text = why});
        continue;
      }
      struct stat file{};
      const bool seen = ::fstatat(folder.descriptor(), lease.file.c_str(), &file, AT_SYMLINK_NOFOLLOW) == 0;
      if (const auto gone = folder.revoke(folder_lock, lease.file); !gone) {
        done.push_back({.released = false, .text = gone.error().message()});
        continue;
      }
      if (seen) end_lease_holder(folder, lease, file);
      done.push_back({.released = true, .text = named(lease) + " released"});
    }
    if (!found && word != "all")
      done.push_back(
          {.released = false, .text = none_meant(word) + "; name a lease by its GPU or UUID, as in `lull leases`"});
  }
  return done;
}

}  // namespace lull
