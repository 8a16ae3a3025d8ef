#include "sense/file_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <set>
#include <utility>

#include "base/text.h"
#include "sense/drm_clients.h"
#include "sense/files.h"
#include "sense/source.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

FileValue<std::string> power_state(const std::string& folder) { return read_text(folder + "/power/runtime_status"); }

}  // namespace

// ---- the source

struct FileSource::Card {
  std::unique_ptr<FileGpu> gpu;
  Identity identity;
  bool slept = false;  // at the sample before
  bool woke = false;   // since then, as a look saw
};

FileSource::FileSource(Vendor vendor, Find find, std::string module)
    : vendor_(vendor), find_(std::move(find)), module_(std::move(module)) {}
FileSource::~FileSource() = default;

DriverState FileSource::open() {
  cards_.clear();
  for (std::unique_ptr<FileGpu>& gpu : find_()) {
    Card& card = cards_.emplace_back();
    card.gpu = std::move(gpu);
    card.identity.version = 1;
    card.identity.device.vendor = vendor_;
    card.identity.device.vendor_index = static_cast<unsigned>(cards_.size() - 1);
    card.identity.device.absence = Absence::no_answer;  // until it says who it is
  }
  return {};
}

unsigned FileSource::count() const { return static_cast<unsigned>(cards_.size()); }

std::string FileSource::driver_version() const {
  if (module_.empty()) return {};
  const auto version = read_text(module_ + "/version");
  const std::string name(last_part(module_));
  return version ? name + " " + *version : file_exists(module_) ? name : std::string();
}

bool FileSource::attach(unsigned gpu, Instant) {
  Card& card = cards_[gpu];
  Identity now = card.identity;
  now.device.absence = Absence::none;
  card.gpu->identify(now);
  for (Device& part : now.parts) {
    part.vendor = vendor_;
    part.vendor_index = now.device.vendor_index;
  }
  if (now.device != card.identity.device || now.parts != card.identity.parts) {
    card.identity = std::move(now);
    ++card.identity.version;
  }
  return card.identity.device.absence == Absence::none;
}

const Identity& FileSource::identity(unsigned gpu) { return cards_[gpu].identity; }

void FileSource::sample(unsigned gpu, const Needs& needs, Instant now, Answer& answer) {
  Card& card = cards_[gpu];
  answer.driver_gone = false;
  if (card.identity.device.absence != Absence::none || card.gpu->is_other(now)) (void)attach(gpu, now);
  answer.parts.resize(card.identity.parts.size());
  const auto all = [&](const auto& act) {
    act(answer.gpu);
    std::ranges::for_each(answer.parts, act);
  };
  const std::string& folder = card.gpu->folder();
  const auto power = power_state(folder);
  if (folder.empty() || (!power && !file_exists(folder))) {
    card.gpu->restart();
    return all([&](Reading& reading) {
      reading = Reading();
      reading.miss_all(folder.empty() ? Absence::no_driver : Absence::lost);
    });
  }
  const bool sleeps = power == "suspended";
  card.slept = sleeps;
  const bool woke = std::exchange(card.woke, false);
  if (sleeps) {
    card.gpu->restart();
    all([&](Reading& reading) { say_asleep(needs, reading); });
    answer.gpu.awake_ms = awake_time(folder + "/power");
    if (woke) not_covered(answer);
    return;
  }
  all([](Reading& reading) { reading = Reading(); });
  card.gpu->read(needs, now, answer);
}

void FileSource::look(unsigned gpu, Instant now) {
  Card& card = cards_[gpu];
  if (power_state(card.gpu->folder()) == "suspended") return;
  card.woke = card.woke || card.slept;
  card.gpu->look(now);
}

Duration FileSource::look_within(unsigned gpu) const {
  // A Jetson falls asleep again half a second after its work.
  constexpr Duration kSleepLook = 400ms;
  const Card& card = cards_[gpu];
  return card.slept ? kSleepLook : card.gpu->look_within();
}

Topology FileSource::topology() { return Topology(cards_.size()); }

// ---- DRM

std::string DrmCard::pci() const {
  std::string text = "0000" + address;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string DrmCard::hwmon(std::string_view name) const {
  for (const std::string& one : numbered(device + "/hwmon", "hwmon")) {
    std::string folder = device + "/hwmon/" + one;
    if (const auto found = read_text(folder + "/name"); found && *found == name) return folder;
  }
  return {};
}

std::optional<bool> DrmCard::display_active() const {
  if (!has_outputs) return std::nullopt;
  std::optional<bool> active;
  Directory names(card);
  const std::string outputs = std::string(last_part(card)) + "-";
  while (const char* name = names.next()) {
    if (!std::string_view(name).starts_with(outputs)) continue;
    const std::string output = card + "/" + name;
    const auto status = read_text(output + "/status");
    const auto enabled = read_text(output + "/enabled");
    active = active.value_or(false) || (status && *status == "connected" && enabled && *enabled == "enabled");
  }
  return active;
}

namespace {

// "0000:03:00.0"
bool is_pci_address(std::string_view text) {
  const auto hex = [&](std::size_t from, std::size_t count) {
    return std::ranges::all_of(text.substr(from, count), [](unsigned char c) { return std::isxdigit(c) != 0; });
  };
  const std::size_t first = text.find(':');
  if (first == std::string_view::npos || first < 4 || text.size() != first + 8) return false;
  return hex(0, first) && hex(first + 1, 2) && text[first + 3] == ':' && hex(first + 4, 2) && text[first + 6] == '.' &&
         hex(first + 7, 1);
}

// Empty: it is not a link.
std::string link_target(const std::string& path) {
  std::array<char, PATH_MAX> target;
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  return {target.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
}

// The folders of a card and its PCI device, by one link: "../../devices/pci0000:00/0000:03:00.0/drm/card0".
void find_folders(const Root& root, const std::string& link, DrmCard& card) {
  constexpr std::string_view kUp = "../../devices/";
  const std::string target = link_target(link);
  const std::size_t drm = target.rfind("/drm/");
  if (target.starts_with(kUp) && drm != std::string::npos && drm >= kUp.size()) {
    card.device = root.sys + "/" + target.substr(6, drm - 6);
    card.card = card.device + target.substr(drm);
  } else {
    card.card = real_path(link);
    card.device = real_path(card.card + "/device");
  }
}

std::string drm_folder(const Root& root) { return root.sys + "/class/drm"; }

// Its folders, address and vendor; nothing: it is no PCI device.
std::optional<DrmCard> read_drm_card(const Root& root, const std::string& name) {
  DrmCard card;
  find_folders(root, drm_folder(root) + "/" + name, card);
  card.address = last_part(card.device);
  if (!is_pci_address(card.address)) return std::nullopt;
  const auto vendor = read_hex(card.device + "/vendor");
  if (!vendor) return std::nullopt;
  card.vendor = *vendor;
  return card;
}

}  // namespace

bool is_any_drm_card(const Root& root, std::initializer_list<std::uint64_t> vendors) {
  return std::ranges::any_of(numbered(drm_folder(root), "card"), [&](const std::string& name) {
    const auto card = read_drm_card(root, name);
    return card && std::ranges::count(vendors, card->vendor) > 0;
  });
}

DrmMachine look_at_drm(const Root& root, const Clock& clock) {
  DrmMachine machine{{}, std::make_shared<DrmClients>(root, clock)};
  std::set<std::string> with_outputs;
  std::vector<std::string> names;
  Directory entries(drm_folder(root));
  while (const char* entry = entries.next()) {
    const std::string_view name = entry;  // "card0", and "card0-DP-1" for each of its outputs
    if (!name.starts_with("card")) continue;
    if (const std::size_t dash = name.find('-'); dash != std::string_view::npos)
      with_outputs.emplace(name.substr(0, dash));
    else if (to_unsigned(name.substr(4)))
      names.emplace_back(name);
  }
  for (const std::string& name : names) {
    auto found = read_drm_card(root, name);
    if (!found || (found->vendor != kAmdVendor && found->vendor != kIntelVendor)) continue;
    DrmCard& card = *found;
    card.has_outputs = with_outputs.contains(name);
    card.driver = last_part(link_target(card.device + "/driver"));
    for (const std::string& node : numbered(card.device + "/drm", "renderD"))
      card.render_minor = static_cast<unsigned>(*to_unsigned(std::string_view(node).substr(7)));
    if (card.render_minor && keeps_files())  // so that the copy has its folder
      (void)read_bytes(fmt::format("{}/drm/renderD{}/dev", card.device, *card.render_minor));
    keep_link(drm_folder(root) + "/" + name);
    keep_link(card.card + "/device");
    keep_link(card.device + "/driver");
    machine.cards.push_back(*std::move(found));
  }
  std::ranges::sort(machine.cards, {}, &DrmCard::address);
  return machine;
}

void estimate_shared_memory(const Root& root, Reading& reading) {
  const auto text = read_file(AT_FDCWD, root.proc + "/meminfo", 65536);
  const auto value = [&](std::string_view name) -> std::optional<double> {
    for (const std::string_view line : split(text ? std::string_view(*text) : std::string_view(), '\n')) {
      if (!line.starts_with(name)) continue;
      for (const std::string_view word : split(line.substr(name.size()), ' '))
        if (const auto number = to_unsigned(word)) return static_cast<double>(*number) * 1024;
    }
    return std::nullopt;
  };
  for (const Metric metric : kMemoryMetrics) reading.miss(metric, Absence::not_supported);
  const auto total = value("MemTotal:");
  const auto available = value("MemAvailable:");
  if (!total || !available) return;
  reading.memory_estimated = true;
  reading.set(Metric::mem_total, *total);
  reading.set(Metric::mem_free, *available);
}

std::string name_of(const DrmCard& card, const Root& root, std::string_view vendor) {
  const auto device = read_hex(card.device + "/device");
  if (!device) return fmt::format("{} GPU", vendor);
  const std::string plain = fmt::format("{} GPU {:04x}", vendor, *device);
  if (root.sys != Root{}.sys) return plain;  // not this machine's
  for (const char* path : {"/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"}) {
    const auto text = read_file(path);
    if (!text) continue;
    // "1002  Advanced Micro…", below it "\t744c  Navi 31 [Radeon RX 7900 XT/…]"
    std::size_t at = text->find(fmt::format("\n{:04x}  ", card.vendor));
    if (at == std::string::npos) continue;
    const std::string wanted = fmt::format("\t{:04x}  ", *device);
    for (at = text->find('\n', at + 1); at != std::string::npos; at = text->find('\n', at + 1)) {
      const std::string_view line = std::string_view(*text).substr(at + 1);
      if (!line.starts_with('\t') && !line.starts_with('#')) break;
      if (!line.starts_with(wanted)) continue;
      std::string_view name = line.substr(wanted.size(), line.find('\n') - wanted.size());
      if (const std::size_t open = name.find('['); open != std::string_view::npos && name.ends_with(']'))
        name = name.substr(open + 1, name.size() - open - 2);
      return fmt::format("{} {}", vendor, name);
    }
  }
  return plain;
}

}  // namespace lull
