#include "replay/trace_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/fd.h"
#include "base/random.h"
#include "base/text.h"
#include "base/units.h"
#include "replay/answer.h"
#include "replay/report_output.h"
#include "trace/prometheus_fetch.h"
#include "trace/schema.h"

namespace lull::replay {
namespace {

constexpr std::size_t kLeastMemory = 64 << 20;

Result<> read_prometheus(const TraceCommandOptions& options, TracesToRead& traces) {
  trace::PrometheusQuery query;
  query.url = TRY(trace::url_of_prometheus(options.traces[0]));
  if (options.traces.size() > 1) return fail("prometheus:URL is read by itself, without other traces");
  if (!traces.range.from)
    return fail("of a Prometheus a time must be said: --last 30d, or --from 2026-11-01 with or without --to");
  constexpr std::int64_t kMillisecond = 1'000'000;
  query.from = traces.range.from->moment / kMillisecond;
  const std::int64_t now = SystemClock().wall().time_since_epoch().count();
  query.to = (traces.range.to ? std::min(traces.range.to->moment, now) : now) / kMillisecond;
  query.match = options.match;
  query.token_file = options.token_file;
  query.save = options.save;
  traces.paths.clear();
  traces.prometheus = std::move(query);
  return {};
}

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

}  // namespace

Result<> settle(const TraceCommandOptions& options, TracesToRead& traces) {
  traces.paths = options.traces;
  traces.range = TRY(time_range_option(options.last, options.from, options.to, SystemClock().wall()));
  const auto from_server = [](const std::string& name) { return name.starts_with(trace::kPrometheusPrefix); };
  if (std::ranges::any_of(options.traces, from_server)) {
    if (!from_server(options.traces[0])) return fail("prometheus:URL is read by itself, without other traces");
    TRY(read_prometheus(options, traces));
  } else {
    for (const auto& [option, text] :
         {std::pair{"--match", &options.match}, std::pair{"--token-file", &options.token_file},
          std::pair{"--save", &options.save}})
      if (!text->empty()) return fail(fmt::format("{} is for prometheus:URL, and this is a file", option));
  }
  if (!options.gap.empty()) traces.gap = TRY(duration_option("--gap", options.gap));
  if (traces.gap == Duration::zero()) return fail("--gap 0 would leave nothing seen: more than 0 would be right");
  if (!options.every.empty()) traces.every = TRY(duration_option("--every", options.every));
  if (traces.every == Duration::zero()) return fail("--every: more than 0 would be right");
  traces.columns = TRY(trace::parse_columns(options.columns));
  auto labels = trace::parse_columns(options.labels);
  if (!labels) return std::unexpected(std::move(labels).error().during("--labels"));
  for (trace::ColumnChoice& label : *labels) label.option = "--labels";
  traces.columns.insert(traces.columns.end(), labels->begin(), labels->end());
  traces.threads = options.threads;
  return {};
}

Result<Per> read_per(const std::string& text) { return static_cast<Per>(TRY(choice_option("--per", text, kPerNames))); }

Result<ReportBy> read_by(const std::string& text) {
  return static_cast<ReportBy>(TRY(choice_option("--by", text, kReportByNames)));
}

Result<double> read_share(std::string_view option, std::string_view text) {
  const auto share = to_double(trim(text.substr(0, text.find('%'))));
  if (share && !text.ends_with('%'))
    return fail(fmt::format("{}: '{}' needs a %: {:g}% would be right", option, printable(text),
                            *share < 1 ? 100 * *share : *share));
  if (!share || !(*share >= 0 && *share <= 100))
    return fail(fmt::format("{}: '{}' is not a share: 0% to 100% would be right, such as 1%", option, printable(text)));
  return *share / 100;
}

Result<std::vector<std::string>> read_users(std::string_view option, const std::vector<std::string>& texts) {
  std::vector<std::string> users;
  for (const std::string& text : texts)
    for (const std::string_view user : split(text, ',')) {
      if (trim(user).empty())
        return fail(fmt::format("{}: '{}' has no name: ada,bob would be right", option, printable(text)));
      users.emplace_back(trim(user));
    }
  return users;
}

Result<std::size_t> read_memory(std::string_view option, std::string_view text) {
  auto memory = parse_size(text);
  if (!memory) return std::unexpected(std::move(memory).error().during(option));
  if (*memory < kLeastMemory)
    return fail(fmt::format("{}: at least {}", option, format_size(static_cast<double>(kLeastMemory))));
  return *memory;
}

// ---- prices and pages

Result<std::optional<double>> read_price(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto price = to_double(text);
  if (!price || !(*price >= 0 && *price <= 1e6))
    return fail(fmt::format("--price: '{}' is not a price an hour: 0 to 1000000 would be right, such as 2.49",
                            printable(text)));
  return *price;
}

Result<> check_outputs(const std::vector<std::string>& traces, const std::string& html) {
  struct stat page{};
  struct stat out{};
  const bool has_page = !html.empty() && ::stat(html.c_str(), &page) == 0;
  const bool has_out = ::fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode);
  for (const std::string& trace : traces) {
    struct stat in{};
    if ((trace == "-" ? ::fstat(STDIN_FILENO, &in) : ::stat(trace.c_str(), &in)) != 0 || !S_ISREG(in.st_mode)) continue;
    if (has_page && same_file(in, page))
      return fail(fmt::format("--html {} is the trace itself, and would be overwritten", printable(html)));
    if (has_out && same_file(in, out))
      return fail(fmt::format("standard output goes into {}, the trace itself", printable(trace)));
  }
  if (has_page && has_out && same_file(page, out))
    return fail(fmt::format("--html {} is where standard output goes", printable(html)));
  return {};
}

// The draft is a new file: it takes the place of nothing, and a link that lies there leads nowhere.
Result<> write_page(const std::string& path, const std::string& page) {
  const std::string draft = fmt::format("{}.{:016x}.part", path, random_bits());
  const auto write = [&]() -> Result<> {
    const Fd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));  // not its name
    if (!fd) return fail(errno, "open");
    return write_all(fd.get(), page);
  };
  auto written = write();
  if (written && ::rename(draft.c_str(), path.c_str()) != 0) written = fail(errno, "rename");
  if (written) return {};
  ::unlink(draft.c_str());
  return std::unexpected(std::move(written).error().during("--html " + printable(path)));
}

}  // namespace lull::replay
