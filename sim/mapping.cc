#include "sim/mapping.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

namespace lull::sim {
namespace {

constexpr unsigned kDeepest = 32;            // namespaces in namespaces: the kernel allows no more
constexpr unsigned kOwnerDied = 0x40000000;  // FUTEX_OWNER_DIED, set by the kernel

// The beginning of a small file of /proc; false: there is none.
template <std::size_t Size>
bool read_proc(const char* path, char (&text)[Size]) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t got = ::read(fd, text, Size - 1);
  ::close(fd);
  if (got <= 0) return false;
  text[got] = 0;
  return true;
}

// Field 22 of /proc/PID/stat; 0: no such process. The name in it may hold anything, so from its last ')'.
std::uint64_t start_ticks(std::uint32_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  char text[1024];
  if (!read_proc(path, text)) return 0;
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == 0 || at[2] == 'Z' || at[2] == 'X') return 0;
  for (int field = 2; field < 22 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

bool dead(const Cell& cell) {
  if (cell.watched.load(std::memory_order_acquire) == 0) return start_ticks(cell.pid) != cell.pid_start_ticks;
  // The lock word is the first of a glibc mutex; hold() has made sure of it.
  const auto* word = reinterpret_cast<const unsigned*>(&cell.alive);
  return (__atomic_load_n(word, __ATOMIC_ACQUIRE) & kOwnerDied) != 0;
}

// How many namespaces below ours a process is; -1: it is in none of those.
int depth_below(std::uint32_t pid, std::uint64_t ours) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%u/ns/pid", pid);
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  for (int depth = 0; fd >= 0 && depth < static_cast<int>(kDeepest); ++depth) {
    struct stat status{};
    const bool here = ::fstat(fd, &status) == 0 && status.st_ino == ours;
    const int parent = here ? -1 : ::ioctl(fd, NS_GET_PARENT);
    ::close(fd);
    if (here) return depth;
    fd = parent;
  }
  return -1;
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      writable_(std::exchange(other.writable_, false)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    close();
    state_ = std::exchange(other.state_, nullptr);
    size_ = std::exchange(other.size_, 0);
    writable_ = std::exchange(other.writable_, false);
  }
  return *this;
}

int Mapping::open(const char* folder) {
  close();
  char path[4096];
  if (std::snprintf(path, sizeof path, "%s/state", folder) >= static_cast<int>(sizeof path)) return ENAMETOOLONG;
  bool writable = true;
  int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0 && (errno == EACCES || errno == EROFS)) {
    writable = false;
    fd = ::open(path, O_RDONLY | O_CLOEXEC);
  }
  if (fd < 0) return errno;
  struct stat status{};
  const int failed = ::fstat(fd, &status);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (failed != 0 || !S_ISREG(status.st_mode) || size < sizeof(State)) {
    ::close(fd);
    return EPROTO;
  }
  void* at = ::mmap(nullptr, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
  const int why = errno;
  ::close(fd);
  if (at == MAP_FAILED) return why;
  state_ = static_cast<State*>(at);
  size_ = size;
  writable_ = writable;
  const bool sound = state_->magic == kMagic && state_->layout == kLayout && state_->file_size == size &&
                     state_->gpu_count <= kMaxGpus &&
                     size - sizeof(State) >= std::uint64_t{state_->keyframe_count} * sizeof(Keyframe);
  if (!sound) {
    close();
    return EPROTO;
  }
  return 0;
}

void Mapping::close() {
  if (state_ != nullptr) ::munmap(state_, size_);
  state_ = nullptr;
  size_ = 0;
}

std::int64_t Mapping::now_ns() const { return scenario_time(*state_, boot_now_ns(*state_)); }

std::int64_t boot_now_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::int64_t boot_now_ns(const State& state) {
  const std::int64_t manual = state.manual_boot_ns.load(std::memory_order_acquire);
  return manual != 0 ? manual : boot_now_ns();
}

std::int64_t scenario_time(const State& state, std::int64_t boot_ns) {
  const std::int64_t passed = std::max<std::int64_t>(0, boot_ns - state.start_boot_ns);
  if (state.speed == 1) return passed;
  // A fast clock reaches the end of time in hours.
  return static_cast<std::int64_t>(
      std::min(static_cast<double>(passed) * state.speed, static_cast<double>(kForever / 2)));
}

std::int64_t boot_time(const State& state, std::int64_t scenario_ns) {
  if (state.speed == 1) return state.start_boot_ns + scenario_ns;
  // A slow clock makes a long time longer than can be said: that is for ever.
  const double passed = std::min(static_cast<double>(scenario_ns) / state.speed, static_cast<double>(kForever / 2));
  return state.start_boot_ns + static_cast<std::int64_t>(passed);
}

std::int64_t end_of(State& state, bool writable, const Load& load, std::int64_t now_ns) {
  if (load.cell >= kMaxLoads) return load.end_ns;
  Cell& cell = state.cells[load.cell];
  std::int64_t ended = cell.ended_ns.load(std::memory_order_acquire);
  if (ended == 0) {
    if (!dead(cell)) return load.end_ns;
    // Whoever sees it first says when; from then on all agree, and no sum ever goes back.
    if (!writable || cell.ended_ns.compare_exchange_strong(ended, now_ns)) ended = now_ns;
  }
  return std::min(ended, load.end_ns);
}

std::uint64_t process_start_ticks(std::uint32_t pid) { return start_ticks(pid); }

unsigned pids_of(std::uint32_t pid, std::uint32_t* out, unsigned capacity) {
  char path[40] = "/proc/self/status";
  if (pid != 0) std::snprintf(path, sizeof path, "/proc/%u/status", pid);
  char text[4096];
  if (!read_proc(path, text)) return 0;
  const char* at = std::strstr(text, "\nNSpid:");
  if (at == nullptr) return 0;
  unsigned count = 0;
  for (at += 7; count < capacity && *at == '\t'; ++count) {
    char* end = nullptr;
    out[count] = static_cast<std::uint32_t>(std::strtoul(at + 1, &end, 10));
    at = end;
  }
  return count;
}

std::uint64_t pid_namespace_of(std::uint32_t pid) {
  char path[40] = "/proc/self/ns/pid";
  if (pid != 0) std::snprintf(path, sizeof path, "/proc/%u/ns/pid", pid);
  struct stat status{};
  return ::stat(path, &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

// The process of a load that is in another namespace than ours, if it is in one below: by its own number and its
// namespace, which name it for good. The kernel would know; we look through /proc.
std::uint32_t pid_below(const Load& load, std::uint64_t ours) {
  DIR* const processes = ::opendir("/proc");
  if (processes == nullptr) return 0;
  std::uint32_t found = 0;
  while (const dirent* entry = found == 0 ? ::readdir(processes) : nullptr) {
    const auto pid = static_cast<std::uint32_t>(std::strtoul(entry->d_name, nullptr, 10));
    if (pid == 0 || pid_namespace_of(pid) != load.pid_namespace) continue;
    std::uint32_t pids[kDeepest];
    const unsigned count = pids_of(pid, pids, kDeepest);
    if (count == 0 || pids[count - 1] != load.pid) continue;
    const int depth = depth_below(pid, ours);
    if (depth >= 0 && static_cast<unsigned>(depth) < count) found = pids[count - 1 - static_cast<unsigned>(depth)];
    break;
  }
  ::closedir(processes);
  return found;
}

std::uint32_t host_pid_of(const State& state, const Load& load) {
  if (load.host_pid != 0) return load.host_pid;
  if (load.pid_namespace == 0 || load.pid_namespace == state.pid_namespace) return load.pid;
  const std::uint32_t found = pid_below(load, state.pid_namespace);
  return found != 0 ? found : load.pid;
}

}  // namespace lull::sim
