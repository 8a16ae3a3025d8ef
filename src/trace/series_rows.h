#pragma once
// What the parsers of series have in common (Prometheus, tables with a row for each value): values come one at a time,
// each of one signal of one GPU at one moment. Those that do not share a row find each other when the trace is put in
// order (Schema::partial).

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "trace/batch.h"
#include "trace/format.h"
#include "trace/names.h"

namespace lull::trace {

// What a series is to us: where its values go.
struct SeriesPlace {
  std::size_t slot = kNoSlot;  // npos: unknown, or not wanted
  Meaning meaning;
  GpuName gpu;
  WhoName who;
  bool is_job = false;   // its values are the numbers of jobs, not a signal
  bool is_info = false;  // its labels say who has the GPU, at the times that it has values

  Identities::Cells cells() const;
};

class SeriesRows : public RowParser {
 public:
  // What a series says of who has its GPU that has no label for it, where others of its name have one.
  enum class Unlabelled : std::uint8_t { nobody, untold };
  explicit SeriesRows(const Schema& schema, Unlabelled unlabelled = Unlabelled::nobody)
      : RowParser(schema), unlabelled_(unlabelled) {}

  std::vector<std::string> strangers() const override { return strangers_; }
  std::vector<int> best_ranks() const override { return best_; }  // 1000: none
  std::vector<std::string> labelled() const override { return labelled_; }
  std::vector<std::string> doubtful() const override { return doubtful_; }
  // An option that no series obeys is a mistake.
  Result<> check_choices() const override;

 protected:
  // Notes what was met, for a message and for the ranks of the schema.
  SeriesPlace place(const SeriesName& series);

 private:
  void obey(const SeriesName& series, SeriesPlace& place);
  bool take_meaning(const SeriesName& series, SeriesPlace& place);

  Unlabelled unlabelled_;
  std::vector<std::string> strangers_;
  std::vector<int> best_;
  std::vector<std::string> labelled_;
  std::vector<std::string> doubtful_;
  std::vector<std::string> label_names_;
  std::set<std::string> obeyed_;  // roles of --columns whose label a series had
};

// The rows of one answer of Prometheus. It has one series behind the other, each with all of its times: they are held
// until the answer is over, and leave in order of time, the values of a GPU and moment in one row. So a history that
// comes day by day is read as one that was recorded, however long it is.
class AnswerRows {
 public:
  // Begins a series: whose values these are, and of which signal; kNoSlot: each says only who has the GPU.
  void series(const Identities::Cells& cells, std::size_t slot);
  void add(std::int64_t at, float value) {
    series_.back().any = true;
    values_.push_back({at, static_cast<std::uint32_t>(series_.size() - 1), value});
  }
  // As much as is held at most. Release then what there is: the rest comes out of order.
  bool full() const { return values_.size() >= kMost; }
  void release(Identities& identities, Batch& batch);

 private:
  static constexpr std::size_t kMost = 16U << 20;

  struct Series {
    std::array<std::string, kMaxIdentity> cells;
    std::size_t slot = kNoSlot;
    bool any = false;  // it has values
  };
  struct Value {
    std::int64_t at;
    std::uint32_t series;
    float value;
  };
  void sort();

  std::vector<Series> series_;
  std::vector<Value> values_;
  std::vector<Value> moved_;           // while they are sorted
  std::vector<std::uint32_t> row_of_;  // the newest of each of the identities
};

}  // namespace lull::trace
