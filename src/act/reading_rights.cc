#include "act/reading_rights.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <unistd.h>

#include <array>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"

namespace lull {
namespace {

std::string namespace_of(const std::string& process) {
  std::array<char, 64> name{};
  const ssize_t got = ::readlink(("/proc/" + process + "/ns/user").c_str(), name.data(), name.size());
  return got > 0 ? std::string(name.data(), static_cast<std::size_t>(got)) : "";
}

}  // namespace

ReadingRights reading_rights(pid_t pid) {
  ReadingRights rights{.pid = pid, .ours = ::geteuid()};
  if (const auto status = read_file(fmt::format("/proc/{}/status", pid)))
    if (const auto ids = status_field(*status, "Uid"))
      if (const auto owner = to_unsigned(ids->substr(0, ids->find('\t')))) rights.owner = static_cast<uid_t>(*owner);
  if (const auto status = read_file("/proc/self/status")) {
    rights.may_trace = (status_mask(*status, "CapEff").value_or(0) >> CAP_SYS_PTRACE & 1) != 0;
    rights.filtered = status_field(*status, "Seccomp") == "2";
  }
  if (const auto scope = read_file("/proc/sys/kernel/yama/ptrace_scope"))
    if (const auto number = to_unsigned(trim(*scope))) rights.yama = static_cast<unsigned>(*number);
  const std::string ours = namespace_of("self");
  const std::string theirs = namespace_of(std::to_string(pid));
  if (!ours.empty() && !theirs.empty()) rights.same_namespace = ours == theirs;
  return rights;
}

std::string forbidden_text(const ReadingRights& rights) {
  const pid_t pid = rights.pid;
  if (rights.yama == 3)
    return fmt::format("kernel.yama.ptrace_scope is 3: nobody may read the stack of process {}, not even root", pid);
  if (!rights.may_trace) {
    if (rights.owner && *rights.owner != rights.ours && rights.ours == 0)
      return fmt::format(
          "root has no CAP_SYS_PTRACE here, as in a container: only user {} may read the stack of process {}",
          *rights.owner, pid);
    if (rights.owner && *rights.owner != rights.ours)
      return fmt::format("process {} is not ours: only root and its user ({}) may read its stack", pid, *rights.owner);
    if (rights.yama == 2)
      return fmt::format("kernel.yama.ptrace_scope is 2: only root may read the stack of process {}", pid);
    if (rights.yama == 1)
      return fmt::format("kernel.yama.ptrace_scope is 1: only root and the ancestors of process {} may read its stack",
                         pid);
  }
  if (rights.same_namespace == false)
    return fmt::format(
        "process {} is in another user namespace, as of a container: only root outside of it may read its stack", pid);
  if (rights.filtered)
    return fmt::format(
        "a seccomp filter, as of a container, or a security module forbids to read the stack of process {}", pid);
  return fmt::format(
      "process {} has more rights than we, or lets nobody read its memory (PR_SET_DUMPABLE), or a security module "
      "forbids to read its stack",
      pid);
}

}  // namespace lull
