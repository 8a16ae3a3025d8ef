#pragma once
// POST /api/keep: more time for a job or a GPU, as `lull keep` asks for it. Who may is for the watchers to say: root's
// lull-serve asks them in the name of whoever asked it, another user's for that user alone.

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "loop/loop.h"
#include "serve/http.h"
#include "session/control.h"

namespace lull {

struct KeepRequest {
  std::string target = {};  // a job or a GPU, as `lull keep` takes it; empty: all that is the user's
  Duration time{};
};
// {"target": "slurm:22", "seconds": 14400}
Result<KeepRequest> parse_keep_request(std::string_view text);

class KeepApi {
 public:
  explicit KeepApi(Loop& loop) : loop_(loop) {}
  KeepApi(const KeepApi&) = delete;
  KeepApi& operator=(const KeepApi&) = delete;

  void take(const PostRequest& request, std::function<void(DocumentPtr)> answer);
  std::function<void()> on_kept;  // a request was granted

 private:
  void answered(const std::vector<Reply>& replies, const std::function<void(DocumentPtr)>& answer);

  Loop& loop_;
  std::list<std::unique_ptr<Asking>> asking_;
};

}  // namespace lull
