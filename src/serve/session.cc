#include "serve/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/fd.h"
#include "base/host.h"
#include "base/text.h"
#include "cli/command.h"
#include "replay/page.h"
#include "serve/api.h"
#include "serve/listening.h"
#include "serve/metrics.h"
#include "serve/page.h"
#include "session/sampling_session.h"
#include "view/status.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kServeDriverLimit = 1500ms;  // before a GPU is told as not answering
constexpr Duration kAskPause = 1s;              // between two questions to watchers
constexpr int kAskShare = 10;

// What is the same for all requests, for as long as we run.
DocumentPtr page_file(std::string_view path) {
  struct File {
    std::string_view path;
    std::string_view type;
    std::string_view text;
  };
  const std::array<File, 10> files = {{
      {"/", "text/html; charset=utf-8", packed_now_html},
      {"/style.css", "text/css; charset=utf-8", replay::packed_page_css},
      {"/now.css", "text/css; charset=utf-8", packed_now_css},
      {"/base.js", "text/javascript; charset=utf-8", replay::packed_base_js},
      {"/chart.js", "text/javascript; charset=utf-8", replay::packed_chart_js},
      {"/now.js", "text/javascript; charset=utf-8", packed_now_js},
      {"/views.css", "text/css; charset=utf-8", packed_views_css},
      {"/views.js", "text/javascript; charset=utf-8", packed_views_js},
      {"/history.js", "text/javascript; charset=utf-8", packed_history_js},
      {"/policy.js", "text/javascript; charset=utf-8", packed_policy_js},
  }};
  const auto* const found = std::ranges::find(files, path, &File::path);
  if (found == files.end()) return nullptr;
  return std::make_shared<Document>(200, found->type, std::string(found->text));
}

SamplerOptions sampling_for(const ServeSettings& settings) {
  SamplerOptions sampling;
  sampling.process_info = true;
  sampling.deadline = std::min(kServeDriverLimit, 2 * settings.every);
  sampling.idle_before = true;
  sampling.learned = true;
  return sampling;
}

}  // namespace

ServeSession::ServeSession(ServeSettings settings, World& world, Say say)
    : settings_(std::move(settings)),
      world_(world),
      say_(std::move(say)),
      observer_(settings_.every, *world.users()),
      history_(settings_.history, world.loop(), say_),
      keep_(world.loop()) {
  keep_.on_kept = [this] { ask_again_ = Instant::min(); };
}

Result<HttpOptions> ServeSession::http_options() {
  HttpOptions options;
  options.events = "/api/events";
  options.from_everywhere = !settings_.listen.local;
  if (settings_.allow_keep) {
    options.post = "/api/keep";
    options.on_post = [this](const PostRequest& request, std::function<void(DocumentPtr)> answer) {
      keep_.take(request, std::move(answer));
    };
  }
  if (!settings_.token_file.empty()) options.tokens = TRY(Tokens::read(settings_.token_file));
  if (!settings_.tls()) return options;
  const auto read = [](std::string_view option, const std::string& path) -> Result<std::string> {
    auto text = read_file(path);
    if (!text) return fail(text.error().errno_value, fmt::format("{} {}", option, printable(path)));
    return text;
  };
  options.certificate = TRY(read("--tls-cert", settings_.tls_certificate));
  options.key = TRY(read("--tls-key", settings_.tls_key));
  return options;
}

SessionEnd ServeSession::run() {
  const auto failed = [](const Error& error) { return SessionEnd{kExitFailure, "serve: " + error.message()}; };
  auto options = http_options();
  if (!options) return failed(options.error());
  const auto listening = Listening::open(settings_.listen);
  if (!listening) return failed(listening.error());
  auto http = HttpServer::start(world_.loop(), listening->fd(), *std::move(options),
                                [this](std::string_view path) { return find(path); });
  if (!http) return failed(http.error());
  http_ = *std::move(http);
  const std::string address = listening->address().to_string();
  say_(fmt::format("serving on {}{}", settings_.listen.path.empty() ? settings_.tls() ? "https://" : "http://" : "",
                   address));
  SamplingSession session({.sampling = sampling_for(settings_), .every = settings_.every, .length = {}}, world_,
                          [this](const Snapshot& snapshot) { return see(snapshot); });
  SessionEnd end = session.run();
  if (tell_timer_) world_.loop().cancel(*tell_timer_);
  asking_.reset();
  http_.reset();
  // It serves until it is told to stop: that is not a failure.
  return end.signal != 0 ? SessionEnd{} : end;
}

std::optional<SessionEnd> ServeSession::see(const Snapshot& snapshot) {
  observer_.see(snapshot);
  jobs_.see(observer_.snapshot(), observer_.uses(), world_.users()->leases());
  for (const std::string& text : jobs_.take_notes()) say_(text);
  made_.clear();
  ask_watchers();
  tell();
  return std::nullopt;
}

// A watcher that is slow to answer is asked as much less often.
void ServeSession::ask_watchers() {
  const Instant before = world_.clock().now();
  if (!jobs_.any() || asking_ != nullptr || before < ask_again_) return;
  asking_ = std::make_unique<Asking>(
      world_.loop(), ControlOf::keep, std::string(kJobsQuestion), [this, before](const std::vector<Reply>& replies) {
        jobs_.hear(replies);
        made_.clear();
        const Instant after = world_.clock().now();
        ask_again_ = after + std::max<Duration>(kAskPause, kAskShare * (after - before));
        // Called from inside of it: it goes when the stack is empty.
        world_.loop().in(Duration::zero(), [over = std::shared_ptr<Asking>(std::move(asking_))] {});
      });
}

// With every sample, and where none comes as often: whoever listens hears that, and that we are there.
void ServeSession::tell() {
  if (tell_timer_) world_.loop().cancel(*tell_timer_);
  http_->publish(now_event(observer_, world_.clock().now(), settings_.every, jobs_.view(), settings_.allow_keep));
  tell_timer_ = world_.loop().in(4 * settings_.every, [this] {
    tell_timer_.reset();
    tell();
  });
}

DocumentPtr ServeSession::find(std::string_view path) {
  if (DocumentPtr recorded = history_.find(path)) return recorded;
  const bool up = observer_.is_up(world_.clock().now());
  if (std::exchange(was_up_, up) != up) made_.clear();
  if (const auto found = made_.find(path); found != made_.end()) return found->second;
  DocumentPtr document = make(path);
  if (document != nullptr) made_.emplace(path, document);
  return document;
}

DocumentPtr ServeSession::make(std::string_view path) const {
  if (path == "/metrics")
    return std::make_shared<Document>(
        200, "text/plain; version=0.0.4; charset=utf-8",
        metrics_text(observer_, world_.clock().now(),
                     {.version = version(), .host = host_name(), .dcgm_names = settings_.dcgm_names}));
  return path.starts_with("/api/") ? make_json(path) : page_file(path);
}

DocumentPtr ServeSession::make_json(std::string_view path) const {
  constexpr std::array<std::string_view, 4> kPaths = {"/api/status", "/api/jobs", "/api/leases", "/api/recent"};
  if (std::ranges::find(kPaths, path) == kPaths.end()) return nullptr;
  const auto document = [](unsigned status, std::string text) {
    return std::make_shared<Document>(status, "application/json", std::move(text));
  };
  // What was is not told as what is.
  const Instant now = world_.clock().now();
  if (!observer_.is_up(now)) return document(503, error_json(observer_.trouble(now)));
  if (path == "/api/status") return document(200, status_json(observer_.status()) + "\n");
  if (path == "/api/jobs") return document(200, jobs_json(jobs_.view(), host_name()) + "\n");
  if (path == "/api/recent") return document(200, recent_json(observer_, now));
  const auto leases = api_leases_json(observer_);
  return leases ? document(200, *leases) : document(503, error_json(leases.error().message()));
}

}  // namespace lull
