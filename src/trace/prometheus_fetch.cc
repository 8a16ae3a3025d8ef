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
#include <thread>
#include <utility>

#include "base/curl.h"
#include "base/text.h"
#include "trace/known_names.h"
#include "trace/names.h"

namespace lull::trace {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kDayMs = 86'400'000;
constexpr std::int64_t kHour = 3'600'000;
constexpr std::array<Duration, 3> kPauses = {0s, 500ms, 2s};  // before each attempt
constexpr Duration kLongestAnswer = 5min;                     // one answer
constexpr std::size_t kBeginning = 400;                       // of an answer: says whether it is one
constexpr std::size_t kEnd = 256 << 10;                       // of an answer: says whether it is whole

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
  bool refused_for_good() const { return for_good_; }

 private:
  Result<> ask(std::int64_t from, std::int64_t to);
  std::string text_at(off_t at, std::size_t most) const;

  const PrometheusQuery& query_;
  std::string selector_;
  std::string token_;
  int file_;
  bool any_series_ = false;
  bool for_good_ = false;
  std::string partial_;         // said already
  std::int64_t most_ = kDayMs;  // what the server answers at once
};

std::string Fetching::text_at(off_t at, std::size_t most) const {
  std::string text(most, '\0');
  const ssize_t size = ::pread(file_, text.data(), text.size(), at);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

Result<> Fetching::ask(std::int64_t from, std::int64_t to) {
  const off_t before = ::lseek(file_, 0, SEEK_CUR);
  // A range ends with its last millisecond, so that the next one begins behind it.
  const std::string config =
      prometheus_request(query_.url, token_, selector_, std::chrono::milliseconds(to - from), to - 1);
  const Result<int> status = run_curl(config, file_, kLongestAnswer);
  Result<> done;
  if (!status) done = std::unexpected(status.error());
  const std::string start = text_at(before, kBeginning);
  if (done && !is_success(start)) {
    const std::string said = printable(trim(start)).substr(0, 200);
    // What it refuses now it refuses again: only one that is overloaded or broken is asked once more.
    for_good_ = *status == 400 || *status == 401 || *status == 403 || *status == 404;
    done = fail(said.empty() ? fmt::format("an empty answer ({})", *status) : fmt::format("it answers {}", said));
  }
  if (done) {
    const off_t end = ::lseek(file_, 0, SEEK_CUR);
    const std::string part = partial_answer(start + text_at(std::max(before, end - static_cast<off_t>(kEnd)), kEnd));
    if (!part.empty() && part != partial_) {
      partial_ = part;
      if (query_.note)
        query_.note(fmt::format("{}: it does not have all of {} to {} UTC: {}", host_of_url(query_.url), day_text(from),
                                day_text(to), part));
    }
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
    if (done || for_good_) return done;
    // A server has a limit of samples in one answer: then it is asked for hours.
    if (done.error().message().find("too many samples") != std::string::npos) most_ = kHour;
  }
  if (to - from <= most_) return done;
  for (std::int64_t at = from; at < to; at += most_) TRY(piece(at, std::min(at + most_, to)));
  return {};
}

}  // namespace

std::string prometheus_request(const std::string& url, const std::string& token, const std::string& selector,
                               Duration range, std::optional<std::int64_t> to) {
  const auto line = [](std::string_view name, const std::string& value) {
    return fmt::format("{} = {}\n", name, curl_quoted(value));
  };
  std::string config = line("url", url + "/api/v1/query");
  const auto length = std::chrono::ceil<std::chrono::milliseconds>(range).count();
  config += line("data-urlencode", fmt::format("query={}[{}ms]", selector, length));
  if (to) config += line("data-urlencode", fmt::format("time={:.3f}", static_cast<double>(*to) / 1000));
  config += line("header", "Accept-Encoding: identity");
  if (!token.empty()) config += line("header", "Authorization: Bearer " + token);
  return config;
}

Result<std::string> read_token(const PrometheusQuery& query) {
  if (query.token_file.empty()) return std::string();
  auto text = read_file(query.token_file);
  if (!text) return std::unexpected(std::move(text).error().during("--token-file"));
  const std::string token(trim(*text));
  if (token.empty() || token.find_first_of("\r\n") != std::string::npos)
    return fail(fmt::format("--token-file {}: one line with the token would be right", printable(query.token_file)));
  return token;
}

bool is_success(std::string_view answer) {
  return answer.substr(0, kBeginning).find("\"status\":\"success\"") != std::string_view::npos;
}

// In the text of a label no quote stands by itself: where these words stand as they are, they name a field, or a label,
// whose value is a text.
std::string partial_answer(std::string_view answer) {
  const auto value_with = [&](std::string_view name, std::string_view beginning) -> std::string_view {
    for (std::size_t at = answer.find(name); at != std::string_view::npos; at = answer.find(name, at + 1)) {
      const std::string_view rest = trim(answer.substr(at + name.size(), 1000));
      const std::string_view value = rest.starts_with(':') ? trim(rest.substr(1)) : std::string_view();
      if (value.starts_with(beginning)) return value;
    }
    return {};
  };
  if (!value_with("\"isPartial\"", "true").empty()) return "isPartial";
  const std::string_view warnings = value_with("\"warnings\"", "[");
  const std::string_view first = warnings.empty() ? "" : trim(warnings.substr(1));
  return first.empty() || first.starts_with(']')
             ? ""
             : printable(first.substr(0, std::min<std::size_t>(first.find(']'), 200)));
}

std::string host_of_url(std::string_view url) {
  if (const std::size_t scheme = url.find("://"); scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (const std::size_t at = url.rfind('@'); at != std::string_view::npos) url.remove_prefix(at + 1);
  return printable(url);
}

Result<std::string> url_of_prometheus(const std::string& word) {
  std::string url = word.starts_with(kPrometheusPrefix) ? word.substr(kPrometheusPrefix.size()) : "";
  while (url.ends_with('/')) url.pop_back();
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    return fail(fmt::format("{}: prometheus:http://HOST:9090 would be right", printable(word)));
  return url;
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
  std::string token = TRY(read_token(query));
  Fd file = query.save.empty() ? TRY(unnamed_file()) : TRY(open_file(query.save, O_RDWR | O_CREAT | O_TRUNC, 0600));
  Fetching fetching(query, prometheus_selector(wanted, columns, query.match), std::move(token), file.get());
  const std::string where = host_of_url(query.url);
  std::optional<Error> last;
  std::size_t had = 0;
  for (std::int64_t from = query.from; from < query.to; from += kDayMs) {
    const std::int64_t to = std::min(from + kDayMs, query.to);
    if (progress) progress(static_cast<double>(from - query.from) / static_cast<double>(query.to - query.from));
    if (auto done = fetching.piece(from, to); done) {
      ++had;
    } else {
      last = std::move(done).error();
      const bool over = fetching.refused_for_good();
      if (query.note)
        query.note(fmt::format("{}: nothing from {} to {} UTC, which is a gap: {}", where, day_text(from),
                               day_text(over ? query.to : to), last->message()));
      if (over) break;
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
