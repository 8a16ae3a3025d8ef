#include "sim/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "sim/files.h"
#include "sim/folder.h"
#include "sim/opened.h"
#include "sim/plan.h"
#include "sim/values.h"

namespace lull::sim {
namespace {

constexpr std::uint64_t kContextMemory = std::uint64_t{512} << 20;  // what a CUDA context takes

Result<LoadTarget> find_mig(std::string_view uuid, const State& state) {
  for (std::size_t gpu = 0; gpu < state.gpu_count; ++gpu)
    for (std::uint32_t mig = 0; mig < state.gpus[gpu].mig_count; ++mig)
      if (std::string_view(state.gpus[gpu].mig[mig].uuid).starts_with(uuid)) return LoadTarget{gpu, mig};
  return fail(fmt::format("no MIG device has a UUID that begins with '{}'", printable(uuid)));
}

// The one who runs the simulation: when it is gone, so is the driver, and we are held by nothing.
Fd watch_owner(const std::string& folder) {
  const auto pid = to_pid(trim(read_file(folder + "/owner").value_or("")));
  if (!pid) return {};
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0)));
}

void wait_for_end(const State& state, std::int64_t end_ns, const Fd& owner) {
  for (;;) {
    int milliseconds = -1;
    if (end_ns != kForever) {
      const std::int64_t left = boot_time(state, end_ns) - boot_now_ns(state);
      if (left <= 0) return;
      milliseconds = static_cast<int>(std::min<std::int64_t>(left / 1'000'000 + 1, 60'000));
    }
    pollfd wait{owner.get(), POLLIN, 0};
    ::poll(&wait, 1, milliseconds);  // a negative descriptor is left out
    if (wait.revents != 0) return;
  }
}

// What the driver's library would open. Graphics do not go by KFD.
Result<> open_devices(const std::string& folder, const Gpu& card, std::uint32_t kind, std::vector<Fd>& files,
                      Load& load) {
  if (!has_render_node(card.vendor)) {
    files.push_back(TRY(open_file(device_file(folder, card.minor), O_RDWR)));
    return {};
  }
  for (const std::string& name : device_files(folder, card))
    if (!name.ends_with("/kfd") || kind != kGraphics) files.push_back(TRY(open_file(name, O_RDWR)));
  load.drm_fds[0] = files.back().get();
  files.emplace_back(::fcntl(load.drm_fds[0], F_DUPFD_CLOEXEC, 0));
  load.drm_fds[1] = files.back().get();
  return {};
}

Result<> parse_util(std::string_view text, PhaseSpec& phase) {
  const double util = TRY(parse_value(value_info(Metric::util), text));
  if (!(util >= 0 && util <= 100)) return fail("util is a percentage, such as util=90");
  phase.util = util;
  return {};
}

Result<> parse_counter(unsigned counter, std::string_view text, PhaseSpec& phase) {
  const double percent = TRY(parse_value(value_info(kCounterMetrics[counter]), text));
  if (!(percent >= 0 && percent <= 100))
    return fail(fmt::format("{0} is a percentage, such as {0}=30", counter_name(counter)));
  phase.counters[counter] = percent;
  return {};
}

Result<> parse_then(std::string_view word, PhaseSpec& phase) {
  const auto equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  if (name == "util") return parse_util(value, phase);
  if (name == "mem" || name == "mem_used") {
    phase.memory = TRY(parse_size(value));
    return {};
  }
  for (unsigned i = 0; i < kCounters; ++i)
    if (name == counter_name(i)) return parse_counter(i, value, phase);
  constexpr std::string_view kKnown[] = {"util", "mem", "sm", "tensor", "dram"};
  const std::string hint = did_you_mean(name, kKnown);
  return fail(fmt::format("a phase has no '{}'{}", printable(name), hint.empty() ? ": util=0 and mem=2GiB are" : hint));
}

}  // namespace

Result<std::vector<LoadTarget>> find_load_targets(std::string_view text, const State& state) {
  std::vector<LoadTarget> targets;
  for (const std::string_view part : split(text, ',')) {
    if (part.starts_with("MIG-")) {
      targets.push_back(TRY(find_mig(part, state)));
      continue;
    }
    // "amd:0" is no MIG device.
    const bool of_vendor = !part.empty() && std::isalpha(static_cast<unsigned char>(part.front())) != 0;
    const auto colon = of_vendor ? std::string_view::npos : part.find(':');
    for (const std::size_t gpu : TRY(resolve_gpus(part.substr(0, colon), state))) {
      LoadTarget target{gpu, kNone};
      if (colon != std::string_view::npos) {
        const auto mig = to_unsigned(part.substr(colon + 1));
        if (!mig || *mig >= state.gpus[gpu].mig_count)
          return fail(
              fmt::format("there is no MIG device {}: GPU {} has {}", printable(part), gpu, state.gpus[gpu].mig_count));
        target.mig = static_cast<std::uint32_t>(*mig);
      }
      targets.push_back(target);
    }
  }
  return targets;
}

namespace {

// As ROCm's runtime: the places in KFD's order, or UUIDs. What it does not know, or has had, ends the list.
std::vector<std::size_t> rocm_visible(std::string_view list, const std::vector<std::size_t>& among,
                                      const State& state) {
  std::vector<std::size_t> visible;
  for (const std::string_view word : split(list, ',')) {
    const auto place = to_unsigned(trim(word));
    auto found = among.end();
    if (place && *place < among.size()) found = among.begin() + static_cast<std::ptrdiff_t>(*place);
    if (!place)
      found = std::ranges::find_if(among, [&](std::size_t gpu) { return trim(word) == state.gpus[gpu].uuid; });
    if (found == among.end() || std::ranges::find(visible, *found) != visible.end()) break;
    visible.push_back(*found);
  }
  return visible;
}

std::vector<std::size_t> in_kfd_order(const State& state) {
  std::vector<std::size_t> gpus;
  for (std::size_t gpu = 0; gpu < state.gpu_count; ++gpu)
    if (state.gpus[gpu].kfd_node != 0) gpus.push_back(gpu);
  std::ranges::sort(gpus, {}, [&](std::size_t gpu) { return state.gpus[gpu].kfd_node; });
  std::vector<std::size_t> places;
  for (const std::size_t gpu : gpus) places.insert(places.end(), kfd_places(state.gpus[gpu]), gpu);
  return places;
}

}  // namespace

std::string visible_gpus(const State& state) {
  const auto said = [](const char* name) { return environment_variable(name).value_or(""); };
  if (const std::string cuda = said("CUDA_VISIBLE_DEVICES"); !cuda.empty()) return cuda;
  if (const std::string rocr = said("ROCR_VISIBLE_DEVICES"); !rocr.empty()) {
    auto gpus = rocm_visible(rocr, in_kfd_order(state), state);
    if (const std::string hip = said("HIP_VISIBLE_DEVICES"); !hip.empty()) gpus = rocm_visible(hip, gpus, state);
    return fmt::format("{}", fmt::join(gpus, ","));
  }
  std::string intel;
  if (const std::string mask = said("ZE_AFFINITY_MASK"); !mask.empty())
    for (const std::string_view word : split(mask, ','))
      intel += fmt::format("{}intel:{}", intel.empty() ? "" : ",", trim(word));
  return intel.empty() ? "0" : intel;
}

Result<> check_load_memory(const LoadSpec& spec, const std::vector<LoadTarget>& targets, const State& state) {
  for (const LoadTarget& target : targets)
    for (const PhaseSpec& phase : spec.phases)
      if (const auto total = state.gpus[target.gpu].memory_total; phase.memory.value_or(0) > total)
        return fail(fmt::format("{} is more memory than GPU {} has: {}",
                                format_size(static_cast<double>(*phase.memory)), target.gpu,
                                format_size(static_cast<double>(total))));
  return {};
}

Result<> hold_and_wait(const LoadSpec& spec, Writer& writer, const std::vector<LoadTarget>& targets,
                       const std::string& folder) {
  const Fd owner = watch_owner(folder);
  std::vector<Fd> files;
  const bool nvidia = std::ranges::any_of(
      targets, [&](const LoadTarget& target) { return in_nvml(writer.state().gpus[target.gpu].vendor); });
  for (const char* name : {"/dev/nvidiactl", "/dev/nvidia-uvm"})
    if (nvidia) files.push_back(TRY(open_file(folder + name, O_RDWR)));
  std::vector<Hold> holds;
  const LoadSteps made = make_steps(spec.phases, kContextMemory);
  std::int64_t end_ns = kForever;
  for (const LoadTarget& target : targets) {
    Load load;
    TRY(open_devices(folder, writer.state().gpus[target.gpu], spec.kind, files, load));
    load.gpu = static_cast<std::uint32_t>(target.gpu);
    load.mig = target.mig;
    load.kind = spec.kind;
    load.step_count = static_cast<std::uint32_t>(made.steps.size());
    std::copy(made.steps.begin(), made.steps.end(), std::begin(load.steps));
    // Its end is in the state already: it does not depend on when we wake up.
    if (made.end_ns != kForever) load.end_ns = end_ns = writer.mapping().now_ns() + made.end_ns;
    holds.push_back(TRY(writer.hold(load)));
  }
  if (spec.ready_fd >= 0) ::close(spec.ready_fd);
  wait_for_end(writer.state(), end_ns, owner);
  return {};
}

// ---- options

Result<> add_phase(const PhaseOptions& options, LoadSpec& load) {
  const bool first = load.phases.empty();
  if (first && !options.changes.empty())
    return fail(fmt::format("'{}' is one argument too many", printable(options.changes.front())));
  if (!first && !load.phases.back().lasting) return fail("the phase before --then never ends: it needs a --for");
  if (!first && options.changes.empty()) return fail("--then needs what changes, such as util=0");
  if (load.phases.size() >= kMaxSteps) return fail(fmt::format("more than {} phases", kMaxSteps));
  PhaseSpec phase;
  for (const std::string& change : options.changes) TRY(parse_then(change, phase));
  if (!options.util.empty()) TRY(parse_util(options.util, phase));
  for (unsigned i = 0; i < kCounters; ++i)
    if (!options.counters[i].empty()) TRY(parse_counter(i, options.counters[i], phase));
  if (!options.memory.empty()) {
    auto size = parse_size(options.memory);
    if (!size) return std::unexpected(std::move(size).error().during("--mem"));
    phase.memory = *size;
  }
  if (!options.lasting.empty()) phase.lasting = TRY(duration_option("--for", options.lasting));
  load.phases.push_back(phase);
  return {};
}

void be_mps_server(LoadSpec& load) {
  load.kind = kCompute;
  PhaseSpec& phase = load.phases.front();
  phase.util = phase.util.value_or(0);
  phase.memory = phase.memory.value_or(kMpsServerMemory);
}

// ps and nvidia-smi read our arguments from our own memory: say there what we play.
void show_as(const std::string& title, int argc, char** argv) {
  if (title.empty()) return;
  const std::string_view first = std::string_view(title).substr(0, title.find(' '));
  ::prctl(PR_SET_NAME, std::string(first.substr(first.find_last_of('/') + 1)).c_str());
  char* begin = program_invocation_name;                     // the first word of all: argv[0] here is the command's
  char* end = argv[argc - 1] + std::strlen(argv[argc - 1]);  // its last byte is not zero: the kernel shows one text
  const auto size = static_cast<std::size_t>(end - begin);
  const std::string text = title.substr(0, size);
  std::memset(begin, 0, size);
  std::ranges::copy(text, begin);
  *end = text.size() < size ? '.' : '\0';
}

}  // namespace lull::sim
