#pragma once
// Rows out of values that come one at a time, each of one signal of one GPU at one moment
// (Prometheus, long tables). Values of the same GPU and moment that follow each other
// share a row; the others find each other when the trace is put in order (Schema::partial, AnswerRows).

#include <set>
#include <string>
#include <vector>

#include "trace/batch.h"
#include "trace/format.h"
#include "trace/names.h"

namespace lull::trace {

// What a series is to us: where its values go.
struct SeriesPlace {
  std::size_t slot = kNoSlot;  // npos: none of ours, or nobody wants it
  Meaning meaning;
  GpuName gpu;
  WhoName who;
  bool is_job = false;   // its values are the numbers of jobs, not a signal
  bool is_info = false;  // its labels say who has the GPU, at the times that it has values

  Identities::Cells cells() const;
};

class SeriesRows {
 public:
  // What a series says of who has its GPU that has no label for it, where others of its name have one.
  enum class Unlabelled : std::uint8_t { nobody, untold };
  explicit SeriesRows(const Schema& schema, Unlabelled unlabelled = Unlabelled::nobody)
      : schema_(schema), unlabelled_(unlabelled), identities_(schema.identity) {}

  // Notes what was met, for a message and for the ranks of the schema.
  SeriesPlace place(const SeriesName& series);
  void add(const SeriesPlace& place, std::int64_t at, float value, Batch& batch);
  void next_batch() { last_ = kNoSlot; }

  const Identities& identities() const { return identities_; }
  Identities& identities() { return identities_; }
  std::vector<std::string> strangers() const { return strangers_; }
  // By slot: the best source met; 1000: none.
  std::vector<int> best_ranks() const { return best_; }
  std::vector<std::string> labelled() const { return labelled_; }
  std::vector<std::string> doubtful() const { return doubtful_; }
  // An option that no series obeys is a mistake.
  Result<> check_choices() const;

 private:
  void obey(const SeriesName& series, SeriesPlace& place);
  bool take_meaning(const SeriesName& series, SeriesPlace& place);

  const Schema& schema_;
  Unlabelled unlabelled_;
  Identities identities_;
  std::vector<std::string> strangers_;
  std::vector<int> best_;
  std::vector<std::string> labelled_;
  std::vector<std::string> doubtful_;
  std::vector<std::string> label_names_;
  std::set<std::string> obeyed_;  // roles of --columns whose label a series had
  std::size_t last_ = kNoSlot;    // the row added last
};

}  // namespace lull::trace
