// What a session of filling does to its fillers, and what it says of that.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "fill/running.h"

namespace lull {
namespace {

// As ioprio_set takes it: the class in the upper bits.
int io_priority(IoClass io_class) {
  constexpr int kClassShift = 13;
  constexpr int kBestEffort = 2;
  constexpr int kIdle = 3;
  constexpr int kLowest = 7;
  switch (io_class) {
    case IoClass::unchanged: return 0;
    case IoClass::best_effort: return kBestEffort << kClassShift | kLowest;
    case IoClass::idle: return kIdle << kClassShift;
  }
  return 0;
}

}  // namespace

FillEvent FillSession::event_of(FillEvent::Kind kind, std::size_t unit, const Reason& why) const {
  return {.kind = kind,
          .filler = filling_->filler(unit),
          .gpus = labels_of(unit),
          .on_all = !filling_->filler(unit).per_gpu,
          .why = why};
}

void FillSession::say(FillEvent::Kind kind, std::size_t unit, const Reason& why) {
  sink_.happened(event_of(kind, unit, why));
}

void FillSession::halt_at_once(const FillOrder& order) {
  if (order.kind != FillOrder::halt) return;
  if (const auto one = running_.find(order.unit); one != running_.end()) one->second->guard->halt();
}

// First what must be quick, for all of them; words take time.
void FillSession::carry_out(const std::vector<FillOrder>& orders) {
  for (const FillOrder& order : orders) halt_at_once(order);
  carry_out_the_rest(orders);
}

void FillSession::carry_out_the_rest(const std::vector<FillOrder>& orders) {
  for (const FillOrder& order : orders) {
    switch (order.kind) {
      case FillOrder::start: start(order.unit); break;
      case FillOrder::halt:  // said when it is seen to
        if (const auto one = running_.find(order.unit); one != running_.end()) one->second->said_still = false;
        break;
      case FillOrder::go_on:
        unpark(order.unit);
        say(FillEvent::went_on, order.unit, order.why);
        break;
      case FillOrder::end:
        say(FillEvent::yielding, order.unit, order.why);
        end(order.unit);
        break;
      case FillOrder::park:
        say(FillEvent::parking, order.unit, order.why);
        park(order.unit);
        break;
    }
  }
}

void FillSession::start(std::size_t unit) {
  const FillerSettings& told = filling_->filler(unit);
  GuardOptions options{.command = told.command,
                       .environment = told.environment,
                       .directory = told.directory,
                       .user = told.user,
                       .nice = told.nice,
                       .io_priority = io_priority(told.io_class),
                       .log = told.log,
                       .log_size = told.log_size,
                       .log_keep = told.log_keep,
                       .use_cgroup = options_.use_cgroup,
                       .signals = &machine_.signals()};
  std::vector<std::string> visible;
  for (const DeviceId& gpu : filling_->units()[unit].gpus) {
    const auto place = inventory_->place_of(gpu);
    if (!place) continue;
    const Device& device = inventory_->devices[*place];
    visible.push_back(device.kind == DeviceKind::mig ? device.uuid : device.label());  // CUDA knows MIG by UUID only
  }
  const std::string list = fmt::format("{}", fmt::join(visible, ","));
  const auto set = [&](const char* name, const std::string& value) {
    if (std::ranges::none_of(told.environment, [&](const auto& one) { return one.first == name; }))
      options.environment.emplace_back(name, value);
  };
  if (told.set_visible_devices) {
    set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    set("CUDA_VISIBLE_DEVICES", list);
  }
  set("LULL_FILLER", told.name);
  set("LULL_GPUS", list);

  auto guard = Guard::start(loop_, machine_.children(), options,
                            {.started =
                                 [this, unit](pid_t pid) {
                                   FillEvent event = event_of(FillEvent::started, unit, {});
                                   event.pid = pid;
                                   sink_.happened(event);
                                 },
                             .gone = [this, unit](const GuardEnd& how) { gone(unit, how); },
                             .stuck = [this, unit] { say(FillEvent::stuck, unit); },
                             .still = [this, unit] { stands_still(unit); }});
  if (!guard) {
    GuardEnd how;
    how.not_started = guard.error().message();
    return gone(unit, how);
  }
  auto one = std::make_unique<Running>();
  one->guard = *std::move(guard);
  one->since = loop_.now();
  running_[unit] = std::move(one);
  filling_->started(unit, loop_.now());
}

void FillSession::stands_still(std::size_t unit) {
  const auto one = running_.find(unit);
  if (one == running_.end() || std::exchange(one->second->said_still, true)) return;
  if (filling_->state(unit) == Filling::State::still) say(FillEvent::halted, unit, filling_->why(unit));
}

void FillSession::gone(std::size_t unit, const GuardEnd& how) {
  const auto one = running_.find(unit);
  FillEvent event =
      event_of(how.not_started.empty() ? FillEvent::ended : FillEvent::not_started, unit, filling_->why(unit));
  event.by_us = filling_->state(unit) == Filling::State::ending;
  event.status = how.status;
  event.killed = how.killed;
  event.ran = one != running_.end() ? loop_.now() - one->second->since : Duration::zero();
  event.text = how.not_started;
  if (one != running_.end()) running_.erase(one);
  filling_->ended(unit, loop_.now(), how.not_started.empty() ? how.status.shell_status() : -1);
  for (const DeviceId& gpu : filling_->units()[unit].gpus) sights_->disturb(gpu);
  why_not_.erase(unit);
  sink_.happened(event);
  if (const Duration left = filling_->backs_off(unit, loop_.now()); left > Duration::zero() && !ending_) {
    say(FillEvent::backing_off, unit,
        {.kind = Reason::backing_off, .time = left, .number = static_cast<double>(filling_->failures(unit))});
    why_not_[unit] = Reason::backing_off;
  }
  end_if_nothing_is_left();
}

void FillSession::end(std::size_t unit) {
  const auto one = running_.find(unit);
  if (one == running_.end()) return;
  const FillerSettings& told = filling_->filler(unit);
  one->second->guard->end({.signal = told.stop_signal, .grace = told.grace});
}

// ---- parking --------------------------------------------------------------------

// Its own command for parking or for going on; `done` hears how it went, unless the filler is gone by then.
void FillSession::run_command_of(std::size_t unit, const std::string& command,
                                 std::function<void(Running&, const HelperResult&)> done) {
  const FillerSettings& told = filling_->filler(unit);
  Guard* const guard = running_.at(unit)->guard.get();
  machine_.helpers().run(
      {.arguments = {"/bin/sh", "-c", command},
       .environment = {{"LULL_FILLER", told.name}, {"LULL_FILLER_PID", std::to_string(guard->pid())}},
       .limit = told.yield_limit,
       .signals = &machine_.signals()},
      [this, unit, guard, done = std::move(done)](const HelperResult& result) {
        const auto now = running_.find(unit);
        if (now != running_.end() && now->second->guard.get() == guard) done(*now->second, result);
      });
}

void FillSession::park(std::size_t unit) {
  const auto one = running_.find(unit);
  if (one == running_.end()) return;
  one->second->guard->go_on();  // what saves itself has to run
  run_command_of(unit, filling_->filler(unit).yield_command, [this, unit](Running& filler, const HelperResult& result) {
    if (!result.ok())
      sink_.note(Level::warning, "not-parked", "the yield command failed: " + result.trouble);
    else if (filling_->state(unit) == Filling::State::parking) {
      filler.guard->halt();
      filler.parked = true;
      say(FillEvent::parked, unit, filling_->why(unit));
    }
    carry_out(filling_->parked(unit, result.ok(), loop_.now()));
  });
}

void FillSession::unpark(std::size_t unit) {
  const auto one = running_.find(unit);
  if (one == running_.end()) return;
  one->second->guard->go_on();
  const std::string& command = filling_->filler(unit).resume_command;
  if (!std::exchange(one->second->parked, false) || command.empty()) return;
  run_command_of(unit, command, [this, unit](Running&, const HelperResult& result) {
    carry_out(filling_->unparked(unit, result.ok(), loop_.now()));
  });
}

// ---- words ----------------------------------------------------------------------

// Why those that wait do wait, when it is for another reason than before.
void FillSession::say_why_not() {
  for (std::size_t unit = 0; unit < filling_->units().size(); ++unit) {
    if (filling_->state(unit) != Filling::State::waiting || filling_->retired(unit)) {
      why_not_.erase(unit);
      continue;
    }
    const Reason& why = filling_->why(unit);
    const auto [known, fresh] = why_not_.try_emplace(unit, Reason::none);
    if (std::exchange(known->second, why.kind) != why.kind && why.kind != Reason::none)
      say(FillEvent::waiting, unit, why);
  }
}

}  // namespace lull
