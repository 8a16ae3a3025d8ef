#pragma once
// Calls back when the content of a settings file may have changed. The folder is watched, because editors replace the
// file. An editor writes in several steps: changes within a short time are reported once.

#include <functional>
#include <string>

#include "base/fd.h"
#include "loop/loop.h"

namespace lull {

class FileWatch {
 public:
  // `lost`: changes cannot be seen, or no longer (no inotify, or the folder is gone). Called at most once.
  FileWatch(Loop& loop, const std::string& path, std::function<void()> changed, std::function<void()> lost);
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;
  ~FileWatch() { stop(); }

 private:
  void read_events();
  void stop();

  Loop& loop_;
  const std::string name_;  // in its folder
  std::function<void()> changed_;
  std::function<void()> lost_;
  Fd events_;
  Timer timer_{loop_};
};

}  // namespace lull
