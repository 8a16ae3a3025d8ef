#pragma once
// For tests of what a job does: a folder that looks like /proc, of which a test writes the files.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/process.h"

namespace lull {

class FakeProc {
 public:
  FakeProc() {
    char name[] = "/tmp/lull_job_XXXXXX";
    root_.proc = ::mkdtemp(name);
  }
  ~FakeProc() { std::filesystem::remove_all(root_.proc); }
  const Root& root() const { return root_; }

  // A negative `read`: its account of bytes is not ours to read.
  ProcessEntry process(pid_t pid, std::uint64_t ticks, std::uint64_t children, long read, long written,
                       long from_disk = 0, long to_disk = 0) {
    const std::string folder = root_.proc + "/" + std::to_string(pid);
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/stat") << pid << " (x) S 1 1 1 0 0 0 0 0 0 0 " << ticks << " 0 " << children
                                    << " 0 20 0 1 0 77 0 0\n";
    std::filesystem::remove(folder + "/io");
    if (read >= 0)
      std::ofstream(folder + "/io") << "rchar: " << read << "\nwchar: " << written
                                    << "\nsyscr: 9\nsyscw: 9\nread_bytes: " << from_disk << "\nwrite_bytes: " << to_disk
                                    << "\ncancelled_write_bytes: 7\n";
    return *read_process_entry(pid, root_);
  }
  // The same, after its end, while nobody has waited for it.
  static ProcessEntry ended(ProcessEntry entry) {
    entry.state = 'Z';
    return entry;
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(root_.proc + "/" + name) << text; }
  void remove(pid_t pid) { std::filesystem::remove_all(root_.proc + "/" + std::to_string(pid)); }

 private:
  Root root_;
};

inline const auto kTicks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));

// With a parent, which the file of a process in here does not name.
inline ProcessEntry child_of(ProcessEntry entry, pid_t parent) {
  entry.parent = parent;
  return entry;
}

}  // namespace lull
