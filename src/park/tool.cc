#include "park/tool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/fd.h"
#include "base/process_start.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr const char* kToolName = "cuda-checkpoint";
constexpr Duration kAfterKill = 2s;   // then it is stuck in the kernel, and left there
constexpr Duration kLockMargin = 2s;  // over what the tool itself was told
constexpr std::size_t kMostToolOutput = 4096;

// Which other user could change this file; empty: only root.
std::string changeable_by(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return "an unknown user";
  if (status.st_uid != 0) return fmt::format("uid {}", status.st_uid);
  if (S_ISLNK(status.st_mode)) return "";
  if ((status.st_mode & S_IWOTH) != 0) return "everybody";
  if ((status.st_mode & S_IWGRP) != 0 && status.st_gid != 0) return fmt::format("group {}", status.st_gid);
  return "";
}

// As root: the file and every folder above it, by the name that was found and by the one that it stands for.
Result<> check_trusted(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(path, failed);
  if (failed) return fail(failed.value(), printable(path));
  for (const std::filesystem::path& start : {std::filesystem::path(path), real})
    for (std::filesystem::path at = start;; at = at.parent_path()) {
      if (const std::string who = changeable_by(at.string()); !who.empty())
        return fail(fmt::format("{} can be changed by {} ({}): root does not run it", printable(path), who,
                                printable(at.string())));
      if (at == at.parent_path()) break;
    }
  return {};
}

bool is_program(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

struct Running {
  Process tool;
  Fd output;
  std::string text;
  bool over = false;
};

void drain(Running& one) {
  std::array<char, 1024> part;
  for (;;) {
    const ssize_t got = ::read(one.output.get(), part.data(), part.size());
    if (got <= 0) return;
    if (one.text.size() < kMostToolOutput) one.text.append(part.data(), static_cast<std::size_t>(got));
  }
}

// In the child, until it is the tool.
void become(const std::string& path, const std::vector<std::string>& arguments, int output, int held) {
  (void)::setpgid(0, 0);  // so that what it starts is killed with it
  const Fd null(::open("/dev/null", O_RDONLY));
  (void)::dup2(null.get(), STDIN_FILENO);
  (void)::dup2(output, STDOUT_FILENO);
  (void)::dup2(output, STDERR_FILENO);
  close_all_but({STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, held});
  if (held >= 0) (void)::fcntl(held, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execv(path.c_str(), exec_pointers(arguments).data());
  ::_exit(127);
}

Result<Running> begin(const std::string& path, const std::vector<std::string>& arguments, int held) {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno, "pipe");
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  (void)::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  Process tool = TRY(start_child([&] { become(path, arguments, theirs.get(), held); }));
  return Running{std::move(tool), std::move(ours), {}, false};
}

void wait_for_all(std::vector<std::optional<Running>>& all, const Clock& clock, Instant until) {
  for (;;) {
    std::vector<pollfd> wait;
    for (auto& one : all) {
      if (!one || one->over) continue;
      one->over = one->tool.ended();  // before its output is read: all of it is there then
      drain(*one);
      if (!one->over) wait.push_back({one->tool.fd(), POLLIN, 0});
      if (!one->over && one->text.size() < kMostToolOutput) wait.push_back({one->output.get(), POLLIN, 0});
    }
    const Duration left = until - clock.now();
    if (wait.empty() || left <= Duration::zero()) return;
    const auto most = std::min<Duration>(left, 200ms);
    (void)::poll(wait.data(), wait.size(),
                 static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(most).count()));
  }
}

// One line says it; a tool that also warns is understood, one that says two things is not.
CudaState parse_state(std::string_view text) {
  CudaState found = CudaState::unknown;
  for (const std::string_view line : split(text, '\n'))
    for (const CudaState one : {CudaState::running, CudaState::locked, CudaState::checkpointed, CudaState::failed})
      if (lowered(trim(line)) == to_string(one)) {
        if (found != CudaState::unknown && found != one) return CudaState::unknown;
        found = one;
      }
  return found;
}

}  // namespace

std::string_view to_string(CudaState state) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"unknown", "running", "locked", "checkpointed", "failed", "ended"});
  static_assert(kNames.size() == static_cast<std::size_t>(CudaState::ended) + 1);
  return kNames[static_cast<std::size_t>(state)];
}

Result<std::string> CheckpointTool::find(const std::string& given) {
  const bool root = ::geteuid() == 0;
  if (!given.empty()) {
    const std::string path = std::filesystem::absolute(given).lexically_normal().string();
    if (!is_program(path)) return fail(fmt::format("{} is not a program that lull may run", printable(path)));
    if (root) TRY(check_trusted(path));
    return path;
  }
  const char* folders = std::getenv("PATH");
  for (const std::string_view folder : split(folders == nullptr ? "" : folders, ':')) {
    if (!folder.starts_with('/')) continue;
    const std::string path = fmt::format("{}/{}", folder, kToolName);
    if (!is_program(path)) continue;
    if (root) TRY(check_trusted(path));
    return path;
  }
  return fail(fmt::format("{} is not in PATH: install it, or name it by --cuda-checkpoint PATH", kToolName));
}

std::vector<CheckpointTool::Answer> CheckpointTool::run(const std::vector<Call>& calls, Duration limit) const {
  const SystemClock clock;
  std::vector<Answer> answers(calls.size());
  std::vector<std::optional<Running>> all(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].process->ended()) {
      answers[i].trouble = "the process has ended";
      continue;
    }
    if (auto begun = begin(path_, calls[i].arguments, held_))
      all[i] = *std::move(begun);
    else
      answers[i].trouble = begun.error().message();
  }
  wait_for_all(all, clock, clock.now() + limit);
  std::vector<bool> killed(calls.size(), false);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] && !all[i]->over) {
      killed[i] = true;
      (void)::kill(-all[i]->tool.pid(), SIGKILL);  // our child, not reaped: the number is its own
      (void)all[i]->tool.signal(SIGKILL);
    }
  wait_for_all(all, clock, clock.now() + kAfterKill);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i]) continue;
    Answer& answer = answers[i];
    const auto status = reap(all[i]->tool);
    answer.output = std::move(all[i]->text);
    answer.well = !killed[i] && status && status->shell_status() == 0;
    const std::string said = printable(trim(answer.output));
    if (killed[i])
      answer.trouble = fmt::format("no answer within {}", format_duration(limit));
    else if (!answer.well)
      answer.trouble =
          fmt::format("status {}{}{}", status ? status->shell_status() : -1, said.empty() ? "" : ": ", said);
  }
  return answers;
}

std::vector<CudaState> CheckpointTool::states(const std::vector<const Process*>& of) const {
  std::vector<Call> calls;
  for (const Process* one : of) calls.push_back({one, {path_, "--get-state", "--pid", std::to_string(one->pid())}});
  const std::vector<Answer> answers = run(calls, limits_.ask);
  std::vector<CudaState> states;
  for (std::size_t i = 0; i < of.size(); ++i)
    states.push_back(of[i]->ended()    ? CudaState::ended
                     : answers[i].well ? parse_state(answers[i].output)
                                       : CudaState::unknown);
  return states;
}

std::string CheckpointTool::act(const std::string& action, const std::vector<const Process*>& all,
                                Duration limit) const {
  std::vector<Call> calls;
  for (const Process* one : all) {
    calls.push_back({one, {path_, "--action", action, "--pid", std::to_string(one->pid())}});
    if (action != "lock") continue;
    const auto most = std::chrono::ceil<std::chrono::milliseconds>(limit - kLockMargin);
    calls.back().arguments.insert(calls.back().arguments.end(), {"--timeout", std::to_string(most.count())});
  }
  std::string trouble;
  const std::vector<Answer> answers = run(calls, limit);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!answers[i].trouble.empty())
      trouble +=
          fmt::format("{}{} of process {}: {}", trouble.empty() ? "" : "; ", action, all[i]->pid(), answers[i].trouble);
  return trouble;
}

std::string CheckpointTool::lock(const std::vector<const Process*>& all) const {
  return act("lock", all, limits_.lock + kLockMargin);
}
std::string CheckpointTool::unlock(const std::vector<const Process*>& all) const {
  return act("unlock", all, limits_.call);
}
std::string CheckpointTool::checkpoint(const Process& one) const { return act("checkpoint", {&one}, limits_.call); }
std::string CheckpointTool::restore(const Process& one) const { return act("restore", {&one}, limits_.call); }

}  // namespace lull
