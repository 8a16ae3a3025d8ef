// What `intel_gpu_top -J` writes: an object for each period of its one GPU, in a list that ends with the program. There
// is not a time but the length of each period, so the time is counted from them. Busy shares and power are means of the
// period. The GPU is as busy as its busiest engine.

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "trace/format.h"
#include "trace/ndjson.h"

namespace lull::trace {
namespace {

struct IntelPeriod {
  double ms = 0;
  float busy = kUnknownSample;
  float power = kUnknownSample;
  float package = kUnknownSample;
  float clock = kUnknownSample;
};

class IntelPeriods : public JsonHandler {
 protected:
  virtual void period(const IntelPeriod& period) = 0;
  virtual void restart() {}  // a list begins, or something is missing
  void broken() override {
    levels_.clear();
    key_.clear();
    depth_ = 0;
    restart();
  }
  bool within() const { return depth_ > 0; }

 private:
  void open(bool object) override {
    levels_.push_back(std::move(key_));
    key_.clear();
    if (depth_ > 0) return;
    if (!object) return restart();
    depth_ = levels_.size();
    now_ = {};
  }

  void close() override {
    key_.clear();
    if (levels_.empty()) return;
    levels_.pop_back();
    if (depth_ == 0 || levels_.size() >= depth_) return;
    depth_ = 0;
    if (now_.ms > 0) period(now_);
  }

  void key(std::string_view name) override { key_ = name; }

  void value(std::string_view text, bool) override {
    const auto number = to_double(trim(text));
    if (depth_ == 0 || levels_.size() == depth_ || !number || !(*number >= 0)) return;
    const auto sample = static_cast<float>(*number);
    const std::string_view of = levels_[depth_];
    if (levels_.size() == depth_ + 2 && of == "engines" && key_ == "busy") now_.busy = std::fmax(now_.busy, sample);
    if (levels_.size() != depth_ + 1) return;
    if (of == "period" && key_ == "duration") now_.ms = *number;
    if (of == "frequency" && key_ == "actual") now_.clock = sample;
    if (of == "power" && (key_ == "GPU" || key_ == "value")) now_.power = sample;
    if (of == "power" && key_ == "Package") now_.package = sample;
  }

  void document_end() override {}

  std::vector<std::string> levels_;  // the keys of what is open; empty in lists
  std::size_t depth_ = 0;            // of the period's object; 0: none is open
  std::string key_;
  IntelPeriod now_;
};

class IntelProbe final : public IntelPeriods {
 public:
  bool any = false;

 private:
  void period(const IntelPeriod& period) override { any = any || !std::isnan(period.busy); }
};

class IntelGpuTopParser final : public JsonRowParser<IntelPeriods> {
 public:
  using JsonRowParser::JsonRowParser;

 private:
  void period(const IntelPeriod& period) override;
  // The time between two recordings is unknown: it counts as a gap.
  void restart() override {
    if (any_) ms_ += 10 * longest_ + 10'000;
    any_ = false;
  }
  void broken() override {
    // The list stays open where the program was killed between two periods, which is usual.
    if (within()) batch_->add_bad(here(), "the JSON breaks off here");
    IntelPeriods::broken();
  }

  double ms_ = 0;  // since the first period began
  double longest_ = 0;
  bool any_ = false;  // in this recording
};

constexpr std::array kIntelSignals = {Metric::util, Metric::power, Metric::clock};

}  // namespace

static bool is_intel_gpu_top(std::string_view head, const ReadHow&) {
  if (head.find("\"engines\"") == std::string_view::npos) return false;
  IntelProbe probe;
  JsonStream().feed(head.substr(0, 65536), probe);
  return probe.any;
}

static Result<Schema> open_intel_gpu_top(std::string_view, const ReadHow& how) {
  Schema schema = schema_of_samples(how.wanted);
  take_signals(schema, kIntelSignals);
  schema.lines = false;
  schema.one_gpu = true;
  schema.from_epoch = false;
  schema.means = true;
  return schema;
}

void IntelGpuTopParser::period(const IntelPeriod& period) {
  constexpr double kShortest = 1;           // ms; what it writes first is of microseconds, and says nothing
  constexpr double kLongest = 24 * 3600e3;  // ms; no number of a broken file makes time run away
  if (period.ms > kLongest) return batch_->add_bad(here(), "no period is that long");
  ms_ += period.ms;
  if (period.ms < kShortest) return;
  any_ = true;
  longest_ = std::max(longest_, period.ms);
  const auto at = static_cast<std::int64_t>(std::llround(ms_ * 1000)) * 1000;
  const std::size_t row = batch_->add_row(at, identities_.find(Identities::Cells{"0"}));
  const auto set = [&](Metric metric, float value) {
    if (const std::size_t slot = slot_of(schema_, metric); slot != kNoSlot) batch_->value[slot][row] = value;
  };
  set(Metric::util, period.busy);
  set(Metric::clock, period.clock);
  // Nothing at all, also for the package, is what it writes where it cannot read the power.
  if (period.power > 0 || period.package > 0) set(Metric::power, period.power);
}

const TraceFormat kIntelGpuTop{"intel_gpu_top -J", is_intel_gpu_top, open_intel_gpu_top,
                               make_row_parser<IntelGpuTopParser>, false};

}  // namespace lull::trace
