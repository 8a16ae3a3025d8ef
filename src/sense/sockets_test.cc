#include "sense/sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sense/file_tree_test.h"

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
  explicit Job(
      std::vector<int> keep, const std::function<void()>& work = [] {}, const std::function<void()>& begin = [] {}) {
    // No pipes: these would count as the job's.
    in_ = Fd(::eventfd(0, 0));
    out_ = Fd(::eventfd(0, 0));
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(60);
      begin();
      keep.push_back(in_.get());
      keep.push_back(out_.get());
      for (int fd = 0; fd < 1024; ++fd)
        if (std::ranges::find(keep, fd) == keep.end()) ::close(fd);
      eventfd_t one = 0;
      ::eventfd_write(out_.get(), 1);
      while (::eventfd_read(in_.get(), &one) == 0) {
        work();
        ::eventfd_write(out_.get(), 1);
      }
      ::_exit(0);
    }
    wait();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void work() {
    EXPECT_EQ(::eventfd_write(in_.get(), 1), 0);
    wait();
  }
  pid_t pid() const { return pid_; }

 private:
  void wait() {
    eventfd_t done = 0;
    pollfd one{.fd = out_.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&one, 1, 20'000), 1);
    ASSERT_EQ(::eventfd_read(out_.get(), &done), 0);
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

TEST(Sockets, BytesOverTcpAreCounted) {
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

TEST(Sockets, WhatNobodyCountsIsNotZero) {
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

TEST(Sockets, AUnixSocketForDatagramsNeedsNoConnection) {
  if (!countable()) GTEST_SKIP() << "the kernel lists no sockets here";
  const Fd receiver(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t size = sizeof(sa_family_t);  // the kernel finds a name
  ASSERT_EQ(::bind(receiver.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  size = sizeof address;
  ASSERT_EQ(::getsockname(receiver.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const Fd sender(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  Job job({sender.get()}, [&, fd = sender.get()] {
    const std::string bytes(1000, 'x');
    for (int i = 0; i < 5; ++i)
      (void)::sendto(fd, bytes.data(), bytes.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&address), size);
  });
  SocketCounter counter;
  sample(counter, job);
  job.work();
  const SocketTraffic traffic = sample(counter, job);
  EXPECT_FALSE(traffic.counted);
  EXPECT_NE(traffic.uncounted.find("datagrams"), std::string::npos) << traffic.uncounted;
}

// Two pipes to the world, and what the job moves between them.
struct Between {
  Fd in_job, in_world, out_job, out_world;
  Between() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    in_job = Fd(ends[0]);
    in_world = Fd(ends[1]);
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    out_job = Fd(ends[1]);
    out_world = Fd(ends[0]);
  }
};

TEST(Sockets, WhoMaySpliceBetweenPipesIsUncountedWhenItHasRun) {
  Between pipes;
  const std::string bytes(4096, 'x');
  ASSERT_EQ(::write(pipes.in_world.get(), bytes.data(), bytes.size()), 4096);
  const int in = pipes.in_job.get();
  const int out = pipes.out_job.get();
  Job job({in, out}, [in, out] { (void)::splice(in, nullptr, out, nullptr, 4096, 0); });
  pipes.in_job.reset();
  pipes.out_job.reset();
  SocketCounter counter;
  EXPECT_TRUE(sample(counter, job).counted) << "there is nothing yet to compare with";
  job.work();
  const SocketTraffic traffic = sample(counter, job);
  EXPECT_FALSE(traffic.counted);
  EXPECT_NE(traffic.uncounted.find("splice"), std::string::npos) << traffic.uncounted;
  // One that sleeps splices nothing. It may take a moment until it does.
  bool counted = false;
  for (int i = 0; i < 200 && !counted; ++i) {
    ::usleep(10'000);
    counted = sample(counter, job).counted;
  }
  EXPECT_TRUE(counted);
}

TEST(Sockets, AJobWhoseOutputGoesIntoAPipeIsCounted) {
  Between pipes;
  const int out = pipes.out_job.get();
  const int in = pipes.in_job.get();
  {
    Job job(
        {1, 2}, [] { (void)!::write(1, "x", 1); },
        [out] {
          ::dup2(out, 1);
          ::dup2(out, 2);
        });
    SocketCounter counter;
    sample(counter, job);
    job.work();
    EXPECT_TRUE(sample(counter, job).counted) << "python train.py | tee log";
  }
  {
    Job job({0}, [] {}, [in] { ::dup2(in, 0); });
    SocketCounter counter;
    sample(counter, job);
    job.work();
    EXPECT_TRUE(sample(counter, job).counted) << "yes | python train.py";
  }
  Job filter(
      {0, 1}, [] {},
      [in, out] {
        ::dup2(in, 0);
        ::dup2(out, 1);
      });
  SocketCounter counter;
  sample(counter, filter);
  filter.work();
  EXPECT_FALSE(sample(counter, filter).counted) << "what splice() moves from one to the other is not seen";
}

TEST(Sockets, PipesWithinAJobAreItsOwn) {
  Between pipes;  // all four ends
  Job job({pipes.in_job.get(), pipes.in_world.get(), pipes.out_job.get(), pipes.out_world.get()});
  SocketCounter counter;
  sample(counter, job);
  job.work();
  EXPECT_TRUE(sample(counter, job).counted);
}

TEST(Sockets, ANamedPipeIsAPipe) {
  const TestTree tree;
  const std::string path = tree.at("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const Fd world(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const Fd end(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  Job job({end.get()});
  SocketCounter counter;
  sample(counter, job);
  job.work();
  EXPECT_FALSE(sample(counter, job).counted);
}

TEST(Sockets, APipeToAHelperOfOursIsNotTheJobs) {
  Between pipes;
  ignore_pipe(pipes.in_job.get());
  Job job({pipes.in_job.get()});
  SocketCounter counter;
  sample(counter, job);
  job.work();
  EXPECT_TRUE(sample(counter, job).counted);
}

}  // namespace
}  // namespace lull
