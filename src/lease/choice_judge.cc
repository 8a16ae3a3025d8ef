// Whether one GPU suits: the half of choice.h that looks at a single reading.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "lease/choice.h"

namespace lull {

namespace {

// What speaks against a GPU: what it has, and what was wanted instead.
struct Objection {
  std::string has;
  std::string wanted;
};

constexpr std::string_view kHidden = "processes in other containers are hidden from here";

std::string number(double value) { return fmt::format("{:.6g}", std::round(value * 10) / 10); }

std::string share(double value, std::string_view of) { return fmt::format("{} % {}", number(value), of); }

std::string processes_text(double count) { return fmt::format("{} process{}", number(count), count == 1 ? "" : "es"); }

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string explain(const std::vector<Objection>& objections) {
  std::vector<std::string> has;
  std::vector<std::string> wanted;
  for (const Objection& objection : objections) {
    has.push_back(objection.has);
    if (!objection.wanted.empty() && std::find(wanted.begin(), wanted.end(), objection.wanted) == wanted.end())
      wanted.push_back(objection.wanted);
  }
  std::string text = joined(has);
  if (!wanted.empty()) text += "; wanted " + joined(wanted);
  return text;
}

bool contains_word(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

// Memory of which nobody says whose it is, or nothing where that cannot be told.
std::optional<double> unclaimed_memory(const Reading& reading) {
  if (std::isnan(reading[Metric::mem_used]) || reading.memory_estimated) return {};
  double claimed = 0;
  for (const Tenant& tenant : *reading.tenants) {
    // Older cards book the memory of all clients on the MPS server, whoever they are.
    if (tenant.mps_server) continue;
    if (!tenant.memory_bytes) return {};
    claimed += static_cast<double>(*tenant.memory_bytes);
  }
  return reading[Metric::mem_used] - claimed;
}

// Every process on the GPU is this user's, and there is one. Where some may be hidden, the
// memory must be all theirs: who has a context holds memory.
bool only_mine(const Reading& reading, uid_t me, const std::map<pid_t, ProcessInfo>& processes) {
  if (!reading.tenants) return false;
  bool any = false;
  for (const Tenant& tenant : *reading.tenants) {
    if (tenant.mps_server) continue;  // it counts through its clients
    const auto found = processes.find(tenant.pid);
    if (!tenant.here || found == processes.end() || found->second.uid != me) return false;
    any = true;
  }
  if (!any || !reading.processes_hidden) return any;
  const auto left = unclaimed_memory(reading);
  return left && *left <= kEmptyCard;
}

// What those hold who only draw. Not where processes may be hidden: the rest could be theirs.
double drawn_with(const Reading& reading) {
  if (reading.display_active != true || !reading.tenants || reading.processes_hidden) return 0;
  double sum = 0;
  for (const Tenant& tenant : *reading.tenants)
    if (tenant.graphics && !tenant.compute && !tenant.mps_server)
      sum += static_cast<double>(tenant.memory_bytes.value_or(0));
  return sum;
}

class Weighing {
 public:
  Weighing(const Reading& reading, const Wishes& wishes, bool mine)
      : reading_(reading), wishes_(wishes), mine_(mine), desktop_(reading.display_active == true) {}

  Judgement verdict() {
    for (const Metric metric : {Metric::util, Metric::procs, Metric::mem_used})
      if (can_tell(metric)) judged_by_.push_back(metric);
    weigh_processes();
    most(Metric::util, unless_mine(wishes_.util), reading_[Metric::util], desktop_ ? kDrawing : 0,
         [](double value) { return share(value, "util"); });
    most(Metric::mem_util, unless_mine(wishes_.mem_util), reading_[Metric::mem_util], desktop_ ? kDrawing : 0,
         [](double value) { return share(value, "mem_util"); });
    weigh_memory();
    least(Metric::mem_free, wishes_.mem_free, [](double value) { return format_size(value) + " free"; });
    most(Metric::temp, wishes_.temp, reading_[Metric::temp], 0, [](double value) { return number(value) + " C"; });
    if (wishes_.where) {
      const WhereAnswer answer = wishes_.where(reading_);
      if (answer.holds != true) object(answer.why, "");
    }
    if (objections_.empty()) weigh_evidence();
    return judgement();
  }

 private:
  using Text = std::string (*)(double);

  Limit unless_mine(const Limit& limit) const { return mine_ && limit.kind == Limit::usual ? Limit::off() : limit; }

  // What is in use, without what the desktop draws with.
  double memory() const {
    const double used = reading_[Metric::mem_used];
    return std::isnan(used) ? kUnknown : std::max(0.0, used - drawn_with(reading_));
  }

  // Read, and not only concluded from another signal.
  bool can_tell(Metric metric) const {
    if (std::isnan(reading_[metric])) return false;
    if (metric == Metric::procs) return !reading_.processes_hidden;
    return metric != Metric::mem_used || !reading_.memory_estimated;
  }

  // At least so many there are; where some may be hidden the sensor gives no number.
  double processes_seen() const {
    if (!std::isnan(reading_[Metric::procs]) || !reading_.tenants) return reading_[Metric::procs];
    return static_cast<double>(
        std::count_if(reading_.tenants->begin(), reading_.tenants->end(),
                      [](const Tenant& tenant) { return tenant.compute && !tenant.mps_server; }));
  }

  void weigh_processes() {
    Limit limit = unless_mine(wishes_.procs);
    if (wishes_.tolerate && limit.kind == Limit::usual && memory() <= *wishes_.tolerate) limit = Limit::off();
    const double count = reading_.processes_hidden ? processes_seen() : reading_[Metric::procs];
    const double bound = limit.kind == Limit::given ? limit.value : 0;
    if (!reading_.processes_hidden || limit.kind == Limit::none || count > bound)
      return most(Metric::procs, limit, count, 0, processes_text);
    // Those that we see are few enough. Whether there are more tells only memory that is not in use.
    const bool empty = can_tell(Metric::mem_used) && reading_[Metric::mem_used] <= kEmptyCard;
    if (limit.kind == Limit::given) return object(fmt::format("procs cannot be read ({})", kHidden), "");
    if (!empty && !reading_.asleep) object(std::string(kHidden), "");
  }

  void weigh_memory() {
    const Limit limit = unless_mine(wishes_.mem_used);
    if (limit.kind == Limit::given)
      return most(Metric::mem_used, limit, reading_[Metric::mem_used], 0,
                  [](double value) { return format_size(value) + " in use"; });
    const bool processes_allowed =
        wishes_.procs.kind == Limit::none || (wishes_.procs.kind == Limit::given && wishes_.procs.value > 0);
    const double bound = std::max({desktop_ ? kEmptyDesktop : kEmptyCard, processes_allowed ? kRestingProcesses : 0,
                                   wishes_.tolerate.value_or(0)});
    if (drawn_with(reading_) > 0)
      return most(Metric::mem_used, limit, memory(), bound,
                  [](double bytes) { return format_size(bytes) + " in use beside the desktop"; });
    most(Metric::mem_used, limit, memory(), bound, [](double bytes) { return format_size(bytes) + " in use"; });
  }

  // Nothing speaks against it; does enough speak for it? Who says `any` wants to know less.
  void weigh_evidence() {
    if (mine_ || reading_.asleep) return;
    std::size_t needed = 3;
    for (const Limit* limit : {&wishes_.util, &wishes_.procs, &wishes_.mem_used})
      if (limit->kind == Limit::none) --needed;
    needed = std::min<std::size_t>(needed, 2);
    if (judged_by_.size() >= needed) return;
    if (!judged_by_.empty() && reading_[Metric::pstate] >= kRestingState) {
      judged_by_.push_back(Metric::pstate);
      return;
    }
    undecided_ = reading_.why_missing(Metric::pstate) == Absence::not_asked;
    std::vector<std::string> gone;
    for (const Metric metric : {Metric::util, Metric::procs, Metric::mem_used}) {
      if (can_tell(metric)) continue;
      std::string_view why = words(reading_.why_missing(metric));
      if (metric == Metric::procs && reading_.processes_hidden) why = "hidden in other containers";
      if (metric == Metric::mem_used && reading_.memory_estimated) why = "only estimated";
      gone.push_back(fmt::format("{} ({})", info(metric).name, why));
    }
    object(fmt::format("cannot be judged without {}{}", joined(gone),
                       judged_by_.empty() ? "" : fmt::format(": {} alone does not tell", info(judged_by_[0]).name)),
           "");
  }

  Judgement judgement() const {
    Judgement result;
    result.fits = objections_.empty();
    result.judged_by = judged_by_;
    result.undecided = undecided_;
    result.in_use = in_use_;
    result.only_busy = !objections_.empty() && objections_.size() == busy_;
    const bool usual = wishes_.util.kind == Limit::usual || wishes_.mem_util.kind == Limit::usual ||
                       wishes_.mem_used.kind == Limit::usual;
    if (reading_.asleep)
      result.note = "asleep";
    else if (desktop_ && usual && !mine_)
      result.note = "a desktop draws on it";
    if (result.fits) return result;
    result.why = explain(objections_);
    if (!result.note.empty() && !reading_.asleep) result.why += fmt::format(" ({})", result.note);
    return result;
  }

  void object(std::string has, std::string wanted) { objections_.push_back({std::move(has), std::move(wanted)}); }

  // Unless the limit is off: the value is known and at most (least) that much.
  void most(Metric metric, const Limit& limit, double value, double usual, Text text) {
    check(metric, limit, value, limit.kind == Limit::given ? limit.value : usual, false, text);
  }
  void least(Metric metric, const Limit& limit, Text text) {
    check(metric, limit, reading_[metric], limit.value, true, text);
  }

  // What the card does not have, or what nobody can ask while it sleeps, the other signals have to
  // tell. Who asked for it by name gets the truth: it cannot be read.
  bool may_be_missing(Metric metric, const Limit& limit) const {
    const Absence why = reading_.why_missing(metric);
    return limit.kind == Limit::usual && (why == Absence::not_supported || (reading_.asleep && why == Absence::asleep));
  }

  void check(Metric metric, const Limit& limit, double value, double bound, bool at_least, Text text) {
    if (limit.kind == Limit::none) return;
    if (std::isnan(value)) {
      if (may_be_missing(metric, limit)) return;
      return object(fmt::format("{} cannot be read ({})", info(metric).name, words(reading_.why_missing(metric))), "");
    }
    if (at_least ? value >= bound : value <= bound) return;
    if (metric == Metric::util || metric == Metric::mem_util) ++busy_;
    in_use_ = in_use_ || metric == Metric::util || metric == Metric::mem_util || metric == Metric::procs ||
              metric == Metric::mem_used;
    object(text(value), bound == 0 ? text(0) : fmt::format("at {} {}", at_least ? "least" : "most", text(bound)));
  }

  const Reading& reading_;
  const Wishes& wishes_;
  bool mine_;
  bool desktop_;
  std::vector<Metric> judged_by_;
  std::vector<Objection> objections_;
  std::size_t busy_ = 0;  // how many of them are about work being done
  bool in_use_ = false;
  bool undecided_ = false;
};

Judgement refuse(bool lasting, std::string why) {
  Judgement judgement;
  judgement.lasting = lasting;
  judgement.why = std::move(why);
  return judgement;
}
Judgement never(std::string why) { return refuse(true, std::move(why)); }
Judgement not_now(std::string why) { return refuse(false, std::move(why)); }

}  // namespace

Judgement judge(const Device& device, const Reading& reading, const Wishes& wishes,
                const std::map<pid_t, ProcessInfo>& processes) {
  const bool named =
      wishes.exact_name ? device.name.find(wishes.name) != std::string::npos : contains_word(device.name, wishes.name);
  if (!wishes.name.empty() && !device.name.empty() && !named)
    return never(fmt::format("its name is {}; wanted {}", printable(device.name), printable(wishes.name)));
  for (const Absence absence : {reading.device_absence, device.absence}) {
    if (absence == Absence::none) continue;
    // Others' GPUs: waiting does not make them ours.
    return refuse(absence == Absence::no_permission, fmt::format("cannot be read ({})", words(absence)));
  }
  if (device.uuid.empty())
    return not_now(reading.asleep ? "is asleep, and its UUID cannot be read without waking it"
                                  : "its UUID cannot be read");
  if (device.kind == DeviceKind::gpu && reading.mig_mode == true)
    return never("is divided into MIG devices, which can be picked instead");
  if (!wishes.name.empty() && device.name.empty()) return not_now("its name cannot be read");

  const double total = reading[Metric::mem_total];
  if (wishes.mem_free.kind == Limit::given && total < wishes.mem_free.value)
    return never(
        fmt::format("has {} in all; wanted at least {} free", format_size(total), format_size(wishes.mem_free.value)));
  const bool mine = wishes.mine && only_mine(reading, *wishes.mine, processes);
  return Weighing(reading, wishes, mine).verdict();
}

bool busy_from_waking(const Judgement& judgement, const Reading& reading) {
  constexpr Duration kWaking = std::chrono::seconds(3);
  return judgement.only_busy && reading.attached_for && *reading.attached_for < kWaking;
}

}  // namespace lull
