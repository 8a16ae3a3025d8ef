#include "base/kin.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/text.h"

namespace lull {
namespace {

constexpr int kMostWalks = 5;

std::vector<pid_t> threads_of(pid_t pid, const Root& root) {
  std::vector<pid_t> threads;
  const std::string folder = root.proc + "/" + std::to_string(pid) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), ::closedir);
  if (!dir) return threads;
  while (const dirent* entry = ::readdir(dir.get()))
    if (const auto thread = to_pid(entry->d_name)) threads.push_back(*thread);
  return threads;
}

class Walker {
 public:
  Walker(std::size_t most, const std::function<bool(const ProcessEntry&)>& skip, const Root& root)
      : left_(most), skip_(skip), root_(root) {}

  // False: the lists are not to be had, or too many.
  bool walk(std::span<const pid_t> from) {
    std::unordered_set<pid_t> visited;
    std::vector<pid_t> open(from.begin(), from.end());
    while (!open.empty()) {
      const pid_t pid = open.back();
      open.pop_back();
      if (!visited.insert(pid).second) continue;
      const ProcessEntry* entry = meet(pid);
      if (entry != nullptr && !add_children(*entry, open)) return false;
    }
    return true;
  }

  bool take_news() { return std::exchange(news_, false); }

  std::vector<ProcessEntry> take() {
    std::vector<ProcessEntry> all;
    for (auto& [pid, entry] : met_)
      if (entry) all.push_back(std::move(*entry));
    std::ranges::sort(all, {}, &ProcessEntry::pid);
    return all;
  }

 private:
  // Nobody where it has ended, or is not wanted.
  const ProcessEntry* meet(pid_t pid) {
    const auto [place, fresh] = met_.try_emplace(pid);
    if (fresh) {
      auto entry = read_process_entry(pid, root_);
      if (entry && !skip_(*entry)) {
        news_ = true;
        place->second = *std::move(entry);
      }
    }
    return place->second ? &*place->second : nullptr;
  }

  bool add_children(const ProcessEntry& entry, std::vector<pid_t>& open) {
    std::vector<pid_t> threads = {entry.pid};
    if (entry.threads > 1) threads = threads_of(entry.pid, root_);
    for (const pid_t thread : threads) {
      if (left_ == 0) return false;
      --left_;
      const auto children = read_children(entry.pid, thread, root_);
      if (children)
        open.insert(open.end(), children->begin(), children->end());
      else if (is_there(entry.pid, thread))
        return false;  // and has no list
    }
    return true;
  }

  bool is_there(pid_t pid, pid_t thread) const {
    const std::string folder = root_.proc + "/" + std::to_string(pid) + "/task/" + std::to_string(thread);
    struct stat info{};
    return ::stat(folder.c_str(), &info) == 0;
  }

  std::size_t left_;
  const std::function<bool(const ProcessEntry&)>& skip_;
  const Root& root_;
  std::unordered_map<pid_t, std::optional<ProcessEntry>> met_;
  bool news_ = false;
};

}  // namespace

Result<std::vector<pid_t>> read_children(pid_t pid, pid_t thread, const Root& root) {
  const std::string path = root.proc + "/" + std::to_string(pid) + "/task/" + std::to_string(thread) + "/children";
  const std::string list = TRY(read_file(path));
  std::vector<pid_t> pids;
  for (const std::string_view word : split(list, ' '))
    if (const auto child = to_pid(trim(word))) pids.push_back(*child);
  return pids;
}

std::size_t count_processes(const Root& root) {
  struct stat info{};
  return ::stat(root.proc.c_str(), &info) == 0 ? info.st_nlink : 0;
}

std::optional<std::vector<ProcessEntry>> read_kin(std::span<const pid_t> from, std::size_t most,
                                                  const std::function<bool(const ProcessEntry&)>& skip,
                                                  const Root& root) {
  Walker walker(most, skip, root);
  for (int i = 0; i < kMostWalks; ++i) {
    if (!walker.walk(from)) return std::nullopt;
    if (!walker.take_news()) return walker.take();
  }
  return std::nullopt;
}

}  // namespace lull
