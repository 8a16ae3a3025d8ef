#include "sim/fuse.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/fd.h"

namespace lull::sim {
namespace {

Result<Fd> mount_fuse(const std::string& point, const std::string& purpose) {
  const auto cannot = [&](int why, std::string_view what) {
    return fail(fmt::format("{} needs FUSE: {}: {}", purpose, what, std::strerror(why)));
  };
  Fd fuse(::open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC));  // a request may go before it is read
  if (!fuse) return cannot(errno, "/dev/fuse");
  if (::mkdir(point.c_str(), 0755) != 0 && errno != EEXIST) return cannot(errno, point);
  const std::string options =
      fmt::format("fd={},rootmode=40000,user_id={},group_id={},allow_other", fuse.get(), ::geteuid(), ::getegid());
  if (::mount("lull-sim", point.c_str(), "fuse", MS_NOSUID | MS_NODEV | MS_NOEXEC, options.c_str()) != 0) {
    const int why = errno;
    ::rmdir(point.c_str());  // if we made it
    return cannot(why, "mount");
  }
  return fuse;
}

// In the child: nothing of the parent's is kept but our descriptors, which get the numbers from 3 on.
[[noreturn]] void be_fuse_server(const FuseService& service, std::vector<int> fds) {
  ::setsid();
  ::prctl(PR_SET_NAME, service.name.c_str());
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) ::signal(number, SIG_IGN);
  ::signal(SIGCHLD, SIG_IGN);  // its children are not waited for
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  fds.insert(fds.begin(), {null, null, null});
  for (int& fd : fds) fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 16);  // out of the way first
  for (std::size_t i = 0; i < fds.size(); ++i) ::dup3(fds[i], static_cast<int>(i), O_CLOEXEC);
  ::syscall(SYS_close_range, static_cast<unsigned>(fds.size()), ~0U, 0U);
  (void)!::chdir("/");
  std::vector<int> fuse;
  for (std::size_t i = 0; i < service.points.size(); ++i) fuse.push_back(3 + static_cast<int>(i));
  service.serve(fuse, 3 + static_cast<int>(fuse.size()), 4 + static_cast<int>(fuse.size()));
  for (const std::string& point : service.points) ::umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  ::_exit(0);  // with our descriptors the connections end: who still waits is let go
}

}  // namespace

Result<pid_t> start_fuse(const FuseService& service, pid_t owner_pid, bool orphan) {
  const Fd owner(static_cast<int>(::syscall(SYS_pidfd_open, owner_pid, 0)));
  if (!owner) return fail(errno, fmt::format("watching process {}", owner_pid));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail(errno, "pipe");
  const Fd ready(ends[0]);
  Fd theirs(ends[1]);
  std::vector<Fd> mounts;
  const auto give_up = [&] {
    mounts.clear();
    for (const std::string& point : service.points) unmount_fuse(point);
  };
  for (const std::string& point : service.points) {
    auto mounted = mount_fuse(point, service.purpose);
    if (!mounted) {
      for (std::size_t i = 0; i < mounts.size(); ++i) unmount_fuse(service.points[i]);
      return std::unexpected(std::move(mounted).error());
    }
    mounts.push_back(*std::move(mounted));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    if (orphan && ::fork() != 0) ::_exit(0);
    std::vector<int> fds;
    for (const Fd& fd : mounts) fds.push_back(fd.get());
    fds.insert(fds.end(), {owner.get(), theirs.get()});
    be_fuse_server(service, std::move(fds));
  }
  const int why = errno;
  mounts.clear();
  theirs.reset();
  if (child > 0 && orphan) ::waitpid(child, nullptr, 0);
  constexpr int kAtMost = 5000;  // milliseconds; it takes one or two
  pollfd wait{ready.get(), POLLIN, 0};
  char byte = 0;
  if (child > 0 && ::poll(&wait, 1, kAtMost) == 1 && ::read(ready.get(), &byte, 1) == 1) return child;
  if (child > 0 && !orphan) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  give_up();
  return child < 0 ? fail(why, "fork")
                   : fail(fmt::format("{} needs FUSE, and its server does not start", service.purpose));
}

FuseServer::FuseServer(pid_t pid, std::function<void()> unmount)
    : pid_(pid), unmount_(std::move(unmount)), owner_(::getpid()) {}

FuseServer::FuseServer(FuseServer&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), unmount_(std::move(other.unmount_)), owner_(other.owner_) {}

FuseServer::~FuseServer() {
  if (pid_ <= 0 || owner_ != ::getpid()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  unmount_();
}

void unmount_fuse(const std::string& point) {
  struct stat status{};
  if (::lstat(point.c_str(), &status) != 0 && errno == ENOENT) return;
  ::umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
}

void answer_fuse(int fuse, std::uint64_t unique, int error, const void* data, std::size_t size) {
  fuse_out_header header{static_cast<std::uint32_t>(sizeof header + size), -error, unique};
  std::array<iovec, 2> parts = {{{&header, sizeof header}, {const_cast<void*>(data), size}}};
  (void)!::writev(fuse, parts.data(), size > 0 ? 2 : 1);
}

void answer_fuse_init(int fuse, std::uint64_t unique, const char* body) {
  fuse_init_in in{};
  std::memcpy(&in, body, offsetof(fuse_init_in, flags) + sizeof in.flags);
  fuse_init_out out{};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = std::min<std::uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
  out.max_write = 4096;
  out.flags = in.flags & FUSE_CACHE_SYMLINKS;
  answer_fuse_with(fuse, unique, out);
}

}  // namespace lull::sim
