#include "act/children.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/fd.h"
#include "base/process_start.h"
#include "base/units.h"

namespace lull {

bool Children::become_subreaper() { return ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0; }

void Children::expect(const Process& child, Ended ended, Stopped stopped) {
  waiting_[child.pid()] = {std::move(ended), std::move(stopped)};
}

// Orphans that the caller does not take are added up.
void Children::note_orphan(pid_t pid, const rusage& used) {
  constexpr std::size_t kMost = 4096;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  const double cpu = seconds(used.ru_utime) + seconds(used.ru_stime);
  if (orphans_.size() >= kMost)
    orphans_.back() = {.pid = 0, .cpu_seconds = orphans_.back().cpu_seconds + cpu};
  else
    orphans_.push_back({.pid = pid, .cpu_seconds = cpu});
}

void Children::sweep() {
  for (;;) {
    siginfo_t info{};
    rusage used{};
    // The system call itself, since libc's waitid leaves out the rusage.
    if (::syscall(SYS_waitid, P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG, &used) != 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (info.si_pid == 0) return;
    const auto found = waiting_.find(info.si_pid);
    ExitStatus status;
    (info.si_code == CLD_EXITED ? status.code : status.signal) = info.si_status;
    status.core_dumped = info.si_code == CLD_DUMPED;
    if (found == waiting_.end()) {
      const bool ended = info.si_code != CLD_STOPPED && info.si_code != CLD_CONTINUED;
      // What we started ourselves is not an orphan, and its CPU time is not the job's.
      if (ended && !keep_status(info.si_pid, status)) note_orphan(info.si_pid, used);
      continue;
    }
    // Handlers may expect and forget others: nothing of the map is held while they run.
    if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
      const Stopped stopped = found->second.stopped;
      if (stopped) stopped(info.si_code == CLD_STOPPED ? info.si_status : 0);
      continue;
    }
    const Ended ended = std::move(found->second.ended);
    waiting_.erase(found);
    (void)keep_status(info.si_pid, status);
    if (ended) ended(status);
  }
}

std::set<ProcessId> own_children() {
  std::set<ProcessId> children;
  // One read where the kernel offers it: this stands before the start of every job.
  if (const auto list = read_children(::getpid(), ::gettid()); list && ::gettid() == ::getpid()) {
    for (const pid_t pid : *list)
      if (const auto stat = read_process_entry(pid)) children.insert(stat->id());
    return children;
  }
  for (const ProcessEntry& one : read_all_processes())
    if (one.parent == ::getpid()) children.insert(one.id());
  return children;
}

struct Helpers::Running {
  explicit Running(Loop& loop) : limit(loop) {}
  Process process;
  Cgroup cgroup;
  std::string mark;
  Fd input;
  Fd output;
  bool capture = false;
  std::size_t most_output = 0;
  Timer limit;
  Done done;
};

namespace {

std::string to_text(const ExitStatus& status) {
  if (status.signal != 0) return "ended by " + signal_name(status.signal);
  return status.code == 0 ? "" : "exit status " + std::to_string(status.code);
}

}  // namespace

// With all that came of it, daemons included. A few passes for those born meanwhile, where there is no cgroup.
void Helpers::end(Running& one) {
  constexpr int kPasses = 4;
  const Tree tree = Tree::of_helper(one.process, one.cgroup ? &one.cgroup : nullptr, one.mark);
  for (int i = 0; i < kPasses; ++i) {
    tree.kill_pass();
    if (tree.members().empty()) break;
  }
  (void)one.process.signal(SIGKILL);  // where no listing shows it
}

// What an ended process left is ours by now. Looking for it costs more than looking whether there is anything.
bool Helpers::may_have_left() const {
  return std::ranges::any_of(own_children(), [this](const auto& one) {
    return !children_.expects(one.first) && !is_own_process(one.first, one.second);
  });
}

Helpers::~Helpers() {
  for (const auto& one : running_) {
    one->limit.cancel();
    if (!one->process) continue;  // it could not be started
    end(*one);
    children_.forget(one->process);
    one->cgroup.remove();
  }
}

void Helpers::run(const HelperOptions& options, Done done, const std::function<void(const Process&)>& on_start) {
  auto one = std::make_shared<Running>(loop_);
  one->done = std::move(done);
  one->capture = options.capture;
  one->most_output = options.most_output;
  const auto fail_soon = [&](std::string trouble, bool not_allowed = false) {
    running_.push_back(one);
    one->limit.in(Duration::zero(), [this, one, not_allowed, trouble = std::move(trouble)] {
      HelperResult result;
      result.trouble = trouble;
      result.not_allowed = not_allowed;
      finish(one, std::move(result));
    });
  };
  auto input = memory_file(options.input);
  if (!input) return fail_soon(input.error().message());
  one->input = *std::move(input);
  if (options.capture) {
    one->output = Fd(::memfd_create("lull", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    // Without O_APPEND two writers at once overwrite each other. A file that cannot grow has no place to append.
    const int file = one->output.get();
    const bool kept =
        file >= 0 && (options.no_more_output ? ::ftruncate(file, static_cast<off_t>(options.most_output)) == 0 &&
                                                   ::fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) == 0
                                             : ::fcntl(file, F_SETFL, O_APPEND) == 0);
    if (!kept) return fail_soon(std::string("its output cannot be kept: ") + std::strerror(errno));
  } else if (!options.output_file.empty()) {
    auto file = open_file(options.output_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (!file) return fail_soon(file.error().message());
    one->output = *std::move(file);
  }
  auto environment = options.environment;
  environment.emplace_back(kHelperMark, std::to_string(::getpid()));
  const std::string number = std::to_string(::getpid()) + "." + std::to_string(++number_);
  environment.emplace_back(kHelperNumber, number);
  one->mark = std::string(kHelperNumber) + "=" + number;
  if (use_cgroup_)
    if (auto made = Cgroup::create()) one->cgroup = *std::move(made);
  if (options.may_start && !options.may_start()) return fail_soon("it may not be run", true);
  auto spawned = spawn({.arguments = options.arguments,
                        .environment = std::move(environment),
                        .cgroup = one->cgroup ? one->cgroup.fd() : -1,
                        .standard_input = one->input.get(),
                        .standard_output = one->output ? one->output.get() : STDERR_FILENO,
                        .standard_error = options.quiet && one->output ? one->output.get() : -1,
                        .own_session = true,
                        .signals = options.signals});
  if (!spawned || !spawned->in_cgroup) one->cgroup.remove();
  if (!spawned) return fail_soon("cannot run " + spawned.error().message());
  one->process = std::move(spawned->process);
  if (on_start) on_start(one->process);
  running_.push_back(one);
  children_.expect(one->process, [this, one, ends = options.leaves_nothing](const ExitStatus& status) {
    if (ends && may_have_left()) end(*one);
    HelperResult result;
    result.status = status;
    result.trouble = to_text(status);
    finish(one, std::move(result));
  });
  one->limit.in(options.limit, [this, one, limit = options.limit] {
    children_.forget(one->process);  // its status is dropped
    end(*one);
    HelperResult result;
    result.timed_out = true;
    result.trouble = "not done after " + format_duration(limit);
    finish(one, std::move(result));
  });
}

void Helpers::finish(const std::shared_ptr<Running>& one, HelperResult result) {
  one->limit.cancel();
  std::erase(running_, one);
  one->cgroup.remove();  // what it left behind on purpose lives on in ours
  if (one->capture) result.output = read_beginning(one->output.get(), one->most_output);
  while (!result.output.empty() && result.output.back() == '\0') result.output.pop_back();  // no_more_output
  const Done done = std::move(one->done);
  done(result);
}

}  // namespace lull
