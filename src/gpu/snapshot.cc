#include "gpu/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/text.h"
#include "base/units.h"

namespace lull {

std::string unanswered_text(Duration time) {
  using namespace std::chrono;
  const auto whole = floor<seconds>(time);
  const auto part = std::max(floor<milliseconds>(time), milliseconds(1));
  return "driver has not answered for " + format_duration(whole.count() > 0 ? Duration(whole) : Duration(part));
}

std::string_view to_string(Vendor vendor) {
  switch (vendor) {
    case Vendor::nvidia: return "nvidia";
    case Vendor::amd: return "amd";
    case Vendor::intel: return "intel";
    case Vendor::tegra: return "tegra";
  }
  return "unknown";
}

std::string_view to_string(Absence absence) {
  switch (absence) {
    case Absence::none: return "known";
    case Absence::not_asked: return "not asked for";
    case Absence::not_supported: return "not supported";
    case Absence::lost: return "GPU is lost";
    case Absence::reset_required: return "GPU requires reset; lull has let go of it";
    case Absence::no_permission: return "no permission";
    case Absence::no_symbol: return "not in this driver's library";
    case Absence::no_driver: return "driver is not loaded";
    case Absence::mismatch: return "driver and library versions differ";
    case Absence::no_answer: return "driver does not answer";
    case Absence::no_baseline: return "needs two samples";
    case Absence::failed: return "unknown error";
    case Absence::not_covered: return "not measured for the whole interval";
    case Absence::implausible: return "not a plausible value";
    case Absence::asleep: return "asleep";
    case Absence::hidden: return "the driver does not show processes of other containers";
    case Absence::looking: return "still looking through the open files of all processes";
    case Absence::waking: return "still waking up";
    case Absence::no_beat: return "the program has not called beat()";
    case Absence::too_many: return "more GPUs than lull can read";
    case Absence::busy: return "the driver was busy";
    case Absence::still: return "its counter does not move";
    case Absence::looks_hung: return "its own idle looks like a hang";
    case Absence::partition: return "no values of a single partition";
    case Absence::not_learned: return "not learned yet";
    case Absence::little_work: return "util is below 5 %";
    case Absence::no_source: return "nothing says where it comes from: [signals] of lull.toml, or --signal-from";
    case Absence::unread: return "its source has not answered yet";
    case Absence::unreadable: return "its source cannot be read";
    case Absence::stale: return "its source repeats an old value";
    case Absence::untold: return "the work cannot be attributed";
  }
  return "unknown error";
}

std::string DriverState::text() const { return detail.empty() ? std::string(to_string(absence)) : detail; }

namespace {

std::string part_of(const Device& device) {
  return device.kind == DeviceKind::mig ? fmt::format("/{}", device.mig_index) : "";
}
constexpr std::string_view kByAddress = "pci:";
constexpr std::string_view kByIndex = "index:";
DeviceId by_address(const Device& device) { return {fmt::format("{}{}{}", kByAddress, device.pci, part_of(device))}; }
DeviceId by_index(const Device& device) { return {fmt::format("{}{}{}", kByIndex, device.index, part_of(device))}; }

struct Reason {
  std::uint64_t bit;
  std::string_view word;
};
// Left out on purpose: 0x1 idle, 0x2 applications clocks, 0x10 sync boost, 0x100 display clocks.
constexpr std::array kReasons = {
    Reason{0x04, "power_cap"},        Reason{0x08, "hardware_slowdown"},    Reason{0x20, "thermal"},
    Reason{0x40, "hardware_thermal"}, Reason{0x80, "hardware_power_brake"},
};

constexpr std::size_t kLongestWord = 60;

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_interpreter(std::string_view program) {
  constexpr std::array kNames = {"python", "bash", "sh", "zsh", "perl", "ruby", "node", "julia", "java", "Rscript"};
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view name) {
    return program.starts_with(name) && program.find_first_not_of("0123456789.", name.size()) == std::string_view::npos;
  });
}

}  // namespace

DeviceId Device::id() const {
  if (has_own_uuid()) return {uuid};
  return pci.empty() ? by_index(*this) : by_address(*this);
}

bool Device::is(const DeviceId& other) const {
  if (other.value.starts_with(kByAddress)) return by_address(*this) == other;
  if (other.value.starts_with(kByIndex)) return by_index(*this) == other;
  return !shares_uuid && uuid == other.value;
}

std::vector<std::string> Inventory::warnings() const {
  std::map<std::string_view, std::string> sharers;  // by UUID: who they are
  std::size_t gpus = 0;
  std::size_t unread = 0;
  for (const Device& device : devices) {
    if (device.kind == DeviceKind::gpu) ++gpus;
    if (device.absence == Absence::too_many) ++unread;
    if (!device.shares_uuid) continue;
    std::string& text = sharers[device.uuid];
    text += fmt::format("{}GPU {} ({})", text.empty() ? "" : ", ", device.label(), device.pci);
  }
  std::vector<std::string> lines;
  for (const auto& [uuid, text] : sharers)
    lines.push_back(fmt::format("the same UUID {} on {}: they are told apart by PCI address", uuid, text));
  if (unread > 0)
    lines.push_back(fmt::format("this machine has {} GPUs, and lull reads the first {}; nothing is known of the others",
                                gpus, gpus - unread));
  lines.insert(lines.end(), notes.begin(), notes.end());
  return lines;
}

bool Inventory::several_vendors() const {
  return std::ranges::any_of(devices, [&](const Device& device) { return device.vendor != devices.front().vendor; });
}

std::vector<std::size_t> Inventory::places_of(Vendor runtime) const {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (devices[i].runtime() == runtime) places.push_back(i);
  return places;
}

std::size_t Inventory::card_of(std::size_t place) const {
  while (place > 0 && devices[place].kind == DeviceKind::mig) --place;
  return place;
}

std::optional<std::size_t> Inventory::place_of(const DeviceId& id) const {
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (devices[i].is(id)) return i;
  return std::nullopt;
}

const Reading* Snapshot::find(const DeviceId& id) const {
  const auto place = inventory->place_of(id);
  return place && *place < readings.size() ? &readings[*place] : nullptr;
}

std::string Device::label() const {
  return kind == DeviceKind::mig ? fmt::format("{}:{}", index, mig_index) : fmt::format("{}", index);
}

Vendor Device::runtime() const { return vendor == Vendor::tegra ? Vendor::nvidia : vendor; }

std::string Device::vendor_label() const { return fmt::format("{}:{}", to_string(vendor), vendor_index); }

std::string labels(const std::vector<Device>& devices) {
  std::string text;
  for (const Device& device : devices) text += (text.empty() ? "" : ", ") + device.label();
  return (devices.size() == 1 ? "GPU " : "GPUs ") + text;
}

std::string ProcessInfo::command_line() const {
  if (arguments.empty()) return "[" + name + "]";
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    line += argument;
  }
  return line;
}

std::string_view to_string(Proof proof) {
  switch (proof) {
    case Proof::proven: return "proven";
    case Proof::unproven: return "unproven";
    case Proof::stale: break;
  }
  return "stale";
}

Band Reading::newest(Metric metric) const {
  const double known = (*this)[metric];
  const bool is_util = metric == Metric::util;
  // A GPU that is asleep does nothing, and has no newer data.
  if (metric == Metric::effort && !std::isnan(known)) return effort_newest;
  if (asleep || std::isnan(known) || (!is_util && metric != Metric::power)) return {known, known};
  const Band& band = is_util ? util_newest : power_newest;
  const Basis basis = is_util ? util_basis : power_basis;
  if (!std::isnan(band.low) || basis == Basis::mean || basis == Basis::moments) return band;
  return {known, known};
}

void Reading::miss_all(Absence why) {
  for (const MetricInfo& row : kMetricTable)
    if (row.of == Of::gpu && !is_learned(row.metric)) miss(row.metric, why);
  device_absence = why;
  util_newest = power_newest = {};
  counters_span = openers_span = {};
  unanswered = {};
  processes.reset();
  shares_absence = why;
  shares.clear();
  energy_joules.reset();
  mem_clock_mhz.reset();
  throttle_reasons.reset();
  mig_mode.reset();
  persistence.reset();
  display_active.reset();
  attached_for.reset();
  asleep = memory_estimated = processes_hidden = false;
}

bool is_throttling(std::uint64_t reasons) {
  for (const Reason& reason : kReasons)
    if ((reasons & reason.bit) != 0) return true;
  return false;
}

std::vector<std::string_view> throttle_text(std::uint64_t reasons) {
  std::vector<std::string_view> words;
  for (const Reason& reason : kReasons)
    if ((reasons & reason.bit) != 0) words.push_back(reason.word);
  return words;
}

std::string one_word(std::string_view text) {
  std::string word = printable(text.substr(0, kLongestWord));
  std::replace_if(word.begin(), word.end(), [](char c) { return c == ',' || c == ';' || c == '"' || c == ' '; }, '_');
  return word;
}

std::string short_command(const std::vector<std::string>& arguments, std::string_view name) {
  if (arguments.empty()) return one_word(name);
  // A program that renamed itself (setproctitle) has its whole line in one word.
  if (arguments.size() == 1 && arguments[0].find(' ') != std::string::npos) {
    std::vector<std::string> words;
    for (const std::string_view word : split(arguments[0], ' '))
      if (!word.empty()) words.emplace_back(word);
    return short_command(words, name);
  }
  const std::string_view program = base_name(arguments[0]);
  std::string text = one_word(program);
  if (!is_interpreter(program)) return text;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "-m" && i + 1 < arguments.size()) return text + " -m " + one_word(arguments[i + 1]);
    if (arguments[i] == "-c" || arguments[i] == "-e") return text;  // a text of its own, however long
    if (!arguments[i].starts_with('-')) return text + " " + one_word(base_name(arguments[i]));
  }
  return text;
}

}  // namespace lull
