// `lull check RULE`: what a rule means, what it needs, and what this machine gives of it.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/screen.h"
#include "engine/judge.h"
#include "rule/quantity.h"
#include "rule/reason.h"
#include "rule/rule.h"
#include "sense/sampler.h"
#include "sense/select.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::ordered_json;

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

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json signal_json(const Looked& looked, Metric metric) {
  constexpr std::array<std::string_view, 3> kOf = {"gpu", "job", "machine"};
  const MetricInfo& row = info(metric);
  Json out = {{"name", row.name},
              {"field", row.field},
              {"of", kOf[static_cast<std::size_t>(row.of)]},
              {"meaning", row.meaning}};
  if (row.of != Of::gpu || !looked.driver()) {
    out["readable"] = nullptr;
    return out;
  }
  bool all = !looked.devices.empty();
  Json gpus = Json::array();
  for (const std::size_t i : looked.devices) {
    const Reading& reading = looked.snapshot.readings[i];
    const bool good = readable(reading, metric);
    all = all && good;
    gpus.push_back({{"gpu", looked.snapshot.inventory->devices[i].label()},
                    {"readable", good},
                    {std::string(row.field), number(reading[metric])},
                    {"unknown", good ? Json(nullptr) : Json(words(reading.why_missing(metric)))}});
  }
  out["readable"] = all;
  out["gpus"] = std::move(gpus);
  return out;
}

void print_json(const Rule& rule, const Looked& looked) {
  Json out = {{"rule", printable(rule.text)}, {"canonical", to_text(rule)}, {"meaning", describe(rule)}};
  const std::optional<Span> span = rule.span();
  out["for_seconds"] =
      span && span->samples == 0 ? Json(std::chrono::duration<double>(span->time).count()) : Json(nullptr);
  out["for_samples"] = span && span->samples != 0 ? Json(span->samples) : Json(nullptr);
  out["signals"] = Json::array();
  for (const Metric metric : rule.signals()) out["signals"].push_back(signal_json(looked, metric));
  out["now"] = looked.now == Truth::unknown ? Json(nullptr) : Json(looked.now == Truth::yes);
  out["driver"] = {{"available", looked.driver()},
                   {"detail", looked.driver() ? Json(nullptr) : Json(printable(driver_words(looked.snapshot)))}};
  out["remarks"] = remarks(rule);
  fmt::print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
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
