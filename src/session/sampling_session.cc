#include "session/sampling_session.h"

#include <algorithm>
#include <csignal>
#include <utility>

namespace lull {

SamplingSession::SamplingSession(SamplingSettings settings, World& world, OnSample on_sample)
    : settings_(std::move(settings)),
      world_(world),
      on_sample_(std::move(on_sample)),
      ticker_(world.loop(), settings_.every, [this](std::uint64_t) {
        if (!settings_.length || world_.loop().now() < *start_ + *settings_.length) sampler_->request(false);
      }) {}

SessionEnd SamplingSession::run() {
  // Signals first: whoever is started later must not get them.
  if (const auto listening = listen(); !listening) return {kExitFailure, listening.error().message()};
  sampler_ = world_.sampler(settings_.sampling, [this](const Snapshot& snapshot) { take(snapshot); });
  sampler_->request(false);
  const auto ran = world_.loop().run();
  ticker_.stop();
  sampler_.reset();
  if (!ran && !ended_) return {kExitFailure, ran.error().message()};
  return end_;
}

Result<> SamplingSession::listen() {
  std::vector<int> signals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  signals.insert(signals.end(), settings_.more_signals.begin(), settings_.more_signals.end());
  TRY(world_.listen(signals, [this](const signalfd_siginfo& info) { on_signal(info); }));
  if (settings_.reader < 0) return {};
  // Noticed at once, not when there is something to write.
  return world_.loop().on_ready(settings_.reader, [this] {
    reader_left_ = true;
    end({});
  });
}

void SamplingSession::on_signal(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  if (std::ranges::count(settings_.more_signals, signal) > 0) return settings_.on_signal(signal);
  if (signal == SIGUSR1) return sampler_ ? sampler_->release_driver() : void();  // as every lull that watches
  end(ended_by(signal));
}

void SamplingSession::take(const Snapshot& snapshot) {
  if (ended_) return;
  if (auto how = on_sample_(snapshot)) return end(*std::move(how));
  if (start_) return;
  start_ = snapshot.at;
  if (settings_.length) world_.loop().at(*start_ + *settings_.length, [this] { end({}); });
  ticker_.follow(*start_);
}

void SamplingSession::end(SessionEnd how) {
  if (std::exchange(ended_, true)) return;
  end_ = std::move(how);
  world_.loop().stop();
}

}  // namespace lull
