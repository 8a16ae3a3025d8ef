#include "session/jobs_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <utility>

#include "base/calendar.h"
#include "base/host.h"
#include "base/text.h"
#include "base/units.h"
#include "lease/folder.h"
#include "sense/sampler.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// Who asks for jobs gets them even where a driver hangs.
constexpr Duration kJobsDriverLimit = 1500ms;
constexpr Duration kAskPause = 500ms;
constexpr int kAskShare = 10;  // a watcher that is slow to answer is asked as much less often

}  // namespace

JobsSession::JobsSession(JobsSettings settings, Say say)
    : settings_(std::move(settings)),
      say_(std::move(say)),
      users_(Root{.dev = Root::machine().dev}, [] { return read_leases(); }),
      live_(settings_.input, settings_.output) {}

SamplerOptions JobsSession::sampling() const {
  SamplerOptions options;
  options.want_only(std::array{Metric::util});
  options.memory = options.processes = options.all_lists = options.process_info = true;
  options.once = !settings_.every;
  options.deadline = options.init_deadline = options.attach_deadline = kJobsDriverLimit;
  return options;
}

void JobsSession::warn_once(const std::string& text) {
  if (!text.empty() && said_.insert(text).second && !live_.on_screen()) say_(text);
}

void JobsSession::ask_watchers() {
  const SystemClock clock;
  if (clock.now() < ask_again_) return;
  const Instant before = clock.now();
  look_.hear(ask_all(ControlOf::keep, std::string(kJobsQuestion)));
  const Instant after = clock.now();
  ask_again_ = after + std::max<Duration>(kAskPause, kAskShare * (after - before));
}

void JobsSession::see(const Snapshot& snapshot) {
  const std::vector<GpuUse> uses = users_.look(snapshot, UserDetail::jobs);  // before the leases, which it reads
  look_.see(snapshot, uses, users_.leases());
  for (const std::string& text : look_.take_notes()) warn_once(text);
  warn_once(users_.trouble());
  if (look_.any()) ask_watchers();
  view_ = look_.view();
}

std::optional<SessionEnd> JobsSession::draw() {
  if (live_.on_screen())
    return live_.draw(JobRows(view_), fmt::format("{}  every {}{}", format_local(view_.now, "%H:%M:%S"),
                                                  format_duration(*settings_.every),
                                                  trouble_.empty() ? "" : "  " + printable(trouble_)));
  if (settings_.json) return live_.append(jobs_json(view_, host_name()) + "\n");
  std::string text = settings_.every ? format_rfc3339(view_.now) + "\n" : "";
  if (view_.rows.empty())
    text += jobs_summary(view_) + "\n";
  else
    for (const std::string& line : jobs_table(view_, screen_of(settings_.output))) text += line + "\n";
  return live_.append(text);
}

// What cannot be read is no reason to hide what Slurm and leases say.
std::optional<SessionEnd> JobsSession::show(const Snapshot& snapshot) {
  see(snapshot);
  const DriverState& driver = snapshot.driver;
  trouble_ = driver.absence == Absence::none ? "" : driver.text();
  if (!trouble_.empty() && view_.rows.empty() && !settings_.every) return SessionEnd{kExitFailure, trouble_};
  warn_once(trouble_);
  if (view_.rows.empty() && !settings_.json && !settings_.every) {  // for people; a program that reads lines gets none
    fmt::print(stderr, "{}\n", jobs_summary(view_));
    return SessionEnd{};
  }
  return draw();
}

SessionEnd JobsSession::once() { return show(Sampler::start(sampling())->sample()).value_or(SessionEnd{}); }

SessionEnd JobsSession::watch(World& world) {
  return live_.watch(
      world, {.sampling = sampling(), .every = *settings_.every, .length = {}}, !settings_.json,
      [this](const Snapshot& snapshot) { return show(snapshot); }, [this] { return draw(); });
}

}  // namespace lull
