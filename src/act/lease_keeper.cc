#include "act/lease_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "act/lease_keeper_body.h"

namespace lull {

namespace {

Result<> send_message(int socket, const keeper::Message& message, std::span<const int> descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(keeper::kDescriptorsAtOnce * sizeof(int))> control{};
  keeper::Message copy = message;
  iovec part{&copy, sizeof copy};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != sizeof copy) return fail(errno, "hand the leases to their keeper");
  return {};
}

// Starts the keeper and ends at once, so that it is nobody's child but init's (or whoever
// takes in orphans). We wait for this one here, on our own stack (CLONE_VFORK).
int orphan(void* argument) {
  auto* start = static_cast<keeper::Start*>(argument);
  start->pid = ::clone(keeper::run, static_cast<char*>(start->room) + keeper::kRoomSize, keeper::kCloneFlags, start);
  start->why = errno;
  return 0;
}

}  // namespace

// The keeper shares our memory until we become the command or end, so that it costs no copy
// of it; for the rules that this puts on it see lease_keeper_body.h. It is no child of ours:
// the command that we become would have one that it knows nothing of, and get a signal when
// that ends (the kernel sends SIGCHLD, whatever was asked for, once the parent has exec'ed).
Result<Keeper> Keeper::start(const LeaseFolder& folder) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(errno, "make a socket for the keeper");
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  // Shared, so that the number of the keeper comes back from a fork as well.
  void* const room = ::mmap(nullptr, keeper::kRoomSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return fail(errno, "memory for the keeper");
  auto* start = static_cast<keeper::Start*>(room);
  start->socket = theirs.get();
  start->parents_end = ours.get();
  start->folder = folder.descriptor();
  start->user = ::geteuid();
  start->room = room;
  alignas(16) std::array<char, 16384> stack;
  const pid_t between = ::clone(orphan, stack.data() + stack.size(), keeper::kCloneFlags | CLONE_VFORK, start);
  int why = errno;
  if (between > 0) {
    while (::waitpid(between, nullptr, __WALL) < 0 && errno == EINTR) {
    }
    why = start->why;
  }
  const pid_t pid = between < 0 ? between : start->pid;
  if (keeper::kCloneFlags == 0 || pid < 0) ::munmap(room, keeper::kRoomSize);  // else it is the keeper's
  if (pid < 0) return fail(why, "start the keeper");
  return Keeper(std::move(ours), pid);
}

Result<> Keeper::stand_by() { return send_message(socket_.get(), {keeper::Order::hold, false, 0}, {}); }

Result<> Keeper::hand_over(std::span<const int> locks) {
  while (!locks.empty()) {
    const auto now = locks.first(std::min(locks.size(), keeper::kDescriptorsAtOnce));
    TRY(send_message(socket_.get(), {keeper::Order::hold, false, 0}, now));
    locks = locks.subspan(now.size());
  }
  return {};
}

Result<> Keeper::keep_while(int pidfd, std::span<const int> locks) {
  TRY(hand_over(locks));
  return send_message(socket_.get(), {keeper::Order::until_process, false, 0}, {&pidfd, 1});
}

Result<> Keeper::keep_for(Duration duration, std::span<const int> locks) {
  TRY(hand_over(locks));
  return send_message(socket_.get(), {keeper::Order::until_time, false, duration.count()}, {});
}

Result<> Keeper::part() {
  TRY(send_message(socket_.get(), {keeper::Order::parted, true, 0}, {}));
  socket_.release();  // closed by exec, or with the process: then the keeper knows that it is alone
  return {};
}

}  // namespace lull
