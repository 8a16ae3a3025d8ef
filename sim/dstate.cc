#include "sim/dstate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "sim/evaluate.h"
#include "sim/fuse.h"
#include "sim/mapping.h"

namespace lull::sim {
namespace {

constexpr std::uint64_t kDriverNode = 2;
constexpr std::uint64_t kSignalNode = 3;  // "signal": how the server learns to sleep deeply, see below
constexpr std::uint64_t kGpuNode = 16;    // of GPU 0
constexpr int kLookEvery = 20;            // milliseconds, while a process sleeps

std::string mount_point(const std::string& folder) { return folder + "/dstate"; }

// ---- the file system ---------------------------------------------------------------------------

class Server {
 public:
  Server(int fuse, int owner, int ready, const std::string& folder)
      : fuse_(fuse), owner_(owner), ready_(ready), folder_(folder) {
    mapping_.open(folder.c_str());
  }

  void serve() {
    while (!over()) {
      std::array waits = {pollfd{fuse_, POLLIN, 0}, pollfd{owner_, POLLIN, 0}};
      ::poll(waits.data(), waits.size(), sleepers_.empty() ? -1 : kLookEvery);
      if (waits[1].revents != 0) return end_simulation();
      if (waits[0].revents != 0 && !take()) return;
      release();
    }
  }

 private:
  struct Sleeper {
    std::uint64_t unique;
    std::uint64_t node;
  };

  // Who ran it is gone, and so is the driver: those who are let go must not wait in another way.
  void end_simulation() {
    if (!mapping_ || !mapping_.writable()) return;
    State& state = mapping_.writable_state();
    state.closed.store(1, std::memory_order_release);
    ::syscall(SYS_futex, &state.version, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  bool over() const { return mapping_ && mapping_.state().closed.load(std::memory_order_acquire) != 0; }

  bool still_sleeps(std::uint64_t node) const {
    if (!mapping_ || over()) return false;
    const std::int32_t gpu = node < kGpuNode ? kWholeDriver : static_cast<std::int32_t>(node - kGpuNode);
    return mapping_.read([&](const Live& live) { return stuck(live, gpu, mapping_.now_ns()); });
  }

  void release() {
    std::erase_if(sleepers_, [&](const Sleeper& sleeper) {
      if (still_sleeps(sleeper.node)) return false;
      answer(sleeper.unique, 0);
      return true;
    });
  }

  void answer(std::uint64_t unique, int error) const { answer_fuse(fuse_, unique, error); }
  template <class T>
  void answer_with(std::uint64_t unique, const T& data) const {
    answer_fuse_with(fuse_, unique, data);
  }

  // The size of a file is the number of those who sleep on it.
  fuse_attr attributes(std::uint64_t node) const {
    fuse_attr attributes{};
    attributes.ino = node;
    attributes.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0444;
    attributes.nlink = 1;
    attributes.size = static_cast<std::uint64_t>(
        std::ranges::count_if(sleepers_, [&](const Sleeper& sleeper) { return sleeper.node == node; }));
    return attributes;
  }

  static std::uint64_t node_of(std::string_view name) {
    if (name == "driver") return kDriverNode;
    if (name == "signal") return kSignalNode;
    unsigned gpu = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), gpu);
    return error == std::errc{} && end == name.data() + name.size() && gpu < kMaxGpus ? kGpuNode + gpu : 0;
  }

  // One request; false: the mount is gone.
  bool take() {
    alignas(8) static std::array<char, 256U << 10> buffer;  // the kernel asks for room for the largest there is
    const ssize_t got = ::read(fuse_, buffer.data(), buffer.size());
    if (got < 0) return errno == EINTR || errno == EAGAIN || errno == ENOENT;
    if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) return false;
    fuse_in_header header{};
    std::memcpy(&header, buffer.data(), sizeof header);
    const char* const body = buffer.data() + sizeof header;
    switch (header.opcode) {
      case FUSE_INIT: return begin(header.unique, body);
      case FUSE_LOOKUP: look_up(header.unique, body); return true;
      case FUSE_GETATTR: {
        fuse_attr_out out{};
        out.attr = attributes(header.nodeid);
        answer_with(header.unique, out);
        return true;
      }
      case FUSE_OPEN:
      case FUSE_OPENDIR: {
        fuse_open_out out{};
        out.open_flags = header.opcode == FUSE_OPEN ? FOPEN_DIRECT_IO : 0;  // every read comes to us
        answer_with(header.unique, out);
        return true;
      }
      case FUSE_READ: read(header); return true;
      case FUSE_INTERRUPT: interrupt(header.unique, body); return true;
      case FUSE_READDIR:
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR: answer(header.unique, 0); return true;
      case FUSE_STATFS: answer_with(header.unique, fuse_statfs_out{}); return true;
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET: return true;  // have no answer
      case FUSE_DESTROY: return false;
      default: answer(header.unique, ENOSYS); return true;
    }
  }

  bool begin(std::uint64_t unique, const char* body) {
    answer_fuse_init(fuse_, unique, body);
    start_signalled();
    return true;
  }

  void look_up(std::uint64_t unique, const char* name) const {
    fuse_entry_out out{};
    out.nodeid = node_of(name);
    if (out.nodeid == 0) return answer(unique, ENOENT);
    out.attr = attributes(out.nodeid);
    answer_with(unique, out);
  }

  void read(const fuse_in_header& header) {
    if (header.nodeid == kSignalNode) {
      signalled_read_ = header.unique;
      ::kill(signalled_, SIGUSR1);
      return;
    }
    sleepers_.push_back({header.unique, header.nodeid});  // release() lets it go if it need not sleep
  }

  // A reader waits so that a signal reaches it, until the kernel knows that the server does not take part in
  // interrupting: it learns that from the answer to the first interrupt. So a child of ours reads, and is
  // signalled; from then on readers are in D state at once.
  void start_signalled() {
    signalled_ = ::fork();
    if (signalled_ != 0) return;
    ::close(fuse_);
    struct sigaction handler{};
    handler.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &handler, nullptr);
    const int fd = ::open((mount_point(folder_) + "/signal").c_str(), O_RDONLY | O_CLOEXEC);
    char byte = 0;
    if (fd >= 0) (void)!::read(fd, &byte, 1);
    ::_exit(0);
  }

  void interrupt(std::uint64_t unique, const char* body) {
    answer(unique, ENOSYS);
    fuse_interrupt_in in{};
    std::memcpy(&in, body, sizeof in);
    if (signalled_read_ == 0 || in.unique != signalled_read_) return;
    answer(std::exchange(signalled_read_, 0), 0);
    (void)!::write(ready_, "r", 1);
    ::close(std::exchange(ready_, -1));
  }

  int fuse_;
  int owner_;
  int ready_;
  std::string folder_;
  Mapping mapping_;
  std::vector<Sleeper> sleepers_;
  pid_t signalled_ = -1;
  std::uint64_t signalled_read_ = 0;
};

// ---- starting it -------------------------------------------------------------------------------

Result<pid_t> start_server(const std::string& folder, pid_t owner, bool orphan) {
  return start_fuse({.name = "lull-sim-dstate",
                     .purpose = "a hang in D state",
                     .points = {mount_point(folder)},
                     .serve = [&](std::span<const int> fuse, int ended,
                                  int ready) { Server(fuse[0], ended, ready, folder).serve(); }},
                    owner, orphan);
}

bool served(const std::string& folder) { return ::access((mount_point(folder) + "/driver").c_str(), F_OK) == 0; }

}  // namespace

Result<FuseServer> start_dstate_server(const std::string& folder) {
  return FuseServer(TRY(start_server(folder, ::getpid(), false)), [folder] { unmount_dstate(folder); });
}

Result<> serve_dstate(const std::string& folder, pid_t owner) {
  const Fd lock = TRY(open_file(folder + "/dstate.lock", O_RDWR | O_CREAT, 0600));
  if (::flock(lock.get(), LOCK_EX) != 0) return fail(errno, "waiting for another start of the same");
  if (served(folder)) return {};
  unmount_dstate(folder);
  TRY(start_server(folder, owner, true));
  return {};
}

unsigned sleepers(const std::string& folder, std::int32_t gpu) {
  struct stat status{};
  const std::string name = gpu < 0 ? "driver" : fmt::format("{}", gpu);
  return ::stat(fmt::format("{}/{}", mount_point(folder), name).c_str(), &status) == 0
             ? static_cast<unsigned>(status.st_size)
             : 0;
}

void unmount_dstate(const std::string& folder) {
  unmount_fuse(mount_point(folder));
  ::rmdir(mount_point(folder).c_str());
}

}  // namespace lull::sim
