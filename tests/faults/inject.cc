// Runs a command under ptrace and makes one system call of one of its processes fail, come short, or be its last one.
//
//   inject [OPTION…] -- COMMAND…       options: see `Options` below
//   inject job NOTES SECONDS LOAD…     a job: runs LOAD as a child for so long and notes every signal that either gets
//
// A call is named by "ROLE CALL OBJECT": the name of the process ("lull-sensor"; "lull/child" before it has one of its
// own), the system call, and the file it is about, without the numbers that differ from run to run. Only images of lull
// (and Python between its marks) are traced; whatever else is executed is let go. Calls of the dynamic loader before
// the program begins do not count. All that the command starts becomes our child at the latest when its parent ends
// (PR_SET_CHILD_SUBREAPER): who is still there after the settling time was left behind, and is killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/reg.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

enum class Fault { none, error, shorten, kill, stop };

struct Options {
  std::string report;                                        // --report FILE: what happened, a line each
  std::string image;                                         // --image PATH: the executable whose processes are traced
  std::vector<std::pair<std::string, std::string>> aliases;  // --alias PATH=NAME: a folder that differs from run to run
  std::string target;         // --target "ROLE CALL OBJECT"; without it calls are counted
  long nth = 1;               // --nth K: which of these calls
  Fault fault = Fault::none;  // --error ERRNO, --short, --kill, --stop (until somebody sends SIGCONT)
  std::string after;          // --after TEXT: calls count once the command has written this
  int error = 0;
  int limit = 20;  // --limit SECONDS: longer is a hang
  int settle = 3;  // --settle SECONDS: after the end of the command
  bool marks =
      false;  // --marks: the command's own calls count only between access("/faults-on") and …off, or on a thread
};

enum class About { nothing, descriptor, path0, path1 };
struct Call {
  long number;
  const char* name;
  About about;
};
#define D(name) {SYS_##name, #name, About::descriptor}
#define P0(name) {SYS_##name, #name, About::path0}
#define P1(name) {SYS_##name, #name, About::path1}
#define N(name) {SYS_##name, #name, About::nothing}
// clang-format off
constexpr Call kCalls[] = {
    D(read), D(write), D(pread64), D(pwrite64), D(readv), D(writev), D(close), D(fstat), D(lseek), D(ioctl), D(fcntl),
    D(dup), D(dup2), D(dup3), D(ftruncate), D(fallocate), D(fsync), D(fdatasync), D(flock), D(fchmod), D(fchown),
    D(getdents64), D(fstatfs), D(sendmsg), D(recvmsg), D(sendto), D(recvfrom), D(sendfile), D(splice), D(bind),
    D(connect), D(listen), D(accept), D(accept4), D(shutdown), D(getsockopt), D(setsockopt), D(getsockname),
    D(getpeername), D(epoll_wait), D(epoll_pwait), D(epoll_pwait2), D(epoll_ctl), D(timerfd_settime),
    D(timerfd_gettime), D(signalfd4), D(pidfd_send_signal), D(pidfd_getfd), D(fanotify_mark), D(fchdir),
    P1(openat), P1(newfstatat), P1(statx), P1(faccessat), P1(faccessat2), P1(readlinkat), P1(unlinkat), P1(mkdirat),
    P1(renameat), P1(renameat2), P1(mknodat), P1(fchmodat), P1(fchownat), P1(linkat), P1(symlinkat), P1(utimensat),
    P1(inotify_add_watch), P1(execveat),
    P0(open), P0(stat), P0(lstat), P0(access), P0(readlink), P0(unlink), P0(rmdir), P0(mkdir), P0(rename), P0(mknod),
    P0(chmod), P0(chown), P0(link), P0(symlink), P0(statfs), P0(execve), P0(chdir), P0(truncate), P0(memfd_create),
    N(mmap), N(munmap), N(mprotect), N(mremap), N(madvise), N(brk), N(clone), N(clone3), N(fork), N(vfork), N(wait4),
    N(waitid), N(pipe2), N(pipe), N(poll), N(ppoll), N(select), N(pselect6), N(socket), N(socketpair),
    N(epoll_create1), N(eventfd2), N(timerfd_create), N(inotify_init1), N(fanotify_init), N(bpf), N(perf_event_open),
    N(pidfd_open), N(kill), N(tgkill), N(tkill), N(rt_sigprocmask), N(rt_sigaction), N(rt_sigtimedwait),
    N(rt_sigsuspend), N(sigaltstack), N(prctl), N(arch_prctl), N(setsid), N(setpgid), N(getpgid), N(getsid),
    N(setuid), N(setgid), N(setresuid), N(setresgid), N(setreuid), N(setregid), N(setgroups), N(getgroups),
    N(setpriority), N(getpriority), N(prlimit64), N(getrlimit), N(setrlimit), N(getrandom), N(nanosleep),
    N(clock_nanosleep), N(sched_setaffinity), N(sched_getaffinity), N(sched_setscheduler), N(ioprio_set), N(uname),
    N(sysinfo), N(getcwd), N(umask), N(capget), N(capset), N(unshare), N(setns), N(process_vm_readv), N(close_range),
    N(getrusage), N(clock_gettime), N(clock_getres), N(gettimeofday), N(times), N(futex), N(rseq), N(set_robust_list),
    N(set_tid_address), N(getpid), N(gettid), N(getppid), N(getuid), N(geteuid), N(getgid), N(getegid), N(getresuid),
    N(getresgid), N(sched_yield), N(exit), N(exit_group), N(restart_syscall), N(rt_sigreturn), N(membarrier),
    N(getpgrp), N(setitimer), N(alarm), N(pause),
};
// clang-format on
#undef D
#undef P0
#undef P1
#undef N

Call call_of(long number) {
  static const std::map<long, Call> all = [] {
    std::map<long, Call> map;
    for (const Call& call : kCalls) map.emplace(call.number, call);
    return map;
  }();
  const auto found = all.find(number);
  return found == all.end() ? Call{number, nullptr, About::nothing} : found->second;
}

struct Process {
  std::string role;
  bool begun = false;  // the loader is done
  unsigned long loader_begin = 0, loader_end = 0;
};

struct Thread {
  pid_t process = 0;
  bool in_call = false;
  bool replace = false;  // what the call returns, by `result`
  long result = 0;
  int restore = -1;  // the argument's register that was changed, and what was in it
  unsigned long before = 0;
};

Options options;
std::map<pid_t, Process> processes;
std::map<pid_t, Thread> threads;
std::set<pid_t> early;  // stopped before their parent's event told us of them
std::map<std::string, long> counts;
long matches = 0;
bool marked = false;
pid_t command = 0;
volatile sig_atomic_t late = 0;
std::ofstream report;

std::string file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string of_proc(pid_t pid, const char* what) { return "/proc/" + std::to_string(pid) + "/" + what; }

std::string link(const std::string& path) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
  return size < 0 ? "?" : std::string(text.data(), static_cast<std::size_t>(size));
}

std::string comm(pid_t pid) {
  std::string name = file(of_proc(pid, "comm"));
  if (!name.empty()) name.pop_back();
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// A path without what differs from run to run: our folders, numbers.
std::string stable(std::string path) {
  for (const auto& [folder, name] : options.aliases)
    if (path.starts_with(folder)) {
      path = name + path.substr(folder.size());
      break;
    }
  std::string out;
  for (std::size_t at = 0; at < path.size(); ++at) {
    // A name that is drawn by lot, and not part of a UUID.
    constexpr std::size_t kLot = 8;
    const std::size_t end = std::min(path.find_first_not_of("0123456789abcdef", at), path.size());
    const bool is_part = (at > 0 && path[at - 1] == '-') || (end < path.size() && path[end] == '-');
    if (end - at >= kLot && !is_part) {
      if (out.empty() || out.back() != '#') out += '#';
      at = end - 1;
      continue;
    }
    const char c = path[at];
    const char d = (c >= '0' && c <= '9') ? '#' : (c == ' ' || c == '\n' ? '_' : c);
    if (d != '#' || out.empty() || out.back() != '#') out += d;
  }
  return out.empty() ? "-" : out;
}

std::string text_at(pid_t pid, unsigned long address) {
  std::array<char, 512> text{};
  std::size_t first =
      std::min<std::size_t>(text.size() - 1, 4096 - address % 4096);  // the page behind it may not be there
  const iovec here{text.data(), text.size() - 1};
  const std::array<iovec, 2> there{
      {{reinterpret_cast<void*>(address), first}, {reinterpret_cast<void*>(address + first), text.size() - 1 - first}}};
  if (address == 0 || ::process_vm_readv(pid, &here, 1, there.data(), 2, 0) <= 0) return "?";
  return text.data();
}

std::string object_of(pid_t pid, const Call& call, const unsigned long long* args) {
  switch (call.about) {
    case About::descriptor:
      return stable(link("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(static_cast<int>(args[0]))));
    case About::path0: return stable(text_at(pid, args[0]));
    case About::path1: {
      const std::string path = text_at(pid, args[1]);
      return path.empty()
                 ? stable(link("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(static_cast<int>(args[0]))))
                 : stable(path);
    }
    case About::nothing: break;
  }
  return "-";
}

void find_loader(pid_t pid, Process& process) {
  process.begun = false;
  process.loader_begin = process.loader_end = 0;
  std::istringstream maps(file(of_proc(pid, "maps")));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/ld-linux") == std::string::npos && line.find("/ld-") == std::string::npos) continue;
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    if (process.loader_begin == 0) process.loader_begin = begin;
    process.loader_end = end;
  }
}

void go_on(pid_t tid, int signal = 0) { ::ptrace(PTRACE_SYSCALL, tid, nullptr, signal); }

void set_register(pid_t tid, int which, unsigned long value) {
  ::ptrace(PTRACE_POKEUSER, tid, which * sizeof(long), value);
}

// The register that holds how much to read or write, if the call has one of which less is allowed.
int size_register(long call) {
  switch (call) {
    case SYS_read:
    case SYS_write:
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_sendto:
    case SYS_recvfrom: return RDX;
    case SYS_readv:
    case SYS_writev: return RDX;  // fewer parts
    case SYS_getrandom: return RSI;
    default: return -1;
  }
}

void on_entry(pid_t tid, Thread& thread, const __ptrace_syscall_info& info) {
  Process& process = processes[thread.process];
  const Call call = call_of(static_cast<long>(info.entry.nr));
  const auto* args = reinterpret_cast<const unsigned long long*>(info.entry.args);
  if (!process.begun) {
    if (info.instruction_pointer >= process.loader_begin && info.instruction_pointer < process.loader_end) return;
    process.begun = true;
  }
  if (call.number == SYS_prctl && args[0] == PR_SET_NAME && tid == thread.process) {
    if (const std::string name = text_at(tid, args[1]); name.starts_with("lull")) process.role = stable(name);
  }
  if (options.marks && thread.process == command && tid == command) {
    if (call.number == SYS_access || call.number == SYS_faccessat || call.number == SYS_faccessat2) {
      const std::string path = text_at(tid, call.number == SYS_access ? args[0] : args[1]);
      if (path == "/faults-on") marked = true;
      if (path == "/faults-off") marked = false;
      if (path.starts_with("/faults-")) return;
    }
    if (!marked) return;
  }
  if (!options.after.empty()) {
    if (call.number == SYS_write && tid == command && text_at(tid, args[1]).find(options.after) != std::string::npos)
      options.after.clear();
    return;
  }
  const std::string name = call.name != nullptr ? call.name : "call" + std::to_string(call.number);
  const std::string role =
      options.marks && thread.process == command && tid != command ? process.role + "/thread" : process.role;
  if (options.target.empty()) {
    ++counts[role + " " + name + " " + object_of(tid, call, args)];
    return;
  }
  if (!options.target.starts_with(role + " " + name + " ")) return;
  if (options.target != role + " " + name + " " + object_of(tid, call, args) || ++matches != options.nth) return;
  report << "hit " << tid << ' ' << options.target << ' ' << options.nth << std::endl;
  switch (options.fault) {
    case Fault::none: break;
    case Fault::kill: ::kill(thread.process, SIGKILL); break;
    case Fault::stop: ::kill(thread.process, SIGSTOP); break;
    case Fault::error:
      if (call.number == SYS_brk) {  // says where the end is, and never an error
        thread.restore = RDI;
        thread.before = args[0];
        set_register(tid, RDI, 0);
        break;
      }
      thread.replace = true;
      thread.result = -options.error;
      if (call.number != SYS_close)
        set_register(tid, ORIG_RAX, static_cast<unsigned long>(-1));  // a close that fails closes
      break;
    case Fault::shorten:
      if (const int which = size_register(call.number); which >= 0) {
        thread.restore = which;
        thread.before = which == RDX ? args[2] : args[1];
        if (thread.before > 1) set_register(tid, which, thread.before / 2);
      }
      break;
  }
}

void on_exit(pid_t tid, Thread& thread) {
  if (thread.replace) set_register(tid, RAX, static_cast<unsigned long>(thread.result));
  if (thread.restore >= 0) set_register(tid, thread.restore, thread.before);
  thread.replace = false;
  thread.restore = -1;
}

void on_new(pid_t parent, pid_t child) {
  const std::string status = file(of_proc(child, "status"));
  const auto at = status.find("Tgid:");
  const pid_t process = at == std::string::npos ? child : std::atoi(status.c_str() + at + 5);
  threads[child].process = process;
  if (!processes.contains(process)) {
    Process made = processes[threads[parent].process];
    if (std::count(made.role.begin(), made.role.end(), '/') < 2) made.role += "/child";
    made.begun = true;
    processes[process] = made;
  }
  if (early.erase(child) != 0) go_on(child);
}

// False: what it has become is not ours to look at.
bool on_exec(pid_t tid) {
  const bool first = tid == command && !processes[tid].begun && processes[tid].role.empty();
  if (!first && link(of_proc(tid, "exe")) != options.image) {
    report << "user " << tid << ' ' << comm(tid) << std::endl;
    threads.erase(tid);
    processes.erase(tid);
    ::ptrace(PTRACE_DETACH, tid, nullptr, 0);
    return false;
  }
  Process& process = processes[tid];
  process.role = stable(comm(tid));
  find_loader(tid, process);
  return true;
}

bool is_crash(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGILL || signal == SIGFPE ||
         signal == SIGSYS || signal == SIGTRAP;
}

void on_stop(pid_t tid, int status) {
  const int signal = WSTOPSIG(status);
  const int event = status >> 16;
  if (!threads.contains(tid)) {
    early.insert(tid);
    return;
  }
  Thread& thread = threads[tid];
  if (signal == (SIGTRAP | 0x80)) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info) > 0) {
      if (info.op == PTRACE_SYSCALL_INFO_ENTRY) on_entry(tid, thread, info);
      if (info.op == PTRACE_SYSCALL_INFO_EXIT) on_exit(tid, thread);
    }
    go_on(tid);
  } else if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
    unsigned long child = 0;
    ::ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &child);
    on_new(tid, static_cast<pid_t>(child));
    go_on(tid);
  } else if (event == PTRACE_EVENT_EXEC) {
    if (on_exec(tid)) go_on(tid);
  } else if (event == PTRACE_EVENT_STOP) {
    if (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU)
      ::ptrace(PTRACE_LISTEN, tid, nullptr, nullptr);
    else
      go_on(tid);
  } else {
    if (is_crash(signal))
      report << "crash " << tid << ' ' << processes[thread.process].role << ' ' << signal << std::endl;
    go_on(tid, signal);
  }
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> found;
  std::istringstream text(file(of_proc(pid, ("task/" + std::to_string(pid) + "/children").c_str())));
  for (pid_t child = 0; text >> child;) {
    found.push_back(child);
    for (const pid_t below : children_of(child)) found.push_back(below);
  }
  return found;
}

bool is_zombie(pid_t pid) {
  const std::string stat = file(of_proc(pid, "stat"));
  const auto at = stat.rfind(')');
  return at == std::string::npos || at + 2 >= stat.size() || stat[at + 2] == 'Z' || stat[at + 2] == 'X';
}

void arm(int seconds) {
  late = 0;
  const itimerval timer{{0, 50000}, {seconds, 0}};  // again and again: one that comes just before waitpid would be lost
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

// Until nobody is left or the time is over. True: nobody is left.
bool serve(bool until_command_ends, int& command_status) {
  for (;;) {
    int status = 0;
    const pid_t tid = ::waitpid(-1, &status, __WALL);
    if (tid < 0 && errno == ECHILD) return true;
    if (late != 0) return false;
    if (tid < 0) continue;
    if (WIFSTOPPED(status)) {
      on_stop(tid, status);
      continue;
    }
    threads.erase(tid);
    processes.erase(tid);
    early.erase(tid);
    if (tid != command) continue;
    command_status = status;
    report << "end " << (WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)) << std::endl;
    if (until_command_ends) return true;
  }
}

int trace(char** argv) {
  report.open(options.report);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction action{};
  action.sa_handler = [](int) { late = 1; };
  ::sigaction(SIGALRM, &action, nullptr);
  std::array<int, 2> gate{};
  if (::pipe2(gate.data(), O_CLOEXEC) != 0) return 125;
  command = ::fork();
  if (command == 0) {
    char go = 0;
    ::close(gate[1]);
    if (::read(gate[0], &go, 1) != 1) ::_exit(125);
    ::execvp(argv[0], argv);
    ::_exit(125);
  }
  const long wanted = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                      PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (::ptrace(PTRACE_SEIZE, command, nullptr, wanted) != 0) {
    std::perror("inject: ptrace");
    ::kill(command, SIGKILL);
    return 125;
  }
  threads[command].process = command;
  processes[command] = {};
  report << "main " << command << std::endl;
  ::close(gate[0]);
  if (::write(gate[1], "x", 1) != 1) return 125;
  int status = 0;
  arm(options.limit);
  const bool ended = serve(true, status);
  if (!ended) {
    for (const pid_t pid : children_of(::getpid()))
      report << "hang " << pid << ' ' << comm(pid) << ' ' << file(of_proc(pid, "wchan")) << std::endl;
  } else {
    arm(options.settle);
    if (!serve(false, status))
      for (const pid_t pid : children_of(::getpid()))
        if (!is_zombie(pid))
          report << "left " << pid << ' ' << comm(pid) << ' ' << (threads.contains(pid) ? "ours" : "user") << std::endl;
  }
  for (int round = 0; round < 50; ++round) {
    const auto rest = children_of(::getpid());
    if (rest.empty()) break;
    for (const pid_t pid : rest) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, __WALL | WNOHANG) > 0) {
    }
    ::usleep(10000);
  }
  for (const auto& [key, count] : counts) report << "call " << count << ' ' << key << '\n';
  return 0;
}

int job(int argc, char** argv) {
  std::ofstream notes(argv[2], std::ios::app);
  const double seconds = std::atof(argv[3]);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  const pid_t load = argc > 4 ? ::fork() : 0;
  if (argc > 4 && load == 0) {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execv(argv[4], argv + 4);
    ::_exit(127);
  }
  const char* gpus = std::getenv("CUDA_VISIBLE_DEVICES");
  notes << "begin " << ::getpid() << ' ' << (gpus != nullptr ? gpus : "-") << std::endl;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const double end = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 + seconds;
  for (;;) {
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const double rest = end - static_cast<double>(now.tv_sec) - static_cast<double>(now.tv_nsec) / 1e9;
    if (rest <= 0) break;
    const timespec wait{static_cast<time_t>(rest),
                        static_cast<long>((rest - static_cast<double>(static_cast<time_t>(rest))) * 1e9)};
    siginfo_t info{};
    const int signal = ::sigtimedwait(&all, &info, &wait);
    if (signal < 0) continue;
    if (signal == SIGCHLD && info.si_pid == load) {
      notes << "load " << info.si_code << ' ' << info.si_status << std::endl;
    } else {
      notes << "signal " << signal << " from " << info.si_pid << std::endl;
      if (signal == SIGTERM) {
        if (load > 0) ::kill(load, SIGKILL);
        return 143;
      }
    }
  }
  if (load > 0) {
    ::kill(load, SIGKILL);
    ::waitpid(load, nullptr, 0);
  }
  notes << "done" << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 3 && std::strcmp(argv[1], "job") == 0) return job(argc, argv);
  int at = 1;
  for (; at < argc && std::strcmp(argv[at], "--") != 0; ++at) {
    const std::string word = argv[at];
    const auto value = [&] { return std::string(at + 1 < argc ? argv[++at] : ""); };
    if (word == "--report")
      options.report = value();
    else if (word == "--image")
      options.image = value();
    else if (word == "--target")
      options.target = value();
    else if (word == "--nth")
      options.nth = std::stol(value());
    else if (word == "--error")
      options.fault = Fault::error, options.error = std::stoi(value());
    else if (word == "--short")
      options.fault = Fault::shorten;
    else if (word == "--kill")
      options.fault = Fault::kill;
    else if (word == "--stop")
      options.fault = Fault::stop;
    else if (word == "--after")
      options.after = value();
    else if (word == "--limit")
      options.limit = std::stoi(value());
    else if (word == "--settle")
      options.settle = std::stoi(value());
    else if (word == "--marks")
      options.marks = true;
    else if (word == "--alias") {
      const std::string pair = value();
      options.aliases.emplace_back(pair.substr(0, pair.find('=')), pair.substr(pair.find('=') + 1));
    } else {
      std::fprintf(stderr, "inject: what is '%s'?\n", word.c_str());
      return 2;
    }
  }
  if (at + 1 >= argc || options.report.empty()) return 2;
  return trace(argv + at + 1);
}
