#pragma once
// Lives tell what ending would really do. A life is the time in which one job has a
// GPU: it begins when somebody has it and ends when the trace shows another job on it,
// nobody, or no more memory in use than an empty card has: then it was released. A
// GPU of which nothing of that is recorded has one life, from its first sample to its
// last. Each sample belongs to one life, or to none while nobody has the GPU.
//
// The first firing in a life ends it. What the GPU did later in that life is work
// lost; if its condition was never definitely no again, the time is saved for good.
// A value stands for the time since the sample before it, unless a gap lies there.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/block.h"
#include "replay/survival.h"
#include "rule/policy.h"
#include "trace/holders.h"

namespace lull::replay {

// How much was done in how much time.
struct Work {
  double util_seconds = 0;  // seconds at 100 %
  double seen_seconds = 0;  // of each GPU
  Work& operator+=(const Work& more) {
    util_seconds += more.util_seconds;
    seen_seconds += more.seen_seconds;
    return *this;
  }
};

// Samples of a block that belong together.
struct Piece {
  std::size_t from = 0;
  std::size_t to = 0;             // behind the last
  bool held = true;               // false: nobody has the GPU
  bool begins = false;            // of a life: its first samples
  float holder = kUnknownSample;  // who had it in the end, where that was told
  Work work = {};
};

// Cuts the samples of one GPU, or of several that are judged together, into lives. Together, a life lasts while anybody
// has any of them.
class LifeFinder {
 public:
  void feed(std::span<const Block> scope, const trace::Holders* holders, std::vector<Piece>& out);

  bool alive() const { return alive_; }

 private:
  enum class Having : std::uint8_t { nobody, unknown, somebody };  // the order is that of together
  static Having having(const Block& block, std::size_t i);
  void see(Having having, float holder, const trace::Holders* holders, std::size_t i, std::vector<Piece>& out);

  bool any_ = false;  // a sample has been seen
  bool alive_ = false;
  float holder_ = kUnknownSample;
};

// Adds up what the samples of a scope stand for.
class Accounts {
 public:
  explicit Accounts(std::int64_t longest) : longest_(longest) {}

  // The samples from one to another of the scope at hand.
  Work sum(std::span<const Block> scope, std::size_t from, std::size_t to) const;
  // The scope at hand is dealt with: its last sample lies before the next.
  void pass(std::span<const Block> scope) { last_ = scope[0].at.back(); }

 private:
  std::int64_t longest_;  // more is a gap
  std::optional<Instant> last_;
};

// What became of the life that a policy watches.
struct Fate {
  bool ended = false;
  Instant at{};                 // when it was ended
  std::optional<Instant> back;  // when it would have worked again
  Work after;                   // since it was ended
  Instant last{};               // its newest sample
  float holder = kUnknownSample;

  // The samples of a piece, which are those from one to another of the answers. `sum` gives the work from a sample of
  // the piece to its end.
  template <class Sum>
  void see(const PolicyAnswers& answers, std::span<const Instant> at_of, std::size_t from, std::size_t to,
           const Sum& sum) {
    std::size_t next = from;
    if (!ended) {
      const std::size_t fired = next_bit(answers.fires, from, to);
      if (fired == to) return;
      ended = true;
      at = at_of[fired];
      next = fired + 1;
    }
    last = at_of[to - 1];
    if (next == to) return;
    after += sum(next);
    if (back) return;
    if (const std::size_t no = next_bit(answers.condition.no, next, to); no != to) back = at_of[no];
  }

  static std::size_t next_bit(const Mask& mask, std::size_t from, std::size_t to);
};

}  // namespace lull::replay
