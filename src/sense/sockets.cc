#include "sense/sockets.h"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>

#include "base/text.h"
#include "sense/processes.h"

namespace lull {
namespace {

using Inode = SocketCounter::Inode;
using Bytes = SocketCounter::Bytes;

constexpr std::size_t kMostSockets = 10'000;      // of the job
constexpr std::size_t kMostDescriptors = 50'000;  // of the job
constexpr std::size_t kMostReplies = 200'000;     // of the machine
constexpr std::size_t kReplyBytes = 64U << 10;
constexpr unsigned kEstablished = 1;  // TCP_ESTABLISHED, which unix sockets use as well

// A socket of the job, and who holds it.
struct Held {
  std::set<pid_t> holders;
  std::string path;        // one of the descriptors in /proc
  bool elsewhere = false;  // in another network namespace
};
using Sockets = std::map<Inode, Held>;

// A pipe, by the ends of it that the job has.
struct Pipe {
  std::set<pid_t> readers;
  std::set<pid_t> writers;
  bool standard = false;  // a process's standard stream
};

using Target = std::array<char, 64>;  // long enough for what matters here

std::string_view target_of(int folder, const char* name, Target& target) {
  const ssize_t size = ::readlinkat(folder, name, target.data(), target.size());
  return {target.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

std::optional<Inode> socket_inode(std::string_view text) {
  if (!text.starts_with("socket:[") || !text.ends_with("]")) return std::nullopt;
  return to_unsigned(text.substr(8, text.size() - 9));
}

std::mutex own_pipes_mutex;
std::set<std::string>& own_pipes() {
  static auto* pipes = new std::set<std::string>;  // never destroyed: a thread may ask at exit
  return *pipes;
}

bool is_own_pipe(std::string_view target) {
  const std::scoped_lock lock(own_pipes_mutex);
  return own_pipes().contains(std::string(target));
}

// Ours are the job's standard streams: what goes through those goes by write(), and is counted elsewhere.
std::set<Inode> standard_streams() {
  std::set<Inode> inodes;
  for (const int fd : {0, 1, 2}) {
    struct stat info{};
    if (::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode)) inodes.insert(info.st_ino);
  }
  return inodes;
}

class Collector {
 public:
  explicit Collector(const Root& root) : root_(root) {
    struct stat info{};
    if (::stat((root_.proc + "/self/ns/net").c_str(), &info) == 0) network_ = info.st_ino;
  }

  // False: not all of them could be looked at.
  bool add(pid_t pid) {
    const std::string folder = root_.proc + "/" + std::to_string(pid);
    Directory files(folder + "/fd");
    if (!files) return process_is_gone(errno);
    while (const char* name = files.next()) {
      if (++descriptors_ > kMostDescriptors || sockets.size() > kMostSockets) return false;
      Target space;
      const std::string_view target = target_of(files.fd(), name, space);
      if (target == "anon_inode:[io_uring]") ring = pid;
      if (is_pipe(files.fd(), name, target)) add_pipe(files.fd(), name, target, pid);
      const auto inode = socket_inode(target);
      if (!inode || streams_.contains(*inode)) continue;
      Held& held = sockets[*inode];
      held.holders.insert(pid);
      if (!held.path.empty()) continue;
      held.path = folder + "/fd/" + name;
      held.elsewhere = in_another_network(pid);
    }
    return files.error() == 0 || process_is_gone(files.error());
  }

  // Those who could move bytes from or to other processes by splice().
  std::set<pid_t> splicers() const {
    std::set<pid_t> found;
    std::set<pid_t> fed;
    for (const auto& [name, pipe] : pipes_)
      if (pipe.writers.empty() && pipe.standard) fed.insert(pipe.readers.begin(), pipe.readers.end());
    for (const auto& [name, pipe] : pipes_) {
      if (!pipe.readers.empty() && !pipe.writers.empty()) continue;  // both ends are the job's
      for (const auto* ends : {&pipe.readers, &pipe.writers})
        for (const pid_t pid : *ends)
          if (!pipe.standard || (ends == &pipe.writers && fed.contains(pid))) found.insert(pid);
    }
    return found;
  }

  Sockets sockets;
  std::optional<pid_t> ring;  // who has an io_uring

 private:
  // Also one that has a name. What a file system knows of it already is enough: one that hangs is not asked.
  static bool is_pipe(int folder, const char* name, std::string_view target) {
    if (target.starts_with("pipe:[")) return !is_own_pipe(target);
    if (!target.starts_with('/') || target.starts_with("/dev/")) return false;
    struct statx info{};
    return ::statx(folder, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &info) == 0 &&
           S_ISFIFO(info.stx_mode);
  }

  void add_pipe(int folder, const char* name, std::string_view target, pid_t pid) {
    struct stat info{};  // of the link, whose mode says how it was opened
    if (::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
    Pipe& pipe = pipes_[std::string(target)];
    if ((info.st_mode & S_IRUSR) != 0) pipe.readers.insert(pid);
    if ((info.st_mode & S_IWUSR) != 0) pipe.writers.insert(pid);
    const std::string_view number = name;
    pipe.standard = pipe.standard || number == "0" || number == "1" || number == "2";
  }

  bool in_another_network(pid_t pid) {
    const auto known = networks_.find(pid);
    if (known != networks_.end()) return known->second;
    struct stat info{};
    const bool other =
        ::stat((root_.proc + "/" + std::to_string(pid) + "/ns/net").c_str(), &info) != 0 || info.st_ino != network_;
    networks_[pid] = other;
    return other;
  }

  const Root& root_;
  ino_t network_ = 0;
  std::set<Inode> streams_ = standard_streams();
  std::map<pid_t, bool> networks_;
  std::map<std::string, Pipe> pipes_;
  std::size_t descriptors_ = 0;
};

// ---- the kernel's list of sockets

// Asks one dump and hands over each reply. Nothing but ok: the answer is not complete.
template <class Request, class Visit>
Result<> dump(const Request& request, const Visit& visit) {
  const Fd link(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!link) return fail(errno, "sock_diag");
  const timeval limit{.tv_sec = 1, .tv_usec = 0};
  (void)::setsockopt(link.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  struct {
    nlmsghdr header;
    Request body;
  } message{};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.body = request;
  if (::send(link.get(), &message, sizeof message, 0) < 0) return fail(errno, "sock_diag");
  alignas(nlmsghdr) std::array<char, kReplyBytes> bytes;
  for (std::size_t replies = 0; replies < kMostReplies;) {
    const ssize_t got = ::recv(link.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(got < 0 ? errno : EPIPE, "sock_diag");
    auto left = static_cast<unsigned>(got);
    for (auto* one = reinterpret_cast<nlmsghdr*>(bytes.data()); NLMSG_OK(one, left); one = NLMSG_NEXT(one, left)) {
      ++replies;
      if (one->nlmsg_type == NLMSG_DONE) return {};
      if (one->nlmsg_type == NLMSG_ERROR) {
        nlmsgerr problem{};
        if (one->nlmsg_len >= NLMSG_LENGTH(sizeof problem)) std::memcpy(&problem, NLMSG_DATA(one), sizeof problem);
        return fail(-problem.error, "sock_diag");
      }
      visit(*one);
    }
  }
  return fail(E2BIG, "sock_diag");
}

// The attribute of this type behind a reply's fixed part.
std::span<const std::byte> attribute(nlmsghdr& reply, std::size_t fixed, unsigned type) {
  if (reply.nlmsg_len < NLMSG_LENGTH(fixed)) return {};
  auto left = static_cast<unsigned>(reply.nlmsg_len - NLMSG_LENGTH(fixed));
  auto* one = reinterpret_cast<rtattr*>(static_cast<char*>(NLMSG_DATA(&reply)) + NLMSG_ALIGN(fixed));
  for (; RTA_OK(one, left); one = RTA_NEXT(one, left))
    if (one->rta_type == type) return {static_cast<const std::byte*>(RTA_DATA(one)), RTA_PAYLOAD(one)};
  return {};
}

template <class Reply>
bool read_reply(nlmsghdr& message, Reply& reply) {
  if (message.nlmsg_len < NLMSG_LENGTH(sizeof reply)) return false;
  std::memcpy(&reply, NLMSG_DATA(&message), sizeof reply);
  return true;
}

Result<> list_inet(std::uint8_t protocol, const std::function<void(Inode, std::optional<Bytes>)>& visit) {
  for (const auto family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
    inet_diag_req_v2 request{};
    request.sdiag_family = family;
    request.sdiag_protocol = protocol;
    request.idiag_ext = 1U << (INET_DIAG_INFO - 1);
    request.idiag_states = ~0U;
    TRY(dump(request, [&](nlmsghdr& message) {
      inet_diag_msg reply{};
      if (!read_reply(message, reply) || reply.idiag_inode == 0) return;
      std::optional<Bytes> bytes;
      tcp_info info{};
      constexpr std::size_t kNeeded = offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;
      const auto found = attribute(message, sizeof reply, INET_DIAG_INFO);
      if (found.size() >= kNeeded) {
        std::memcpy(&info, found.data(), std::min(found.size(), sizeof info));
        bytes = Bytes{info.tcpi_bytes_received, info.tcpi_bytes_acked};
      }
      visit(reply.idiag_inode, bytes);
    }));
  }
  return {};
}

struct UnixSocket {
  Inode inode = 0;
  Inode peer = 0;
  bool connected = false;
  bool datagrams = false;
};

Result<> list_unix(const std::function<void(const UnixSocket&)>& visit) {
  unix_diag_req request{};
  request.sdiag_family = AF_UNIX;
  request.udiag_states = ~0U;
  request.udiag_show = UDIAG_SHOW_PEER;
  return dump(request, [&](nlmsghdr& message) {
    unix_diag_msg reply{};
    if (!read_reply(message, reply)) return;
    std::uint32_t peer = 0;
    const auto found = attribute(message, sizeof reply, UNIX_DIAG_PEER);
    if (found.size() >= sizeof peer) std::memcpy(&peer, found.data(), sizeof peer);
    visit({reply.udiag_ino, peer, reply.udiag_state == kEstablished, reply.udiag_type == SOCK_DGRAM});
  });
}

// "TCP", "UDPv6", "UNIX-STREAM", "NETLINK"; empty: the socket is gone.
std::string protocol_of(const std::string& path) {
  std::array<char, 64> name{};
  const ssize_t size = ::getxattr(path.c_str(), "system.sockprotoname", name.data(), name.size() - 1);
  return size > 0 ? std::string(name.data()) : std::string();
}

std::string whose(const Held& held) { return "process " + std::to_string(*held.holders.begin()); }

// Both ends of a pair in one process: it wakes itself up with it, and talks to no other process.
bool talks_to_itself(const Sockets& sockets, const Held& one, Inode peer) {
  const auto other = sockets.find(peer);
  return other != sockets.end() && one.holders.size() == 1 && other->second.holders == one.holders;
}

// Takes those away that are known to move no bytes, or whose bytes were counted. Returns what cannot be counted.
std::string sort_out(Sockets& left, std::map<Inode, Bytes>& tcp) {
  const auto listed = list_inet(IPPROTO_TCP, [&](Inode inode, std::optional<Bytes> bytes) {
    if (left.contains(inode) && bytes) tcp[inode] = *bytes;
  });
  if (!listed) return "the kernel does not list connections (" + listed.error().message() + ")";
  for (const auto& [inode, bytes] : tcp) left.erase(inode);
  if (left.empty()) return "";
  std::string trouble;
  const auto udp = list_inet(IPPROTO_UDP, [&](Inode inode, std::optional<Bytes>) {
    if (const auto found = left.find(inode); found != left.end() && trouble.empty())
      trouble = whose(found->second) + " has a UDP socket";
  });
  if (!udp) return "the kernel does not list UDP sockets (" + udp.error().message() + ")";
  const auto local = list_unix([&](const UnixSocket& one) {
    const auto found = left.find(one.inode);
    if (found == left.end() || !trouble.empty()) return;
    if (one.connected && !talks_to_itself(left, found->second, one.peer))
      trouble = whose(found->second) + " talks over a unix socket";
    else if (!one.connected && one.datagrams)  // it needs no connection
      trouble = whose(found->second) + " has a unix socket for datagrams";
  });
  if (!local) return "the kernel does not list unix sockets (" + local.error().message() + ")";
  if (!trouble.empty()) return trouble;
  // What is in no list is not connected, where it is of a kind that would be listed.
  for (const auto& [inode, held] : left) {
    const std::string protocol = protocol_of(held.path);
    const bool listed_kind = protocol.starts_with("TCP") || protocol.starts_with("UDP") || protocol.starts_with("UNIX");
    if (protocol.empty() || protocol == "NETLINK" || (listed_kind && !held.elsewhere)) continue;
    return whose(held) + (held.elsewhere ? " has a socket in another network namespace"
                                         : " has a socket of the kind " + printable(protocol));
  }
  return "";
}

double more_bytes(std::uint64_t now, std::uint64_t before) {
  return now > before ? static_cast<double>(now - before) : 0;
}

// How often the threads of a process were let run so far.
std::optional<std::uint64_t> count_runs(const Root& root, pid_t pid) {
  Directory threads(root.proc + "/" + std::to_string(pid) + "/task");
  std::optional<std::uint64_t> sum;
  while (const char* name = threads.next()) {
    const auto text = read_file(threads.fd(), std::string(name) + "/schedstat", 256);
    const auto runs = text ? to_unsigned(trim(split(trim(*text), ' ').back())) : std::nullopt;
    if (!runs) return std::nullopt;
    sum = sum.value_or(0) + *runs;
  }
  return sum;
}

}  // namespace

void ignore_pipe(int fd) {
  Target space;
  const std::string_view target = target_of(AT_FDCWD, ("/proc/self/fd/" + std::to_string(fd)).c_str(), space);
  const std::scoped_lock lock(own_pipes_mutex);
  own_pipes().emplace(target);
}

// Since the previous sample. If that is unknown it has.
bool SocketCounter::has_run(pid_t pid) {
  const auto now = count_runs(root_, pid);
  const auto before = runs_.find(pid);
  const bool same = now && before != runs_.end() && before->second == *now;
  if (now) runs_[pid] = *now;
  return sampled_ && !same;
}

SocketTraffic SocketCounter::sample(std::span<const pid_t> processes) {
  SocketTraffic traffic;
  Collector collector(root_);
  for (const pid_t pid : processes)
    if (!collector.add(pid) && traffic.uncounted.empty())
      traffic.uncounted = "not all sockets of process " + std::to_string(pid) + " can be seen";
  if (collector.ring && traffic.uncounted.empty())
    traffic.uncounted = "process " + std::to_string(*collector.ring) + " has an io_uring";
  const std::set<pid_t> splicers = collector.splicers();
  std::erase_if(runs_, [&](const auto& one) { return !splicers.contains(one.first); });
  for (const pid_t pid : splicers)
    if (has_run(pid) && traffic.uncounted.empty())
      traffic.uncounted = "process " + std::to_string(pid) + " has pipes to other processes, which it may splice";
  sampled_ = true;
  std::map<Inode, Bytes> now;
  // Most jobs have none: nothing is asked of the kernel then.
  if (!collector.sockets.empty()) {
    std::string trouble = sort_out(collector.sockets, now);
    if (traffic.uncounted.empty()) traffic.uncounted = std::move(trouble);
  }
  traffic.counted = traffic.uncounted.empty();
  for (const auto& [inode, bytes] : now) {
    const auto found = before_.find(inode);
    const Bytes old = found != before_.end() ? found->second : Bytes{};
    traffic.received += more_bytes(bytes.received, old.received);
    traffic.sent += more_bytes(bytes.sent, old.sent);
  }
  // Closed since: how much went over it at the end is not known.
  for (const auto& [inode, bytes] : before_) traffic.counted = traffic.counted && now.contains(inode);
  before_ = std::move(now);
  return traffic;
}

}  // namespace lull
