#pragma once
// A folder that says why a job was ended: the last readings and a picture of them, the process tree, /proc of each
// process, where its Python threads are (python_stack.h), stacks of others where gdb is there, what the kernel said
// about the GPU (Xid), and a page that shows all of it (evidence_page()). A tool that hangs on a hung job is left out.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "act/action.h"
#include "act/children.h"
#include "act/facts.h"
#include "act/picture.h"
#include "act/python_report.h"
#include "act/python_stack.h"
#include "base/result.h"
#include "gpu/snapshot.h"

namespace lull {

// The page of a folder of evidence, index.html: why, when, where, the picture of the readings, the stacks, and every
// other file as text. It needs nothing else and runs no script; all that comes from outside is escaped.
struct EvidenceFile {
  std::string name;  // ours
  std::string text;  // the beginning of a long one, kMostFileShown bytes and a few more
};
inline constexpr std::size_t kMostFileShown = std::size_t{64} << 10;

struct EvidencePage {
  std::string trouble = {};  // what is missing in the folder
  std::string where = {};    // where the job is, in a line
  std::vector<PythonGroup> python = {};
  std::string python_trouble = {};        // a line for each process that was not read
  std::vector<EvidenceFile> stacks = {};  // of gdb
  std::vector<EvidenceFile> files = {};   // the others
};
std::string evidence_page(const EvidencePage& page, const FiringFacts& facts, std::string_view host, const Past& past);

// The last readings of every GPU, in fixed memory.
class Recorder {
 public:
  void add(const Snapshot& snapshot, const Facts& job, const Facts& machine);
  std::string csv() const;
  const Past& past() const { return past_; }

 private:
  static constexpr std::size_t kSamples = 240;
  struct Sample {
    WallTime wall{};
    std::shared_ptr<const Inventory> inventory;
    std::vector<double> values;  // device by device, metric by metric
  };
  Past past_;
  std::vector<Sample> ring_;
  std::size_t next_ = 0;
};

class Evidence {
 public:
  // Makes the folder (and those above) if need be and sees that it can be written to.
  static Result<> prepare(const std::string& folder);

  using Done = std::function<void(const EvidenceWritten&)>;
  // gdb shows the stacks of programs that are not Python, and stops them for that: allowed for a job of our own.
  enum class Debugger : std::uint8_t { none, gdb };
  // Into a new folder of our own below `folder`, or not at all: never into or through what another user put there.
  // `on_start` learns of each tool that is started. Calls `done` once, later.
  static void collect(const std::string& folder, const FiringFacts& facts, const Recorder& recorder, Helpers& helpers,
                      const InheritedSignals& signals, const std::function<void(const Process&)>& on_start,
                      Debugger debugger, Done done);
};

// Where the threads of the job's Python processes are. Reads up to 5 s aside where a process is in trouble.
struct PythonEvidence {
  std::vector<PythonProcess> processes;
  std::string trouble;  // a line each
};
PythonEvidence read_python(const std::vector<pid_t>& members);
// The same in a sentence: "the job is at train.py:16 in train_step", or why that could not be read. Empty: none of them
// is Python.
std::string where_it_hangs(const std::vector<pid_t>& members);

// What the kernel logged about GPUs (lines with NVRM, Xid or nvidia), newest last.
std::string kernel_messages_about_gpus();

// gdb's stack of a process without the frames that it cannot name; what is missing stands first.
std::string tidied_stack(std::string_view stack);

}  // namespace lull
