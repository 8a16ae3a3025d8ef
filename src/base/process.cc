#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/text.h"

namespace lull {
namespace {

// The n-th blank-separated field of `text`, counted from 0.
class Fields {
 public:
  explicit Fields(std::string_view text) : rest_(text) {}
  std::string_view next() {
    const auto begin = rest_.find_first_not_of(' ');
    if (begin == std::string_view::npos) return rest_ = {};
    const auto end = std::min(rest_.find_first_of(" \n", begin), rest_.size());
    const std::string_view field = rest_.substr(begin, end - begin);
    rest_.remove_prefix(end);
    return field;
  }
  void skip(int count) {
    while (count-- > 0) next();
  }
  template <class Number>
  Number number() {
    const std::string_view field = next();
    Number value{};
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    good_ = good_ && error == std::errc{} && end == field.data() + field.size();
    return value;
  }
  bool good() const { return good_; }  // every number was one

 private:
  std::string_view rest_;
  bool good_ = true;
};

constexpr std::size_t kStatBytes = 1024;
constexpr unsigned kKernelThread = 0x00200000;  // PF_KTHREAD

// One read into the stack: a tree is walked by hundreds of these.
Result<ProcessEntry> read_stat_at(int proc, pid_t pid) {
  const std::string path = std::to_string(pid) + "/stat";
  const Fd fd = TRY(open_at(proc, path, O_RDONLY));
  std::array<char, kStatBytes> bytes;
  const ssize_t got = ::read(fd.get(), bytes.data(), bytes.size());
  if (got < 0) return fail(errno, "read /proc/" + path);
  if (auto stat = parse_process_entry({bytes.data(), static_cast<std::size_t>(got)})) return *std::move(stat);
  return fail("cannot make sense of /proc/" + path);
}

// Never destroyed: it may be asked for while the program ends. Locked, since in Python several threads have a sensor.
struct OwnProcesses {
  std::mutex mutex;
  std::map<pid_t, std::uint64_t> all;
};
OwnProcesses& own_processes() {
  static auto* const own = new OwnProcesses;
  return *own;
}

struct SignalRow {
  std::string_view name;
  int number;
};
constexpr std::array kSignals = {
    SignalRow{"HUP", SIGHUP},       SignalRow{"INT", SIGINT},       SignalRow{"QUIT", SIGQUIT},
    SignalRow{"ILL", SIGILL},       SignalRow{"TRAP", SIGTRAP},     SignalRow{"ABRT", SIGABRT},
    SignalRow{"BUS", SIGBUS},       SignalRow{"FPE", SIGFPE},       SignalRow{"KILL", SIGKILL},
    SignalRow{"USR1", SIGUSR1},     SignalRow{"SEGV", SIGSEGV},     SignalRow{"USR2", SIGUSR2},
    SignalRow{"PIPE", SIGPIPE},     SignalRow{"ALRM", SIGALRM},     SignalRow{"TERM", SIGTERM},
    SignalRow{"STKFLT", SIGSTKFLT}, SignalRow{"CHLD", SIGCHLD},     SignalRow{"CONT", SIGCONT},
    SignalRow{"STOP", SIGSTOP},     SignalRow{"TSTP", SIGTSTP},     SignalRow{"TTIN", SIGTTIN},
    SignalRow{"TTOU", SIGTTOU},     SignalRow{"URG", SIGURG},       SignalRow{"XCPU", SIGXCPU},
    SignalRow{"XFSZ", SIGXFSZ},     SignalRow{"VTALRM", SIGVTALRM}, SignalRow{"PROF", SIGPROF},
    SignalRow{"WINCH", SIGWINCH},   SignalRow{"IO", SIGIO},         SignalRow{"PWR", SIGPWR},
    SignalRow{"SYS", SIGSYS},
};

bool has_ended(char state) { return state == 'Z' || state == 'X' || state == 'x'; }

}  // namespace

std::optional<pid_t> to_pid(std::string_view text) {
  const auto number = to_unsigned(text);
  if (!number || *number == 0 || *number > std::numeric_limits<pid_t>::max()) return std::nullopt;
  return static_cast<pid_t>(*number);
}

std::optional<ProcessEntry> parse_process_entry(std::string_view line) {
  const auto open = line.find('(');
  const auto close = line.rfind(')');  // the last one: the name may hold any number of them
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  ProcessEntry stat;
  Fields first(line.substr(0, open));
  stat.pid = first.number<pid_t>();
  stat.name = line.substr(open + 1, close - open - 1);
  Fields fields(line.substr(close + 1));
  const std::string_view state = fields.next();
  if (stat.pid <= 0 || state.size() != 1) return std::nullopt;
  stat.state = state.front();
  stat.parent = fields.number<pid_t>();
  stat.group = fields.number<pid_t>();
  stat.session = fields.number<pid_t>();
  const auto terminal = fields.number<unsigned>();
  stat.terminal = makedev(terminal >> 8 & 0xFFF, (terminal & 0xFF) | (terminal >> 12 & 0xFFF00));
  fields.skip(1);  // tpgid
  stat.kernel_thread = (fields.number<unsigned>() & kKernelThread) != 0;
  fields.skip(4);  // minflt cminflt majflt cmajflt
  stat.cpu_ticks = fields.number<std::uint64_t>();
  stat.cpu_ticks += fields.number<std::uint64_t>();
  stat.children_cpu_ticks = fields.number<std::uint64_t>();
  stat.children_cpu_ticks += fields.number<std::uint64_t>();
  fields.skip(2);  // priority nice
  stat.threads = fields.number<unsigned>();
  fields.skip(1);  // itrealvalue
  stat.start_ticks = fields.number<std::uint64_t>();
  if (!first.good() || !fields.good()) return std::nullopt;
  return stat;
}

Result<ProcessEntry> read_process_entry(pid_t pid, const Root& root) {
  const std::string path = root.proc + "/" + std::to_string(pid) + "/stat";
  const std::string line = TRY(read_file(AT_FDCWD, path, kStatBytes));
  if (auto stat = parse_process_entry(line)) return *std::move(stat);
  return fail("cannot make sense of " + path);
}

bool climb(const ProcessEntry& from, const std::function<bool(const ProcessEntry&)>& visit, const Root& root) {
  constexpr int kHighest = 1024;
  ProcessEntry one = from;
  for (int i = 0; i < kHighest && one.pid > 1; ++i) {
    if (visit(one)) return true;
    auto parent = read_process_entry(one.parent, root);
    if (!parent || parent->start_ticks > one.start_ticks) return false;
    one = *std::move(parent);
  }
  return false;
}

bool climb(pid_t from, const std::function<bool(const ProcessEntry&)>& visit, const Root& root) {
  const auto entry = from > 1 ? read_process_entry(from, root) : fail(ESRCH, "");
  return entry && climb(*entry, visit, root);
}

std::vector<CgroupLine> cgroup_lines(std::string_view text) {
  std::vector<CgroupLine> lines;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    lines.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return lines;
}

Result<std::string> read_cgroups(pid_t pid, const Root& root) {
  return read_file(AT_FDCWD, root.proc + "/" + (pid == 0 ? "self" : std::to_string(pid)) + "/cgroup", 64U << 10);
}

std::optional<std::string_view> status_field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (text.starts_with(name) && text.substr(name.size()).starts_with(':'))
      return trim(text.substr(name.size() + 1, std::max(end, name.size() + 1) - name.size() - 1));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> status_mask(std::string_view text, std::string_view name) {
  const std::string_view digits = status_field(text, name).value_or("");
  std::uint64_t mask = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, mask, 16);
  return error == std::errc() && rest == end ? std::optional(mask) : std::nullopt;
}

// Half of a list would be a smaller tree of a job: what fails once is read again.
std::vector<ProcessEntry> read_all_processes(const Root& root) {
  constexpr int kMostTries = 3;
  std::vector<ProcessEntry> all;
  int error = 1;
  for (int tries = 0; tries < kMostTries && error != 0 && error != ENOENT; ++tries) {
    all.clear();
    Directory proc(root.proc);
    while (const char* name = proc.next())
      if (const auto pid = to_pid(name))
        if (auto stat = read_stat_at(proc.fd(), *pid)) all.push_back(*std::move(stat));
    error = proc.error();
  }
  std::ranges::sort(all, {}, &ProcessEntry::pid);
  return all;
}

std::vector<ProcessEntry> descendants(const std::vector<ProcessEntry>& all, pid_t root_pid,
                                      const std::function<bool(const ProcessEntry&)>& skip) {
  std::unordered_map<pid_t, std::vector<const ProcessEntry*>> children;  // in order of pid
  std::vector<ProcessEntry> tree;
  for (const ProcessEntry& entry : all) {
    if (entry.pid != root_pid) {
      children[entry.parent].push_back(&entry);
    } else if (skip && skip(entry)) {
      return {};
    } else {
      tree.push_back(entry);
    }
  }
  const auto add_children = [&](pid_t parent) {
    // Each entry is used once: a listing taken while pids were reused may hold a loop.
    const auto found = children.extract(parent);
    if (found.empty()) return;
    for (const ProcessEntry* child : found.mapped())
      if (!skip || !skip(*child)) tree.push_back(*child);
  };
  add_children(root_pid);
  for (std::size_t next = 0; next < tree.size();) {  // the tree grows meanwhile
    const pid_t parent = tree[next++].pid;
    if (parent != root_pid) add_children(parent);
  }
  return tree;
}

void note_own_process(pid_t pid) {
  auto& [mutex, all] = own_processes();
  const std::scoped_lock lock(mutex);
  std::erase_if(all, [](const auto& one) {
    const auto entry = read_process_entry(one.first);
    return !entry || entry->start_ticks != one.second;
  });
  if (const auto entry = read_process_entry(pid)) all[pid] = entry->start_ticks;
}

bool is_own_process(pid_t pid, std::uint64_t start_ticks) {
  auto& [mutex, all] = own_processes();
  const std::scoped_lock lock(mutex);
  const auto found = all.find(pid);
  return found != all.end() && found->second == start_ticks;
}

Result<Process> Process::open(pid_t pid) {
  Process process;
  process.pid_ = pid;
  process.fd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.fd_) return fail(errno, "process " + std::to_string(pid));
  // Read after the handle was taken: both are of the same process, or it has ended.
  if (const auto stat = read_process_entry(pid)) process.start_ticks_ = stat->start_ticks;
  return process;
}

Result<Process> Process::open(const ProcessId& seen) {
  Process process = TRY(open(seen.first));
  if (process.start_ticks_ == 0 && !process.ended())
    return fail(EIO, "process " + std::to_string(seen.first));  // unread
  if (process.start_ticks_ != seen.second) return fail(ESRCH, "process " + std::to_string(seen.first));
  return process;
}

Process Process::adopt(pid_t pid, Fd pidfd) {
  Process process;
  process.pid_ = pid;
  process.fd_ = std::move(pidfd);
  if (const auto stat = read_process_entry(pid)) process.start_ticks_ = stat->start_ticks;
  return process;
}

Process Process::self() {
  auto process = open(::getpid());
  return process ? *std::move(process) : Process();
}

bool Process::ended() const {
  pollfd one{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return !fd_ || (::poll(&one, 1, 0) == 1 && (one.revents & POLLIN) != 0);
}

Result<> Process::signal(int number) const {
  if (!fd_) return fail(ESRCH, "no process");
  if (::syscall(SYS_pidfd_send_signal, fd_.get(), number, nullptr, 0) == 0) return {};
  return fail(errno, signal_name(number) + " to process " + std::to_string(pid_));
}

std::vector<std::string_view> signal_names() {
  std::vector<std::string_view> names;
  for (const SignalRow& row : kSignals) names.push_back(row.name);
  return names;
}

Result<int> parse_signal(std::string_view text) {
  std::string name(text);
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  std::string_view word = name;
  if (const auto number = to_unsigned(word); number && *number <= static_cast<unsigned>(SIGRTMAX))
    return static_cast<int>(*number);
  if (word.starts_with("SIG")) word.remove_prefix(3);
  for (const SignalRow& row : kSignals)
    if (row.name == word) return row.number;
  if (word.starts_with("RTMIN") || word.starts_with("RTMAX")) {
    const int base = word[3] == 'I' ? SIGRTMIN : SIGRTMAX;
    const std::string_view offset = word.substr(5);
    if (offset.empty()) return base;
    const auto by = to_unsigned(offset.substr(1));
    if (by && *by < 64) {
      const int number = offset[0] == '-' ? base - static_cast<int>(*by) : base + static_cast<int>(*by);
      if ((offset[0] == '+' || offset[0] == '-') && number >= SIGRTMIN && number <= SIGRTMAX) return number;
    }
  }
  const std::string hint = did_you_mean(word, signal_names());
  return fail("'" + printable(text) + "' is not a signal" +
              (hint.empty() ? ": a name such as TERM or INT, or a number, would be right" : hint));
}

std::string signal_name(int number) {
  for (const SignalRow& row : kSignals)
    if (row.number == number) return "SIG" + std::string(row.name);
  if (number >= SIGRTMIN && number <= SIGRTMAX)
    return number == SIGRTMIN ? "SIGRTMIN" : "SIGRTMIN+" + std::to_string(number - SIGRTMIN);
  return "signal " + std::to_string(number);
}

void show_as(const char* name) {
  ::prctl(PR_SET_NAME, name);
  const auto stat = read_file("/proc/self/stat");
  if (!stat) return;
  const std::vector<std::string_view> fields = split(std::string_view(*stat).substr(stat->rfind(')') + 1), ' ');
  constexpr std::size_t kArgumentsBegin = 46;  // fields 48 and 49 of proc(5), two of which are before the ')'
  if (fields.size() <= kArgumentsBegin + 1) return;
  const auto begin = to_unsigned(fields[kArgumentsBegin]);
  const auto end = to_unsigned(fields[kArgumentsBegin + 1]);
  if (!begin || !end || *begin == 0 || *end <= *begin) return;
  auto* arguments = reinterpret_cast<char*>(static_cast<std::uintptr_t>(*begin));  // NOLINT(performance-no-int-to-ptr)
  const std::size_t size = *end - *begin;
  std::memset(arguments, 0, size);
  std::string_view(name).copy(arguments, size - 1);
}

char run_state(const ProcessEntry& one, const Root& root) {
  if (!has_ended(one.state) || one.ended()) return one.state;
  Directory threads(root.proc + "/" + std::to_string(one.pid) + "/task");
  char state = one.state;
  while (const char* name = threads.next()) {
    const auto text = read_file(threads.fd(), std::string(name) + "/stat", 4096);
    const auto thread = text ? parse_process_entry(*text) : std::nullopt;
    if (!thread || has_ended(thread->state)) continue;
    if (thread->state != 'T' && thread->state != 't') return thread->state;
    if (state != 't') state = thread->state;
  }
  return state;
}

bool is_stopped(const ProcessEntry& one, const Root& root) {
  const char state = run_state(one, root);
  return state == 'T' || state == 't';
}

bool has_ended(const Error& not_read) { return not_read.errno_value == ENOENT || not_read.errno_value == ESRCH; }

namespace {

constexpr int kMostWalks = 5;

std::vector<pid_t> threads_of(pid_t pid, const Root& root) {
  std::vector<pid_t> threads;
  Directory folder(root.proc + "/" + std::to_string(pid) + "/task");
  while (const char* name = folder.next())
    if (const auto thread = to_pid(name)) threads.push_back(*thread);
  return threads;
}

class Walker {
 public:
  Walker(std::size_t most, const std::function<bool(const ProcessEntry&)>& skip, const Root& root)
      : left_(most), skip_(skip), root_(root) {}

  // False: the lists are not to be had, or too many.
  bool walk(std::span<const pid_t> from) {
    std::unordered_set<pid_t> visited;
    std::vector<pid_t> open(from.begin(), from.end());
    while (!open.empty()) {
      const pid_t pid = open.back();
      open.pop_back();
      if (!visited.insert(pid).second) continue;
      const ProcessEntry* entry = meet(pid);
      if (entry != nullptr && !add_children(*entry, open)) return false;
    }
    return true;
  }

  bool take_found_new() { return std::exchange(found_new_, false); }

  std::vector<ProcessEntry> take() {
    std::vector<ProcessEntry> all;
    for (auto& [pid, entry] : met_)
      if (entry) all.push_back(std::move(*entry));
    std::ranges::sort(all, {}, &ProcessEntry::pid);
    return all;
  }

 private:
  // Empty if it has ended, or is not wanted.
  const ProcessEntry* meet(pid_t pid) {
    const auto [place, fresh] = met_.try_emplace(pid);
    if (fresh) {
      auto entry = read_process_entry(pid, root_);
      if (entry && !(skip_ && skip_(*entry))) {
        found_new_ = true;
        place->second = *std::move(entry);
      }
    }
    return place->second ? &*place->second : nullptr;
  }

  bool add_children(const ProcessEntry& entry, std::vector<pid_t>& open) {
    std::vector<pid_t> threads = {entry.pid};
    if (entry.threads > 1) threads = threads_of(entry.pid, root_);
    for (const pid_t thread : threads) {
      if (left_ == 0) return false;
      --left_;
      const auto children = read_children(entry.pid, thread, root_);
      if (children)
        open.insert(open.end(), children->begin(), children->end());
      else if (is_there(entry.pid, thread))
        return false;  // and has no list
    }
    return true;
  }

  bool is_there(pid_t pid, pid_t thread) const {
    const std::string folder = root_.proc + "/" + std::to_string(pid) + "/task/" + std::to_string(thread);
    struct stat info{};
    return ::stat(folder.c_str(), &info) == 0;
  }

  std::size_t left_;
  const std::function<bool(const ProcessEntry&)>& skip_;
  const Root& root_;
  std::unordered_map<pid_t, std::optional<ProcessEntry>> met_;
  bool found_new_ = false;
};

}  // namespace

Result<std::vector<pid_t>> read_children(pid_t pid, pid_t thread, const Root& root) {
  const std::string path = root.proc + "/" + std::to_string(pid) + "/task/" + std::to_string(thread) + "/children";
  const std::string list = TRY(read_file(path));
  std::vector<pid_t> pids;
  for (const std::string_view word : split(list, ' '))
    if (const auto child = to_pid(trim(word))) pids.push_back(*child);
  return pids;
}

std::size_t count_processes(const Root& root) {
  struct stat info{};
  return ::stat(root.proc.c_str(), &info) == 0 ? info.st_nlink : 0;
}

std::optional<std::vector<ProcessEntry>> read_descendants(std::span<const pid_t> from, std::size_t most,
                                                          const std::function<bool(const ProcessEntry&)>& skip,
                                                          const Root& root) {
  Walker walker(most, skip, root);
  for (int i = 0; i < kMostWalks; ++i) {
    if (!walker.walk(from)) return std::nullopt;
    if (!walker.take_found_new()) return walker.take();
  }
  return std::nullopt;
}

Duration since_boot(std::uint64_t ticks) {
  static const auto hertz = static_cast<std::uint64_t>(std::max(::sysconf(_SC_CLK_TCK), 1L));
  return std::chrono::seconds(ticks / hertz) + std::chrono::nanoseconds(ticks % hertz * 1'000'000'000 / hertz);
}

WallTime started_at(std::uint64_t start_ticks) {
  const SystemClock clock;
  return clock.wall() - clock.now().time_since_epoch() + since_boot(start_ticks);
}

}  // namespace lull
