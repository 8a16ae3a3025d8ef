#include "view/picked.h"

#include <fmt/format.h>

#include <utility>

#include <optional>

#include "base/json_writer.h"
#include "base/text.h"
#include "lease/visibility.h"

namespace lull {
namespace {

Result<std::string> json_of(const Picked& picked, bool uuid) {
  const Visibility visible = TRY(visibility(picked, uuid, Root::machine()));
  JsonWriter json;
  json.begin_object().key("gpus").begin_array();
  for (std::size_t i = 0; i < picked.devices.size(); ++i) {
    const std::size_t position = picked.devices[i];
    const Device& device = picked.snapshot.inventory->devices[position];
    const Reading& reading = picked.snapshot.readings[position];
    const Judgement& judgement = picked.judgements[i];
    json.begin_object().member("index", device.index).member("label", printable_lines(device.label()));
    json.member("vendor", to_string(device.vendor));
    json.member("uuid", printable_lines(device.uuid)).member("name", printable_lines(device.name));
    json.member("pci", printable_lines(device.pci)).member("mem_free_bytes", reading[Metric::mem_free]);
    json.member("mem_total_bytes", reading[Metric::mem_total]).key("judged_by").begin_array();
    for (const Metric metric : judgement.judged_by) json.value(info(metric).name);
    json.end_array().member_or_null("note", printable_lines(judgement.note)).end_object();
  }
  json.end_array().key("environment").begin_object();
  for (const auto& [name, text] : visible.set) json.member(printable_lines(name), printable_lines(text));
  json.end_object().key("unset").begin_array();
  for (const std::string& name : visible.removed) json.value(name);
  json.end_array().member("held", !picked.locks.empty());
  json.member("lease", picked.locks.empty() ? std::nullopt : std::optional(printable_lines(picked.lease)));
  json.member("lease_holder", picked.locks.empty() ? std::nullopt : picked.lease_holder);
  return json.end_object().take() + "\n";
}

std::string ordinal(std::size_t number) {
  const bool teen = number % 100 / 10 == 1;
  const std::size_t last = number % 10;
  return fmt::format("{}{}", number, teen || last == 0 || last > 3 ? "th" : last == 1 ? "st" : last == 2 ? "nd" : "rd");
}

std::string beginning(const Waiting& waiting) {
  std::string text = fmt::format("waiting for {} GPU{}", waiting.count, waiting.count == 1 ? "" : "s");
  text += waiting.ahead == 0 ? ", next in turn" : fmt::format(", {} in turn", ordinal(waiting.ahead + 1));
  if (waiting.collected > 0) text += fmt::format(", {} collected", waiting.collected);
  return text;
}

}  // namespace

Result<std::string> picked_text(const Picked& picked, PickFormat format, bool uuid) {
  switch (format) {
    case PickFormat::ids: return visible_value(picked, uuid) + "\n";
    case PickFormat::uuids: return visible_value(picked, true) + "\n";
    case PickFormat::docker:
      for (const std::size_t position : picked.devices)
        if (const Device& device = picked.snapshot.inventory->devices[position];
            device.vendor == Vendor::amd || device.vendor == Vendor::intel)
          return fail(
              fmt::format("GPU {}: docker's --gpus knows NVIDIA GPUs only; give it the device files, such as "
                          "--device /dev/dri/renderD{}{}",
                          device.label(), device.render_minor.value_or(128),
                          device.vendor == Vendor::amd ? " --device /dev/kfd" : ""));
      // Docker wants the quotes inside the value, or it takes the comma for the end of it.
      return fmt::format("\"device={}\"\n", visible_value(picked, uuid));
    case PickFormat::env: {
      const Visibility visible = TRY(visibility(picked, uuid, Root::machine()));
      std::string text;
      for (const auto& [name, value] : visible.set) text += fmt::format("{}={}\n", name, value);
      return text;
    }
    case PickFormat::json: return json_of(picked, uuid);
  }
  return "";
}

std::string refusal_text(const Refusal& refusal) {
  std::string text = refusal.what + '\n';
  for (const std::string& reason : refusal.reasons) text += reason + '\n';
  return text;
}

std::string to_string(const Waiting& waiting) {
  std::string text = beginning(waiting);
  for (std::size_t i = 0; i < waiting.reasons.size(); ++i) text += (i == 0 ? ": " : "; ") + waiting.reasons[i];
  return text;
}

std::string in_short(const Waiting& waiting) {
  if (waiting.reasons.size() < 2) return to_string(waiting);
  std::string text = beginning(waiting);
  std::string_view before = ": ";
  for (const auto& [kind, count] : waiting.kinds)
    text += fmt::format("{}{} {}", std::exchange(before, ", "), count, kind);
  return text;
}

}  // namespace lull
