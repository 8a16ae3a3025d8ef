// `lull check RULE`: what a rule means, what it needs, and what this machine gives of it.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "engine/judge.h"
#include "rule/quantity.h"
#include "rule/reason.h"
#include "rule/rule.h"
#include "sense/sampler.h"
#include "sense/select.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 1500ms;
constexpr std::size_t kTitle = 7;  // cells of the columns of the text
constexpr std::size_t kName = 12;

struct Looked {
  Snapshot snapshot;
  std::vector<std::size_t> devices;  // in scope
  Truth now = Truth::unknown;        // the rule without its outermost `for`
  bool driver() const { return snapshot.driver.absence == Absence::none; }
};

// A value that needs two samples can be read, only not yet.
bool readable(const Reading& reading, Metric metric) {
  return std::isfinite(reading[metric]) || reading.why_missing(metric) == Absence::no_baseline;
}

Result<Looked> look(const Rule& rule, const std::string& gpus) {
  const std::vector<Metric> signals = rule.signals();
  SamplerOptions sampling;
  sampling.want_only(signals);
  sampling.deadline = kPatience;
  sampling.once = true;
  Looked looked{.snapshot = Sampler::start(sampling)->sample(), .devices = {}};
  const Inventory& inventory = *looked.snapshot.inventory;
  if (!gpus.empty() && looked.driver()) {
    looked.devices = TRY(select_devices(gpus, inventory));
  } else {
    // As `lull watch` does: what says nothing but "no permission" is not meant for us.
    for (std::size_t i = 0; i < inventory.devices.size(); ++i)
      if (looked.snapshot.readings[i].device_absence != Absence::no_permission &&
          inventory.devices[i].absence != Absence::no_permission)
        looked.devices.push_back(i);
  }
  std::vector<Device> scope;
  scope.reserve(looked.devices.size());
  for (const std::size_t i : looked.devices) scope.push_back(inventory.devices[i]);
  Judge judge(Policy{.idle = rule}, std::move(scope), {});
  looked.now = TRY(judge.observe(looked.snapshot)).condition;
  return looked;
}

std::string driver_words(const Snapshot& snapshot) {
  return snapshot.driver.detail.empty() ? std::string(words(snapshot.driver.absence)) : snapshot.driver.detail;
}

// Which GPUs give a signal, in a phrase: "GPUs 0-7: 3 %", "not on GPU 2 (not supported)".
std::string here(const Looked& looked, Metric metric) {
  switch (info(metric).of) {
    case Of::job: return "of the job: known under `lull run`";
    case Of::machine: return "of the machine: known under `lull run` and `lull watch`";
    case Of::gpu: break;
  }
  if (!looked.driver()) return "?";
  std::size_t good = 0;
  double low = kUnknown;
  double high = kUnknown;
  std::vector<std::string> bad;
  for (const std::size_t i : looked.devices) {
    const Reading& reading = looked.snapshot.readings[i];
    low = std::fmin(low, reading[metric]);
    high = std::fmax(high, reading[metric]);
    if (readable(reading, metric))
      ++good;
    else
      bad.push_back(
          fmt::format("{} ({})", looked.snapshot.inventory->devices[i].label(), words(reading.why_missing(metric))));
  }
  std::string text = fmt::format("{} of {} GPU{}", good, looked.devices.size(), looked.devices.size() == 1 ? "" : "s");
  if (!std::isnan(low)) text += ", now " + value_text(metric, low);
  if (low != high && !std::isnan(low)) text += " to " + value_text(metric, high);
  for (std::size_t i = 0; i < bad.size(); ++i) text += (i == 0 ? "; not GPU " : ", ") + bad[i];
  return text;
}

std::string_view now_words(Truth now) {
  if (now == Truth::yes) return "the condition holds";
  return now == Truth::no ? "the condition does not hold" : "cannot be judged";
}

void print_text(const Rule& rule, const Looked& looked) {
  const Screen screen = screen_of(STDOUT_FILENO);
  const auto row = [&](std::string_view title, std::string_view text, std::size_t indent = kTitle) {
    fmt::print("{}\n", wrapped(fmt::format("{:<{}}{}", title, kTitle, for_screen(text, screen)), screen.width, indent));
  };
  row("rule", to_text(rule));
  row("means", describe(rule));
  std::string_view title = "needs";
  for (const Metric metric : rule.signals()) {
    row(title, fmt::format("{:<{}}{}", info(metric).name, kName, info(metric).meaning), kTitle + kName);
    title = "";
  }
  title = "here";
  if (!looked.driver()) row(std::exchange(title, ""), printable(driver_words(looked.snapshot)));
  for (const Metric metric : rule.signals()) {
    if (!looked.driver() && info(metric).of == Of::gpu) continue;
    row(std::exchange(title, ""), fmt::format("{:<{}}{}", info(metric).name, kName, here(looked, metric)),
        kTitle + kName);
  }
  if (looked.driver()) row("now", now_words(looked.now));
  for (const std::string& remark : remarks(rule)) row("note", remark);
}

void put_signal(JsonWriter& json, const Looked& looked, Metric metric) {
  constexpr std::array<std::string_view, 3> kOf = {"gpu", "job", "machine"};
  const MetricInfo& row = info(metric);
  json.begin_object().member("name", row.name).member("field", row.field);
  json.member("of", kOf[static_cast<std::size_t>(row.of)]).member("meaning", row.meaning).key("readable");
  if (row.of != Of::gpu || !looked.driver()) {
    json.null().end_object();
    return;
  }
  const auto good = [&](std::size_t i) { return readable(looked.snapshot.readings[i], metric); };
  json.value(!looked.devices.empty() && std::ranges::all_of(looked.devices, good)).key("gpus").begin_array();
  for (const std::size_t i : looked.devices) {
    const Reading& reading = looked.snapshot.readings[i];
    json.begin_object().member("gpu", looked.snapshot.inventory->devices[i].label()).member("readable", good(i));
    json.member(row.field, reading[metric]);
    json.member_or_null("unknown", good(i) ? "" : words(reading.why_missing(metric))).end_object();
  }
  json.end_array().end_object();
}

void print_json(const Rule& rule, const Looked& looked) {
  JsonWriter json(2);
  json.begin_object().member("rule", printable(rule.text)).member("canonical", to_text(rule));
  json.member("meaning", describe(rule));
  const std::optional<Span> span = rule.span();
  json.member("for_seconds", span && span->samples == 0
                                 ? std::optional(std::chrono::duration<double>(span->time).count())
                                 : std::nullopt);
  json.member("for_samples", span && span->samples != 0 ? std::optional(span->samples) : std::nullopt);
  json.key("signals").begin_array();
  for (const Metric metric : rule.signals()) put_signal(json, looked, metric);
  json.end_array();
  json.member("now", looked.now == Truth::unknown ? std::nullopt : std::optional(looked.now == Truth::yes));
  json.key("driver").begin_object().member("available", looked.driver());
  json.member("detail", looked.driver() ? std::nullopt : std::optional(printable(driver_words(looked.snapshot))));
  json.end_object().member("remarks", remarks(rule)).end_object();
  fmt::print("{}\n", json.take());
}

}  // namespace

int check_command(int argc, char** argv) {
  std::vector<std::string> words;
  std::string gpus;
  bool json = false;
  CommandLine line("What a rule means, what it needs, and what this machine gives of it.", "lull check");
  line.arguments("RULE", words, "such as 'util < 5 for 20m' (lull-rules(7) has the language)").required();
  line.option("--gpus", gpus, "only these: 0,2 or a UUID or the beginning of one (all)").value("LIST");
  line.flag("--json", json, "one JSON object");
  line.footer("Example:\n  lull check 'util < 5 and mem_used > 1GiB for 30m'");
  if (const auto done = line.parse(argc, argv)) return *done;

  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  const Result<Rule> rule = parse_rule(text);
  if (!rule) return complain(rule.error().message(), kExitUsage);
  const Result<Looked> looked = look(*rule, gpus);
  if (!looked) return complain(looked.error().message(), kExitUsage);
  json ? print_json(*rule, *looked) : print_text(*rule, *looked);
  return 0;
}

}  // namespace lull
