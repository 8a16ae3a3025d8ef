#pragma once
// HTTP on a loop, by libmicrohttpd without threads of its own. It answers GET and HEAD, from documents that are ready,
// and POST of one path if there is a handler; each connection is limited in time and size, so that no client can block
// the others or the sampling.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "loop/loop.h"
#include "serve/access.h"

struct MHD_Connection;
struct MHD_Daemon;
struct MHD_Response;

namespace lull {

// What a request is answered with. Made once, sent as often as it is asked for.
class Document {
 public:
  Document(unsigned status, std::string_view type, std::string text);
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;
  ~Document();

  unsigned status() const { return status_; }
  MHD_Response* response() const { return response_; }

 private:
  unsigned status_;
  MHD_Response* response_;
};
using DocumentPtr = std::shared_ptr<const Document>;

// A request that is to change something: who asks, by the kernel's word or by their token, and what.
struct PostRequest {
  std::optional<uid_t> user = {};  // nothing: unknown
  std::string body = {};
};

struct HttpOptions {
  std::string certificate = {};  // PEM; empty: no TLS
  std::string key = {};
  Tokens tokens = {};            // empty: all may ask
  bool from_everywhere = false;  // other machines can connect
  std::string events = {};       // the path of the stream of events
  std::string post = {};         // the path that takes POST; empty: none
  // Answers now or later, once.
  std::function<void(PostRequest, std::function<void(DocumentPtr)>)> on_post = nullptr;
};

class HttpServer {
 public:
  using Find = std::function<DocumentPtr(std::string_view path)>;  // null: there is none

  // `listening` stays its owner's, and is open for longer than this.
  static Result<std::unique_ptr<HttpServer>> start(Loop& loop, int listening, HttpOptions options, Find find);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  // Sends this to all who listen to events, now and when they come. Who is slow misses some.
  void publish(std::string event);
  std::size_t streams() const { return streams_.size(); }

 private:
  friend struct HttpCalls;  // what the library calls
  struct Stream;
  struct Posting;
  // A connection is closed when it has neither asked nor taken anything for too long.
  struct Client {
    int fd = -1;
    Instant since{};                 // it was last done with something
    std::optional<uid_t> user = {};  // at the other end of a unix socket
    bool waiting = false;            // for an event: that is our turn
  };

  HttpServer(Loop& loop, HttpOptions options, Find find);
  Result<> open(int listening);
  void pump();
  void sweep();
  int answer(MHD_Connection* connection, std::string_view path, std::string_view method);
  int begin_stream(MHD_Connection* connection);
  int begin_post(MHD_Connection* connection, std::string_view path, void** state);
  int post(MHD_Connection* connection, Posting& posting, const char* data, std::size_t* size);
  std::optional<uid_t> requester(MHD_Connection* connection) const;
  bool allowed(MHD_Connection* connection, DocumentPtr& refusal) const;

  Loop& loop_;
  HttpOptions options_;
  Find find_;
  MHD_Daemon* daemon_ = nullptr;
  int epoll_ = -1;
  std::optional<Loop::TimerId> timer_;
  std::optional<Loop::TimerId> sweep_timer_;
  bool pumping_ = false;
  bool stopping_ = false;
  std::list<Client> clients_;
  std::list<Stream*> streams_;
  std::list<Posting*> postings_;
  std::shared_ptr<const std::string> event_;
  std::uint64_t events_ = 0;
  DocumentPtr not_found_, wrong_method_, wrong_host_, no_token_, too_many_, other_site_, too_long_;
};

}  // namespace lull
