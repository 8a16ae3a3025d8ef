#pragma once
// lull-serve: samples on its own schedule, and answers requests from the newest sample. One loop, one thread.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/exit_status.h"
#include "cli/serve_options.h"
#include "serve/history.h"
#include "serve/http.h"
#include "serve/keep.h"
#include "serve/observer.h"
#include "session/jobs_look.h"
#include "session/world.h"

namespace lull {

class ServeSession {
 public:
  using Say = std::function<void(const std::string&)>;

  ServeSession(ServeSettings settings, World& world, Say say);

  // Until TERM, INT or HUP.
  SessionEnd run();

 private:
  Result<HttpOptions> http_options();
  std::optional<SessionEnd> see(const Snapshot& snapshot);
  DocumentPtr find(std::string_view path);
  DocumentPtr make(std::string_view path) const;
  DocumentPtr make_json(std::string_view path) const;
  void tell();
  void ask_watchers();

  ServeSettings settings_;
  World& world_;
  Say say_;
  Observer observer_;
  HistoryApi history_;
  JobsLook jobs_;
  std::unique_ptr<Asking> asking_;  // what watchers know of the jobs
  Instant ask_again_ = Instant::min();
  KeepApi keep_;
  std::unique_ptr<HttpServer> http_;
  std::map<std::string, DocumentPtr, std::less<>> made_;  // of the newest sample
  bool was_up_ = false;                                   // when they were made
  std::optional<Loop::TimerId> tell_timer_;               // says that no sample came
};

}  // namespace lull
