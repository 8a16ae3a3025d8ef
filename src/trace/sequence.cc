#include "trace/sequence.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

constexpr std::int64_t kDay = 24 * 3600 * kSecond;
constexpr std::size_t kMostPlaces = 256;

// The steps that these times are written in: a second, a millisecond, less.
std::int64_t resolution_of(std::span<const std::int64_t> times) {
  for (const std::int64_t step : {60 * kSecond, kSecond, kSecond / 1000, kSecond / 1'000'000})
    if (std::all_of(times.begin(), times.end(), [&](std::int64_t at) { return at % step == 0; })) return step;
  return 1;
}

// The rows of each tick, if a gap of more than `split` parts them.
std::vector<std::size_t> ticks_by(std::span<const std::int64_t> times, std::int64_t split) {
  std::vector<std::size_t> ticks(1, 1);
  for (std::size_t i = 1; i < times.size(); ++i) {
    if (std::abs(times[i] - times[i - 1]) > split) ticks.push_back(0);
    ++ticks.back();
  }
  return ticks;
}

// The usual size, if two of three ticks have it; else 0. The last may go on behind the head, so it counts only where
// there is but one more.
std::size_t usual_size(std::vector<std::size_t> ticks) {
  if (ticks.size() == 2) return ticks[0] == ticks[1] ? ticks[0] : 0;
  if (ticks.size() > 2) ticks.pop_back();
  std::map<std::size_t, std::size_t> count;
  for (const std::size_t size : ticks) ++count[size];
  const auto most =
      std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->second * 3 >= ticks.size() * 2 ? most->first : 0;
}

// One command writes the rows of a tick at once: rows that are further apart may as well be of one GPU, looked at in
// bursts. Times in whole seconds are mostly equal within a tick.
bool within_a_tick(std::span<const std::int64_t> gaps, std::int64_t small, std::int64_t step) {
  if (small <= kSecond / 5) return true;
  const auto none = std::upper_bound(gaps.begin(), gaps.end(), 0) - gaps.begin();
  const auto all = std::upper_bound(gaps.begin(), gaps.end(), small) - gaps.begin();
  return small == step && none * 2 >= all;
}

}  // namespace

TickShape shape_of_ticks(std::span<const std::int64_t> times) {
  TickShape one;
  if (times.size() < 2) return one;
  std::vector<std::int64_t> gaps;
  for (std::size_t i = 1; i < times.size(); ++i) gaps.push_back(std::abs(times[i] - times[i - 1]));
  std::sort(gaps.begin(), gaps.end());
  const std::int64_t step = resolution_of(times);
  const auto shared = static_cast<std::size_t>(std::count(gaps.begin(), gaps.end(), 0));
  if (gaps.back() == 0)
    return times.size() <= kMostPlaces ? TickShape{times.size(), 0, step, false} : TickShape{0, 0, 0, false};
  // A tick ends where the gaps jump from small to large: the clearest jump that gives regular ticks.
  double clearest = 3;
  bool bursts = false;
  TickShape best = one;
  for (std::size_t i = 0; i + 1 < gaps.size(); ++i) {
    const double jump = static_cast<double>(gaps[i + 1]) / static_cast<double>(std::max(gaps[i], step));
    const bool coarse = gaps[i] == 0 && gaps[i + 1] > 0;  // the same time, then another
    if (gaps[i] == gaps[i + 1] || (jump < clearest && !(coarse && best.rows == 1))) continue;
    const std::size_t size = usual_size(ticks_by(times, gaps[i]));
    if (size < 2 || size > kMostPlaces) continue;
    if (!within_a_tick(gaps, gaps[i], step)) {
      bursts = true;
      continue;
    }
    clearest = std::max(clearest, jump);
    best = {size, gaps[i], gaps[i + 1], gaps[i + 1] * 2 >= step * 5 && jump >= 3};
  }
  if (best.rows > 1) return best;
  // A few rows twice are duplicates; many that share their time without a pattern are several GPUs, and it is unknown
  // which. So are rows in bursts, milliseconds apart, of different numbers.
  const auto within = std::upper_bound(gaps.begin(), gaps.end(), kSecond / 10);
  const auto far = static_cast<std::size_t>(gaps.end() - within);
  bursts = bursts || ((within - gaps.begin()) * 3 >= static_cast<std::ptrdiff_t>(gaps.size()) &&
                      far * 64 >= gaps.size() && far > 0 && *within >= 8 * within[-1]);
  if ((shared > 1 && shared * 20 > gaps.size()) || bursts) best.rows = 0;
  return best;
}

Sequence::Sequence(const Schema& schema, Duration every, Duration clock_set_back)
    : schema_(schema),
      every_(every),
      by_place_(schema.gpus_in_a_tick > 1),
      places_({Role::gpu}),
      by_wall_clock_(schema.timed && schema.from_epoch && !schema.zoned && !schema.partial &&
                     schema.wraps == Schema::Wraps::no),
      offset_(by_wall_clock_ ? clock_set_back.count() : 0) {
  for (std::size_t i = 0; by_place_ && i < schema.gpus_in_a_tick; ++i) {
    const std::string label = std::to_string(i);
    Identities::Cells cells{};
    cells[0] = label;
    places_.find(cells);
  }
  tick_.reset(schema.metrics.size());
}

void Sequence::apply(const Identities& parsed, Batch& batch) {
  if (!schema_.timed) count_time(parsed, batch);
  if (schema_.wraps != Schema::Wraps::no) unwrap(batch);
  if (by_wall_clock_) follow_clock(parsed, batch);
  if (by_place_) find_places(batch, false);
}

void Sequence::finish(Batch& batch) {
  batch.reset(schema_.metrics.size());
  if (by_place_) find_places(batch, true);
}

// Midnight or New Year has passed where the time falls by more than half of what it goes round in.
void Sequence::unwrap(Batch& batch) {
  const std::int64_t round = schema_.wraps == Schema::Wraps::each_day ? kDay : 366 * kDay;
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const std::int64_t written = batch.at[row];
    if (any_written_ && last_written_ - written > round / 2) offset_ += round;
    if (any_written_ && written - last_written_ > round / 2 && offset_ > 0) offset_ -= round;  // a row from before
    any_written_ = true;
    last_written_ = written;
    batch.at[row] = written + offset_;
  }
}

// One leap back of an hour, less what lies between two samples, in rows that are in order else: summer time has ended.
void Sequence::follow_clock(const Identities& parsed, Batch& batch) {
  constexpr std::int64_t kHour = 3600 * kSecond;
  constexpr std::int64_t kLongPause = 600 * kSecond;  // between samples
  const std::vector<Place>& places = places_of(parsed);
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const std::size_t gpu = places[batch.gpu[row]].gpu;
    if (gpu >= last_of_.size()) {
      last_of_.resize(gpu + 1, std::numeric_limits<std::int64_t>::min());
      pause_of_.resize(gpu + 1);
    }
    const std::int64_t written = batch.at[row];
    const bool met = last_of_[gpu] != std::numeric_limits<std::int64_t>::min();
    const std::int64_t now = written + offset_;
    if (met && now < last_of_[gpu]) {
      const std::int64_t pause = now + kHour - last_of_[gpu];
      const bool leap = pause >= 0 && pause_of_[gpu] <= kLongPause && pause <= 2 * pause_of_[gpu] + 5 * kSecond;
      if (leap && ordered_ && !set_back_at_) {
        set_back_at_ = last_of_[gpu];
        offset_ += kHour;
      } else {
        ordered_ = false;
      }
    }
    batch.at[row] = written + offset_;
    if (met) pause_of_[gpu] = std::max<std::int64_t>(0, batch.at[row] - last_of_[gpu]);
    last_of_[gpu] = std::max(last_of_[gpu], batch.at[row]);
  }
}

// A header came before this row, perhaps as the last line of the batch before.
bool Sequence::starts_at(std::size_t row, const Batch& batch, std::size_t& next) {
  bool start = starts_next_;
  starts_next_ = false;
  for (; next < batch.starts.size() && batch.starts[next] <= row; ++next) start = true;
  return start;
}

// A GPU is the same one whoever has it, and the number of a process is not its own.
Sequence::Place Sequence::place_of(const std::vector<std::string>& cells) {
  Place place{0, std::numeric_limits<double>::quiet_NaN()};
  std::string name;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (is_owner(schema_.identity[i])) continue;
    name += cells[i] + '\n';
    if (const auto number = to_double(cells[i])) place.index = *number;
  }
  place.gpu = gpus_.try_emplace(name, gpus_.size()).first->second;
  in_tick_.resize(gpus_.size());
  return place;
}

const std::vector<Sequence::Place>& Sequence::places_of(const Identities& parsed) {
  std::vector<Place>& places = places_of_[&parsed];
  while (places.size() < parsed.size()) places.push_back(place_of(parsed.cells(places.size())));
  return places;
}

// Rows of a tick come in the order of their GPUs: one that comes again, or a lower number, is in the next tick.
void Sequence::count_time(const Identities& parsed, Batch& batch) {
  std::size_t next_start = 0;
  const std::vector<Place>& places = places_of(parsed);
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const bool start = starts_at(row, batch, next_start);
    const auto& [gpu, index] = places[batch.gpu[row]];
    if (any_ && (in_tick_[gpu] != 0 || index < last_index_ || start)) {
      now_ += every_.count();
      // The time between two recordings is unknown: it counts as a gap.
      const bool gap = start && !(schema_.header_each_tick && one_tick_);
      if (gap) now_ += 10 * every_.count() + 10 * kSecond;
      one_tick_ = start;
      std::fill(in_tick_.begin(), in_tick_.end(), std::uint8_t{0});
    }
    any_ = true;
    in_tick_[gpu] = 1;
    last_index_ = index;
    batch.at[row] = now_;
  }
  if (next_start < batch.starts.size()) starts_next_ = true;
}

void Sequence::close_tick(Batch& out) {
  const std::size_t places = schema_.gpus_in_a_tick;
  if (tick_.rows == 0) return;
  const bool regular = tick_.rows == places && tick_trusted_ && trusted_;
  const bool clear = regular && !on_trial_;
  if (!clear) ++unclear_ticks_;
  // A GPU that took as long as it is between ticks looks like the first of the next one. So behind a tick that is not
  // as it should be, one that is must pass before the next is believed; and where ticks run into each other, none is.
  on_trial_ = !regular;
  if (!regular && !schema_.sure_ticks) trusted_ = false;
  for (std::size_t place = 0; place < places; ++place) {
    const std::size_t row = out.add_row(tick_.at[clear ? place : 0], static_cast<std::uint32_t>(place));
    for (std::size_t slot = 0; clear && slot < out.value.size(); ++slot)
      out.value[slot][row] = tick_.value[slot][place];
  }
  tick_.rows = 0;
  tick_trusted_ = true;
}

void Sequence::find_places(Batch& batch, bool last) {
  Batch out;
  out.reset(schema_.metrics.size());
  std::size_t next_start = 0;
  const std::int64_t between = schema_.large_gap / 10 * 8;  // at least, where one tick ends and the next begins
  const std::int64_t within = schema_.sure_ticks ? schema_.small_gap * 2 : schema_.small_gap;
  for (std::size_t row = 0; row < batch.rows; ++row) {
    const bool start = starts_at(row, batch, next_start);
    const std::int64_t gap = tick_.rows == 0 ? 0 : batch.at[row] - tick_.at[tick_.rows - 1];
    if (start || std::abs(gap) > within) {
      // Neither within a tick nor between two: it may be either.
      const bool unclear = !start && (gap < 0 || (schema_.sure_ticks && gap < between));
      if (unclear) tick_trusted_ = false;
      close_tick(out);
      if (unclear) trusted_ = false;
      if (start || (!unclear && schema_.sure_ticks)) trusted_ = true;
      if (start) on_trial_ = false;
    }
    if (tick_.rows < 2 * kMostPlaces) {
      const std::size_t held = tick_.add_row(batch.at[row], 0);
      for (std::size_t slot = 0; slot < batch.value.size(); ++slot) tick_.value[slot][held] = batch.value[slot][row];
    }
  }
  if (next_start < batch.starts.size()) starts_next_ = true;
  if (last) close_tick(out);
  // What was said of lines stays; the rows are new.
  std::swap(batch.rows, out.rows);
  batch.at.swap(out.at);
  batch.gpu.swap(out.gpu);
  batch.value.swap(out.value);
}

}  // namespace lull::trace
