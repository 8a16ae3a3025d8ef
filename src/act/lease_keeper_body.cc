// A loop that the compiler knows as memset or strlen must stay a loop: libc may be gone.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns", "no-stack-protector")
#endif

#include "act/lease_keeper_body.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <ctime>

#include <cerrno>
#include <csignal>

// Where this program lies in memory, from the linker.
extern "C" char __executable_start;  // NOLINT
extern "C" char _end;                // NOLINT

namespace lull::keeper {

namespace {

#if LULL_KEEPER_SHARES_MEMORY
inline long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
  long result = number;
  register long fourth asm("r10") = d;  // NOLINT
  register long fifth asm("r8") = e;    // NOLINT
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth) : "rcx", "r11", "memory");
  return result;
}
#else
inline long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0) {
  const long result = ::syscall(number, a, b, c, d, e);
  return result < 0 ? -errno : result;
}
#endif

template <class T>
long at(T* pointer) {
  return reinterpret_cast<long>(pointer);
}

constexpr unsigned kMostLocks = 4096;

struct Kept {
  int locks[kMostLocks];
  unsigned count;
  int process;
  Order order;
  bool alone;
  long nanoseconds;
};

[[noreturn]] void leave() {
  while (true) call(SYS_exit_group, 0);
}

void let_go_of_everything(const Start& start) {
  call(SYS_setsid);
  call(SYS_chdir, at("/"));
  call(SYS_prctl, PR_SET_NAME, at("lull-keeper"));
  // SIGTERM, which `lull release` sends, may have been ignored by who started us.
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    unsigned long mask;
  } action;
  action.handler = SIG_DFL;
  action.flags = 0;
  action.restorer = nullptr;
  action.mask = 0;
  call(SYS_rt_sigaction, SIGTERM, at(&action), 0, sizeof action.mask);
  // No terminal, no pipe of the job's: whoever waits for the end of one must not wait for us.
  const long null = call(SYS_openat, AT_FDCWD, at("/dev/null"), O_RDWR | O_CLOEXEC);
  for (int stdio = 0; stdio < 3; ++stdio)
    if (stdio != start.socket && stdio != start.folder && stdio != null) call(SYS_dup3, null, stdio, 0);
  const int low = start.socket < start.folder ? start.socket : start.folder;
  const int high = start.socket < start.folder ? start.folder : start.socket;
  if (low > 3) call(SYS_close_range, 3, low - 1, 0);
  if (high > low + 1) call(SYS_close_range, low < 2 ? 3 : low + 1, high - 1, 0);
  call(SYS_close_range, high < 2 ? 3 : high + 1, ~0U, 0);
}

// False: the parent has closed its end, by exec, by its death, or because it gave up.
bool receive(int socket, Kept& kept) {
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsAtOnce * sizeof(int))];
  Message message;
  message.order = Order::hold;
  iovec part;
  part.iov_base = &message;
  part.iov_len = sizeof message;
  msghdr header;
  header.msg_name = nullptr;
  header.msg_namelen = 0;
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  header.msg_flags = 0;
  long got = 0;
  do {
    got = call(SYS_recvmsg, socket, at(&header), MSG_CMSG_CLOEXEC);
  } while (got == -EINTR);
  if (got != sizeof message) return false;
  const auto* rights = header.msg_controllen >= sizeof(cmsghdr) ? reinterpret_cast<const cmsghdr*>(control) : nullptr;
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
    const auto* numbers = reinterpret_cast<const int*>(control + CMSG_LEN(0));
    const std::size_t come = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < come; ++i) {
      if (message.order == Order::until_process)
        kept.process = numbers[i];
      else if (kept.count < kMostLocks)
        kept.locks[kept.count++] = numbers[i];
    }
  }
  if (message.order == Order::until_process || message.order == Order::until_time) {
    kept.order = message.order;
    kept.nanoseconds = static_cast<long>(message.nanoseconds);
  }
  if (message.alone_at_the_end) kept.alone = true;
  return true;
}

// The parent has left this memory: it is ours, and we need next to none of it.
void shrink(const Start& start) {
#if LULL_KEEPER_SHARES_MEMORY
  constexpr unsigned long kPage = 4096;
  constexpr unsigned long kTop = 0x7ffffffff000;
  const unsigned long image = reinterpret_cast<unsigned long>(&__executable_start) & ~(kPage - 1);
  const unsigned long image_end = (reinterpret_cast<unsigned long>(&_end) + kPage - 1) & ~(kPage - 1);
  const unsigned long room = reinterpret_cast<unsigned long>(start.room);
  if (room < image_end) return;  // not as programs are laid out; then it stays as it is
  call(SYS_munmap, static_cast<long>(kPage), static_cast<long>(image - kPage));
  call(SYS_munmap, static_cast<long>(image_end), static_cast<long>(room - image_end));
  call(SYS_munmap, static_cast<long>(room + kRoomSize), static_cast<long>(kTop - room - kRoomSize));
#else
  (void)start;
#endif
}

// A message, or the end of a process.
void wait_until_readable(int fd) {
  pollfd readable;
  readable.fd = fd;
  readable.events = POLLIN;
  readable.revents = 0;
  while (call(SYS_ppoll, at(&readable), 1, 0, 0, 0) == -EINTR) {
  }
}

void wait_for_time(long nanoseconds) {
  constexpr long kSecond = 1000000000;
  timespec end;
  call(SYS_clock_gettime, CLOCK_BOOTTIME, at(&end));
  end.tv_sec += nanoseconds / kSecond;
  end.tv_nsec += nanoseconds % kSecond;
  if (end.tv_nsec >= kSecond) {
    ++end.tv_sec;
    end.tv_nsec -= kSecond;
  }
  while (call(SYS_clock_nanosleep, CLOCK_BOOTTIME, TIMER_ABSTIME, at(&end), 0) == -EINTR) {
  }
}

// `UUID.UID…` or `ticket.…`: a word of letters, digits and '-', then a dot. Or `.draft-…`, which never got its name.
bool made_by_lull(const char* name) {
  if (name[0] == '.' && name[1] == 'd' && name[2] == 'r' && name[3] == 'a' && name[4] == 'f' && name[5] == 't' &&
      name[6] == '-')
    return true;
  std::size_t length = 0;
  for (; name[length] != '\0' && name[length] != '.'; ++length) {
    const char c = name[length];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
    if (!plain) return false;
  }
  return length > 0 && name[length] == '.';
}

// Removes the file if it is ours and nobody holds it any more.
void remove_if_dead(const Start& start, int folder, const char* name) {
  const long fd = call(SYS_openat, folder, at(name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return;
  struct stat status;
  struct flock range;
  range.l_type = F_RDLCK;
  range.l_whence = SEEK_SET;
  range.l_start = 0;
  range.l_len = 0;
  range.l_pid = 0;
  const bool dead = call(SYS_newfstatat, fd, at(""), at(&status), AT_EMPTY_PATH) == 0 && S_ISREG(status.st_mode) &&
                    (status.st_uid == start.user || start.user == 0) &&
                    call(SYS_fcntl, fd, F_OFD_GETLK, at(&range)) == 0 && range.l_type == F_UNLCK;
  if (dead) call(SYS_unlinkat, folder, at(name), 0);
  call(SYS_close, fd);
}

// Behind the door, which is given up on after a while: the files mean nothing without their locks.
void sweep(const Start& start) {
  struct Entry {
    std::uint64_t inode;
    std::int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[1];  // and on
  };
  const long folder = call(SYS_openat, start.folder, at("."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  timespec nap;
  nap.tv_sec = 0;
  nap.tv_nsec = 1000000;
  for (int attempt = 0; call(SYS_flock, folder, LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (attempt == 10000) return;
    call(SYS_nanosleep, at(&nap), 0);
  }
  alignas(Entry) char buffer[8192];
  while (true) {
    const long got = call(SYS_getdents64, folder, at(buffer), sizeof buffer);
    if (got <= 0) break;
    for (long offset = 0; offset < got;) {
      const auto* entry = reinterpret_cast<const Entry*>(buffer + offset);
      if (made_by_lull(entry->name)) remove_if_dead(start, static_cast<int>(folder), entry->name);
      offset += entry->length;
    }
  }
}

}  // namespace

int run(void* argument) {
  const Start& start = *static_cast<const Start*>(argument);
  auto& kept = *reinterpret_cast<Kept*>(static_cast<char*>(argument) + 256);  // zeroed, as the room is
  kept.process = -1;
  call(SYS_close, start.parents_end);
  // Not before there is something to keep: at first our parent has better use for the processor.
  wait_until_readable(start.socket);
  let_go_of_everything(start);
  while (receive(start.socket, kept)) {
  }
  if (kept.alone) shrink(start);
  if (kept.order == Order::until_process && kept.process >= 0) wait_until_readable(kept.process);
  if (kept.order == Order::until_time) wait_for_time(kept.nanoseconds);
  // The locks first: those who wait for them need not wait for the tidying.
  for (unsigned i = 0; i < kept.count; ++i) call(SYS_close, kept.locks[i]);
  sweep(start);
  leave();
}

}  // namespace lull::keeper
