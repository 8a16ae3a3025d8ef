#include "serve/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/calendar.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "config/settings.h"
#include "replay/output.h"
#include "replay/report_output.h"
#include "replay/trace_options.h"
#include "serve/api.h"
#include "trace/history.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr const char* kShownTime = "30d";
constexpr const char* kSweep = "for=5m,10m,15m,30m,1h,2h,4h,8h";
constexpr Duration kLookEvery = 15s;
constexpr BackgroundLimits kLookLimits = {.time = 30s, .answer = 64 << 10};
constexpr BackgroundLimits kReadLimits = {.time = 15min, .memory = std::size_t{3} << 30, .cpu = 10min};
constexpr std::size_t kMemory = std::size_t{128} << 20;  // for samples, of the 512 MiB that the unit allows
constexpr Duration kAfterFailure = 1min;                 // until it is tried again
constexpr Duration kShortest = 2min;                     // that an answer lasts
constexpr int kLastsTimes = 60;                          // as long as it took: at most so much of a processor
constexpr std::size_t kMostEnds = 200;

DocumentPtr json_document(unsigned status, std::string text) {
  return std::make_shared<Document>(status, "application/json", std::move(text));
}

std::string recording_json(const std::string& folder, const trace::Recording& seen) {
  constexpr std::array<std::string_view, 4> kNames = {"", "recording", "stopped", "failed"};
  const auto when = [](WallTime at) { return format_rfc3339(std::chrono::floor<std::chrono::seconds>(at), 0); };
  JsonWriter json;
  json.begin_object().member_or_null("trouble", seen.trouble).member("folder", printable(folder));
  json.member_or_null("state", kNames[static_cast<std::size_t>(seen.state.kind)]);
  json.member_or_null("last_row", seen.last_row ? when(*seen.last_row) : "");
  json.member("every_seconds",
              seen.state.every > Duration::zero() ? std::optional(to_seconds(seen.state.every)) : std::nullopt);
  json.member("days", seen.days).member("bytes", seen.bytes);
  json.member("free_bytes", seen.free_bytes).member("read_only", seen.read_only);
  return json.end_object().take();
}

replay::TraceCommandOptions traces_of(const std::string& folder) {
  replay::TraceCommandOptions options;
  options.traces = {folder};
  options.last = kShownTime;
  options.threads = 1;
  return options;
}

// The object of `lull report --last 30d --by-hour --json`, and when it was made.
Result<std::string> make_history(const std::string& folder) {
  const Settings settings = TRY(Settings::load());
  replay::ReportOptions options;
  options.idle = TRY(parse_rule(replay::kReportIdle));
  options.hung = TRY(parse_rule(replay::kReportHung));
  options.by_hour = true;
  options.memory = kMemory;
  TRY(replay::settle(traces_of(folder), options));
  const auto price = TRY(replay::read_price(settings.text(Setting::price)));
  const replay::ReportResult result = TRY(replay::report(std::move(options)));
  JsonWriter json;
  json.begin_object().member("time", format_rfc3339(SystemClock().wall(), 0)).member("last", kShownTime);
  return json.key("report").raw(trim(replay::report_json(result, price))).end_object().take() + "\n";
}

// The object of `lull replay --last 30d --per job --sweep … --json`.
Result<std::string> make_policy(const std::string& folder) {
  const Settings settings = TRY(Settings::load());
  replay::ReplayOptions options;
  options.policy.idle = TRY(settings.idle_option("idle", settings.text(Setting::idle)));
  options.memory = kMemory;
  options.per = replay::Per::job;  // as `lull watch --per job`, whose command the page gives
  options.axes = {TRY(replay::parse_axis(kSweep))};
  TRY(replay::start_from_first(options.policy, options.axes));
  TRY(replay::settle(traces_of(folder), options));
  const auto price = TRY(replay::read_price(settings.text(Setting::price)));
  const replay::ReplayResult result = TRY(replay::replay(std::move(options)));
  JsonWriter json;
  json.begin_object().member("time", format_rfc3339(SystemClock().wall(), 0)).member("last", kShownTime);
  replay::put_axes(json, result.axes);
  json.key("replay");
  replay::put_result(json, result, {.price = price, .verbose = false, .most_ends = kMostEnds});
  return json.end_object().take() + "\n";
}

// To the end of the local day: the days before are the same until then.
Duration rest_of_day() {
  const WallTime now = SystemClock().wall();
  const auto today = trace::local_day(now);
  for (Duration rest = 15min; rest < 26h; rest += 15min)
    if (trace::local_day(now + rest) != today) return rest;
  return 24h;
}

}  // namespace

void MadeAnswer::make() {
  const Instant began = loop_.now();
  making_.start(work_, kReadLimits, [this, began](const Result<std::string>& answer) { made(answer, began); });
}

void MadeAnswer::made(const Result<std::string>& answer, Instant began) {
  const Instant now = loop_.now();
  made_ = true;
  due_at_ = now + (answer ? lasting_(now - began) : kAfterFailure);
  if (answer) document_ = json_document(200, *answer);
  // What was read before is still what was: its time stands in it.
  else if (document_ == nullptr || document_->status() != 200)
    document_ = json_document(503, error_json(answer.error().message()));
}

HistoryApi::HistoryApi(std::string folder, Loop& loop, Say say)
    : folder_(std::move(folder)),
      loop_(loop),
      say_(std::move(say)),
      looking_(loop),
      history_(loop, [this] { return make_history(folder_); }),
      policy_(loop, [this] { return make_policy(folder_); }),
      none_(json_document(404, error_json("lull serve was started without --history DIR"))),
      wait_(json_document(202, JsonWriter().begin_object().member("reading", true).end_object().take() + "\n")) {
  history_.set_lasting([](Duration took) { return std::max<Duration>(kShortest, kLastsTimes * took); });
  policy_.set_lasting([](Duration) { return rest_of_day(); });
  if (!folder_.empty()) look();
}

HistoryApi::~HistoryApi() {
  if (look_timer_) loop_.cancel(*look_timer_);
}

void HistoryApi::look() {
  look_timer_.reset();
  looking_.start(
      [this]() -> Result<std::string> {
        const trace::Recording seen = trace::look_at_recording(folder_, SystemClock().wall());
        return seen.trouble + "\n" + recording_json(folder_, seen) + "\n";
      },
      kLookLimits, [this](const Result<std::string>& seen) { looked(seen); });
}

// What changes is said, for the log.
void HistoryApi::looked(const Result<std::string>& seen) {
  std::string trouble;
  std::string text;
  if (seen) {
    const std::size_t line = seen->find('\n');
    trouble = seen->substr(0, line);
    text = seen->substr(line + 1);
  } else {
    trouble = fmt::format("{} cannot be looked at: {}", printable(folder_), seen.error().message());
    text = JsonWriter()
               .begin_object()
               .member("trouble", trouble)
               .member("folder", printable(folder_))
               .end_object()
               .take() +
           "\n";
  }
  recording_ = json_document(200, std::move(text));
  if (trouble != trouble_) say_(trouble.empty() ? "the history is being recorded again" : "history: " + trouble);
  trouble_ = std::move(trouble);
  look_timer_ = loop_.in(kLookEvery, [this] { look(); });
}

// One at a time.
DocumentPtr HistoryApi::answer(MadeAnswer& wanted, const MadeAnswer& other) {
  if (wanted.due() && !other.being_made()) wanted.make();
  return wanted.document() != nullptr ? wanted.document() : wait_;
}

DocumentPtr HistoryApi::find(std::string_view path) {
  const bool recording = path == "/api/recording";
  const bool history = path == "/api/history";
  if (!recording && !history && path != "/api/policy") return nullptr;
  if (folder_.empty()) return none_;
  if (recording) return recording_ != nullptr ? recording_ : wait_;
  return history ? answer(history_, policy_) : answer(policy_, history_);
}

}  // namespace lull
