#include "view/progress.h"

#include <fmt/format.h>

#include "base/units.h"

namespace lull {

std::string readings_text(const Sampled& sampled) {
  std::string text;
  const auto signals = sampled.judged.rule().signals();
  for (const Device& device : sampled.judged.scope()) {
    const Reading* reading = sampled.snapshot.find(device.id());
    if (reading == nullptr) continue;
    text += fmt::format("{}GPU {}", text.empty() ? "" : "; ", device.label());
    for (const Metric metric : signals) {
      const Facts& facts = facts_with(metric, *reading, sampled.subject.job, sampled.machine);
      text += fmt::format(" {} {}", info(metric).name, value_text(metric, facts[metric]));
    }
  }
  return text;
}

std::string sample_text(const Sampled& sampled) {
  const std::string text = readings_text(sampled);
  const Case& judged = sampled.judged;
  if (judged.not_judged()) return text.empty() ? "no GPU in scope (not judged)" : text + " (not judged)";
  if (text.empty()) return "no GPU can be read";
  if (judged.delayed(sampled.snapshot.at)) return text + " (not judged yet)";
  const Verdict& verdict = judged.verdict();
  return text +
         fmt::format(" ({}{})", words(verdict.condition),
                     verdict.held > Duration::zero()
                         ? fmt::format(" for {} of {}",
                                       format_duration(std::chrono::floor<std::chrono::milliseconds>(verdict.held)),
                                       to_text(verdict.needed))
                         : "");
}

std::string progress_text(const Case& judged) {
  const Verdict& verdict = judged.verdict();
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

}  // namespace lull
