#include "sim/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "sim/folder.h"
#include "sim/opened.h"
#include "sim/plan.h"

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

}  // namespace

Result<std::vector<LoadTarget>> find_load_targets(std::string_view text, const State& state) {
  std::vector<LoadTarget> targets;
  for (const std::string_view part : split(text, ',')) {
    if (part.starts_with("MIG-")) {
      targets.push_back(TRY(find_mig(part, state)));
      continue;
    }
    const auto colon = part.find(':');
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
  for (const char* name : {"/dev/nvidiactl", "/dev/nvidia-uvm"}) files.push_back(TRY(open_file(folder + name, O_RDWR)));
  std::vector<Hold> holds;
  const LoadSteps made = make_steps(spec.phases, kContextMemory);
  std::int64_t end_ns = kForever;
  for (const LoadTarget& target : targets) {
    files.push_back(TRY(open_file(device_file(folder, target.gpu), O_RDWR)));
    Load load;
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

}  // namespace lull::sim
