#pragma once
// The slow, obvious twin of replay: one GPU, one sample after the other, straight from the definitions; and random
// series to try both on.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "replay/replay.h"

namespace lull::replay {

constexpr int kUntold = -1;
constexpr int kNone = 0;

struct Sample {
  std::int64_t at = 0;
  double util = 0;  // NaN: unknown
  double memory = std::nan("");
  int pid = kUntold;
};
using Series = std::vector<Sample>;

struct Asked {
  double limit = 5;
  std::int64_t span = 0;      // ns
  std::uint32_t count = 0;    // samples, where not 0
  std::optional<double> arm;  // util above this
  std::int64_t regret = 0;
  std::int64_t shortest = 0;  // ns that any rule asks for
};

struct Counted {
  std::uint64_t firings = 0;
  std::uint64_t came_back = 0;
  std::uint64_t regretted = 0;
  std::int64_t idle = 0;
  std::int64_t reclaimed = 0;
  std::int64_t seen = 0;

  std::uint64_t jobs = 0;
  std::uint64_t ended = 0;
  std::uint64_t worked_again = 0;
  double work = 0;
  double lost = 0;
  std::int64_t freed = 0;
  std::vector<std::int64_t> followed;  // of those not seen again
  std::int64_t missed = 0;
  struct Leave {
    std::int64_t second;
    Leaving how;
  };
  std::vector<Leave> leaves;
};

// The interval that counts before each sample: the median of all; where eight or more in a row are within a factor of
// two of the first of them, and such runs differ by more than three, that of the last run to have begun: the median of
// its first eight, by which it goes on.
inline std::vector<std::int64_t> intervals_of(const Series& series) {
  std::vector<std::int64_t> all;
  for (std::size_t i = 1; i < series.size(); ++i) all.push_back(series[i].at - series[i - 1].at);
  std::vector<std::int64_t> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  const std::int64_t median = all.empty() ? 0 : (sorted[(all.size() - 1) / 2] + sorted[all.size() / 2]) / 2;
  std::vector<std::int64_t> of(series.size(), median);
  struct Run {
    std::size_t from;
    std::int64_t interval;
  };
  std::vector<Run> runs;
  for (std::size_t from = 0; from < all.size();) {
    std::int64_t interval = all[from];
    std::size_t to = from + 1;
    for (; to < all.size() && all[to] <= 2 * interval && 2 * all[to] >= interval; ++to) {
      if (to - from + 1 != 8) continue;
      std::vector<std::int64_t> first(all.begin() + static_cast<std::ptrdiff_t>(from),
                                      all.begin() + static_cast<std::ptrdiff_t>(to) + 1);
      std::sort(first.begin(), first.end());
      interval = first[4];
    }
    const bool other = runs.empty() || interval > 3 * runs.back().interval || 3 * interval < runs.back().interval;
    if (to - from >= 8 && other) runs.push_back({from, interval});
    from = to;
  }
  if (runs.size() < 2) return of;
  for (std::size_t i = 1; i < series.size(); ++i) {
    of[i] = runs[0].interval;
    for (const Run& run : runs)
      if (run.from < i) of[i] = run.interval;
  }
  return of;
}

// Whether a gap lies before each sample: an interval of more than three usual ones and a second.
inline std::vector<bool> gaps_of(const Series& series) {
  const std::vector<std::int64_t> usual = intervals_of(series);
  std::vector<bool> gaps(series.size());
  for (std::size_t i = 1; i < series.size(); ++i)
    gaps[i] = series[i].at - series[i - 1].at > std::max<std::int64_t>(3 * usual[i], 1'000'000'000);
  return gaps;
}

inline void count_obviously(const Series& series, const Asked& asked, Counted& counted) {
  const std::vector<bool> gap = gaps_of(series);
  const auto yes = [&](std::size_t i) { return series[i].util < asked.limit; };
  const auto no = [&](std::size_t i) { return series[i].util >= asked.limit; };
  for (std::size_t i = 1; i < series.size(); ++i)
    if (!gap[i]) counted.seen += series[i].at - series[i - 1].at;
  std::size_t armed = asked.arm ? series.size() : 0;  // the first sample that may fire
  for (std::size_t i = series.size(); asked.arm && i-- > 0;)
    if (series[i].util > *asked.arm) armed = i + 1;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const bool begins = yes(i) && (i == 0 || !yes(i - 1) || gap[i]);
    if (!begins) continue;
    std::size_t last = i;
    while (last + 1 < series.size() && yes(last + 1) && !gap[last + 1]) ++last;
    const bool cut = last + 1 == series.size() || gap[last + 1];
    const std::int64_t end = cut ? series[last].at : series[last + 1].at;
    counted.idle += end - series[i].at;
    const std::size_t from = std::max(i, armed);
    for (std::size_t k = from; k <= last; ++k) {
      const bool long_enough =
          asked.count != 0 ? k - from + 1 >= asked.count : series[k].at - series[from].at >= asked.span;
      if (!long_enough) continue;
      const bool back = !cut && no(last + 1);
      ++counted.firings;
      counted.came_back += back ? 1 : 0;
      counted.regretted += back && end - series[k].at <= asked.regret ? 1 : 0;
      counted.reclaimed += end - series[k].at;
      break;
    }
  }
}

// In bytes what a card has in use when nobody has it: 64 MiB, or on a desktop half more than the least that was seen.
inline double empty_of(const Series& series) {
  double least = 1e18;
  for (const Sample& sample : series)
    if (sample.memory < least) least = sample.memory;
  return std::max(64.0 * 1024 * 1024, least <= 512.0 * 1024 * 1024 ? 1.5 * least : 0);
}

// Who has the GPU at each sample: a number for each span, from 1; 0 while nobody does.
inline std::vector<int> spans_of(const Series& series) {
  const double limit = empty_of(series);
  std::vector<int> spans;
  int newest = 0;
  int now = 0;
  int pid = kUntold;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const Sample& sample = series[i];
    const bool untold = sample.pid == kUntold;
    const bool empty = sample.memory <= limit;
    const bool full = sample.memory > limit;
    const bool works = sample.util >= 1 && std::isnan(sample.memory);  // it tells only where nothing else does
    const bool nobody = sample.pid == kNone || (untold && empty);
    const bool somebody = sample.pid > 0 || (untold && (full || works));
    const bool another = now != 0 && pid > 0 && sample.pid > 0 && pid != sample.pid;
    if (nobody) now = 0;
    if ((now == 0 && somebody) || another || (i == 0 && !nobody)) {
      now = ++newest;
      pid = kUntold;
    }
    if (sample.pid > 0) pid = sample.pid;
    spans.push_back(now);
  }
  return spans;
}

// The samples of one span, by the rule from the beginning; then what came after the first firing.
void end_obviously(const Series& series, const std::vector<bool>& gap, std::size_t begin, std::size_t end, bool cut_off,
                   const Asked& asked, Counted& counted) {
  bool told = false;  // by more than memory
  for (std::size_t i = begin; i < end; ++i) told = told || series[i].pid > 0 || std::isnan(series[i].memory);
  if (!told && series[end - 1].at - series[begin].at < asked.shortest) return;
  ++counted.jobs;
  std::size_t armed = asked.arm ? end : begin;
  for (std::size_t i = end; asked.arm && i-- > begin;)
    if (series[i].util > *asked.arm) armed = i + 1;
  std::optional<std::size_t> fired;
  std::optional<std::size_t> since;
  for (std::size_t i = armed; i < end && !fired; ++i) {
    if (!(series[i].util < asked.limit)) {
      since.reset();
      continue;
    }
    if (!since || (gap[i] && i != armed)) since = i;
    if (asked.count != 0 ? i - *since + 1 >= asked.count : series[i].at - series[*since].at >= asked.span) fired = i;
  }
  if (!fired) return;
  ++counted.ended;
  std::optional<std::size_t> back;
  std::optional<std::int64_t> lost_sight;  // a gap of more than a minute before it worked again
  std::int64_t recorded = 0;               // since the end
  for (std::size_t i = *fired + 1; i < end; ++i) {
    if (!gap[i]) recorded += series[i].at - series[i - 1].at;
    if (gap[i] && !back && !lost_sight && series[i].at - series[i - 1].at > 60'000'000'000)
      lost_sight = series[i - 1].at;
    if (!gap[i] && series[i].util >= 1)
      counted.lost += series[i].util / 100 * static_cast<double>(series[i].at - series[i - 1].at) / 1e9;
    if (!back && series[i].util >= 1) back = i;
    if (!gap[i] && !back) counted.freed += series[i].at - series[i - 1].at;
  }
  counted.worked_again += back ? 1 : 0;
  if (!back) counted.followed.push_back(recorded);
  const std::int64_t left = lost_sight.value_or(series[back ? *back : end - 1].at) - series[*fired].at;
  counted.leaves.push_back({(left + 999'999'999) / 1'000'000'000, lost_sight ? Leaving::cut_off
                                                                  : back     ? Leaving::came_back
                                                                  : cut_off  ? Leaving::cut_off
                                                                             : Leaving::released});
}

inline void count_spans_obviously(const Series& series, const Asked& asked, Counted& counted) {
  const std::vector<bool> gap = gaps_of(series);
  const std::vector<int> spans = spans_of(series);
  for (std::size_t i = 1; i < series.size(); ++i) {
    const std::int64_t since = series[i].at - series[i - 1].at;
    if (gap[i]) counted.missed += since;
    if (!gap[i] && series[i].util >= 1) counted.work += series[i].util / 100 * static_cast<double>(since) / 1e9;
  }
  for (std::size_t begin = 0; begin < series.size();) {
    std::size_t end = begin;
    while (end < series.size() && spans[end] == spans[begin]) ++end;
    if (spans[begin] != 0) end_obviously(series, gap, begin, end, end == series.size(), asked, counted);
    begin = end;
  }
}

// Kaplan and Meier by the book, with released as another way to leave.
inline std::optional<double> chance_obviously(const std::vector<Counted::Leave>& leaves, std::int64_t limit) {
  if (leaves.empty()) return std::nullopt;
  double waiting = 1;
  double back = 0;
  for (std::int64_t second = 0; second <= limit; ++second) {
    double at_risk = 0;
    double came = 0;
    double released = 0;
    for (const Counted::Leave& leave : leaves) {
      at_risk += leave.second >= second ? 1 : 0;
      came += leave.second == second && leave.how == Leaving::came_back ? 1 : 0;
      released += leave.second == second && leave.how == Leaving::released ? 1 : 0;
    }
    if (at_risk == 0) break;
    back += waiting * came / at_risk;
    waiting *= 1 - (came + released) / at_risk;
  }
  return back;
}

// Idle and busy phases, unknowns, gaps, and times that are regular, jittered, or change their pace.
inline Series random_series(std::mt19937_64& dice) {
  const auto below = [&](std::uint64_t bound) { return static_cast<std::int64_t>(dice() % bound); };
  Series series;
  const auto length = below(3000);
  const auto pace = below(4);
  std::int64_t at = below(1000) * 1'000'000'000;
  bool idle = false;
  const bool memory = below(2) == 0;
  const double unused = below(3) == 0 ? 3.2e8 : 4e6;  // a desktop's
  const bool pids = below(3) == 0;
  int pid = static_cast<int>(below(3));
  for (std::int64_t i = 0; i < length; ++i) {
    if (below(30) == 0) idle = !idle;
    if (below(150) == 0) pid = static_cast<int>(below(4));
    const bool unknown = below(60) == 0;
    Sample sample{at, unknown ? std::nan("") : static_cast<double>(idle ? below(7) : below(101))};
    if (idle && below(2) == 0) sample.util = 0;
    if (pids && below(20) != 0) sample.pid = pid;
    if (memory && below(20) != 0) sample.memory = pid == 0 && idle ? unused : 3e10;
    series.push_back(sample);
    std::int64_t step = 1'000'000'000;
    if (pace == 1) step += below(20'000'000) - 10'000'000;
    if (pace == 2) step = i < length * 2 / 5 ? 1'000'000'000 : 4'000'000'000;
    if (pace == 3) step = 100'000'000;
    if (below(40) == 0) step *= below(pace == 3 ? 15 : 5) + 1;
    if (below(300) == 0) step += below(120) * 1'000'000'000;  // nobody recorded
    at += step;
  }
  return series;
}

inline std::string as_csv(const std::vector<Series>& gpus, std::mt19937_64& dice, int order) {
  struct Row {
    std::int64_t at;
    std::size_t gpu;
    Sample sample;
  };
  std::vector<Row> rows;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu)
    for (const Sample& sample : gpus[gpu]) rows.push_back({sample.at, gpu, sample});
  if (order == 1) std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.at < b.at; });
  if (order == 2) std::shuffle(rows.begin(), rows.end(), dice);
  const auto number = [](double value) { return std::isnan(value) ? "" : fmt::format("{}", value); };
  std::string text = "time,gpu,util,mem_used_bytes,pid\n";
  for (const Row& row : rows)
    text += fmt::format("{},{},{},{},{}\n", row.at, row.gpu, number(row.sample.util), number(row.sample.memory),
                        row.sample.pid == kUntold ? ""
                        : row.sample.pid == kNone ? "none"
                                                  : fmt::format("{}", row.sample.pid));
  return text;
}

}  // namespace lull::replay
