#include "loop/loop.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace lull {
namespace {

constexpr int kEventsAtOnce = 32;
constexpr int kEarly = 8;  // of the time to wait, what the alarm may be early

std::uint64_t token(int fd, std::uint32_t generation) {
  return (std::uint64_t{generation} << 32) | static_cast<std::uint32_t>(fd);
}

}  // namespace

Result<std::unique_ptr<Loop>> Loop::make(const Clock& clock, ManualClock* warped) {
  std::unique_ptr<Loop> loop(new Loop(clock, warped));
  loop->epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll_) return fail(errno, "epoll");
  if (warped == nullptr) {
    loop->alarm_ = Fd(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!loop->alarm_) return fail(errno, "timerfd");
    // Told of each expiry once, and never read: setting it anew is what clears it.
    Loop* self = loop.get();
    TRY(loop->on_ready(loop->alarm_.get(), [self] { self->alarm_at_ = Instant::max(); }, Interest::edge));
  }
  return loop;
}

Result<std::unique_ptr<Loop>> Loop::create(const Clock& clock) { return make(clock, nullptr); }
Result<std::unique_ptr<Loop>> Loop::create_warped(ManualClock& clock) { return make(clock, &clock); }
Loop::~Loop() = default;

Result<> Loop::on_ready(int fd, Handler handler, Interest interest) {
  const bool known = sources_.contains(fd);
  const std::uint32_t generation = ++next_generation_;
  epoll_event event{};
  event.events = interest == Interest::priority ? EPOLLPRI : interest == Interest::edge ? EPOLLIN | EPOLLET : EPOLLIN;
  event.data.u64 = token(fd, generation);
  if (::epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
    return fail(errno, "waiting for a descriptor");
  sources_[fd] = {generation, std::make_shared<Handler>(std::move(handler))};
  return {};
}

void Loop::forget(int fd) {
  if (sources_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Result<> Loop::on_signals(const std::vector<int>& numbers, SignalHandler handler) {
  sigset_t set;
  sigemptyset(&set);
  // A signal that is blocked is kept for us even where it is ignored.
  for (const int number : numbers) {
    struct sigaction now{};
    const bool ignored = ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
    if (number == SIGCHLD || !ignored) sigaddset(&set, number);
  }
  if (::pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) return fail(errno, "blocking signals");
  const int fd = ::signalfd(signals_.get(), &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return fail(errno, "signalfd");
  on_signal_ = std::move(handler);
  if (signals_) return {};
  signals_ = Fd(fd);
  return on_ready(fd, [this] { read_signals(); });
}

void Loop::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) on_signal_(info);
}

Loop::TimerId Loop::at(Instant when, Handler handler) {
  const TimerId id{when, ++next_timer_};
  timers_.emplace(id, std::move(handler));
  return id;
}

// Only timers that were due when the turn began: one that sets itself anew for
// "now" cannot keep the descriptors waiting.
void Loop::run_due_timers() {
  const TimerId last{now(), next_timer_};
  while (!stopped_ && !timers_.empty() && timers_.begin()->first <= last) {
    const Handler handler = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    handler();
  }
}

Result<> Loop::set_alarm() {
  const Instant next = timers_.begin()->first.first;
  // One that rings a little early does as well: nothing is due then, and it is set again.
  if (alarm_at_ <= next && next - alarm_at_ <= (next - now()) / kEarly) return {};
  // 0 would disarm it: a time long past is the first nanosecond.
  const auto since_boot = std::max(next.time_since_epoch(), Duration(1));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_boot);
  itimerspec spec{};
  spec.it_value.tv_sec = seconds.count();
  spec.it_value.tv_nsec = (since_boot - seconds).count();
  if (::timerfd_settime(alarm_.get(), TFD_TIMER_ABSTIME, &spec, nullptr) != 0) return fail(errno, "timerfd");
  alarm_at_ = next;
  return {};
}

Result<int> Loop::wait() {
  std::array<epoll_event, kEventsAtOnce> events;
  int timeout = -1;
  if (warped_ != nullptr) {
    timeout = 0;
  } else if (!timers_.empty()) {
    if (timers_.begin()->first.first <= now())
      timeout = 0;
    else
      TRY(set_alarm());
  }
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, timeout);
  if (count < 0 && errno != EINTR) return fail(errno, "epoll");
  for (int i = 0; i < count && !stopped_; ++i) {
    const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
    const auto found = sources_.find(static_cast<int>(data & 0xffffffff));
    // An earlier handler of this round may have forgotten it, or reused its number.
    if (found == sources_.end() || found->second.generation != data >> 32) continue;
    const std::shared_ptr<Handler> handler = found->second.handler;
    (*handler)();
  }
  return count;
}

Result<bool> Loop::turn() {
  if (stopped_) return false;
  const int count = TRY(wait());
  if (stopped_) return false;
  if (warped_ != nullptr && count == 0) {
    if (timers_.empty()) return false;
    const Instant next = timers_.begin()->first.first;
    if (next > now()) warped_->advance(next - now());
  }
  run_due_timers();
  return !stopped_;
}

Result<> Loop::run() {
  stopped_ = false;
  while (TRY(turn())) {
  }
  return {};
}

void Ticker::begin() {
  start_ = loop_.now();
  next_ = 0;
  tick();
}

void Ticker::follow(Instant start) {
  start_ = start;
  next_ = static_cast<std::uint64_t>((loop_.now() - start_) / every_) + 1;
  wait();
}

void Ticker::tick() {
  const auto passed = static_cast<std::uint64_t>((loop_.now() - start_) / every_);
  const std::uint64_t now = std::max(std::exchange(next_, std::max(next_, passed) + 1), passed);
  wait();
  on_tick_(now);
}

void Ticker::wait() {
  timer_.at(start_ + static_cast<std::int64_t>(next_) * every_, [this] { tick(); });
}

}  // namespace lull
