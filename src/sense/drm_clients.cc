#include "sense/drm_clients.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/process.h"
#include "base/text.h"
#include "sense/files.h"
#include "sense/openers.h"
#include "sense/processes.h"

namespace lull {
namespace {

constexpr unsigned kDrmMajor = 226;
constexpr std::size_t kLongestInfo = 64U << 10;

// "1234 KiB", "1234": bytes.
std::optional<std::uint64_t> drm_bytes(std::string_view text) {
  const std::size_t blank = text.find_first_of(" \t");
  const auto number = to_unsigned(text.substr(0, blank));
  if (!number) return std::nullopt;
  const std::string_view unit = blank == std::string_view::npos ? "" : trim(text.substr(blank));
  const unsigned shift = unit == "KiB" ? 10 : unit == "MiB" ? 20 : 0;
  if ((!unit.empty() && shift == 0) || *number > UINT64_MAX >> shift) return std::nullopt;
  return *number << shift;
}

// "1234 ns"
std::optional<std::uint64_t> drm_time(std::string_view text) {
  if (text.ends_with("ns")) text = trim(text.substr(0, text.size() - 2));
  return to_unsigned(text);
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// What the keys of memory say by region ("vram", "vram0", "local0", "gtt", "system0"). Newer kernels tell what is
// resident, older ones a total or one number.
class DrmMemory {
 public:
  // True: it was one of these keys.
  bool take(std::string_view key, std::string_view value) {
    constexpr auto kKeys = std::to_array<std::string_view>({"drm-resident-", "drm-memory-", "drm-total-"});
    for (std::size_t i = 0; i < kKeys.size(); ++i)
      if (std::string_view region = key; take_prefix(region, kKeys[i])) {
        if (const auto bytes = drm_bytes(value)) regions_[std::string(region)][i] = *bytes;
        return true;
      }
    return false;
  }

  // On the card, or what an integrated GPU uses of the machine's.
  std::optional<std::uint64_t> bytes() const {
    const auto own =
        sum([](std::string_view region) { return region.starts_with("vram") || region.starts_with("local"); });
    return own ? own : sum([](std::string_view) { return true; });
  }

 private:
  template <class Is>
  std::optional<std::uint64_t> sum(const Is& is) const {
    std::optional<std::uint64_t> all;
    for (const auto& [region, values] : regions_) {
      const auto best = std::ranges::find_if(values, [](const auto& value) { return value.has_value(); });
      if (best != values.end() && is(region)) all = all.value_or(0) + **best;
    }
    return all;
  }

  std::map<std::string, std::array<std::optional<std::uint64_t>, 3>> regions_;
};

void take_engine(DrmInfo& info, std::string_view key, std::string_view value) {
  if (take_prefix(key, "drm-engine-capacity-")) {
    if (const auto count = to_unsigned(value); count && *count > 0 && *count <= 1024)
      info.engines[std::string(key)].capacity = static_cast<unsigned>(*count);
  } else if (take_prefix(key, "drm-engine-")) {
    info.engines[std::string(key)].nanoseconds = drm_time(value);
  } else if (take_prefix(key, "drm-total-cycles-")) {
    info.engines[std::string(key)].total_cycles = to_unsigned(value);
  } else if (take_prefix(key, "drm-cycles-")) {
    info.engines[std::string(key)].cycles = to_unsigned(value);
  }
}

// NVML's way of writing an address has 8 digits of domain and capitals; the kernel's has 4 and small letters.
std::string drm_address(std::string_view pci) {
  constexpr std::size_t kLength = 12;
  return lowered(pci.size() > kLength ? pci.substr(pci.size() - kLength) : pci);
}

// Of another user's, or a thread that the kernel made: that has no files.
bool may_have_files(pid_t pid, const Root& root) {
  const auto entry = read_process_entry(pid, root);
  if (!entry) return !process_is_gone(entry.error().errno_value);
  return !entry->kernel_thread && !entry->ended();
}

// Processes of which the kernel tells at once that they hold no file, as all threads of its own. Since Linux 6.2 the
// size of /proc/PID/fd is the number of open files; before it is 0. All users may read it of any process.
class Fileless {
 public:
  explicit Fileless(const Root& root) : proc_(open_file(root.proc, O_PATH | O_DIRECTORY).value_or(Fd())) {
    told_ = status("self/fd", STATX_SIZE).stx_size > 0;  // we have some ourselves
  }
  // A first thread that has ended holds none: others of its process may.
  bool contain(pid_t pid) const {
    if (!told_) return false;
    constexpr unsigned kLinksOfOne = 3;  // of a folder with one thread
    const std::string name = std::to_string(pid);
    const struct statx files = status(name + "/fd", STATX_SIZE);
    if ((files.stx_mask & STATX_SIZE) == 0 || files.stx_size > 0) return false;
    const struct statx threads = status(name + "/task", STATX_NLINK);
    return (threads.stx_mask & STATX_NLINK) != 0 && threads.stx_nlink <= kLinksOfOne;
  }

 private:
  // Its mask is empty where there is nothing to be had.
  struct statx status(const std::string& name, unsigned what) const {
    struct statx info{};
    if (::statx(proc_.get(), name.c_str(), AT_STATX_DONT_SYNC, what, &info) != 0) info.stx_mask = 0, info.stx_size = 0;
    return info;
  }
  Fd proc_;
  bool told_ = false;
};

}  // namespace

bool DrmInfo::worked() const {
  return std::ranges::any_of(engines, [](const auto& one) {
    return one.second.nanoseconds.value_or(0) > 0 || one.second.cycles.value_or(0) > 0;
  });
}

std::optional<DrmInfo> parse_drm_info(std::string_view text) {
  DrmInfo info;
  DrmMemory memory;
  std::optional<std::uint64_t> client;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !line.starts_with("drm-")) continue;
    const std::string_view key = line.substr(0, colon);
    const std::string_view value = trim(line.substr(colon + 1));
    if (key == "drm-driver")
      info.driver = value;
    else if (key == "drm-pdev")
      info.pci = drm_address(value);
    else if (key == "drm-client-id")
      client = to_unsigned(value);
    else if (key.starts_with("drm-total-cycles-") || !memory.take(key, value))
      take_engine(info, key, value);
  }
  if (!client || info.pci.empty()) return std::nullopt;
  info.client = *client;
  info.memory_bytes = memory.bytes();
  return info;
}

// Which process holds which DRM device, by one look at every process.
struct DrmClients::Holders {
  struct One {
    pid_t pid = 0;
    unsigned minor = 0;
    std::string table;  // "fd", or "task/12/fd" of a thread with files of its own
    std::string entry;
  };
  Instant at{};
  Duration took{};
  Absence absence = Absence::none;
  std::vector<One> all;
};

namespace {

// Device files by what tells them apart. In a simulation they are plain files, each with the number in its name.
class DrmNodes {
 public:
  explicit DrmNodes(const Root& root) {
    Directory folder(root.dev + "/dri");
    while (const char* entry = folder.next()) {
      std::string_view name = entry;
      if (!take_prefix(name, "renderD") && !take_prefix(name, "card")) continue;
      const auto number = to_unsigned(name);
      const auto id = file_id(folder.fd(), entry);
      if (number && id && !id->device) files_.emplace_back(*id, static_cast<unsigned>(*number));
    }
  }
  std::optional<unsigned> minor_of(const FileId& id) const {
    if (id.device) return id.major == kDrmMajor ? std::optional(id.minor) : std::nullopt;
    const auto found = std::ranges::find(files_, id, &std::pair<FileId, unsigned>::first);
    return found != files_.end() ? std::optional(found->second) : std::nullopt;
  }

 private:
  std::vector<std::pair<FileId, unsigned>> files_;
};

// One table of files. Nothing: it may not be looked at; else how many entries it has.
template <class Visit>
std::optional<std::size_t> each_drm_file(const std::string& path, const DrmNodes& nodes, const Visit& visit) {
  Directory files(path);
  if (!files) return process_is_gone(errno) ? std::optional<std::size_t>(0) : std::nullopt;
  std::size_t count = 0;
  while (const char* entry = files.next()) {
    ++count;
    const auto id = file_id(files.fd(), entry);
    if (const auto minor = id ? nodes.minor_of(*id) : std::nullopt) visit(*minor, entry);
  }
  if (files.error() != 0 && !process_is_gone(files.error())) return std::nullopt;
  return count;
}

}  // namespace

DrmClients::DrmClients(Root root, const Clock& clock) : root_(std::move(root)), clock_(clock) {}
DrmClients::~DrmClients() = default;

std::shared_ptr<const DrmClients::Holders> DrmClients::holders(Instant not_before, bool exactly) {
  const std::scoped_lock lock(mutex_);
  constexpr int kShareOfTime = 20;
  if (holders_ && holders_->at >= not_before) return holders_;
  if (holders_ && !exactly && clock_.now() - holders_->at < kShareOfTime * holders_->took) return holders_;
  auto found = std::make_shared<Holders>();
  found->at = clock_.now();
  const DrmNodes nodes(root_);
  const std::vector<pid_t> pids = process_ids(root_).value_or(std::vector<pid_t>());
  // A /proc that is mounted with hidepid does not show the processes of others, and so not the first one.
  if (root_.proc == Root{}.proc && (pids.empty() || pids.front() != 1)) found->absence = Absence::hidden;
  const Fileless fileless(root_);
  for (const pid_t pid : pids) {
    if (fileless.contain(pid)) continue;
    const std::string folder = root_.proc + "/" + std::to_string(pid);
    const auto look = [&](const std::string& table) {
      return each_drm_file(folder + "/" + table, nodes, [&](unsigned minor, const char* entry) {
        found->all.push_back({pid, minor, table, entry});
      });
    };
    const auto count = look("fd");
    if (!count && found->absence != Absence::no_permission && may_have_files(pid, root_))
      found->absence = Absence::no_permission;
    if (count != 0U) continue;
    // A first thread that has ended has no files; the others may.
    const auto entry = read_process_entry(pid, root_);
    if (!entry || entry->kernel_thread || entry->threads <= 1) continue;
    Directory threads(folder + "/task");
    while (const char* thread = threads.next()) {
      const auto theirs = look(std::string("task/") + thread + "/fd");
      if (!theirs) found->absence = Absence::no_permission;
      if (theirs.value_or(0) > 0) break;  // nearly always all of them have the same
    }
    if (threads.error() != 0 && !process_is_gone(threads.error())) found->absence = Absence::no_permission;
  }
  found->took = clock_.now() - found->at;
  holders_ = std::move(found);
  return holders_;
}

bool DrmClients::is_unused(const std::string& module, Instant not_before) {
  if (module.empty()) return false;
  const std::scoped_lock lock(mutex_);
  const auto [known, is_new] = references_.try_emplace(module);
  if (is_new || known->second.at < not_before) {
    known->second.at = clock_.now();
    known->second.none = read_text(root_.sys + "/module/" + module + "/refcnt") == "0";
  }
  return known->second.none;
}

DrmUse DrmClients::of(unsigned render_minor, std::string_view pci, const std::string& module, Instant not_before,
                      bool exactly) {
  if (is_unused(module, not_before)) return {};
  const std::shared_ptr<const Holders> known = holders(not_before, exactly);
  if (known->all.empty()) return {.absence = known->absence, .clients = {}};
  const std::optional<unsigned> card = drm_card_of(render_minor, root_);
  const std::string address = drm_address(pci);
  const std::string simulated = simulated_proc(root_);
  DrmUse use{.absence = known->absence, .clients = {}};
  const auto read = [&](const Holders::One& one) -> Result<std::string> {
    // "fd/7" is told of in "fdinfo/7".
    const std::string file = std::to_string(one.pid) + "/" + one.table + "info/" + one.entry;
    if (!simulated.empty())
      if (auto text = read_file(AT_FDCWD, simulated + "/" + file, kLongestInfo);
          text || text.error().errno_value != ENOENT)
        return text;
    return read_file(AT_FDCWD, root_.proc + "/" + file, kLongestInfo);
  };
  for (const Holders::One& one : known->all) {
    if (one.minor != render_minor && one.minor != card) continue;
    const auto text = read(one);
    if (!text) {
      if (const int error = text.error().errno_value; !process_is_gone(error))
        use.absence = error == EACCES || error == EPERM ? Absence::no_permission : Absence::failed;
      continue;
    }
    auto info = parse_drm_info(*text);
    // Before Linux 5.14 (amdgpu), 5.19 (i915) and 6.8 (xe) a driver writes nothing of its clients.
    if (!info && use.absence == Absence::none) use.absence = Absence::not_supported;
    if (!info || info->pci != address) continue;
    const auto client =
        std::ranges::find(use.clients, info->client, [](const DrmClient& it) { return it.info.client; });
    if (client == use.clients.end())
      use.clients.push_back({*std::move(info), {one.pid}});
    else if (client->holders.back() != one.pid)
      client->holders.push_back(one.pid);
  }
  return use;
}

}  // namespace lull
