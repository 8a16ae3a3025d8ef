#pragma once
// NVIDIA's command-line tool cuda-checkpoint, and how far it is believed. Of its exit status only zero or not is
// documented, and either has been seen with and without an effect. So each action is followed by a question for the
// state, and only the state counts. Each call has a time limit: a tool that hangs is killed, and the state is asked.
//
// The tool takes a number. Before each call the process must still be the one that was seen (pidfd).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "base/result.h"

namespace lull {

enum class CudaState : std::uint8_t {
  unknown,  // the tool did not say, or something else
  running,
  locked,  // its CUDA calls block
  checkpointed,
  failed,  // it cannot be brought back
  ended,   // the process is gone
};
std::string_view to_string(CudaState state);

class CheckpointTool {
 public:
  struct Limits {
    Duration lock = std::chrono::seconds(10);  // for all processes of a job together
    Duration call = std::chrono::minutes(5);   // for each other action
    Duration ask = std::chrono::seconds(5);    // for the state
  };

  CheckpointTool(std::string path, Limits limits) : path_(std::move(path)), limits_(limits) {}

  // `given`: a path, or empty: from PATH. As root a file that others could have put there is refused.
  static Result<std::string> find(const std::string& given);

  const std::string& path() const { return path_; }
  // Each call keeps this descriptor open while anything of it is left: the lock of the entry. Whoever comes after our
  // death waits for it, since what the call began may still take effect.
  void holds(int descriptor) { held_ = descriptor; }

  // Asks all of them, side by side.
  std::vector<CudaState> states(const std::vector<const Process*>& of) const;
  CudaState state(const Process& of) const { return states({&of})[0]; }

  // Each returns what the tool had to say, for a person; empty: it ended with 0. Whether it worked, states() tells.
  std::string lock(const std::vector<const Process*>& all) const;  // within one limit
  std::string unlock(const std::vector<const Process*>& all) const;
  std::string checkpoint(const Process& one) const;
  std::string restore(const Process& one) const;

 private:
  struct Call {
    const Process* process;
    std::vector<std::string> arguments;
  };
  struct Answer {
    bool well = false;
    std::string output;   // stdout
    std::string trouble;  // for a person
  };
  std::vector<Answer> run(const std::vector<Call>& calls, Duration limit) const;
  std::string act(const std::string& action, const std::vector<const Process*>& all, Duration limit) const;

  std::string path_;
  Limits limits_;
  int held_ = -1;
};

}  // namespace lull
