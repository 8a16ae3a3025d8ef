// What a session of filling sees, and the moments at which it looks.
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "fill/running.h"
#include "sense/openers.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAgain = 300ms;       // while somebody is suspected
constexpr Duration kLookNext = 20ms;         // and it is time to decide
constexpr Duration kScanBudget = 10ms;       // then everybody else has a turn, for as long again
constexpr Duration kScanWithEvents = 30s;    // what no event told of
constexpr Duration kScanWithFewEvents = 5s;  // containers have nodes of their own, which these do not see
constexpr Duration kQuickestScan = 100ms;    // where nothing tells
constexpr Duration kKnown = 100ms;           // who was seen to be a stranger is one for so long
constexpr int kMostRounds = 64;              // of opens, before anything else has a turn
constexpr Duration kDoor = 5ms;              // for that of the lease folder
constexpr int kShareOfTime = 50;  // a fiftieth of a core from the second look on, unless the longest rest cuts that
constexpr Duration kLongestRest = 10s;  // before we look again whether a filler can start
constexpr int kShareWithEvents = 500;   // where looking is only for what no event told of

// Which file it is: one that was made anew is another.
std::string mark_of(const std::string& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) return file + " -\n";
  return fmt::format("{} {} {} {}\n", file, status.st_dev, status.st_ino, status.st_rdev);
}

}  // namespace

void FillSession::make_sampler() {
  SamplerOptions options;
  std::vector<Metric> metrics = settings_.free.signals();
  for (const Metric metric : {Metric::mem_used, Metric::mem_free, Metric::mem_total, Metric::procs})
    metrics.push_back(metric);
  if (std::ranges::any_of(settings_.fillers, [](const FillerSettings& one) { return one.max_temp.has_value(); }))
    metrics.push_back(Metric::temp);
  options.want_only(metrics);
  options.tenants = true;
  options.ignore_openers = settings_.ignore;
  sampler_ = machine_.sampler(options, [this](const Snapshot& snapshot) { on_sample(snapshot); });
}

bool FillSession::owns(pid_t pid) const {
  if (pid == ::getpid()) return true;
  if (running_.empty()) return false;
  const Lineage process = Lineage::of(pid);
  return std::ranges::any_of(running_, [&](const auto& one) { return one.second->guard->owns(process); });
}

std::vector<std::string> FillSession::labels_of(std::size_t unit) const {
  std::vector<std::string> labels;
  for (const DeviceId& gpu : filling_->units()[unit].gpus) {
    const auto place = inventory_ ? inventory_->place_of(gpu) : std::nullopt;
    labels.push_back(place ? inventory_->devices[*place].label() : gpu.value);
  }
  return labels;
}

// ---- samples --------------------------------------------------------------------

void FillSession::on_sample(const Snapshot& snapshot) {
  if (ending_) return;
  look_at_inventory(snapshot);
  sights_->observe(snapshot);
  look_at_leases();
  decide(snapshot);
  if (!filling_) return;
  const std::function<bool(pid_t)> owns = [this](pid_t pid) { return this->owns(pid); };
  sink_.sampled({snapshot, active_, owns});
}

void FillSession::look_at_inventory(const Snapshot& snapshot) {
  if (snapshot.inventory == inventory_ || snapshot.inventory->devices.empty()) return;
  inventory_ = snapshot.inventory;
  auto units = units_of(settings_.fillers, *inventory_);
  if (!units) return sink_.note(Level::warning, "gpus", units.error().message());
  watch_opens(*inventory_);
  if (!std::exchange(began_, true)) sink_.began(settings_, opens_->way(), *inventory_);
  if (!filling_)
    filling_ = std::make_unique<Filling>(settings_.fillers, *std::move(units), settings_.confirm);
  else
    carry_out(filling_->replace(settings_.fillers, *std::move(units), loop_.now()));
}

void FillSession::decide(const Snapshot& snapshot) {
  if (!filling_ || ending_) return;
  const std::time_t wall = std::chrono::system_clock::to_time_t(
      std::chrono::time_point_cast<std::chrono::system_clock::duration>(loop_.clock().wall()));
  std::tm local{};
  ::localtime_r(&wall, &local);
  const int minute = local.tm_hour * 60 + local.tm_min;
  std::string no_people;
  active_ = people_->look(no_people);
  const std::vector<Waiter> waiters = sights_->waiters(leases_, snapshot);
  const auto look = [&](const Openers* openers) {
    newest_ = sights_->look({.snapshot = snapshot,
                             .openers = openers,
                             .leases = &leases_,
                             .no_leases = no_leases_,
                             .people = active_,
                             .no_people = no_people});
    carry_out(filling_->sampled(loop_.now(), snapshot.asked, newest_, waiters, minute));
  };
  const std::size_t ran = running_.size();
  if (wanted_since_ && *wanted_since_ <= last_came_) wanted_since_.reset();
  if (loop_.now() >= next_scan_) {
    if (!wanted_since_) wanted_since_ = snapshot.asked;
    scan_openers();
  }
  look(openers_for(snapshot));
  if (filling_->wants_openers() && openers_for(snapshot) == nullptr) {
    if (!wanted_since_) wanted_since_ = snapshot.asked;
    // Who stands still cannot wait, and who might start only where the last look was in vain. A look that is under way
    // goes on by itself.
    looks_for_start_ = true;
    if (!is_looking() && (loop_.now() >= rests_until_ || filling_->decides_at())) scan_openers();
    if (openers_for(snapshot) != nullptr) look(openers_for(snapshot));
  }
  const bool wants = filling_->wants_openers();
  if (openers_for(snapshot) != nullptr && std::exchange(looks_for_start_, false) && running_.size() <= ran)
    rests_until_ = loop_.now() + std::min<Duration>(kLongestRest, kShareOfTime * last_look_took_);
  if (openers_for(snapshot) != nullptr || !(wants || is_looking())) wanted_since_.reset();
  if (!wants || !wanted_since_) say_why_not();  // else there is more to come
  schedule_decision();
}

void FillSession::schedule_decision() {
  if (decide_timer_) loop_.cancel(*decide_timer_);
  decide_timer_.reset();
  const auto at = filling_->decides_at();
  if (!at || ending_) return;
  // The time may have come before the sample that it waits for: never at once again, so that the sample can be taken.
  const Instant now = loop_.now();
  decide_timer_ = loop_.at(std::clamp(*at, now + kLookNext, now + kLookAgain), [this] {
    decide_timer_.reset();
    if (!is_looking()) sampler_->request(true);
    schedule_decision();
  });
}

// ---- who has the device files open ----------------------------------------------

// The files of GPUs; MIG devices share that of their card.
void FillSession::watch_opens(const Inventory& inventory) {
  std::vector<std::string> files;
  watched_.clear();
  behind_.clear();
  const Root root = Root::machine();
  for (const Device& device : inventory.devices) {
    if (device.kind == DeviceKind::mig) {
      if (!behind_.empty()) behind_.back().push_back(device.id());
      continue;
    }
    if (!device.minor) continue;
    files.push_back(root.dev + "/nvidia" + std::to_string(*device.minor));
    watched_.push_back(device.id());
    behind_.push_back({device.id()});
  }
  // A fresh sensor brings a new inventory of the same files: what was opened just now must not be forgotten for that.
  std::string marks;
  for (const std::string& file : files) marks += mark_of(file);
  if (opens_ && opens_->way() != OpenWay::inotify && marks == opens_of_) return;
  opens_of_ = std::move(marks);
  if (opens_ && opens_->descriptor() >= 0) loop_.forget(opens_->descriptor());
  opens_ = OpenWatch::start(files, options_.best_way);
  if (opens_->descriptor() >= 0) (void)loop_.on_ready(opens_->descriptor(), [this] { on_opens(); });
}

// Nothing: it is one of ours, or does not count.
std::optional<Opener> FillSession::foreign(pid_t pid) const {
  if (pid == 0) return Opener{};
  if (owns(pid) || is_ignored_opener(pid, settings_.ignore)) return std::nullopt;
  const auto entry = read_process_entry(pid);
  return Opener{pid, entry ? entry->start_ticks : 0, program_of(pid)};
}

// Whether it counts, found out once for all that it opens in a moment. Who does not count is asked about every time:
// it may become another program.
const Opener* FillSession::stranger(pid_t pid) {
  const Instant now = loop_.now();
  if (now - strangers_since_ > kKnown) {
    strangers_.clear();
    strangers_since_ = now;
  }
  if (const auto known = strangers_.find(pid); known != strangers_.end()) return &known->second;
  auto opener = foreign(pid);
  return opener ? &strangers_.emplace(pid, *std::move(opener)).first->second : nullptr;
}

// Each filler stands still before anybody asks about the next open, and all of them before anything is said.
void FillSession::on_opens() {
  std::vector<FillOrder> orders;
  const auto opened = [&](std::size_t file, const Opener& opener) {
    const auto place = inventory_->place_of(watched_[file]);
    if (place && is_ignored_on(settings_, inventory_->devices[*place], opener.program)) return;
    last_came_ = loop_.now();
    for (const DeviceId& gpu : behind_[file]) {
      for (FillOrder& order : filling_->opened(loop_.now(), gpu, opener)) {
        halt_at_once(order);
        orders.push_back(std::move(order));
      }
    }
  };
  std::vector<DeviceOpen> opens;
  bool lost = false;
  for (int rounds = 0; rounds < kMostRounds; ++rounds) {
    opens.clear();
    opens_->take(opens, lost);
    if (opens.empty() || !filling_ || ending_) break;
    for (const DeviceOpen& open : opens)
      if (const Opener* opener = stranger(open.pid); opener != nullptr && open.file < behind_.size())
        opened(open.file, *opener);
  }
  if (!filling_ || ending_) return;
  for (std::size_t file = 0; lost && file < behind_.size(); ++file) opened(file, {});
  if (lost && opens_->way() == OpenWay::inotify) inventory_.reset();  // the nodes may be others by now
  carry_out_the_rest(orders);
  if (!orders.empty()) sampler_->request(true);
  schedule_decision();
}

// What a whole look found that began after a sample was asked for that wanted it, and after the last who came. Where
// there are thousands of processes one look lasts longer than from this sample to the next.
const Openers* FillSession::openers_for(const Snapshot& snapshot) const {
  if (!openers_) return nullptr;
  const Instant since = wanted_since_ && *wanted_since_ > last_came_ ? *wanted_since_ : snapshot.asked;
  return openers_->began >= std::min(since, snapshot.asked) ? &*openers_ : nullptr;
}

Duration FillSession::rest_after(Duration look) const {
  switch (opens_ ? opens_->way() : OpenWay::none) {
    case OpenWay::cgroup_device: return std::max<Duration>(kScanWithEvents, look * kShareWithEvents);
    // On a machine that is busy a look takes long: who comes must be seen all the same.
    case OpenWay::none: return std::clamp<Duration>(look * kShareOfTime, kQuickestScan, kScanWithFewEvents);
    default: return std::max<Duration>(kScanWithFewEvents, look * kShareWithEvents);
  }
}

// A part of a look at everybody's files. The next part comes soon: until all are done it tells nothing.
void FillSession::scan_openers() {
  if (!inventory_) return;
  const Instant began = loop_.now();
  const Instant before = openers_ ? openers_->began : Instant{};
  openers_ = scan_->look(*inventory_, kScanBudget, !settings_.ignore_hidden);
  const Instant now = loop_.now();
  look_took_ += std::max<Duration>(now - began, Duration(1));
  const bool done = openers_->began != before;
  next_scan_ = now + (done ? rest_after(look_took_) : now - began);
  if (done) last_look_took_ = std::exchange(look_took_, Duration::zero());
  if (scan_timer_) loop_.cancel(*scan_timer_);
  scan_timer_.reset();
  // Where nothing tells us: a look of our own between the samples.
  if (!done || !opens_ || opens_->way() == OpenWay::none)
    scan_timer_ = loop_.at(next_scan_, [this] {
      scan_timer_.reset();
      if (!ending_ && filling_) scan_on_time();
    });
}

void FillSession::scan_on_time() {
  scan_openers();
  if (is_looking()) return;
  if (opens_ && opens_->way() != OpenWay::none) {
    if (wanted_since_) decide(sampler_->newest());
    return;
  }
  std::vector<FillOrder> orders;
  for (std::size_t place = 0; openers_ && place < openers_->holders.size(); ++place) {
    const Device& device = inventory_->devices[place];
    for (const pid_t pid : openers_->holders[place]) {
      const auto opener = foreign(pid);
      if (!opener || is_ignored_on(settings_, device, opener->program)) continue;
      if (filling_->suspects(device.id(), *opener)) continue;  // who stays has not come again
      for (FillOrder& order : filling_->opened(loop_.now(), device.id(), *opener)) orders.push_back(std::move(order));
    }
  }
  carry_out(orders);
  if (!orders.empty()) {
    last_came_ = loop_.now();
    sampler_->request(true);
  } else if (wanted_since_) {
    return decide(sampler_->newest());
  }
  schedule_decision();
}

// ---- leases ---------------------------------------------------------------------

void FillSession::watch_leases() {
  const LeasePlace place = LeasePlace::of_environment();
  if (lease_events_) return;
  lease_events_ = Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!lease_events_) return;
  if (::inotify_add_watch(lease_events_.get(), place.path.c_str(), IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_ONLYDIR) <
      0) {
    lease_events_.reset();  // there is none yet
    return;
  }
  (void)loop_.on_ready(lease_events_.get(), [this] {
    std::array<char, 4096> events;
    while (::read(lease_events_.get(), events.data(), events.size()) > 0) {
    }
    if (!ending_) sampler_->request(false);  // its sample looks at them
  });
}

void FillSession::look_at_leases() {
  watch_leases();
  auto folder = LeaseFolder::look(LeasePlace::of_environment());
  no_leases_ = folder ? "" : folder.error().message();
  if (!folder) return;
  if (!*folder) {
    leases_ = {};
    return;
  }
  auto state = (*folder)->look_on(leases_, kDoor);
  if (state)
    leases_ = *std::move(state);
  else
    no_leases_ = state.error().message();
}

}  // namespace lull
