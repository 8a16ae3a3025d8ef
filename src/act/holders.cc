#include "act/holders.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAgain = 100ms;  // a pidfd that the loop watches would do, but there may be hundreds

}  // namespace

void EndHolders::start(const FiringFacts& /*facts*/, Done done, Tell tell) {
  done_ = std::move(done);
  tell_ = std::move(tell);
  left_.clear();
  refused_.clear();
  killed_ = asked_ = false;
  for (const Holder& one : who_()) {
    if (one.pid == ::getpid() || is_own_process(one.pid, one.start_ticks)) continue;
    ProcessEntry seen;
    seen.pid = one.pid;
    seen.start_ticks = one.start_ticks;
    if (auto process = Process::open(seen)) left_.push_back(*std::move(process));
  }
  signal_all(options_.signal == 0 ? SIGKILL : options_.signal);
  killed_ = options_.signal == 0 || options_.signal == SIGKILL;
  next_ = loop_.now() + (killed_ ? options_.give_up : options_.grace);
  step();
}

void EndHolders::signal_all(int number) {
  for (const Process& one : left_)
    if (const auto sent = one.signal(number); !sent && sent.error().errno_value == EPERM)
      refused_.push_back(std::to_string(one.pid()));
  std::erase_if(left_, [&](const Process& one) { return std::ranges::count(refused_, std::to_string(one.pid())) > 0; });
}

void EndHolders::look() {
  if (done_) step();
}

void EndHolders::step() {
  stop_waiting();
  std::erase_if(left_, [](const Process& one) { return one.ended(); });
  if (left_.empty()) return over();
  bool asks = false;
  if (loop_.now() >= next_) {
    if (killed_) return over();
    asks = asks_first() && !asked_;
    if (!asks) kill();
  }
  if (asks) next_ = loop_.now() + kLongestLastLook;
  wait_until(std::min(next_, loop_.now() + kLookAgain), [this] { step(); });
  if (asks) ask();  // last: the answer may come at once
}

void EndHolders::kill() {
  killed_ = true;
  tell_(Killing{options_.grace, left_.size()});
  signal_all(SIGKILL);
  next_ = loop_.now() + options_.give_up;
}

void EndHolders::ask() {
  asked_ = true;
  take_last_look([this] { return done_ && !killed_; },
                 [this] {
                   kill();
                   step();
                 });
}

bool EndHolders::undo() {
  if (killed_) return false;
  stop_waiting();
  done_ = nullptr;
  return true;
}

void EndHolders::over() {
  std::string stuck;
  for (const Process& one : left_) stuck += (stuck.empty() ? "" : " ") + std::to_string(one.pid());
  Outcome outcome;
  if (!stuck.empty()) outcome = {false, "stuck in the kernel: " + stuck};
  if (!refused_.empty())
    outcome = {false, fmt::format("{}{}not ours to end: {}", outcome.trouble, stuck.empty() ? "" : "; ",
                                  fmt::join(refused_, " "))};
  std::exchange(done_, nullptr)(outcome);
}

}  // namespace lull
