#include "lease/lease_holder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/process_start.h"

namespace lull {

namespace {

constexpr std::size_t kLongestName = 200;
constexpr Duration kPatience = std::chrono::seconds(10);  // at the folder lock, when tidying
constexpr int kHandOver = 20;                             // ms: by then whoever waited for our locks works with them

// What is slow to close waits until the job is sure to be no short one: the next in line must not wait for it. Not for
// as long as the job runs: a user has few of these.
constexpr int kNotShort = 1000;  // ms

enum class Order : std::uint8_t { stand_by, hold, release, close_for_us, until_process, until_time };
struct Message {
  Order order = Order::stand_by;
  std::int64_t nanoseconds = 0;
  std::array<char, kLongestName + 1> name{};  // of the file whose lock comes with it
};

Result<> send_message(int socket, const Message& message, int descriptor = -1) {
  ssize_t sent = 0;
  do {
    sent = send_with_descriptor(socket, &message, sizeof message, descriptor, 0);
  } while (sent < 0 && errno == EINTR);
  if (sent != sizeof message) return fail(errno, "pass the leases to the lease holder");
  return {};
}

constexpr int kForEver = -1;

// A call that failed for want of memory says nothing about the other side: it is made again, a little later.
bool shall_try_again() {
  if (errno == EINTR) return true;
  if (errno != ENOMEM && errno != ENOBUFS && errno != EAGAIN) return false;
  const timespec nap{0, 10'000'000};
  ::nanosleep(&nap, nullptr);
  return true;
}

// False: it is not, for so many milliseconds.
bool wait_until_readable(int fd, int patience = kForEver) {
  pollfd readable{fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&readable, 1, patience);
  } while (ready < 0 && shall_try_again());
  return ready != 0;
}

// The lease holder itself.
class Body {
 public:
  Body(Fd socket, const LeaseFolder& folder, pid_t parent)
      : socket_(std::move(socket)), folder_(folder), parent_(parent) {}

  void run() {
    // Not before there is something to keep: at first our parent has better use for the processor.
    wait_until_readable(socket_.get());
    close_everything();
    while (receive()) {
    }
    if (order_ == Order::until_process && process_) wait_for_process();
    if (order_ == Order::until_time) wait_for_time();
    tidy();
  }

 private:
  void close_everything() {
    ::setsid();
    (void)!::chdir("/");
    show_as("lull-leases");
    ::signal(SIGTERM, SIG_DFL);  // which `lull release` sends, and who started us may have ignored
    // No terminal, no pipe of the job's: whoever waits for the end of one must not wait for us.
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int stdio = 0; stdio < 3; ++stdio)
      if (stdio != socket_.get() && stdio != folder_.descriptor() && stdio != null && ::dup2(null, stdio) < 0)
        ::close(stdio);
    close_all_but({socket_.get(), folder_.descriptor()}, STDERR_FILENO + 1);
  }

  // False: the parent has closed its end, by exec, by its death, or because it gave up.
  bool receive() {
    Message message;
    Fd come;
    ssize_t got = 0;
    do {
      got = receive_with_descriptor(socket_.get(), &message, sizeof message, come, 0);
    } while (got < 0 && shall_try_again());
    if (got != sizeof message) return false;
    if (message.order == Order::hold) {
      locks_.push_back({std::move(come), message.name.data()});
    } else if (message.order == Order::release) {
      locks_.clear();
      order_ = Order::stand_by;
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

  // The locks go first: processes that wait for them need not wait for the cleanup and its CPU time. Not at a low
  // priority: a process that does not get to run while it holds the folder lock delays all others.
  void tidy() {
    std::vector<std::string> names;
    for (const LockedFile& lock : locks_) names.push_back(lock.file);
    locks_.clear();
    ::poll(nullptr, 0, kHandOver);
    for (const std::string& file : folder_.dead(parent_)) names.push_back(file);
    if (names.empty()) return;
    if (const auto folder_lock = folder_.enter(kPatience)) folder_.remove_dead(*folder_lock, names);
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

// Apart: the command that we become would have a child that it knows nothing of, find it by `wait`, and get a signal
// when that ends.
Result<LeaseHolder> LeaseHolder::start(const LeaseFolder& folder) {
  const pid_t us = ::getpid();
  const auto body = [&](Fd socket) { Body(std::move(socket), folder, us).run(); };
  ApartProcess apart = TRY(during("start the lease holder", start_apart(body)));
  return LeaseHolder(std::move(apart.socket), apart.process.pid());
}

Result<> LeaseHolder::stand_by() { return send_message(socket_.get(), {}); }

Result<> LeaseHolder::release() {
  Message message;
  message.order = Order::release;
  return send_message(socket_.get(), message);
}

void LeaseHolder::close_for_us(Fd descriptor) {
  if (!descriptor) return;
  Message message;
  message.order = Order::close_for_us;
  (void)send_message(socket_.get(), message, descriptor.get());  // if not, we close it ourselves
}

Result<> LeaseHolder::hand_over(std::span<const LockedFile> locks) {
  for (const LockedFile& lock : locks) {
    Message message;
    message.order = Order::hold;
    if (lock.file.size() > kLongestName) return fail("the name of a lease file is too long for the lease holder");
    std::copy(lock.file.begin(), lock.file.end(), message.name.begin());
    TRY(send_message(socket_.get(), message, lock.fd.get()));
  }
  return {};
}

Result<> LeaseHolder::keep_while(int pidfd, std::span<const LockedFile> locks) {
  TRY(hand_over(locks));
  Message message;
  message.order = Order::until_process;
  return send_message(socket_.get(), message, pidfd);
}

Result<> LeaseHolder::keep_for(Duration duration, std::span<const LockedFile> locks) {
  TRY(hand_over(locks));
  Message message;
  message.order = Order::until_time;
  message.nanoseconds = duration.count();
  return send_message(socket_.get(), message);
}

}  // namespace lull
