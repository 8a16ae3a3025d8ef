#include "slurm/prolog.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/fd.h"
#include "base/process_start.h"
#include "base/text.h"
#include "base/units.h"

namespace lull::slurm {
namespace {

// The first of these that is set.
std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (auto value = environment(name); value && !value->empty()) return *std::move(value);
  return {};
}

// Holds no descriptor of slurmd's: who hangs in the kernel must not keep it waiting for the end of our output.
void be_apart() {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (null) ::dup2(null.get(), standard);
  ::setpgid(0, 0);
}

}  // namespace

Result<Allocation> allocation_from(const Environment& environment, const std::string& node, WallTime now) {
  Allocation one;
  const std::string job = first_of(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  const auto number = to_unsigned(job);
  if (!number || *number == 0 || *number > 0xFFFFFFFFULL)
    return fail(job.empty() ? "SLURM_JOB_ID is not set: this is for Slurm's Prolog and Epilog"
                            : fmt::format("SLURM_JOB_ID={} is no number of a job", printable(job)));
  one.job = *number;
  one.node = node;
  const std::string uid = first_of(environment, {"SLURM_JOB_UID", "SLURM_UID"});
  const auto user = to_unsigned(uid);
  if (!user || *user >= 0xFFFFFFFFULL)
    return fail(fmt::format("job {}: SLURM_JOB_UID={} is no uid", one.job, printable(uid)));
  one.uid = static_cast<uid_t>(*user);
  one.user = first_of(environment, {"SLURM_JOB_USER"});
  auto gpus = parse_gpu_numbers(first_of(environment, {"SLURM_JOB_GPUS"}));
  if (!gpus) return std::unexpected(std::move(gpus).error().during(fmt::format("job {}: SLURM_JOB_GPUS", one.job)));
  one.gpus = *std::move(gpus);
  // Of shards and the like slurmd may say only what a program of the vendor's is to see.
  const std::string seen =
      first_of(environment, {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"});
  one.shares_gpus = one.gpus.empty() && !seen.empty() && seen != "NoDevFiles";
  one.nodes = first_of(environment, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (const auto restarts = to_unsigned(first_of(environment, {"SLURM_JOB_RESTART_COUNT", "SLURM_RESTART_COUNT"})))
    one.restarts = static_cast<unsigned>(std::min<std::uint64_t>(*restarts, 1'000'000'000));
  const std::string het_job = first_of(environment, {"SLURM_HET_JOB_ID", "SLURM_PACK_JOB_ID"});
  const auto leader = het_job.empty() ? std::optional<std::uint64_t>(0) : to_unsigned(het_job);
  if (!leader || *leader > 0xFFFFFFFFULL)
    return fail(fmt::format("job {}: SLURM_HET_JOB_ID={} is no number of a job", one.job, printable(het_job)));
  one.het_job = *leader;
  one.partition = first_of(environment, {"SLURM_JOB_PARTITION"});
  one.account = first_of(environment, {"SLURM_JOB_ACCOUNT"});
  one.qos = first_of(environment, {"SLURM_JOB_QOS"});
  one.comment = first_of(environment, {"SLURM_JOB_COMMENT"});
  one.rule = first_of(environment, {"SPANK_LULL_GPU_IDLE", "SLURM_SPANK_LULL_GPU_IDLE"});
  one.sluid = first_of(environment, {"SLURM_JOB_SLUID"});
  one.start = now;
  return one;
}

std::string complaint_within(Duration limit, const std::function<Result<>()>& body) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "cannot make a pipe";
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const SystemClock clock;
  const Instant until = clock.now() + limit;
  const auto child = start_child([&] {
    be_apart();
    const auto done = body();
    if (!done) (void)write_all(write_end.get(), done.error().message());
  });
  if (!child) return "cannot start a process";
  write_end.reset();
  std::string complaint;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock.now()).count();
    pollfd ready{read_end.get(), POLLIN, 0};
    const int got = left <= 0 ? 0 : ::poll(&ready, 1, static_cast<int>(left));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      (void)child->signal(SIGKILL);
      (void)::waitpid(child->pid(), nullptr, WNOHANG);
      return fmt::format("not done within {}", format_duration(limit));
    }
    std::array<char, 4096> buffer{};
    const ssize_t size = ::read(read_end.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    complaint.append(buffer.data(), static_cast<std::size_t>(size));
    if (complaint.size() > 65536) break;
  }
  int status = 0;
  (void)wait_for_child(child->pid(), std::max(Duration::zero(), until - clock.now()), &status);
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return complaint;
}

}  // namespace lull::slurm
