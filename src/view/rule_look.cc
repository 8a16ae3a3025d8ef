#include "view/rule_look.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/json_writer.h"
#include "base/text.h"
#include "gpu/power_learner.h"
#include "rule/fitting.h"
#include "rule/quantity.h"
#include "rule/reason.h"

namespace lull {
namespace {

constexpr std::size_t kTitle = 7;  // cells of the columns of the text
constexpr std::size_t kName = 12;

// A value that needs two samples can be read, only not yet.
bool readable(const Reading& reading, Metric metric) {
  return std::isfinite(reading[metric]) || reading.why_missing(metric) == Absence::no_baseline;
}

std::string driver_text(const Snapshot& snapshot) {
  return snapshot.driver.detail.empty() ? std::string(to_string(snapshot.driver.absence)) : snapshot.driver.detail;
}

// Why a signal of the user's own is unknown.
std::string own_trouble(const RuleLook& looked, Metric metric) {
  const auto said = looked.troubles.find(metric);
  if (said != looked.troubles.end() && !said->second.empty()) return said->second;
  return std::string(to_string(looked.machine.why_missing(metric)));
}

std::string own_here(const RuleLook& looked, Metric metric) {
  if (std::isfinite(looked.machine[metric])) return "now " + value_text(metric, looked.machine[metric]);
  return "unknown: " + own_trouble(looked, metric);
}

std::string meaning_of(const RuleLook& looked, Metric metric) {
  const auto source = looked.sources.find(metric);
  return source == looked.sources.end() ? std::string(info(metric).meaning) : source->second;
}

// Which GPUs give a signal, in a phrase: "GPUs 0-7: 3 %", "not on GPU 2 (not supported)".
std::string here(const RuleLook& looked, Metric metric) {
  switch (info(metric).of) {
    case Of::job:
      if (metric == Metric::job_util) return "of the job: known under `lull run`, `lull watch --per job` and `--also`";
      return metric == Metric::beat ? "of a Python program that calls beat() of its lull.watch()"
                                    : "of the job: known under `lull run`";
    case Of::machine:
      if (is_own(metric)) return own_here(looked, metric);
      return "of the machine: known under `lull run` and `lull watch`";
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
      bad.push_back(fmt::format("{} ({})", looked.snapshot.inventory->devices[i].label(),
                                to_string(reading.why_missing(metric))));
  }
  std::string text = fmt::format("{} of {} GPU{}", good, looked.devices.size(), looked.devices.size() == 1 ? "" : "s");
  if (!std::isnan(low)) text += ", now " + value_text(metric, low);
  if (low != high && !std::isnan(low)) text += " to " + value_text(metric, high);
  for (std::size_t i = 0; i < bad.size(); ++i) text += (i == 0 ? "; not GPU " : ", ") + bad[i];
  return text;
}

std::string_view now_text(Truth now) {
  if (now == Truth::yes) return "the condition holds";
  return now == Truth::no ? "the condition does not hold" : "cannot be judged";
}

void put_signal(JsonWriter& json, const RuleLook& looked, Metric metric) {
  constexpr std::array<std::string_view, 3> kOf = {"gpu", "job", "machine"};
  const MetricInfo& row = info(metric);
  json.begin_object().member("name", row.name).member("field", row.field);
  json.member("of", kOf[static_cast<std::size_t>(row.of)])
      .member("meaning", meaning_of(looked, metric))
      .key("readable");
  if (is_own(metric)) {
    const bool known = std::isfinite(looked.machine[metric]);
    json.value(known).member("value", looked.machine[metric]);
    json.member_or_null("unknown", known ? "" : own_trouble(looked, metric)).end_object();
    return;
  }
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
    json.member_or_null("unknown", good(i) ? "" : to_string(reading.why_missing(metric))).end_object();
  }
  json.end_array().end_object();
}

// What would do on the GPUs that do not give all that the rule asks for, and what to know of some cards.
std::vector<std::string> notes_of(const Rule& rule, const RuleLook& looked) {
  std::vector<std::string> notes = remarks(rule);
  if (!looked.driver()) return notes;
  std::vector<std::pair<std::string, std::vector<Device>>> offers;  // a rule, and where it would do
  std::vector<Device> scope;
  bool rdna_offered = false;
  for (const std::size_t i : looked.devices) {
    const Device& device = looked.snapshot.inventory->devices[i];
    const Reading& reading = looked.snapshot.readings[i];
    scope.push_back(device);
    if (reading.device_absence != Absence::none || reading.asleep) continue;
    const auto other = rule_instead(rule, is_rdna(device), [&](Metric metric) { return readable(reading, metric); });
    if (!other) continue;
    rdna_offered = rdna_offered || is_rdna(device);
    const std::string text = to_text(*other);
    const auto known = std::ranges::find(offers, text, &decltype(offers)::value_type::first);
    (known != offers.end() ? *known : offers.emplace_back(text, std::vector<Device>())).second.push_back(device);
  }
  for (const auto& [text, devices] : offers)
    notes.push_back(fmt::format("on {} `{}` would do instead", labels(devices), text));
  std::ranges::copy(card_notes(rule, scope, !rdna_offered), std::back_inserter(notes));
  std::ranges::copy(looked.snapshot.inventory->notes, std::back_inserter(notes));
  if (!any_learned(rule.signals())) return notes;
  for (const std::size_t i : looked.devices) {
    const Reading& reading = looked.snapshot.readings[i];
    if (!std::isfinite(reading.watts_per_percent)) continue;
    notes.push_back(fmt::format("GPU {}: learned from {} of work: {:.0f} W idle, {:.2g} W for each % of util",
                                looked.snapshot.inventory->devices[i].label(),
                                value_text(Metric::learned, reading[Metric::learned]), reading[Metric::idle_power],
                                reading.watts_per_percent));
  }
  return notes;
}

}  // namespace

std::string rule_text(const Rule& rule, const RuleLook& looked, const Screen& screen) {
  std::string out;
  const auto row = [&](std::string_view title, std::string_view text, std::size_t indent = kTitle) {
    out += wrapped(fmt::format("{:<{}}{}", title, kTitle, for_screen(text, screen)), screen.width, indent) + "\n";
  };
  row("rule", to_text(rule));
  row("means", describe(rule));
  std::string_view title = "needs";
  for (const Metric metric : rule.signals()) {
    row(title, fmt::format("{:<{}}{}", info(metric).name, kName, meaning_of(looked, metric)), kTitle + kName);
    title = "";
  }
  title = "here";
  if (!looked.driver()) row(std::exchange(title, ""), printable(driver_text(looked.snapshot)));
  for (const Metric metric : rule.signals()) {
    if (!looked.driver() && info(metric).of == Of::gpu) continue;
    row(std::exchange(title, ""), fmt::format("{:<{}}{}", info(metric).name, kName, here(looked, metric)),
        kTitle + kName);
  }
  if (looked.driver()) row("now", now_text(looked.now));
  for (const std::string& note : notes_of(rule, looked)) row("note", note);
  return out;
}

std::string rule_json(const Rule& rule, const RuleLook& looked) {
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
  json.member("detail", looked.driver() ? std::nullopt : std::optional(printable(driver_text(looked.snapshot))));
  json.end_object().member("remarks", notes_of(rule, looked)).end_object();
  return json.take() + "\n";
}

}  // namespace lull
