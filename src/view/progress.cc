#include "view/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/units.h"

namespace lull {
namespace {

// Whether the rule asks for little of it, so that the highest value tells the most.
bool wants_little(const Rule& rule, Metric metric) {
  return std::ranges::none_of(rule.nodes, [&](const Node& node) {
    const auto* comparison = std::get_if<Comparison>(&node);
    return comparison != nullptr && comparison->metric == metric &&
           (comparison->compare == Compare::above || comparison->compare == Compare::at_least);
  });
}

}  // namespace

std::string readings_text(const Sampled& sampled) {
  std::string text;
  const Rule& rule = sampled.judged.rule();
  const auto signals = rule.signals();
  for (const Device& device : sampled.judged.scope()) {
    if (!rule.looks_at_gpus()) break;
    const Reading* reading = sampled.snapshot.find(device.id());
    if (reading == nullptr) continue;
    text += fmt::format("{}GPU {}", text.empty() ? "" : "; ", device.label());
    for (const Metric metric : signals)
      if (info(metric).of == Of::gpu)
        text += fmt::format(" {} {}", info(metric).name, value_text(metric, (*reading)[metric]));
  }
  if (text.empty() && rule.looks_at_gpus()) return text;
  for (const Metric metric : signals) {
    if (info(metric).of == Of::gpu) continue;
    const Facts& facts = info(metric).of == Of::job ? sampled.subject.job : sampled.machine;
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", info(metric).name, value_text(metric, facts[metric]));
  }
  return text;
}

std::string extremes_text(const Sampled& sampled) {
  std::vector<const Reading*> readings;
  std::string only;  // the GPU, where there is one
  for (const Device& device : sampled.judged.scope())
    if (const Reading* reading = sampled.snapshot.find(device.id())) {
      readings.push_back(reading);
      only = device.label();
    }
  if (readings.empty()) return "";
  std::string text;
  for (const Metric metric : sampled.judged.rule().signals()) {
    const bool of_gpu = info(metric).of == Of::gpu;
    const bool highest = wants_little(sampled.judged.rule(), metric);
    double extreme = kUnknown;
    std::size_t unknown = 0;
    for (const Reading* reading : readings) {
      const double value = facts_with(metric, *reading, sampled.subject.job, sampled.machine)[metric];
      if (std::isnan(value))
        ++unknown;
      else if (std::isnan(extreme) || (highest ? value > extreme : value < extreme))
        extreme = value;
    }
    const bool many = of_gpu && readings.size() > 1;
    text += fmt::format("{}{}{} {}", text.empty() ? "" : ", ",
                        !many     ? ""
                        : highest ? "highest "
                                  : "lowest ",
                        info(metric).name, value_text(metric, extreme));
    if (many && unknown > 0 && unknown < readings.size()) text += fmt::format(" ({} unknown)", unknown);
  }
  if (!sampled.judged.rule().looks_at_gpus()) return text;
  return text + (readings.size() == 1 ? fmt::format(" on GPU {}", only) : fmt::format(" on {} GPUs", readings.size()));
}

std::string sample_text(const Sampled& sampled) {
  const std::string text = readings_text(sampled);
  const SubjectState& judged = sampled.judged;
  if (judged.not_judged()) return text.empty() ? "no GPU in scope (not judged)" : text + " (not judged)";
  if (text.empty()) return "no GPU can be read";
  if (judged.delayed(sampled.snapshot.at)) return text + " (not judged yet)";
  const Verdict& verdict = judged.verdict();
  return text +
         fmt::format(" ({}{})", to_string(verdict.condition),
                     verdict.held > Duration::zero()
                         ? fmt::format(" for {} of {}",
                                       format_duration(std::chrono::floor<std::chrono::milliseconds>(verdict.held)),
                                       to_text(verdict.needed))
                         : "");
}

std::string progress_text(const SubjectState& judged, std::uint32_t step) {
  const Verdict& verdict = judged.verdict(step);
  const auto rounded = [](Duration time) { return format_duration(std::chrono::floor<std::chrono::seconds>(time)); };
  if (judged.not_judged()) return "not judged";
  if (!verdict.armed) {
    const Progress arming = judged.arm_progress();
    return arming.running ? fmt::format("arming, {} so far", rounded(arming.held)) : "not armed";
  }
  switch (verdict.condition) {
    case Truth::no: return "busy";
    case Truth::unknown: return "cannot be judged";
    case Truth::yes: break;
  }
  if (verdict.needed.samples > 0)
    return fmt::format("idle {} of {} samples", verdict.held_samples, verdict.needed.samples);
  return fmt::format("idle {} of {}", rounded(verdict.held), to_text(verdict.needed));
}

std::string countdown_text(Duration left) {
  return format_duration(left > std::chrono::minutes(10) ? Duration(std::chrono::ceil<std::chrono::minutes>(left))
                                                         : std::chrono::ceil<std::chrono::seconds>(left));
}

std::string each_progress_text(const EachSampled& sampled) {
  struct Nearest {
    const EachSampled::One* one = nullptr;
    std::uint32_t step = 0;
    Duration left{};
  } nearest;
  std::size_t idle = 0;
  std::size_t busy = 0;
  for (const EachSampled::One& one : sampled.all) {
    const bool judging = one.judged.judging() && !one.judged.delayed(sampled.at);
    const Truth condition = judging ? one.judged.verdict().condition : Truth::unknown;
    idle += condition == Truth::yes ? 1 : 0;
    busy += condition == Truth::no ? 1 : 0;
    for (std::uint32_t step = 0; judging && step < one.actions.size(); ++step) {
      const auto left = one.judged.time_left(step, sampled.at);
      if (left && (nearest.one == nullptr || *left < nearest.left)) nearest = {&one, step, *left};
    }
  }
  std::string text;
  if (nearest.one != nullptr)
    text = fmt::format("{} {}, {}{} {} | ", nearest.one->title, progress_text(nearest.one->judged, nearest.step),
                       sampled.dry_run ? "would " : "", nearest.one->actions[nearest.step],
                       sampled.within_hours ? fmt::format("in {} (lull watch --cancel)", countdown_text(nearest.left))
                                            : std::string("within the --hours only"));
  const std::size_t other = sampled.all.size() - idle - busy;
  text +=
      fmt::format("{} {}{}", sampled.all.size(), sampled.of_jobs ? "job" : "GPU", sampled.all.size() == 1 ? "" : "s");
  std::string counts;
  for (const auto& [count, word] : {std::pair(idle, "idle"), std::pair(busy, "busy"), std::pair(other, "not judged")})
    if (count > 0) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, word);
  return text + (counts.empty() ? "" : ": " + counts);
}

}  // namespace lull
