#include "serve/http.h"

#include <fmt/format.h>
#include <microhttpd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/text.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kMostConnections = 256;
constexpr unsigned kMostFromOne = 32;                // address of another machine, or other user of this one
constexpr std::size_t kMostStreams = 64;             // of events
constexpr std::size_t kConnectionMemory = 16 << 10;  // its request must fit into it
constexpr unsigned kSilenceSeconds = 10;             // until a connection is closed
constexpr Duration kLongestTurn = 30s;               // for sending a request, or for taking an answer
constexpr Duration kSweepEvery = 2s;
constexpr std::size_t kStreamBlock = 8 << 10;
constexpr std::size_t kLongestPost = 1024;  // the body

constexpr std::array<std::pair<const char*, const char*>, 6> kHeaders = {{
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
}};

void add_headers(MHD_Response* response, std::string_view type) {
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, std::string(type).c_str());
  for (const auto& [name, value] : kHeaders) MHD_add_response_header(response, name, value);
}

DocumentPtr refusal(unsigned status, std::string_view text) {
  return std::make_shared<Document>(status, "text/plain; charset=utf-8", std::string(text) + "\n");
}

// Nothing: it is no socket of this machine alone.
std::optional<uid_t> user_at(int fd) {
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) return std::nullopt;
  ucred peer{};
  size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

}  // namespace

Document::Document(unsigned status, std::string_view type, std::string text)
    : status_(status), response_(MHD_create_response_from_buffer(text.size(), text.data(), MHD_RESPMEM_MUST_COPY)) {
  if (response_ == nullptr) throw std::bad_alloc();
  add_headers(response_, type);
}

Document::~Document() { MHD_destroy_response(response_); }

// One who listens to events.
struct HttpServer::Stream {
  HttpServer& server;
  MHD_Connection* connection;
  Client& client;
  std::shared_ptr<const std::string> current = {};
  std::size_t sent = 0;
  std::uint64_t seen = 0;
  bool suspended = false;

  ssize_t read(char* into, std::size_t most) {
    if (server.stopping_) return MHD_CONTENT_READER_END_OF_STREAM;
    if (current == nullptr && seen != server.events_) {
      current = server.event_;
      seen = server.events_;
      sent = 0;
      client.since = server.loop_.now();
      client.waiting = false;
    }
    if (current == nullptr) {
      client.waiting = true;
      suspended = true;
      MHD_suspend_connection(connection);
      return 0;
    }
    const std::size_t count = std::min(most, current->size() - sent);
    std::memcpy(into, current->data() + sent, count);
    sent += count;
    if (sent == current->size()) current.reset();
    return static_cast<ssize_t>(count);
  }
  void resume() {
    if (std::exchange(suspended, false)) MHD_resume_connection(connection);
  }
};

// A POST on its way. It is shared with who answers it, who may be later than the connection.
struct HttpServer::Posting {
  HttpServer& server;
  MHD_Connection* connection;
  std::string body = {};
  DocumentPtr answer = nullptr;
  bool asked = false;
  bool suspended = false;
  bool gone = false;
  std::weak_ptr<Posting> self = {};
};

// What the library calls, and with what.
struct HttpCalls {
  using PostingPtr = std::shared_ptr<HttpServer::Posting>;
  static inline char began = 0;  // the state of a request without a body

  static MHD_Result request(void* self, MHD_Connection* connection, const char* path, const char* method,
                            const char* /*version*/, const char* data, std::size_t* size, void** state) {
    auto& server = *static_cast<HttpServer*>(self);
    // The first call comes before the body: what we do not take is refused without reading that.
    const std::string_view verb = method;
    if (verb == MHD_HTTP_METHOD_POST && !server.options_.post.empty() && path == server.options_.post)
      return static_cast<MHD_Result>(*state == nullptr
                                         ? server.begin_post(connection, path, state)
                                         : server.post(connection, **static_cast<PostingPtr*>(*state), data, size));
    if (verb != MHD_HTTP_METHOD_GET && verb != MHD_HTTP_METHOD_HEAD)
      return MHD_queue_response(connection, server.wrong_method_->status(), server.wrong_method_->response());
    if (std::exchange(*state, &began) == nullptr) return MHD_YES;
    if (*size > 0) return MHD_NO;  // nothing that we answer has a body
    return static_cast<MHD_Result>(server.answer(connection, path, verb));
  }
  static void completed(void* self, MHD_Connection* connection, void** state, MHD_RequestTerminationCode /*how*/) {
    if (void* const kept = std::exchange(*state, nullptr); kept != nullptr && kept != &began) {
      auto* const posting = static_cast<PostingPtr*>(kept);
      (*posting)->gone = true;
      static_cast<HttpServer*>(self)->postings_.remove(posting->get());
      delete posting;
    }
    if (auto* client = client_of(connection)) client->since = static_cast<HttpServer*>(self)->loop_.now();
  }
  static void connection(void* self, MHD_Connection* connection, void** context, MHD_ConnectionNotificationCode what) {
    auto& server = *static_cast<HttpServer*>(self);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      const auto* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
      const int fd = info == nullptr ? -1 : info->connect_fd;
      const std::optional<uid_t> user = user_at(fd);
      // Root, and who runs us, may be a proxy of many.
      if (user && *user != 0 && *user != ::geteuid() &&
          std::ranges::count(server.clients_, user, &HttpServer::Client::user) >= kMostFromOne)
        (void)::shutdown(fd, SHUT_RDWR);
      server.clients_.push_back({fd, server.loop_.now(), user});
      *context = &server.clients_.back();
    } else {
      server.clients_.remove_if([&](const HttpServer::Client& one) { return &one == *context; });
      *context = nullptr;
    }
  }
  static ssize_t read(void* stream, std::uint64_t /*position*/, char* into, std::size_t most) {
    return static_cast<HttpServer::Stream*>(stream)->read(into, most);
  }
  static void end_stream(void* ended) {
    auto* const stream = static_cast<HttpServer::Stream*>(ended);
    stream->server.streams_.remove(stream);
    delete stream;
  }
  static HttpServer::Client* client_of(MHD_Connection* connection) {
    const auto* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info == nullptr ? nullptr : static_cast<HttpServer::Client*>(info->socket_context);
  }
};

HttpServer::HttpServer(Loop& loop, HttpOptions options, Find find)
    : loop_(loop),
      options_(std::move(options)),
      find_(std::move(find)),
      not_found_(refusal(MHD_HTTP_NOT_FOUND, "there is no such page")),
      wrong_method_(refusal(MHD_HTTP_METHOD_NOT_ALLOWED, "GET would be right")),
      wrong_host_(refusal(MHD_HTTP_MISDIRECTED_REQUEST, "this site goes by its address or as localhost")),
      no_token_(refusal(MHD_HTTP_UNAUTHORIZED, "a token is needed: Authorization: Bearer TOKEN, or as the password")),
      too_many_(refusal(MHD_HTTP_SERVICE_UNAVAILABLE, "too many listen to events already")),
      other_site_(refusal(MHD_HTTP_FORBIDDEN, "this comes from another site, or is not application/json")),
      too_long_(refusal(MHD_HTTP_CONTENT_TOO_LARGE, "that is too long")) {
  MHD_add_response_header(wrong_method_->response(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  MHD_add_response_header(no_token_->response(), MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Basic realm=\"lull\"");
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(Loop& loop, int listening, HttpOptions options, Find find) {
  std::unique_ptr<HttpServer> server(new HttpServer(loop, std::move(options), std::move(find)));
  TRY(server->open(listening));
  return server;
}

Result<> HttpServer::open(int listening) {
  const bool tls = !options_.certificate.empty();
  if (tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
    return fail("--tls-cert: this libmicrohttpd was built without TLS");
  std::vector<MHD_OptionItem> more = {
      {MHD_OPTION_NOTIFY_COMPLETED, reinterpret_cast<std::intptr_t>(&HttpCalls::completed), this},
      {MHD_OPTION_NOTIFY_CONNECTION, reinterpret_cast<std::intptr_t>(&HttpCalls::connection), this}};
  if (options_.from_everywhere) more.push_back({MHD_OPTION_PER_IP_CONNECTION_LIMIT, kMostFromOne, nullptr});
  if (tls) {
    more.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, options_.certificate.data()});
    more.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, options_.key.data()});
    static char priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    more.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0, priorities});
  }
  more.push_back({MHD_OPTION_END, 0, nullptr});
  const unsigned flags =
      static_cast<unsigned>(MHD_USE_EPOLL) | MHD_ALLOW_SUSPEND_RESUME | (tls ? static_cast<unsigned>(MHD_USE_TLS) : 0U);
  daemon_ = MHD_start_daemon(flags, 0, nullptr, nullptr, &HttpCalls::request, this,  //
                             MHD_OPTION_LISTEN_SOCKET, listening,                    //
                             MHD_OPTION_CONNECTION_LIMIT, kMostConnections,          //
                             MHD_OPTION_CONNECTION_TIMEOUT, kSilenceSeconds,         //
                             MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionMemory,  //
                             MHD_OPTION_STRICT_FOR_CLIENT, 1,                        //
                             MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,                   //
                             MHD_OPTION_ARRAY, more.data(), MHD_OPTION_END);
  if (daemon_ == nullptr)
    return fail(tls ? "TLS cannot be served with this certificate and key" : "HTTP cannot be served on this socket");
  const auto* const info = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD);
  if (info == nullptr) return fail("libmicrohttpd was built without epoll");
  epoll_ = info->epoll_fd;
  TRY(loop_.on_ready(epoll_, [this] { pump(); }));
  sweep();
  return {};
}

HttpServer::~HttpServer() {
  if (timer_) loop_.cancel(*timer_);
  if (sweep_timer_) loop_.cancel(*sweep_timer_);
  if (daemon_ == nullptr) return;
  if (epoll_ >= 0) loop_.forget(epoll_);
  stopping_ = true;
  for (Stream* stream : streams_) stream->resume();
  for (Posting* posting : postings_)
    if (std::exchange(posting->suspended, false)) {
      posting->answer = too_many_;
      MHD_resume_connection(posting->connection);
    }
  (void)MHD_quiesce_daemon(daemon_);  // the socket is not the library's to close
  MHD_run(daemon_);
  MHD_stop_daemon(daemon_);
}

void HttpServer::pump() {
  if (std::exchange(pumping_, true)) return;
  MHD_run(daemon_);
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  MHD_UNSIGNED_LONG_LONG milliseconds = 0;
  if (MHD_get_timeout(daemon_, &milliseconds) == MHD_YES)
    timer_ = loop_.in(std::chrono::milliseconds(std::min(milliseconds, 60'000ULL)), [this] {
      timer_.reset();
      pump();
    });
  pumping_ = false;
}

void HttpServer::sweep() {
  for (const Client& one : clients_)
    if (!one.waiting && loop_.now() - one.since > kLongestTurn) (void)::shutdown(one.fd, SHUT_RDWR);
  sweep_timer_ = loop_.in(kSweepEvery, [this] { sweep(); });
}

void HttpServer::publish(std::string event) {
  event_ = std::make_shared<const std::string>(std::move(event));
  ++events_;
  for (Stream* stream : streams_) stream->resume();
  pump();
}

bool HttpServer::allowed(MHD_Connection* connection, DocumentPtr& why_not) const {
  const auto header = [&](const char* name) {
    const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
    return std::string_view(value == nullptr ? "" : value);
  };
  if (!options_.tokens.empty()) {
    why_not = no_token_;
    return options_.tokens.allow(header(MHD_HTTP_HEADER_AUTHORIZATION));
  }
  why_not = wrong_host_;
  const std::string_view host = header(MHD_HTTP_HEADER_HOST);
  return host.empty() || names_no_other_site(host);
}

int HttpServer::answer(MHD_Connection* connection, std::string_view path, std::string_view method) {
  DocumentPtr document;
  if (allowed(connection, document)) {
    if (path == options_.events && method == MHD_HTTP_METHOD_GET) {
      if (streams_.size() < kMostStreams) return begin_stream(connection);
      document = too_many_;
    } else {
      document = find_(path);
      if (document == nullptr) document = not_found_;
    }
  }
  return MHD_queue_response(connection, document->status(), document->response());
}

// By their token where there are tokens, else by the kernel's word of a socket on this machine. One who speaks for
// others (a proxy) is none of them.
std::optional<uid_t> HttpServer::requester(MHD_Connection* connection) const {
  const auto header = [&](const char* name) { return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name); };
  const char* const authorization = header(MHD_HTTP_HEADER_AUTHORIZATION);
  if (!options_.tokens.empty()) return options_.tokens.user_of(authorization == nullptr ? "" : authorization);
  for (const char* const name : {"Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"})
    if (header(name) != nullptr) return std::nullopt;
  const auto* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info == nullptr ? std::nullopt : user_at(info->connect_fd);
}

int HttpServer::begin_post(MHD_Connection* connection, std::string_view /*path*/, void** state) {
  const auto header = [&](const char* name) {
    const char* const value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
    return std::string_view(value == nullptr ? "" : value);
  };
  const auto refuse = [&](const DocumentPtr& why) {
    return MHD_queue_response(connection, why->status(), why->response());
  };
  DocumentPtr why;
  if (!allowed(connection, why)) return refuse(why);
  if (!comes_from_here({.host = header(MHD_HTTP_HEADER_HOST),
                        .origin = header(MHD_HTTP_HEADER_ORIGIN),
                        .fetch_site = header("Sec-Fetch-Site"),
                        .content_type = header(MHD_HTTP_HEADER_CONTENT_TYPE)}))
    return refuse(other_site_);
  const auto length = to_unsigned(header(MHD_HTTP_HEADER_CONTENT_LENGTH));
  if (!length || *length > kLongestPost) return refuse(too_long_);
  auto posting = std::make_shared<Posting>(Posting{.server = *this, .connection = connection});
  posting->self = posting;
  postings_.push_back(posting.get());
  *state = new HttpCalls::PostingPtr(std::move(posting));
  return MHD_YES;
}

int HttpServer::post(MHD_Connection* connection, Posting& posting, const char* data, std::size_t* size) {
  if (*size > 0) {
    if (posting.body.size() + *size > kLongestPost) return MHD_NO;
    posting.body.append(data, std::exchange(*size, 0));
    return MHD_YES;
  }
  if (!std::exchange(posting.asked, true)) {
    // Kept alive by who answers.
    const auto shared = posting.self.lock();
    options_.on_post({.user = requester(connection), .body = posting.body}, [shared](DocumentPtr answer) {
      if (shared->gone) return;
      shared->answer = std::move(answer);
      if (!std::exchange(shared->suspended, false)) return;
      MHD_resume_connection(shared->connection);
      shared->server.loop_.in(Duration::zero(), [shared] {
        if (!shared->gone) shared->server.pump();
      });
    });
  }
  if (posting.answer != nullptr)
    return MHD_queue_response(connection, posting.answer->status(), posting.answer->response());
  posting.suspended = true;
  MHD_suspend_connection(connection);
  return MHD_YES;
}

int HttpServer::begin_stream(MHD_Connection* connection) {
  Client* const client = HttpCalls::client_of(connection);
  if (client == nullptr) return MHD_NO;
  auto* const stream = new Stream{*this, connection, *client};
  MHD_Response* const response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kStreamBlock, &HttpCalls::read,
                                                                   stream, &HttpCalls::end_stream);
  if (response == nullptr) {
    delete stream;
    return MHD_NO;
  }
  streams_.push_back(stream);
  add_headers(response, "text/event-stream");
  MHD_add_response_header(response, "X-Accel-Buffering", "no");
  const MHD_Result queued = MHD_queue_response(connection, MHD_HTTP_OK, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace lull
