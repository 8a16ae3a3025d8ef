#include "trace/prometheus_fetch.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "base/curl.h"
#include "base/text.h"
#include "trace/known_names.h"
#include "trace/names.h"

namespace lull::trace {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kDay = 86'400'000;  // ms
constexpr std::int64_t kHour = 3'600'000;
constexpr std::array<Duration, 3> kPauses = {0s, 500ms, 2s};  // before each attempt
constexpr Duration kLongestAnswer = 5min;                     // one answer

bool is_exported(std::string_view name) {
  return name.starts_with("dcgm_") || name.starts_with("nvidia_") || name.starts_with("lull_");
}
bool is_metric_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
  });
}

std::string day_text(std::int64_t ms) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(static_cast<std::time_t>(ms / 1000)));
}

Result<std::string> read_token(const std::string& path) {
  auto text = read_file(path);
  if (!text) return std::unexpected(std::move(text).error().during("--token-file"));
  const std::string token(trim(*text));
  if (token.empty() || token.find_first_of("\r\n") != std::string::npos)
    return fail(fmt::format("--token-file {}: one line with the token would be right", printable(path)));
  return token;
}

Result<Fd> unnamed_file() {
  const char* const chosen = std::getenv("TMPDIR");
  const std::string folder = chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
  if (auto file = open_file(folder, O_TMPFILE | O_RDWR, 0600)) return file;
  std::string name = folder + "/lull-XXXXXX";
  Fd file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file) return fail(errno, folder);
  ::unlink(name.c_str());
  return file;
}

class Fetching {
 public:
  Fetching(const PrometheusQuery& query, std::string selector, std::string token, int file)
      : query_(query), selector_(std::move(selector)), token_(std::move(token)), file_(file) {}

  // All of (from, to], as one answer if the server can.
  Result<> piece(std::int64_t from, std::int64_t to);
  bool any_series() const { return any_series_; }

 private:
  Result<> ask(std::int64_t from, std::int64_t to);
  std::string beginning(off_t at) const;

  const PrometheusQuery& query_;
  std::string selector_;
  std::string token_;
  int file_;
  bool any_series_ = false;
  std::int64_t most_ = kDay;  // what the server answers at once
};

std::string Fetching::beginning(off_t at) const {
  std::array<char, 400> text{};
  const ssize_t size = ::pread(file_, text.data(), text.size(), at);
  return {text.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

Result<> Fetching::ask(std::int64_t from, std::int64_t to) {
  const off_t before = ::lseek(file_, 0, SEEK_CUR);
  // A range ends with its last millisecond, so that the next one begins behind it.
  std::string config = "url = " + curl_quoted(query_.url + "/api/v1/query") + "\n";
  config += "data-urlencode = " + curl_quoted(fmt::format("query={}[{}ms]", selector_, to - from)) + "\n";
  config += "data-urlencode = " + curl_quoted(fmt::format("time={:.3f}", static_cast<double>(to - 1) / 1000)) + "\n";
  config += "header = " + curl_quoted("Accept-Encoding: identity") + "\n";
  if (!token_.empty()) config += "header = " + curl_quoted("Authorization: Bearer " + token_) + "\n";
  Result<> done = run_curl(config, file_, kLongestAnswer);
  const std::string start = beginning(before);
  if (done && start.find("\"status\":\"success\"") == std::string::npos) {
    const std::string said = printable(trim(start)).substr(0, 200);
    done = fail(said.empty() ? "an empty answer" : fmt::format("it answers {}", said));
  }
  if (done) done = write_all(file_, "\n");
  if (done) {
    any_series_ = any_series_ || start.find("\"metric\"") != std::string::npos;
    return {};
  }
  if (::ftruncate(file_, before) != 0 || ::lseek(file_, before, SEEK_SET) < 0) return fail(errno, "the answers so far");
  return done;
}

Result<> Fetching::piece(std::int64_t from, std::int64_t to) {
  Result<> done;
  for (const Duration pause : kPauses) {
    if (to - from > most_) break;
    if (pause > 0s) std::this_thread::sleep_for(pause);
    done = ask(from, to);
    if (done) return done;
    // A server has a limit of samples in one answer: then it is asked for hours.
    if (done.error().message().find("too many samples") != std::string::npos) most_ = kHour;
  }
  if (to - from <= most_) return done;
  for (std::int64_t at = from; at < to; at += most_) TRY(piece(at, std::min(at + most_, to)));
  return {};
}

}  // namespace

std::string host_of_url(std::string_view url) {
  if (const std::size_t scheme = url.find("://"); scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (const std::size_t at = url.rfind('@'); at != std::string_view::npos) url.remove_prefix(at + 1);
  return printable(url);
}

std::string prometheus_selector(const std::vector<Metric>& wanted, const std::vector<ColumnChoice>& columns,
                                const std::string& match) {
  std::vector<std::string_view> names;
  for (const KnownName& row : kUsualNames)
    if (row.role == Role::metric && is_exported(row.name) && std::ranges::find(wanted, row.metric) != wanted.end())
      names.push_back(row.name);
  std::vector<std::string_view> units;
  for (const auto& [suffix, unit] : kSuffixes) units.push_back(suffix);
  // Names in any case, with or without their unit; and what tells jobs.
  std::string pattern =
      fmt::format("(?i:({})(_({}))?|nvidia_gpu_jobid|lull_gpu_job_info)", fmt::join(names, "|"), fmt::join(units, "|"));
  for (const ColumnChoice& choice : columns)
    if (metric_by_name(choice.role) && is_metric_name(choice.column)) pattern += "|" + choice.column;
  std::string_view more = trim(match);
  if (more.starts_with('{') && more.ends_with('}')) more = trim(more.substr(1, more.size() - 2));
  return fmt::format("{{__name__=~\"{}\"{}{}}}", pattern, more.empty() ? "" : ",", more);
}

Result<PrometheusAnswers> fetch_prometheus(const PrometheusQuery& query, const std::vector<Metric>& wanted,
                                           const std::vector<ColumnChoice>& columns,
                                           const std::function<void(double part)>& progress) {
  std::string token;
  if (!query.token_file.empty()) token = TRY(read_token(query.token_file));
  Fd file = query.save.empty() ? TRY(unnamed_file()) : TRY(open_file(query.save, O_RDWR | O_CREAT | O_TRUNC, 0600));
  Fetching fetching(query, prometheus_selector(wanted, columns, query.match), std::move(token), file.get());
  const std::string where = host_of_url(query.url);
  std::optional<Error> last;
  std::size_t had = 0;
  for (std::int64_t from = query.from; from < query.to; from += kDay) {
    const std::int64_t to = std::min(from + kDay, query.to);
    if (progress) progress(static_cast<double>(from - query.from) / static_cast<double>(query.to - query.from));
    if (auto done = fetching.piece(from, to); done) {
      ++had;
    } else {
      last = std::move(done).error();
      if (query.note)
        query.note(fmt::format("{}: nothing from {} to {} UTC, which is a gap: {}", where, day_text(from), day_text(to),
                               last->message()));
    }
  }
  if (had == 0) return fail(fmt::format("{}: {}", where, last ? last->message() : "there is no time to ask for"));
  if (!fetching.any_series())
    return fail(fmt::format(
        "{}: it has none of the metrics of GPUs that lull knows between {} and {} UTC{}; --columns util=NAME names one",
        where, day_text(query.from), day_text(query.to), query.match.empty() ? "" : " that match"));
  PrometheusAnswers answers;
  answers.path = query.save.empty() ? fmt::format("/proc/self/fd/{}", file.get()) : query.save;
  answers.file = std::make_shared<Fd>(std::move(file));
  return answers;
}

}  // namespace lull::trace
