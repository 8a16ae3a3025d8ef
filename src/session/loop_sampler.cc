#include "session/loop_sampler.h"

#include <utility>

namespace lull {
namespace {

using namespace std::chrono_literals;
constexpr Duration kDeafPause = 100ms;

}  // namespace

LoopSampler::LoopSampler(Loop& loop, SamplerOptions options, std::function<void(const Snapshot&)> on_sample)
    : loop_(loop), sampler_(Sampler::start(std::move(options))), on_sample_(std::move(on_sample)) {
  deaf_ = !loop_.on_ready(sampler_->event_fd(), [this] { take(); });
}

LoopSampler::~LoopSampler() {
  if (look_) loop_.cancel(*look_);
  loop_.forget(sampler_->event_fd());
}

void LoopSampler::request(bool fresh_lists) {
  sampler_->request(fresh_lists);
  if (!look_) watch();
  if (deaf_ && !look_) look_at(loop_.now() + kDeafPause);
}

bool LoopSampler::sample_here(Duration limit) {
  sampler_->request();
  const bool came = sampler_->wait_for(snapshot_, limit);
  if (!came) watch();
  return came;
}

void LoopSampler::watch() {
  if (look_) loop_.cancel(*look_);
  look_.reset();
  const Instant by = sampler_->look_by();
  if (by != Instant::max()) look_at(by);
}

void LoopSampler::look_at(Instant by) {
  look_ = loop_.at(by, [this] {
    look_.reset();
    take();
  });
}

void LoopSampler::take() {
  const bool fresh = sampler_->take(snapshot_);
  watch();
  if (fresh) on_sample_(snapshot_);
}

Result<std::unique_ptr<LoopSenses>> LoopSenses::open(const Clock& clock) {
  return std::unique_ptr<LoopSenses>(new LoopSenses(TRY(Loop::create(clock))));
}

}  // namespace lull
