// The sampler as its owner sees it, and the owner's watch over the worker.
#include "sense/sampler.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <csignal>

#include "base/units.h"
#include "sense/sampler_core.h"

namespace lull {
namespace {

constexpr int kShares = 4;  // of the deadline, that one GPU may take one

Instant now() { return SystemClock().now(); }

struct Start {
  std::shared_ptr<void> core;
  void (*run)(void*, std::uint64_t);
  std::uint64_t id;
};

void* thread_main(void* argument) {
  const std::unique_ptr<Start> start(static_cast<Start*>(argument));
  start->run(start->core.get(), start->id);
  return nullptr;
}

}  // namespace

// ---- threads -----------------------------------------------------------------

// Detached: a thread that hangs in the driver must not keep the program from ending. No signals: they
// belong to the main thread.
bool Sampler::Core::spawn(std::shared_ptr<Core> core, std::uint64_t id) {
  auto start = std::make_unique<Start>();
  start->core = std::move(core);
  start->id = id;
  start->run = [](void* self, std::uint64_t which) { static_cast<Core*>(self)->work(which); };
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread{};
  const bool made = ::pthread_create(&thread, &attributes, thread_main, start.get()) == 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (made) (void)start.release();  // the thread's now
  return made;
}

void Sampler::Core::replace_worker() {
  ++worker;
  step = Step::none;
  if (spawn(shared_from_this(), worker)) {
    ++workers;
    return;
  }
  driver = {Absence::failed, "no thread can be started to ask the driver", {}};
  give_up(now());
}

// ---- the watch over the worker ---------------------------------------------------

Instant Sampler::Core::next_look() const {
  const Duration share = options.deadline / kShares;
  const Instant soon = now() + share;  // nobody tells when a step ends and one with another limit begins
  switch (step) {
    case Step::open: return std::min(soon, step_began + options.init_deadline);
    case Step::gpu:
    case Step::finish: return std::min(round_began + options.deadline, step_began + share);
    case Step::none: break;
  }
  return std::min(soon, round_began + options.deadline);
}

void Sampler::Core::watch(Instant at) {
  if (done >= requested) return;
  if (step == Step::open) {
    if (at < step_began + options.init_deadline) return;
    // Nobody else would fare better: the worker stays where it is until the driver answers.
    const Duration hangs = at - step_began;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(hangs);
    driver = {Absence::no_answer, "the driver does not answer for " + format_duration(seconds), hangs};
    give_up(at);
  } else if (step != Step::none && at >= step_began + options.deadline / kShares) {
    if (step == Step::gpu)
      stuck.push_back({step_gpu, worker, step_began});
    else
      proc_stuck = true;
    replace_worker();
  }
  if (done < requested && at >= round_began + options.deadline && step != Step::open) give_up(at);
}

void Sampler::Core::give_up(Instant at) {
  if (rearrange) arrange_rows();
  Snapshot snapshot;
  build(snapshot, requested, at);
  publish(snapshot, requested);
}

bool Sampler::Core::ask_for_round() {
  if (requested > done) return false;
  ++requested;
  round_began = now();
  if (worker != 0) return true;
  replace_worker();  // finds its work by itself
  return false;
}

void Sampler::Core::hand_over(Snapshot& into) {
  if (event) {
    eventfd_t times = 0;
    (void)::eventfd_read(event.get(), &times);  // does not wait
  }
  taken = done;
  std::swap(into, published);
}

// ---- the owner -------------------------------------------------------------------

void SamplerOptions::want_only(std::span<const Metric> metrics) {
  const auto any = [&](std::initializer_list<Metric> of) {
    return std::ranges::any_of(of, [&](Metric one) { return std::ranges::find(metrics, one) != metrics.end(); });
  };
  memory = any({Metric::mem_used, Metric::mem_free, Metric::mem_total});
  power = any({Metric::power, Metric::power_limit});
  details = any({Metric::temp, Metric::clock, Metric::pstate, Metric::fan});
  tenants = any({Metric::procs});
  pcie = any({Metric::pcie});
  openers = any({Metric::openers});
}

std::unique_ptr<Sampler> Sampler::start(SamplerOptions options) {
  return std::unique_ptr<Sampler>(new Sampler(std::make_shared<Core>(std::move(options))));
}

Sampler::~Sampler() {
  Core& core = *core_;
  Core::Lock lock(core.mutex);
  core.stopping = true;
  core.wake.notify_all();
  // A worker that is well gives the driver back within the blink of an eye; one that hangs is not waited for.
  const auto gone = [&] { return core.workers <= core.stuck.size() + (core.proc_stuck ? 1 : 0); };
  if (!core.options.once) core.told.wait_for(lock, std::chrono::milliseconds(200), gone);
}

void Sampler::request() {
  Core::Lock lock(core_->mutex);
  const bool wake = core_->ask_for_round();
  const bool failed = core_->done == core_->requested;  // no thread could be had
  if (failed) core_->announce(lock);
  lock.unlock();  // first: the worker wants it at once
  if (wake) core_->wake.notify_all();
}

int Sampler::event_fd() {
  const Core::Lock lock(core_->mutex);
  if (!core_->event) core_->event = Fd(::eventfd(core_->done > core_->taken ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
  return core_->event.get();
}

Instant Sampler::look_by() const {
  const Core::Lock lock(core_->mutex);
  return core_->done < core_->requested ? core_->next_look() : Instant::max();
}

bool Sampler::take(Snapshot& into) {
  const Core::Lock lock(core_->mutex);
  core_->watch(now());
  if (core_->taken == core_->done) return false;
  core_->hand_over(into);
  return true;
}

void Sampler::wait(Snapshot& into) {
  Core& core = *core_;
  Core::Lock lock(core.mutex);
  const std::uint64_t number = core.requested;
  while (core.done < number) {
    const Duration wait = core.next_look() - now();
    if (wait > Duration::zero()) core.told.wait_for(lock, wait);
    if (core.done < number) core.watch(now());
  }
  if (core.taken < core.done) core.hand_over(into);
}

void Sampler::sample(Snapshot& into) {
  request();
  wait(into);
}

Snapshot Sampler::sample() {
  Snapshot snapshot;
  sample(snapshot);
  return snapshot;
}

std::size_t Sampler::stuck() const {
  const Core::Lock lock(core_->mutex);
  return core_->stuck.size();
}

}  // namespace lull
