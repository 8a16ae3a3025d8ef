#include "lease/keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/process.h"

namespace lull {

namespace {

constexpr std::size_t kLongestName = 200;
constexpr Duration kPatience = std::chrono::seconds(10);  // at the door, when tidying
constexpr int kHandOver = 20;                             // ms: by then whoever waited for our locks works with them

// What is slow to close waits until the job is sure to be no short one: the next in line must not wait for it. Not for
// as long as the job runs: a user has few of these.
constexpr int kNotShort = 1000;  // ms

enum class Order : std::uint8_t { stand_by, hold, close_for_us, until_process, until_time };
struct Message {
  Order order = Order::stand_by;
  std::int64_t nanoseconds = 0;
  std::array<char, kLongestName + 1> name{};  // of the file whose lock comes with it
};

Result<> send_message(int socket, Message message, int descriptor = -1) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{&message, sizeof message};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != sizeof message) return fail(errno, "hand the leases to their keeper");
  return {};
}

constexpr int kForEver = -1;

// False: it is not, for so many milliseconds.
bool wait_until_readable(int fd, int patience = kForEver) {
  pollfd readable{fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&readable, 1, patience);
  } while (ready < 0 && errno == EINTR);
  return ready != 0;
}

// The keeper itself.
class Body {
 public:
  Body(Fd socket, const LeaseFolder& folder, pid_t parent)
      : socket_(std::move(socket)), folder_(folder), parent_(parent) {}

  void run() {
    // Not before there is something to keep: at first our parent has better use for the processor.
    wait_until_readable(socket_.get());
    let_go_of_everything();
    while (receive()) {
    }
    if (order_ == Order::until_process && process_) wait_for_process();
    if (order_ == Order::until_time) wait_for_time();
    tidy();
  }

 private:
  void let_go_of_everything() {
    ::setsid();
    (void)!::chdir("/");
    show_as("lull-keeper");
    ::signal(SIGTERM, SIG_DFL);  // which `lull release` sends, and who started us may have ignored
    // No terminal, no pipe of the job's: whoever waits for the end of one must not wait for us.
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const std::array<int, 2> ours = {std::min(socket_.get(), folder_.descriptor()),
                                     std::max(socket_.get(), folder_.descriptor())};
    for (int stdio = 0; stdio < 3; ++stdio)
      if (stdio != ours[0] && stdio != ours[1] && stdio != null) ::dup2(null, stdio);
    int next = 3;
    for (const int keep : ours) {
      if (keep > next) ::close_range(static_cast<unsigned>(next), static_cast<unsigned>(keep - 1), 0);
      next = std::max(next, keep + 1);
    }
    ::close_range(static_cast<unsigned>(next), ~0U, 0);
  }

  // False: the parent has closed its end, by exec, by its death, or because it gave up.
  bool receive() {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    Message message;
    iovec part{&message, sizeof message};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t got = 0;
    do {
      got = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got != sizeof message) return false;
    Fd come;
    if (const cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(rights), sizeof number);
      come = Fd(number);
    }
    if (message.order == Order::hold) {
      locks_.push_back({std::move(come), message.name.data()});
    } else if (message.order == Order::close_for_us) {
      slow_to_close_ = std::move(come);
    } else if (message.order != Order::stand_by) {
      order_ = message.order;
      process_ = std::move(come);
      nanoseconds_ = message.nanoseconds;
    }
    return true;
  }

  void wait_for_process() {
    if (slow_to_close_ && wait_until_readable(process_.get(), kNotShort)) return;
    slow_to_close_.reset();
    wait_until_readable(process_.get());
  }

  // Time in which the machine slept counts: a hold is until a time of the day.
  void wait_for_time() {
    slow_to_close_.reset();
    constexpr long kSecond = 1'000'000'000;
    timespec end{};
    ::clock_gettime(CLOCK_BOOTTIME, &end);
    end.tv_sec += nanoseconds_ / kSecond;
    end.tv_nsec += nanoseconds_ % kSecond;
    if (end.tv_nsec >= kSecond) {
      ++end.tv_sec;
      end.tv_nsec -= kSecond;
    }
    while (::clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &end, nullptr) == EINTR) {
    }
  }

  // The locks go first: those who wait for them need not wait for the tidying, nor for the processor that it takes. Not
  // at a low priority: whoever is not let run inside the door holds up everybody.
  void tidy() {
    std::vector<std::string> names;
    for (const LockedFile& lock : locks_) names.push_back(lock.file);
    locks_.clear();
    ::poll(nullptr, 0, kHandOver);
    for (const std::string& file : folder_.dead(parent_)) names.push_back(file);
    if (names.empty()) return;
    if (const auto door = folder_.enter(kPatience)) folder_.remove_dead(*door, names);
  }

  Fd socket_;
  const LeaseFolder& folder_;
  pid_t parent_;
  std::vector<LockedFile> locks_;
  Fd process_;
  Fd slow_to_close_;
  Order order_ = Order::stand_by;
  std::int64_t nanoseconds_ = 0;
};

}  // namespace

// It is no child of ours but of one that ends at once: the command that we become would have a child that it knows
// nothing of, find it by `wait`, and get a signal when that ends.
Result<Keeper> Keeper::start(const LeaseFolder& folder) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return fail(errno, "make a socket for the keeper");
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const pid_t us = ::getpid();
  const pid_t between = ::fork();
  if (between < 0) return fail(errno, "start the keeper");
  if (between == 0) {
    const pid_t keeper = ::fork();
    if (keeper == 0) {
      ours.reset();
      Body(std::move(theirs), folder, us).run();
    } else {
      const pid_t answer = keeper < 0 ? -errno : keeper;
      (void)!::write(theirs.get(), &answer, sizeof answer);
    }
    ::_exit(0);
  }
  while (::waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
  }
  theirs.reset();
  pid_t pid = -EIO;  // nothing came: it was ended before it could say
  if (::read(ours.get(), &pid, sizeof pid) != sizeof pid || pid < 0) return fail(-pid, "start the keeper");
  return Keeper(std::move(ours), pid);
}

Result<> Keeper::stand_by() { return send_message(socket_.get(), {}); }

void Keeper::close_for_us(Fd descriptor) {
  if (!descriptor) return;
  Message message;
  message.order = Order::close_for_us;
  (void)send_message(socket_.get(), message, descriptor.get());  // if not, we close it ourselves
}

Result<> Keeper::hand_over(std::span<const LockedFile> locks) {
  for (const LockedFile& lock : locks) {
    Message message;
    message.order = Order::hold;
    if (lock.file.size() > kLongestName) return fail("the name of a lease file is too long for its keeper");
    std::copy(lock.file.begin(), lock.file.end(), message.name.begin());
    TRY(send_message(socket_.get(), message, lock.fd.get()));
  }
  return {};
}

Result<> Keeper::keep_while(int pidfd, std::span<const LockedFile> locks) {
  TRY(hand_over(locks));
  Message message;
  message.order = Order::until_process;
  return send_message(socket_.get(), message, pidfd);
}

Result<> Keeper::keep_for(Duration duration, std::span<const LockedFile> locks) {
  TRY(hand_over(locks));
  Message message;
  message.order = Order::until_time;
  message.nanoseconds = duration.count();
  return send_message(socket_.get(), message);
}

}  // namespace lull
