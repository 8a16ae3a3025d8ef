#include "compat/gpuselect_pick.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "rule/reason.h"

namespace lull {
namespace {

// Who says how full the memory may be gets that: -m 100 is any. What an empty card shows is never too much.
WhereAnswer memory_fits(const Reading& reading, unsigned most) {
  const double used = reading[Metric::mem_used];
  const double total = reading[Metric::mem_total];
  if (most >= 100) return {true, ""};
  if (std::isnan(used) || std::isnan(total)) {
    if (reading.why_missing(Metric::mem_used) == Absence::not_supported) return {true, ""};
    return {std::nullopt, fmt::format("mem_used cannot be read ({})", words(reading.why_missing(Metric::mem_used)))};
  }
  const double empty = reading.display_active == true ? kEmptyDesktop : kEmptyCard;
  if (used <= std::max(empty, total * most / 100)) return {true, ""};
  return {false, fmt::format("{:.3g} % of its memory in use; wanted at most {} %", used / total * 100, most)};
}

// "fits by procs, mem_used (a desktop draws on it)"
std::string fits(const Judgement& judgement) {
  std::string text = "fits";
  for (const Metric metric : judgement.judged_by)
    text += fmt::format("{}{}", text == "fits" ? " by " : ", ", info(metric).name);
  if (!judgement.note.empty()) text += fmt::format(" ({})", judgement.note);
  return text;
}

}  // namespace

PickSettings gpuselect_settings(const GpuselectOptions& options) {
  PickSettings settings;
  settings.count = options.count;
  for (const long device : options.devices)
    settings.gpus += fmt::format("{}{}", settings.gpus.empty() ? "" : ",", device);
  settings.keep_to_visible = false;  // the predecessor looks at every GPU
  settings.wishes.name = options.name.value_or("");
  settings.wishes.exact_name = true;
  // 0 is the usual limit and not one that was asked for: MIG devices are judged without it.
  if (options.util > 0) settings.wishes.util = Limit::of(options.util);
  if (options.mem_util) {
    if (*options.mem_util > 0) settings.wishes.mem_util = Limit::of(*options.mem_util);
    settings.wishes.mem_used = Limit::off();
    if (options.processes == 0)
      settings.wishes.where = [most = *options.mem_util](const Reading& reading) { return memory_fits(reading, most); };
  }
  if (options.processes > 0) {
    settings.wishes.procs = Limit::of(options.processes);
    settings.wishes.mem_used = Limit::off();  // they are welcome with what they hold
  }
  // Beside so many others, as the predecessor counts. Who came first has nothing to say about it there: whoever asks
  // for a GPU with at most N on it may come. `lull pick` never shares what it was not asked to share.
  settings.share = std::min(options.processes, kMostHolders - 1) + 1;
  settings.patience = kMostHolders;
  settings.command = options.command;
  return settings;
}

std::vector<std::string> gpuselect_debug(const Picker& picker) {
  const Snapshot& snapshot = picker.snapshot();
  std::vector<std::string> lines;
  lines.push_back(fmt::format("GPU count: {}", snapshot.inventory ? snapshot.inventory->devices.size() : 0));
  for (const Picker::Choice& choice : picker.choices()) {
    const auto position = picker.position_of(choice);
    std::string text = fmt::format("Device {}: ", choice.label);
    if (position) {
      const Reading& reading = snapshot.readings[*position];
      text += fmt::format(
          "name={}, util={}, mem_util={}, processes={}: ", printable(snapshot.inventory->devices[*position].name),
          value_text(Metric::util, reading[Metric::util]), value_text(Metric::mem_util, reading[Metric::mem_util]),
          value_text(Metric::procs, reading[Metric::procs]));
    }
    lines.push_back(text + (choice.judgement.fits ? fits(choice.judgement) : choice.judgement.why));
  }
  return lines;
}

std::string gpuselect_refusal(const Refusal& refusal, const GpuselectOptions& options) {
  if (refusal.wanted == 0) {
    // A device that is not there, as the predecessor words it.
    for (const long device : options.devices)
      if (refusal.kind == Refusal::usage && refusal.what.starts_with(fmt::format("no GPU {}:", device)))
        return fmt::format("Invalid device ID {} ({})\n", device, refusal.what);
    return refusal.what + "\n";
  }
  std::string text = fmt::format("Requested {} GPUs, but {} matched filters\n", refusal.wanted, refusal.fitting);
  for (const std::string& reason : refusal.reasons) text += reason + '\n';
  return text;
}

}  // namespace lull
