// `lull park` and `lull unpark`: move a job out of its GPUs and back, by NVIDIA's cuda-checkpoint.

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "config/settings.h"
#include "jobs/gpu_users.h"
#include "park/parking.h"
#include "park/plan.h"
#include "park/record.h"
#include "park/tool.h"
#include "sense/sampler.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr const char* kParkAbout =
    "Moves a job out of its GPUs into the machine's memory, by NVIDIA's cuda-checkpoint. The job is paused in its\n"
    "next CUDA call until `lull unpark` brings it back, on the same GPUs. This was tested with a stand-in for\n"
    "cuda-checkpoint, and never on a real GPU.\n";
constexpr const char* kParkMore =
    "A PID is that process and all that it started; PID@START that process alone, of this start time (field 22 of\n"
    "/proc/PID/stat), PID@START+ with all that it started; a JOB is as `lull jobs` names it. Without one, what is "
    "parked is listed.\n\n"
    "Exit status: 0 parked; 1 not parked, the job is as it was; 2 the command line was wrong; 125 some of the job is\n"
    "lost, or its state is unknown.\n\n"
    "Examples:\n"
    "  lull park 4711\n"
    "  lull park slurm:22\n"
    "  lull park\n";
constexpr const char* kUnparkAbout =
    "Brings a parked job back to its GPUs, once it has a lease of them and their memory is free. Also finishes or\n"
    "undoes what a `lull park` that was killed has left half done.\n";
constexpr const char* kUnparkMore =
    "A JOB is the id that `lull park` prints, or a PID of one of its processes. Without one: everything that is "
    "parked.\n\n"
    "Exit status: 0 it runs (or has ended); 1 it could not be restored, or is not parked; 2 the command line was "
    "wrong;\n"
    "75 not now, its GPUs are not free; 125 some of the job is lost, or its state is unknown.\n\n"
    "Examples:\n"
    "  lull unpark\n"
    "  lull unpark --wait 2h 4711\n";
constexpr Duration kLookAgain = 2s;
constexpr Duration kLongestWait = 2s;         // for another lull that works on it
constexpr Duration kLongestRepairWait = 60s;  // for the calls of one who died

struct ToolOptions {
  std::string path;
  std::string lock_limit = "10s";
  std::string limit = "5m";
};

void add_tool_options(CommandLine& line, ToolOptions& options, bool locks) {
  line.option(shared::kCudaCheckpoint, options.path, locks ? shared::kConfiguredTool : "the one that parked it");
  if (locks)
    line.option("--lock-limit", options.lock_limit, "how long it may take until all processes of the job are locked")
        .value("TIME");
  line.option(
      shared::kLimit, options.limit,
      locks ? "each other call of the tool, before it is killed," : "each call of the tool, before it is killed,");
}

Result<CheckpointTool::Limits> limits_of(const ToolOptions& options) {
  CheckpointTool::Limits limits;
  limits.lock = TRY(limit_option("--lock-limit", options.lock_limit));
  limits.call = TRY(limit_option("--limit", options.limit));
  return limits;
}

// Samples with lists of processes that are of now.
class Looks {
 public:
  Snapshot look() {
    if (!sampler_) {
      SamplerOptions options;
      options.memory = options.processes = options.all_lists = options.process_info = true;
      options.wait_for_waking = true;
      sampler_ = Sampler::start(std::move(options));
    }
    Snapshot snapshot;
    sampler_->request(true);
    sampler_->wait(snapshot);
    return snapshot;
  }

 private:
  std::unique_ptr<Sampler> sampler_;
};

ParkWorld world_of(Looks& looks) {
  return {.sample = [&looks] { return looks.look(); },
          .say = [](const std::string& text) { (void)complain("park: " + text); }};
}

std::string pids_of(const ParkRecord& record) {
  std::string text;
  for (const ParkedProcess& one : record.processes) text += (text.empty() ? "" : " ") + std::to_string(one.pid);
  return fmt::format("process{} {}", record.processes.size() == 1 ? "" : "es", text);
}

int list_parked() {
  const auto folder = ParkFolder::look();
  if (!folder) return complain("park: " + folder.error().message());
  std::size_t unreadable = 0;
  const auto all = *folder ? (*folder)->all(&unreadable) : std::vector<ParkRecord>();
  if (!all) return complain("park: " + all.error().message());
  for (const ParkRecord& one : *all)
    fmt::print("{}  {}  {}  {}  {}\n", one.id, to_string(one.step), memory_text(one), pids_of(one),
               one.since ? format_rfc3339(*one.since) : "");
  if (unreadable > 0)
    return complain(fmt::format("park: {} of the files in {} cannot be read", unreadable, ParkFolder::place()));
  if (all->empty()) fmt::print(stderr, "nothing is parked\n");
  return 0;
}

Result<Parking> begin_parking(const ParkFolder& folder, const ParkTarget& target, std::optional<pid_t> holder,
                              CheckpointTool tool, Looks& looks) {
  const Snapshot snapshot = looks.look();
  if (snapshot.driver.absence != Absence::none)
    return fail(snapshot.driver.detail.empty() ? std::string(to_string(snapshot.driver.absence))
                                               : snapshot.driver.detail);
  GpuUsers users(Root{.dev = Root::machine().dev}, [] { return read_leases(); });
  const std::vector<GpuUse> uses = users.look(snapshot, UserDetail::jobs, true);
  const std::vector<LeaseInfo> leases = users.leases();
  if (!users.trouble().empty()) return fail(users.trouble());
  utsname machine{};
  (void)::uname(&machine);
  auto plan = TRY(plan_parking(target, {.snapshot = snapshot,
                                        .uses = uses,
                                        .leases = leases,
                                        .machine = machine.machine,
                                        .root = {},
                                        .holder = holder,
                                        .lease_folder = LeasePlace::of_environment().path}));
  return Parking::begin(folder, std::move(plan), std::move(tool), world_of(looks));
}

int park(const ParkTarget& target, std::optional<pid_t> holder, CheckpointTool tool) {
  Looks looks;
  const auto folder = ParkFolder::open();
  if (!folder) return complain("park: " + folder.error().message(), 1);
  auto parking = begin_parking(*folder, target, holder, std::move(tool), looks);
  if (!parking) return complain("park: " + parking.error().message(), 1);
  const std::string id = parking->record().id;
  // Without it the job would stay locked if we died now.
  auto guard = ParkGuard::start(id);
  if (!guard) {
    (void)parking->bring_back();
    return complain("park: " + guard.error().message(), 1);
  }
  const ParkEnd end = parking->park();
  switch (end) {
    case ParkEnd::parked:
      fmt::print("parked as {}: {} ({}); `lull unpark {}` brings it back\n", id, memory_text(parking->record()),
                 pids_of(parking->record()), id);
      return 0;
    case ParkEnd::running: return complain("park: " + parking->why() + "; the job runs on", 1);
    case ParkEnd::ended: return complain("park: " + parking->why() + "; the job has ended", 1);
    case ParkEnd::waits:
    case ParkEnd::failed:
      return complain(fmt::format("park: {}; the way back is not free: it is parked as {}", parking->why(), id));
    case ParkEnd::lost: return complain("park: " + parking->why() + "; the job is lost");
    case ParkEnd::uncertain: break;
  }
  return complain(fmt::format("park: {}; some of it may be locked: `lull unpark {}` tries again", parking->why(), id));
}

// ---- unpark

struct Unparking {
  CheckpointTool::Limits limits;
  std::optional<std::string> tool;
  bool repair = false;
};

// What a status says is worse: 0, not now, failed, lull could not.
int worse(int one, int other) {
  constexpr std::array kOrder = {0, kExitNotNow, 1, kExitFailure};
  const auto place = [&](int status) { return std::ranges::find(kOrder, status) - kOrder.begin(); };
  return place(one) >= place(other) ? one : other;
}

// Another lull works on it, or the machine is short of something for a moment.
bool may_pass(const Error& error) {
  constexpr std::array kPass = {EAGAIN, EMFILE, ENFILE, ENOMEM, EINTR, EIO};
  return std::ranges::find(kPass, error.errno_value) != kPass.end();
}

// A call of one who was killed may still be under way.
Result<std::optional<Parking>> take_parked(const ParkFolder& folder, const std::string& id, const Unparking& how,
                                           Looks& looks) {
  const SystemClock clock;
  const Instant until = clock.now() + (how.repair ? kLongestRepairWait : kLongestWait);
  for (;;) {
    auto parking = Parking::take(folder, id, how.limits, how.tool, world_of(looks));
    if (parking || !may_pass(parking.error()) || clock.now() >= until) return parking;
    const timespec pause{0, 50'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

int unpark_one(const ParkFolder& folder, const std::string& id, const Unparking& how, Looks& looks, bool says_waits) {
  auto taken = take_parked(folder, id, how, looks);
  if (!taken) {
    const bool busy = taken.error().errno_value == EAGAIN;
    if (busy && !says_waits) return kExitNotNow;
    return complain(fmt::format("unpark: {}: {}", id, taken.error().message()), busy ? kExitNotNow : 1);
  }
  std::optional<Parking>& parking = *taken;
  if (!parking) return 0;  // it is not parked any more
  if (how.repair && parking->record().step == ParkStep::parked) return 0;
  const auto guard = ParkGuard::start(id);
  if (!guard && !how.repair) return complain("unpark: " + guard.error().message());
  const std::string who = fmt::format("{} ({})", id, pids_of(parking->record()));
  switch (parking->bring_back()) {
    case ParkEnd::parked:
    case ParkEnd::running: fmt::print("{} runs again\n", who); return 0;
    case ParkEnd::ended: fmt::print("{} has ended\n", who); return 0;
    case ParkEnd::waits:
      return says_waits ? complain(fmt::format("unpark: {} stays parked: {}", who, parking->why()), kExitNotNow)
                        : kExitNotNow;
    case ParkEnd::failed: return complain(fmt::format("unpark: {} stays parked: {}", who, parking->why()), 1);
    case ParkEnd::lost: return complain(fmt::format("unpark: {}: {}", who, parking->why()));
    case ParkEnd::uncertain: break;
  }
  return complain(fmt::format("unpark: {}: {}; some of it may be locked: to be tried again", who, parking->why()));
}

bool is_asked_for(const ParkRecord& record, const std::vector<std::string>& words) {
  if (words.empty()) return true;
  return std::ranges::any_of(words, [&](const std::string& word) {
    return word == record.id || word == std::to_string(record.root) || word == record.name ||
           std::ranges::any_of(record.processes,
                               [&](const ParkedProcess& one) { return std::to_string(one.pid) == word; });
  });
}

int unpark(const std::vector<std::string>& words, const Unparking& how, std::optional<Duration> wait) {
  const auto folder = ParkFolder::look();
  if (!folder) return complain("unpark: " + folder.error().message());
  const SystemClock clock;
  const Instant until = clock.now() + wait.value_or(Duration::zero());
  Looks looks;
  for (bool first = true;; first = false) {
    const bool last = clock.now() >= until;
    std::size_t unreadable = 0;
    const auto all = *folder ? (*folder)->all(&unreadable) : std::vector<ParkRecord>();
    if (!all) return complain("unpark: " + all.error().message());
    int status = 0;
    bool any = false;
    for (const ParkRecord& one : *all) {
      if (!is_asked_for(one, words)) continue;
      if (how.repair && one.step == ParkStep::parked) continue;
      any = true;
      status = worse(status, unpark_one(**folder, one.id, how, looks, last));
    }
    if (unreadable > 0 && first && !how.repair)
      status = worse(status, complain(fmt::format("unpark: {} of the files in {} cannot be read, and are left alone",
                                                  unreadable, ParkFolder::place())));
    if (first && !any && !how.repair && unreadable == 0) {
      if (!words.empty()) return complain("unpark: that is not parked; `lull park` lists what is", 1);
      fmt::print(stderr, "nothing is parked\n");
      return 0;
    }
    if (status != kExitNotNow || last) return status;
    std::fflush(stdout);
    const timespec pause{std::chrono::duration_cast<std::chrono::seconds>(kLookAgain).count(), 0};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace

int park_command(int argc, char** argv) {
  CommandLine line(kParkAbout, "lull park");
  line.usage("[options] [PID|JOB]");
  line.footer(kParkMore);
  std::vector<std::string> words;
  ToolOptions tool;
  std::string holder;
  const auto settings = Settings::load();
  const Settings known = settings ? *settings : Settings();
  tool.path = known.text(Setting::cuda_checkpoint);
  line.arguments("JOB", words, "a PID, or a job as `lull jobs` names it (default: list what is parked)");
  add_tool_options(line, tool, true);
  line.option("--holder", holder, "whose leases of these GPUs are the job's as well").value("PID").hidden();
  if (const auto status = line.parse(argc, argv)) return *status;
  if (!settings) return complain(settings.error().message(), kExitUsage);
  if (words.empty()) return list_parked();
  const auto target = ParkTarget::parse(words);
  if (!target) return complain("park: " + target.error().message(), kExitUsage);
  const auto limits = limits_of(tool);
  if (!limits) return complain("park: " + limits.error().message(), kExitUsage);
  const auto path = CheckpointTool::find(tool.path);
  if (!path) return complain("park: " + path.error().message(), 1);
  return park(*target, to_pid(holder), CheckpointTool(*path, *limits));
}

int unpark_command(int argc, char** argv) {
  CommandLine line(kUnparkAbout, "lull unpark");
  line.usage("[options] [JOB…]");
  line.footer(kUnparkMore);
  std::vector<std::string> words;
  ToolOptions tool;
  std::string wait;
  Unparking how;
  line.arguments("JOB", words, "an id, or a PID of the job (default: all that is parked)");
  line.option("--wait", wait, "wait so long for its GPUs to be free (default: not at all)").value("TIME");
  add_tool_options(line, tool, false);
  line.flag("--repair", how.repair, "only what was left half done").hidden();
  if (const auto status = line.parse(argc, argv)) return *status;
  const auto limits = limits_of(tool);
  if (!limits) return complain("unpark: " + limits.error().message(), kExitUsage);
  how.limits = *limits;
  std::optional<Duration> patience;
  if (!wait.empty()) {
    const auto parsed = duration_option("--wait", wait);
    if (!parsed) return complain("unpark: " + parsed.error().message(), kExitUsage);
    patience = *parsed;
  }
  if (!tool.path.empty()) {
    auto path = CheckpointTool::find(tool.path);
    if (!path) return complain("unpark: " + path.error().message(), 1);
    how.tool = *std::move(path);
  }
  return unpark(words, how, patience);
}

}  // namespace lull
