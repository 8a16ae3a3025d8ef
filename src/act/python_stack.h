#pragma once
// Where the threads of a Python program are: file, line and function of each frame, and the native function that each
// waits in. Read from outside, by process_vm_readv: the process is neither stopped nor changed. CPython 3.9 to 3.12 by
// tables of offsets, 3.13 and 3.14 by the offsets that the interpreter publishes (_Py_DebugOffsets). Another version is
// said, never guessed. Another process's memory is input from outside: nothing in it is trusted.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

struct PythonFrame {
  std::string file;
  unsigned line = 0;  // 0: not known
  std::string function;
  bool operator==(const PythonFrame&) const = default;
  std::string text() const;  // "train.py:16 in train_step"
};

struct PythonThread {
  pid_t id = 0;  // 0: not known
  std::string name;
  std::vector<PythonFrame> frames;  // the innermost first
  bool cut = false;                 // there are more than were read
  bool changing = false;            // it ran while it was read: the frames may be of two moments
  std::string waits_in;             // "ncclAllReduce (libnccl.so.2)"; empty: runs, or not known
};

struct PythonProcess {
  pid_t pid = 0;
  pid_t parent = 0;                   // 0: not known
  std::string version;                // "3.11"
  std::string rank;                   // of a job with several processes: RANK and the like; empty: not told
  std::vector<PythonThread> threads;  // the main thread first
};

// ENOEXEC: not a Python program. EPERM: the message names the setting that forbids it. Reading may hang on a process in
// trouble: ask it aside (run_with_timeout).
Result<PythonProcess> read_python_stacks(pid_t pid);

// What was read of a process as text, for who reads it in another process; nothing: it is not such a text.
std::string encode(const PythonProcess& process);
std::optional<PythonProcess> decode_python_process(std::string_view text);

// The line of an instruction, by the tables of a code object; 0: not told. For CPython 3.9, 3.10, and 3.11 and newer.
unsigned line_by_lnotab(std::string_view table, unsigned first_line, std::int64_t byte);
unsigned line_by_ranges(std::string_view table, unsigned first_line, std::int64_t byte);
unsigned line_by_locations(std::string_view table, unsigned first_line, std::int64_t unit);

}  // namespace lull
