#include "base/http_get.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

using Steady = std::chrono::steady_clock;
constexpr std::size_t kLongestHead = 64 << 10;
constexpr std::size_t kPiece = 64 << 10;

struct Deadline {
  Steady::time_point at;
  Duration limit;

  std::unexpected<Error> passed() const { return fail("no answer within " + format_duration(limit)); }
  // Waits until the socket can be read or written.
  Result<> wait(int fd, short events) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - Steady::now()).count();
      if (left <= 0) return passed();
      pollfd one{fd, events, 0};
      const int ready = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
      if (ready > 0) return {};
      if (ready < 0 && errno != EINTR) return fail(errno, "poll");
    }
  }
};

Result<Fd> connect_to(int family, const sockaddr* address, socklen_t size, const Deadline& deadline) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail(errno, "socket");
  if (::connect(fd.get(), address, size) == 0) return fd;
  if (errno != EINPROGRESS) return fail(errno, "connect");
  TRY(deadline.wait(fd.get(), POLLOUT));
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return fail(error, "connect");
  return fd;
}

Result<Fd> connect_to(const HttpAddress& address, const Deadline& deadline) {
  if (!address.socket.empty()) {
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    std::memcpy(local.sun_path, address.socket.data(), std::min(address.socket.size(), kLongestSocketPath));
    return connect_to(AF_UNIX, reinterpret_cast<const sockaddr*>(&local), sizeof local, deadline);
  }
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int why = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &wanted, &found);
      why != 0)
    return fail(fmt::format("host {}: {}", printable(address.host), ::gai_strerror(why)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  Result<Fd> last = fail("the host has no address");
  for (const addrinfo* one = found; one != nullptr && !last; one = one->ai_next)
    last = connect_to(one->ai_family, one->ai_addr, one->ai_addrlen, deadline);
  return last;
}

Result<> send_all(int fd, std::string_view text, const Deadline& deadline) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0)
      text.remove_prefix(static_cast<std::size_t>(sent));
    else if (errno == EAGAIN)
      TRY(deadline.wait(fd, POLLOUT));
    else if (errno != EINTR)
      return fail(errno, "send");
  }
  return {};
}

std::unexpected<Error> too_long(std::size_t most) {
  return fail(fmt::format("the answer has more than {}", format_size(static_cast<double>(most))));
}

// The head of an answer: what is between the status line and the empty line.
struct Head {
  std::string content_type;
  std::optional<std::size_t> length;
  bool chunked = false;
};

Result<Head> read_head(std::string_view text) {
  const auto garbage = [] { return fail("the answer is not HTTP"); };
  std::vector<std::string_view> lines = split(text, '\n');
  const std::string_view first = trim(lines[0]);
  if (!first.starts_with("HTTP/1.") || first.size() < 12 || first[8] != ' ') return garbage();
  const auto status = to_unsigned(first.substr(9, 3));
  if (!status) return garbage();
  if (*status != 200) return fail(fmt::format("it answers {}", printable(first.substr(9, 60))));
  Head head;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::size_t colon = lines[i].find(':');
    if (colon == std::string_view::npos || colon == 0) return garbage();
    const std::string name = lowered(lines[i].substr(0, colon));
    const std::string value = lowered(trim(lines[i].substr(colon + 1)));
    if (name == "content-type") head.content_type = value;
    if (name == "content-encoding" && value != "identity")
      return fail(fmt::format("the answer is packed ({})", printable(value)));
    if (name == "transfer-encoding") {
      if (value != "chunked") return fail(fmt::format("the answer comes as '{}'", printable(value)));
      head.chunked = true;
    }
    if (name == "content-length") {
      const auto length = to_unsigned(value);
      if (!length || (head.length && *head.length != *length)) return garbage();
      head.length = *length;
    }
  }
  return head;
}

// The chunks behind the head, joined. Nothing: the last one is not there yet.
Result<std::optional<std::string>> join_chunks(std::string_view text, std::size_t most) {
  std::string body;
  for (;;) {
    const std::size_t end = text.find("\r\n");
    if (end == std::string_view::npos) {
      if (text.size() > 1024) return fail("the answer is not HTTP: no size of a chunk");
      return std::nullopt;
    }
    const std::string_view digits = trim(text.substr(0, std::min(end, text.find(';'))));
    std::size_t size = 0;
    if (digits.empty() || digits.size() > 8) return fail("the answer is not HTTP: no size of a chunk");
    for (const char c : digits) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return fail("the answer is not HTTP: no size of a chunk");
      size = size * 16 + static_cast<std::size_t>(digit);
    }
    if (size == 0) return body;  // what may follow is of no interest
    if (body.size() + size > most) return too_long(most);
    text.remove_prefix(end + 2);
    if (text.size() < size + 2) return std::nullopt;
    if (text.substr(size, 2) != "\r\n") return fail("the answer is not HTTP: a chunk has another size than it says");
    body += text.substr(0, size);
    text.remove_prefix(size + 2);
  }
}

}  // namespace

std::string HttpAddress::to_string() const {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}{}{}{}", v6 ? "[" : "", host, v6 ? "]" : "",
                     port == 80 ? "" : ":" + std::to_string(port), path, socket.empty() ? "" : " by " + socket);
}

Result<HttpAddress> parse_http_address(std::string_view url) {
  const auto wrong = [&](std::string_view why) {
    return fail(fmt::format("'{}': {}", printable(url.substr(0, 200)), why));
  };
  if (lowered(url.substr(0, 8)) == "https://")
    return wrong("https is not spoken here: use the server's plain http:// on this machine, or command = \"curl …\"");
  if (lowered(url.substr(0, 7)) != "http://") return wrong("http://HOST:PORT/PATH would be right");
  std::string_view rest = url.substr(7);
  const auto odd = [](char c) { return c <= ' ' || c >= 0x7f; };
  if (std::ranges::any_of(rest, odd)) return wrong("an address has no blanks and no special characters");
  HttpAddress address;
  const std::size_t slash = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view place = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  path = path.substr(0, path.find('#'));
  address.path = path.starts_with('/') ? std::string(path) : "/" + std::string(path);
  if (place.find('@') != std::string_view::npos)
    return wrong("no user and password in an address; command = \"curl …\" can have them from a file");
  std::string_view port;
  if (place.starts_with('[')) {
    const std::size_t close = place.find(']');
    if (close == std::string_view::npos) return wrong("the ] behind the address is missing");
    address.host = place.substr(1, close - 1);
    port = place.substr(close + 1);
  } else {
    const std::size_t colon = std::min(place.find(':'), place.size());
    address.host = place.substr(0, colon);
    port = place.substr(colon);
  }
  if (address.host.empty()) return wrong("the host is missing: http://127.0.0.1:8000/metrics would be right");
  if (!port.empty()) {
    const auto number = port.starts_with(':') ? to_unsigned(port.substr(1)) : std::nullopt;
    if (!number || *number == 0 || *number > 65535) return wrong("the port is a number up to 65535");
    address.port = static_cast<std::uint16_t>(*number);
  }
  return address;
}

Result<std::optional<HttpAnswer>> read_http_answer(std::string_view bytes, bool ended, std::size_t most) {
  // Servers that say nothing sensible are not listened to for long.
  constexpr std::string_view kBegin = "HTTP/1.";
  if (!kBegin.starts_with(bytes.substr(0, kBegin.size()))) return fail("the answer is not HTTP");
  const auto cut_short = [&]() -> Result<std::optional<HttpAnswer>> {
    if (!ended) return std::nullopt;
    return fail(bytes.empty() ? "the server closed the connection without an answer" : "the answer is cut short");
  };
  std::size_t end = bytes.find("\r\n\r\n");
  std::size_t skip = 4;
  if (const std::size_t plain = bytes.find("\n\n"); plain < end) {
    end = plain;
    skip = 2;
  }
  if (end == std::string_view::npos) {
    if (bytes.size() > kLongestHead) return fail("the answer is not HTTP: its head has no end");
    return cut_short();
  }
  const Head head = TRY(read_head(bytes.substr(0, end)));
  const std::string_view rest = bytes.substr(end + skip);
  if (head.chunked) {
    auto body = TRY(join_chunks(rest, most));
    if (!body) return rest.size() > 2 * most ? too_long(most) : cut_short();
    return HttpAnswer{head.content_type, *std::move(body)};
  }
  if (head.length.value_or(rest.size()) > most) return too_long(most);
  if (head.length ? rest.size() < *head.length : !ended) return cut_short();
  return HttpAnswer{head.content_type, std::string(rest.substr(0, head.length.value_or(rest.size())))};
}

Result<HttpAnswer> http_get(const HttpAddress& address, Duration limit, std::size_t most) {
  const Deadline deadline{Steady::now() + limit, limit};
  const Fd fd = TRY(connect_to(address, deadline));
  const bool v6 = address.host.find(':') != std::string::npos;
  const std::string host = fmt::format("{}{}{}{}", v6 ? "[" : "", address.host, v6 ? "]" : "",
                                       address.port == 80 ? "" : ":" + std::to_string(address.port));
  TRY(send_all(
      fd.get(),
      fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: lull\r\nAccept: text/plain;version=0.0.4, */*;q=0.1"
                  "\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n",
                  address.path, host),
      deadline));
  std::string bytes;
  std::array<char, kPiece> piece;
  for (;;) {
    TRY(deadline.wait(fd.get(), POLLIN));
    const ssize_t got = ::recv(fd.get(), piece.data(), piece.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return fail(errno, "receive");
    bytes.append(piece.data(), static_cast<std::size_t>(got));
    if (auto answer = TRY(read_http_answer(bytes, got == 0, most))) return *std::move(answer);
  }
}

}  // namespace lull
