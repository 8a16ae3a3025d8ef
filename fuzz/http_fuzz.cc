// Bytes of a connection, through libmicrohttpd to the server: any. Whatever comes, the next request is answered.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/fd.h"
#include "fuzz/require.h"
#include "loop/loop.h"
#include "serve/http.h"
#include "serve/keep.h"

using namespace lull;

namespace {

// One server for all inputs: what one leaves behind the next would meet.
class HttpUnderTest {
 public:
  explicit HttpUnderTest(Tokens tokens) : loop_(Loop::create(clock_).value()) {
    listening_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    address_.sun_family = AF_UNIX;
    require(::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof(sa_family_t)) == 0);
    size_ = sizeof address_;
    require(::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address_), &size_) == 0);
    require(::listen(listening_.get(), 16) == 0);
    HttpOptions options;
    options.tokens = std::move(tokens);
    options.events = "/api/events";
    options.post = "/api/keep";
    options.on_post = [this](const PostRequest& request, const std::function<void(DocumentPtr)>& answer) {
      const auto wanted = parse_keep_request(request.body);
      require(request.body.size() <= 1024 && (!wanted || wanted->time > Duration::zero()));
      // Now, or when the connection may be gone.
      const auto document = std::make_shared<Document>(wanted ? 200U : 400U, "text/plain", "kept");
      if (request.body.size() % 2 == 0) return answer(document);
      loop_->in(Duration::zero(), [answer, document] { answer(document); });
    };
    server_ = HttpServer::start(*loop_, listening_.get(), std::move(options), [this](std::string_view path) {
                return path == "/metrics" ? document_ : nullptr;
              }).value();
    server_->publish("event: now\ndata: {}\n\n");
  }

  // What comes back within some turns.
  std::string ask(std::string_view bytes) {
    const Fd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    require(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address_), size_) == 0);
    std::string heard;
    for (int turn = 0; turn < 24; ++turn) {
      if (!bytes.empty()) {
        const ssize_t sent = ::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
        if (sent < 0 && errno != EAGAIN) bytes = {};
      } else if (turn == 8) {
        (void)::shutdown(client.get(), SHUT_WR);
      }
      step();
      char buffer[4096];
      const ssize_t got = ::recv(client.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got == 0) break;
      if (got > 0) heard.append(buffer, static_cast<std::size_t>(got));
    }
    return heard;
  }
  void step() {
    loop_->in(Duration::zero(), [] {});
    (void)loop_->turn();
  }

 private:
  SystemClock clock_;
  std::unique_ptr<Loop> loop_;
  Fd listening_;
  sockaddr_un address_{};
  socklen_t size_ = 0;
  DocumentPtr document_ = std::make_shared<Document>(200, "text/plain", "lull_up 1\n");
  std::unique_ptr<HttpServer> server_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static HttpUnderTest open{Tokens()};
  static HttpUnderTest closed{Tokens::parse("0123456789abcdef").value()};
  for (HttpUnderTest* one : {&open, &closed}) {
    const std::string heard = one->ask(bytes);
    require(heard.empty() || heard.starts_with("HTTP/1."));
    // Without the token nothing is told but that.
    if (one == &closed && bytes.find("0123456789abcdef") == std::string_view::npos &&
        bytes.find("asic ") == std::string_view::npos && bytes.find("ASIC ") == std::string_view::npos)
      require(heard.find("lull_up") == std::string::npos && heard.find("kept") == std::string::npos &&
              heard.find("event: now") == std::string::npos);
    const std::string right = one->ask(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\nConnection: "
        "close\r\n\r\n");
    require(right.starts_with("HTTP/1.1 200") && right.ends_with("lull_up 1\n"));
  }
  return 0;
}
