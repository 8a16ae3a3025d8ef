#include "session/pick_session.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/text.h"
#include "base/users.h"
#include "sense/processes.h"
#include "sense/select.h"
#include "sense/visible.h"

namespace lull {
namespace {

constexpr unsigned kMoreLooks = 3;

bool lacks_time(const Snapshot& snapshot) {
  return std::ranges::any_of(snapshot.readings, [](const Reading& reading) {
    return std::ranges::any_of(std::array{Metric::util, Metric::mem_util, Metric::power},
                               [&](Metric metric) { return reading.why_missing(metric) == Absence::not_covered; });
  });
}

}  // namespace

void SensedPickWorld::open(const PickNeeds& needs) {
  SamplerOptions options;
  options.power = needs.power;
  options.details = needs.details;
  options.openers = needs.openers;
  options.pcie = needs.pcie;
  options.once = needs.once;
  options.processes = needs.processes;
  options.topology = needs.topology;
  options.apart = true;
  options.lists_every = {};  // whoever came a moment ago counts
  sampler_ = senses_.sampler(options, [](const Snapshot&) {});
  sampler_->request(false);
}

// Here and now: on what a GPU shows depends whether it is taken, and there is nothing else to do meanwhile. What hangs
// has its time, and is unknown then. But where all that is missing is the time since the last sample, in which this
// machine let nobody look, another sample has only the moment since to tell of.
void SensedPickWorld::sample(Snapshot& into) {
  sampler_->sample_here(Duration::max());
  for (unsigned more = kMoreLooks; more > 0 && lacks_time(sampler_->newest()); --more)
    sampler_->sample_here(Duration::max());
  into = sampler_->newest();
}

Result<std::vector<std::size_t>> SensedPickWorld::scope(const Inventory& inventory, const PickSettings& settings) {
  if (!settings.gpus.empty()) return select_devices(settings.gpus, inventory);
  const char* job = std::getenv("SLURM_JOB_ID");
  if (settings.keep_to_visible && job != nullptr && *job != '\0' && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr)
    return visible_devices(inventory).devices;
  std::vector<std::size_t> all(inventory.devices.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

std::string SensedPickWorld::user_name(uid_t user) { return lull::user_name(user); }

std::string SensedPickWorld::command_of(pid_t pid) {
  const auto process = read_process(Root::machine(), pid);
  return process ? printable(process->command_line()) : "";
}

std::string SensedPickWorld::owner_of(pid_t pid) {
  const auto user = process_user(Root::machine(), pid);
  return user ? printable(lull::user_name(*user)) : "";
}

PickResult PickSession::run() {
  take(picker_.begin());
  if (!result_)
    if (const auto ran = loop_.run(); !ran) return std::unexpected(Refusal::of(ran.error()));
  return result_ ? *std::move(result_) : std::unexpected(Refusal::of({"there is nothing to wait for", 0}));
}

void PickSession::take(PickStep step) {
  if (auto* result = std::get_if<PickResult>(&step)) {
    result_ = std::move(*result);
    return loop_.stop();
  }
  sleep_ = std::get<Sleep>(std::move(step));
  if (const auto asleep = sleep(); !asleep) {
    result_ = std::unexpected(Refusal::of(asleep.error()));
    loop_.stop();
  }
}

Result<> PickSession::sleep() {
  for (const int event : sleep_.events) TRY(loop_.on_ready(event, [this] { wake(); }));
  if (sleep_.until) alarm_ = loop_.at(*sleep_.until, [this] { wake(); });
  return {};
}

void PickSession::wake() {
  for (const int event : sleep_.events) loop_.forget(event);
  if (alarm_) loop_.cancel(*alarm_);
  alarm_.reset();
  take(picker_.go_on());
}

}  // namespace lull
