#pragma once
// What was read of the Python processes of a job (python_stack.h) for a person: where they are in one line, and the
// stacks of all of them, those that differ from the rest first.

#include <cstddef>
#include <string>
#include <vector>

#include "act/python_stack.h"

namespace lull {

// Where the main thread is in one line, by the innermost frame that is not of a library: "train.py:16 in train_step
// (rank 3, waiting in ncclAllReduce)". Empty: it has no frame.
std::string where_text(const PythonProcess& process);
// The same of several: "rank 3 is at load.py:9 in next (waiting in read), 7 others at train.py:16 in train_step".
std::string where_text(const std::vector<PythonProcess>& processes);

// A sentence of it: "the job is at train.py:16 in train_step", "rank 3 is at load.py:9 in next, 7 others at …".
std::string job_is(const std::string& where);

// Processes whose threads are at the same lines.
struct PythonGroup {
  std::size_t processes = 0;
  bool differs = false;  // few, where most are elsewhere
  std::string who = {};  // "rank 3 (process 103), rank 4 (process 104)"
  std::string stacks = {};
};
// Those that differ from most others first.
std::vector<PythonGroup> python_groups(const std::vector<PythonProcess>& processes);
// The same as text.
std::string python_report(const std::vector<PythonProcess>& processes);

}  // namespace lull
