#include "act/lease_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <vector>

namespace lull {

namespace {

constexpr std::size_t kDescriptorsAtOnce = 200;  // the kernel takes 253 in one message

enum class Order : std::uint8_t { hold, until_process, until_time };
struct Message {
  Order order = Order::hold;
  std::int64_t nanoseconds = 0;
};

Result<> send_message(int socket, const Message& message, std::span<const int> descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsAtOnce * sizeof(int))> control{};
  Message copy = message;
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

// Nothing: the other side is gone.
std::optional<Message> receive_message(int socket, std::vector<Fd>& descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsAtOnce * sizeof(int))> control{};
  Message message;
  iovec part{&message, sizeof message};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof message) return {};
  for (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr; rights = CMSG_NXTHDR(&header, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> numbers((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(numbers.data(), CMSG_DATA(rights), numbers.size() * sizeof(int));
    for (const int number : numbers) descriptors.emplace_back(number);
  }
  return message;
}

void wait_for_process(int pidfd) {
  pollfd ended{pidfd, POLLIN, 0};
  while (::poll(&ended, 1, -1) < 0 && errno == EINTR) {
  }
}

void wait_for_time(Duration duration) {
  timespec end{};
  ::clock_gettime(CLOCK_BOOTTIME, &end);
  const auto total = std::chrono::seconds(end.tv_sec) + std::chrono::nanoseconds(end.tv_nsec) + duration;
  end.tv_sec = std::chrono::floor<std::chrono::seconds>(total).count();
  end.tv_nsec = (total - std::chrono::floor<std::chrono::seconds>(total)).count();
  while (::clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &end, nullptr) == EINTR) {
  }
}

void look_like_a_keeper(std::span<char*> arguments) {
  ::prctl(PR_SET_NAME, "lull-keeper");
  constexpr std::string_view kTitle = "lull-keeper";
  if (arguments.empty()) return;
  // The strings lie behind one another; the first may be shorter than the title.
  char* const begin = arguments.front();
  const auto room = static_cast<std::size_t>(arguments.back() + std::strlen(arguments.back()) - begin);
  for (char* argument : arguments) std::memset(argument, 0, std::strlen(argument));
  std::memcpy(begin, kTitle.data(), std::min(kTitle.size(), room));
}

void let_go_of_everything(int socket, int folder) {
  ::setsid();
  if (::chdir("/") != 0) ::_exit(0);
  ::signal(SIGTERM, SIG_DFL);  // what `lull release` sends
  const int null = ::open("/dev/null", O_RDWR);
  for (int stdio = 0; stdio < 3; ++stdio) ::dup2(null, stdio);
  const auto low = static_cast<unsigned>(std::min(socket, folder));
  const auto high = static_cast<unsigned>(std::max(socket, folder));
  if (low > 3) ::close_range(3, low - 1, 0);
  if (high > low + 1) ::close_range(low + 1, high - 1, 0);
  ::close_range(high + 1, ~0U, 0);
}

[[noreturn]] void run_keeper(int socket, LeaseFolder folder, std::span<char*> arguments) {
  // Not before there is something to keep: at first our parent has better use for the processor.
  pollfd first{socket, POLLIN, 0};
  while (::poll(&first, 1, -1) < 0 && errno == EINTR) {
  }
  let_go_of_everything(socket, folder.descriptor());
  look_like_a_keeper(arguments);
  std::vector<Fd> held;
  std::vector<Fd> process;
  Message last;
  while (true) {
    std::vector<Fd> come;
    const auto message = receive_message(socket, come);
    if (!message) break;
    last = *message;
    auto& place = last.order == Order::until_process ? process : held;
    std::move(come.begin(), come.end(), std::back_inserter(place));
  }
  if (last.order == Order::until_process && !process.empty()) wait_for_process(process.front().get());
  if (last.order == Order::until_time) wait_for_time(std::chrono::nanoseconds(last.nanoseconds));
  held.clear();  // the lock first: those who wait need not wait for the tidying
  if (const auto door = folder.enter()) folder.sweep(*door);
  ::_exit(0);
}

}  // namespace

Result<Keeper> Keeper::start(const LeaseFolder& folder, std::span<char*> arguments) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(errno, "make a socket for the keeper");
  Fd ours(ends[0]);
  const Fd low(ends[1]);
  Fd theirs(::fcntl(low.get(), F_DUPFD_CLOEXEC, 10));  // out of the way of stdio
  if (!theirs) return fail(errno, "make a socket for the keeper");
  LeaseFolder own = TRY(folder.reopened());
  // A child whose end is told to nobody: it sends no signal, and wait() passes over
  // it, so the command that we become never learns that it has one.
  const long keeper = ::syscall(SYS_clone, 0UL, nullptr, nullptr, nullptr, 0UL);
  if (keeper < 0) return fail(errno, "start the keeper");
  if (keeper == 0) {
    ours.reset();
    run_keeper(theirs.release(), std::move(own), arguments);
  }
  return Keeper(std::move(ours), static_cast<pid_t>(keeper));
}

Result<> Keeper::stand_by() { return send_message(socket_.get(), {Order::hold, 0}, {}); }

Result<> Keeper::hand_over(std::span<const int> locks) {
  while (!locks.empty()) {
    const auto now = locks.first(std::min(locks.size(), kDescriptorsAtOnce));
    TRY(send_message(socket_.get(), {Order::hold, 0}, now));
    locks = locks.subspan(now.size());
  }
  return {};
}

Result<> Keeper::keep_while(int pidfd, std::span<const int> locks) {
  TRY(hand_over(locks));
  TRY(send_message(socket_.get(), {Order::until_process, 0}, {&pidfd, 1}));
  socket_.reset();
  return {};
}

Result<> Keeper::keep_for(Duration duration, std::span<const int> locks) {
  TRY(hand_over(locks));
  TRY(send_message(socket_.get(), {Order::until_time, duration.count()}, {}));
  socket_.reset();
  return {};
}

}  // namespace lull
