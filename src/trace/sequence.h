#pragma once
// What only the order of the rows tells: which GPU a row is of where no column does (its
// place in the tick), when it was where no column says (ticks are counted), which day
// or year where times lack it, and that a wall clock was set back an hour. Rows come through here in the order of the
// file.
//
// A tick with other than the usual number of rows could be of any of the GPUs: all of them
// are unknown then, and in the tick that follows. Where times are so coarse that one tick
// runs into the next, whatever follows is unknown too, until a header comes again.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "trace/batch.h"
#include "trace/schema.h"

namespace lull::trace {

class Sequence {
 public:
  // `clock_set_back`: in the files before this one.
  Sequence(const Schema& schema, Duration every, Duration clock_set_back = {});

  bool needed() const { return by_place_ || !schema_.timed || schema_.wraps != Schema::Wraps::no || by_wall_clock_; }
  bool by_place() const { return by_place_; }
  // The GPUs are then those of this, not of the parser.
  const Identities& identities() const { return places_; }
  std::uint64_t unclear_ticks() const { return unclear_ticks_; }
  // By how much so far, and where in this file: the last time before.
  Duration clock_set_back() const { return by_wall_clock_ ? Duration(offset_) : Duration{}; }
  std::optional<std::int64_t> set_back_at() const { return set_back_at_; }

  // Rewrites the rows. Those of a tick that may go on are held back until the next batch or finish().
  void apply(const Identities& parsed, Batch& batch);
  void finish(Batch& batch);

 private:
  struct Place {      // what the parser tells apart: a GPU with whoever has it
    std::size_t gpu;  // which one, whoever has it
    double index;     // its number; NaN: it has none
  };

  bool starts_at(std::size_t row, const Batch& batch, std::size_t& next);
  void unwrap(Batch& batch);
  void follow_clock(const Identities& parsed, Batch& batch);
  void count_time(const Identities& parsed, Batch& batch);
  Place place_of(const std::vector<std::string>& cells);
  const std::vector<Place>& places_of(const Identities& parsed);
  void find_places(Batch& batch, bool last);
  void close_tick(Batch& out);

  const Schema& schema_;
  Duration every_;
  bool by_place_;
  Identities places_;

  bool starts_next_ = false;  // a header came at the end of the batch before

  // follow_clock
  bool by_wall_clock_;                  // times are those of a clock that may be set back
  bool ordered_ = true;                 // so far
  std::vector<std::int64_t> last_of_;   // by GPU
  std::vector<std::int64_t> pause_of_;  // between its last two rows
  std::optional<std::int64_t> set_back_at_;
  // unwrap
  std::int64_t offset_ = 0;
  std::int64_t last_written_ = 0;
  bool any_written_ = false;
  // count_time
  std::int64_t now_ = 0;
  bool any_ = false;
  bool one_tick_ = true;  // since the last header
  double last_index_ = 0;
  std::map<const Identities*, std::vector<Place>> places_of_;  // by parser: each numbers the GPUs as it meets them
  std::map<std::string, std::size_t> gpus_;                    // by their names
  std::vector<std::uint8_t> in_tick_;                          // by GPU
  // find_places
  Batch tick_;  // the rows held back
  bool trusted_ = true;
  bool tick_trusted_ = true;
  bool on_trial_ = false;  // the tick before was not as it should be
  std::uint64_t unclear_ticks_ = 0;
};

// How many rows make a tick, from the times of the first rows in the order of the file: 1 where every row is a tick of
// its own, 0 where rows share their times but not regularly.
struct TickShape {
  std::size_t rows = 1;
  std::int64_t small_gap = 0;
  std::int64_t large_gap = 0;
  bool sure = true;
};
TickShape shape_of_ticks(std::span<const std::int64_t> times);

}  // namespace lull::trace
