#include "sense/sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// A connection over the loopback device: one end for the job, one for the world.
struct Connection {
  Fd job;
  Fd world;
};
Connection connect_tcp() {
  const Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(listening.get(), 1), 0);
  EXPECT_EQ(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  Connection both;
  both.job = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(both.job.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  both.world = Fd(::accept(listening.get(), nullptr, nullptr));
  return both;
}

// A process that has nothing but what it is given, and does one thing for each byte that it gets.
class Job {
 public:
  explicit Job(std::vector<int> keep, const std::function<void()>& work = [] {}) {
    int in[2];
    int out[2];
    EXPECT_EQ(::pipe(in), 0);
    EXPECT_EQ(::pipe(out), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(60);
      keep.push_back(in[0]);
      keep.push_back(out[1]);
      for (int fd = 0; fd < 1024; ++fd)
        if (std::ranges::find(keep, fd) == keep.end()) ::close(fd);
      char byte = 0;
      (void)!::write(out[1], "x", 1);
      while (::read(in[0], &byte, 1) == 1) {
        work();
        (void)!::write(out[1], "x", 1);
      }
      ::_exit(0);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = Fd(in[1]);
    out_ = Fd(out[0]);
    wait();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    in_.reset();
    ::waitpid(pid_, nullptr, 0);
  }
  void work() {
    EXPECT_EQ(::write(in_.get(), "x", 1), 1);
    wait();
  }
  pid_t pid() const { return pid_; }

 private:
  void wait() {
    char byte = 0;
    pollfd one{.fd = out_.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&one, 1, 20'000), 1);
    ASSERT_EQ(::read(out_.get(), &byte, 1), 1);
  }
  pid_t pid_ = 0;
  Fd in_;
  Fd out_;
};

bool countable() {
  const Connection both = connect_tcp();
  SocketCounter counter;
  const pid_t us = ::getpid();
  return counter.sample({&us, 1}).uncounted.find("does not list") == std::string::npos;
}

SocketTraffic sample(SocketCounter& counter, const Job& job) {
  const pid_t pid = job.pid();
  return counter.sample({&pid, 1});
}

TEST(Sockets, Faults_A9_BytesOverTcpAreCounted) {
  if (!countable()) GTEST_SKIP() << "the kernel lists no sockets here";
  Connection both = connect_tcp();
  const int end = both.job.get();
  Job job({end}, [end] {
    const std::string bytes(65536, 'x');
    for (std::size_t done = 0; done < bytes.size();)
      done += static_cast<std::size_t>(std::max<ssize_t>(::send(end, bytes.data() + done, bytes.size() - done, 0), 0));
    char byte = 0;
    (void)::recv(end, &byte, 1, 0);
  });
  both.job.reset();
  SocketCounter counter;
  SocketTraffic traffic = sample(counter, job);
  EXPECT_TRUE(traffic.counted) << traffic.uncounted;
  EXPECT_EQ(::send(both.world.get(), "y", 1, 0), 1);
  job.work();
  std::vector<char> sink(65536);
  EXPECT_EQ(::recv(both.world.get(), sink.data(), sink.size(), MSG_WAITALL), 65536);
  // What was received is counted at once, what was sent when the other side has it.
  const SystemClock clock;
  double sent = 0;
  double received = 0;
  for (const Instant enough = clock.now() + 10s; (sent < 65536 || received < 1) && clock.now() < enough;) {
    traffic = sample(counter, job);
    sent += traffic.sent;
    received += traffic.received;
    ::usleep(1000);
  }
  EXPECT_EQ(sent, 65536);
  EXPECT_EQ(received, 1);
  traffic = sample(counter, job);
  EXPECT_EQ(traffic.sent + traffic.received, 0) << "it is silent now, and that is known";
  EXPECT_TRUE(traffic.counted);
}

TEST(Sockets, Faults_A9_WhatNobodyCountsIsNotZero) {
  if (!countable()) GTEST_SKIP() << "the kernel lists no sockets here";
  SocketCounter counter;
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  {
    const Job job({pair[0]});  // the other end is ours
    const SocketTraffic traffic = sample(counter, job);
    EXPECT_FALSE(traffic.counted);
    EXPECT_NE(traffic.uncounted.find("unix socket"), std::string::npos) << traffic.uncounted;
  }
  const int udp = ::socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(9);
  ASSERT_EQ(::connect(udp, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  {
    const Job job({udp});
    const SocketTraffic traffic = sample(counter, job);
    EXPECT_FALSE(traffic.counted);
    EXPECT_NE(traffic.uncounted.find("UDP"), std::string::npos) << traffic.uncounted;
  }
  ::close(pair[0]);
  ::close(pair[1]);
  ::close(udp);
}

TEST(Sockets, WhatIsNotConnectedMovesNothing) {
  if (!countable()) GTEST_SKIP() << "the kernel lists no sockets here";
  SocketCounter counter;
  const Fd tcp(::socket(AF_INET, SOCK_STREAM, 0));
  const Fd udp(::socket(AF_INET6, SOCK_DGRAM, 0));
  const Fd local(::socket(AF_UNIX, SOCK_STREAM, 0));
  const Fd link(::socket(AF_NETLINK, SOCK_RAW, 0));
  int pair[2];  // both ends in one process: as an event loop wakes itself
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Job job({tcp.get(), udp.get() >= 0 ? udp.get() : tcp.get(), local.get(), link.get(), pair[0], pair[1]});
  ::close(pair[0]);
  ::close(pair[1]);
  const SocketTraffic traffic = sample(counter, job);
  EXPECT_TRUE(traffic.counted) << traffic.uncounted;
  EXPECT_EQ(traffic.sent + traffic.received, 0);
}

TEST(Sockets, AConnectionThatWasClosedLeavesUsInDoubtOnce) {
  if (!countable()) GTEST_SKIP() << "the kernel lists no sockets here";
  Connection both = connect_tcp();
  const int end = both.job.get();
  Job job({end}, [end] { ::close(end); });
  both.job.reset();
  SocketCounter counter;
  EXPECT_TRUE(sample(counter, job).counted);
  job.work();
  const SocketTraffic traffic = sample(counter, job);
  EXPECT_FALSE(traffic.counted);
  EXPECT_EQ(traffic.uncounted, "");
  EXPECT_TRUE(sample(counter, job).counted);
}

TEST(Sockets, ProcessThatHasEndedIsNoTrouble) {
  pid_t gone = 0;
  {
    const Job job({});
    gone = job.pid();
  }
  SocketCounter counter;
  EXPECT_TRUE(counter.sample({&gone, 1}).counted);
  EXPECT_TRUE(counter.sample({}).counted);
}

}  // namespace
}  // namespace lull
