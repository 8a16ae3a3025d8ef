#pragma once
// `lull-end PID WAIT GRACE [RULE GPUS MISSING ask|- SIGNAL…]`: ends the process that started us, with its children, if
// it has not ended by itself after WAIT. With RULE, what its GPUs show by then, and again before SIGKILL, may spare it:
// it may have become another program (exec) that works. Python's lull.watch(do="exit") and do="kill" start it
// (process_start.h): who hangs in a driver or holds the interpreter's lock can no longer end itself. Descriptor 3 is a
// handle of that process. With `ask` that process confirms before the first signal, over descriptor 4, and may withdraw
// that until the signal (SharedOffer, descriptor 5): it knows all that its rule asks for. A SIGNAL is a source of a
// signal of the user's own, as NAME=SOURCE.

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_status.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"

namespace lull {

inline constexpr const char* kEndName = "lull-end";

SessionEnd end_program(int argc, char** argv, const std::function<void(const std::string&)>& tell);

// An offer in memory that two processes share: one of them makes it, the other takes it once. If the maker takes it
// back in time, it was not taken; neither waits for the other.
class SharedOffer {
 public:
  static Result<SharedOffer> make();
  static Result<SharedOffer> open(int fd);  // the other process's, by its copy of the descriptor
  SharedOffer(const SharedOffer&) = delete;
  SharedOffer& operator=(const SharedOffer&) = delete;
  SharedOffer(SharedOffer&& other) noexcept;
  SharedOffer& operator=(SharedOffer&&) = delete;
  ~SharedOffer();

  int fd() const { return fd_.get(); }
  void put() { change(kNone, kMade); }
  bool withdraw() { return change(kMade, kNone); }  // false: there is none, or it was taken
  bool take() { return change(kMade, kTaken); }     // true: once
  bool taken() const { return *word_ == kTaken; }

 private:
  using Word = std::atomic<std::uint32_t>;
  static_assert(Word::is_always_lock_free);
  static constexpr std::uint32_t kNone = 0;
  static constexpr std::uint32_t kMade = 1;
  static constexpr std::uint32_t kTaken = 2;
  static Result<Word*> map(int fd);
  SharedOffer(Fd fd, Word* word) : fd_(std::move(fd)), word_(word) {}
  bool change(std::uint32_t from, std::uint32_t to) { return word_->compare_exchange_strong(from, to); }

  Fd fd_;
  Word* word_;
};

// A process that we did not start, with what descends from it: for watching the process that we run in, and for ending
// one from outside.
class ProcessTree {
 public:
  explicit ProcessTree(pid_t root) : root_(root) {}

  // Who was seen once stays, also when it loses its parent.
  bool contains(pid_t pid);
  std::vector<ProcessEntry> members() const;

 private:
  const pid_t root_;
  std::set<ProcessId> known_;
};

}  // namespace lull
