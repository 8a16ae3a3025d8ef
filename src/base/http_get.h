#pragma once
// One GET of HTTP/1.1 over TCP or a unix socket, by hand: a metrics endpoint of this machine is asked every few
// seconds, and starting curl (base/curl.h) each time would cost more than the server's own answer. No TLS, no redirect,
// no compression, no proxy, no keeping the connection. It blocks: for a process beside the loop.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

inline constexpr std::size_t kLongestSocketPath = 107;

struct HttpAddress {
  std::string host;
  std::uint16_t port = 80;
  std::string path = "/";
  std::string socket;  // a unix socket in place of host and port, which then only name the host to the server
  bool operator==(const HttpAddress&) const = default;
  std::string to_string() const;  // "http://127.0.0.1:8000/metrics"
};

// http://HOST[:PORT][/PATH]. https is refused, with what to do instead.
Result<HttpAddress> parse_http_address(std::string_view url);

struct HttpAnswer {
  std::string content_type;
  std::string body;
};
// The answer of status 200, whole: a body that is cut short, longer than `most` or not there in time is an error.
Result<HttpAnswer> http_get(const HttpAddress& address, Duration limit, std::size_t most);

// The bytes that a server sent, to the end of the connection, as an answer. Nothing: there must be more.
// `ended`: the server has closed the connection. For tests and fuzzing by itself.
Result<std::optional<HttpAnswer>> read_http_answer(std::string_view bytes, bool ended, std::size_t most);

}  // namespace lull
