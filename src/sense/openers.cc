#include "sense/openers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/process.h"
#include "base/text.h"
#include "sense/files.h"
#include "sense/processes.h"

namespace lull {
namespace {

constexpr std::string_view kDeleted = " (deleted)";  // the kernel says so behind the path

// Where the nodes of a vendor's GPUs are, and by which number of a device.
struct NodeKind {
  std::string_view folder;  // below /dev
  std::string_view prefix;
  unsigned major;  // in the kernel's own table
  std::optional<unsigned> Device::* number;
};
constexpr NodeKind kNvidiaNodes = {"", "nvidia", 195, &Device::minor};
constexpr NodeKind kRenderNodes = {"/dri", "renderD", 226, &Device::render_minor};

const NodeKind& nodes_of(Vendor vendor) {
  return vendor == Vendor::amd || vendor == Vendor::intel ? kRenderNodes : kNvidiaNodes;
}

std::string node_path(const Root& root, const NodeKind& kind, std::uint64_t number) {
  return root.dev + std::string(kind.folder) + "/" + std::string(kind.prefix) + std::to_string(number);
}

// A MIG device has none; a partition of an AMD card has a render node.
bool has_own_file(const Device& device) { return device.kind == DeviceKind::gpu || device.vendor == Vendor::amd; }

// Nothing: it has no file of its own, or its number is not known.
std::optional<std::string> own_file(const Device& device, const Root& root) {
  const NodeKind& kind = nodes_of(device.vendor);
  const std::optional<unsigned>& number = device.*kind.number;
  if (!has_own_file(device) || !number) return std::nullopt;
  return node_path(root, kind, *number);
}

// Of all GPUs of the vendor that have a node, whether the driver speaks of them or not.
template <class Visit>
bool each_node(const Root& root, const NodeKind& kind, const Visit& visit) {
  Directory folder(root.dev + std::string(kind.folder));
  if (!folder) return errno == ENOENT;
  while (const char* entry = folder.next()) {
    const std::string_view name = entry;
    const auto number = name.starts_with(kind.prefix) ? to_unsigned(name.substr(kind.prefix.size())) : std::nullopt;
    if (number) visit(static_cast<unsigned>(*number));
  }
  return folder.error() == 0;
}

// "511:0"
std::optional<FileId> parse_device_number(std::string_view text) {
  const auto parts = split(trim(text), ':');
  if (parts.size() != 2) return std::nullopt;
  const auto major = to_unsigned(parts[0]);
  const auto minor = to_unsigned(parts[1]);
  if (!major || !minor) return std::nullopt;
  return FileId{true, static_cast<unsigned>(*major), static_cast<unsigned>(*minor), 0};
}

bool may_open(const std::string& path, int mode) {
  return ::access(path.c_str(), mode) == 0 || (errno != EACCES && errno != EPERM && errno != ENOENT);
}

// A capability of the driver's, such as "gpu0/mig/gi1/access": it names the device file that grants it. CUDA uses
// it too, so what has none is not accessible to any user here.
bool has_capability(const Root& root, const std::string& name) {
  const auto text = read_file(AT_FDCWD, root.driver + "/capabilities/" + name, 4096);
  if (!text) return text.error().errno_value != EACCES && text.error().errno_value != ENOENT;
  constexpr std::string_view kMinor = "DeviceFileMinor:";
  for (const std::string_view line : split(*text, '\n'))
    if (const auto minor = line.starts_with(kMinor) ? to_unsigned(trim(line.substr(kMinor.size()))) : std::nullopt)
      return may_open(root.dev + "/nvidia-caps/nvidia-cap" + std::to_string(*minor), R_OK);
  return true;
}

bool part_open_to_us(const Device& part, const Root& root) {
  if (!part.minor || !part.gpu_instance || !part.compute_instance) return true;
  const std::string instance = "gpu" + std::to_string(*part.minor) + "/mig/gi" + std::to_string(*part.gpu_instance);
  return has_capability(root, instance + "/access") &&
         has_capability(root, instance + "/ci" + std::to_string(*part.compute_instance) + "/access");
}

}  // namespace

std::optional<FileId> file_id(int dir, const char* path) {
  struct statx info{};
  if (::statx(dir, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &info) != 0) return std::nullopt;
  if (S_ISCHR(info.stx_mode)) return FileId{true, info.stx_rdev_major, info.stx_rdev_minor, 0};
  if (S_ISREG(info.stx_mode)) return FileId{false, info.stx_dev_major, info.stx_dev_minor, info.stx_ino};
  return std::nullopt;
}

DeviceFile DeviceFile::any_removed(const Root& root, Vendor vendor) {
  const NodeKind& kind = nodes_of(vendor);
  DeviceFile file;
  if (const std::string folder = real_path(root.dev + std::string(kind.folder)); !folder.empty())
    file.deleted_ = folder + "/" + std::string(kind.prefix);
  file.any_ = true;
  return file;
}

DeviceFile::DeviceFile(const Root& root, const std::string& folder, const std::string& name,
                       std::optional<FileId> number) {
  id_ = file_id(AT_FDCWD, (folder + "/" + name).c_str());
  if (id_) return;
  if (root.dev == Root{}.dev) id_ = number;
  if (const std::string real = real_path(folder); !real.empty()) deleted_ = real + "/" + name + std::string(kDeleted);
}

DeviceFile::DeviceFile(const Root& root, unsigned number, Vendor vendor)
    : DeviceFile(root, root.dev + std::string(nodes_of(vendor).folder),
                 std::string(nodes_of(vendor).prefix) + std::to_string(number),
                 FileId{true, nodes_of(vendor).major, number, 0}) {}

DeviceFile DeviceFile::kfd(const Root& root) {
  const auto number = read_file(AT_FDCWD, root.sys + "/class/kfd/kfd/dev", 64);
  return {root, root.dev, "kfd", number ? parse_device_number(*number) : std::nullopt};
}

DeviceFile DeviceFile::drm_card(const Root& root, unsigned number) {
  return {root, root.dev + "/dri", "card" + std::to_string(number), FileId{true, kRenderNodes.major, number, 0}};
}

std::vector<GpuFile> gpu_files(const Device& device, const Root& root) {
  std::vector<GpuFile> files;
  if (auto own = own_file(device, root)) files.push_back({*std::move(own)});
  if (device.vendor == Vendor::amd) files.push_back({root.dev + "/kfd", true});
  return files;
}

std::optional<unsigned> drm_card_of(unsigned render_minor, const Root& root) {
  constexpr std::string_view kPrefix = "card";
  Directory folder(root.sys + "/class/drm/renderD" + std::to_string(render_minor) + "/device/drm");
  while (const char* entry = folder.next()) {
    const std::string_view name = entry;
    if (const auto number = name.starts_with(kPrefix) ? to_unsigned(name.substr(kPrefix.size())) : std::nullopt)
      return static_cast<unsigned>(*number);
  }
  return std::nullopt;
}

namespace {

// Without those that are of other devices as well.
std::vector<DeviceFile> own_files(const Device& device, const Root& root) {
  std::vector<DeviceFile> files;
  const NodeKind& kind = nodes_of(device.vendor);
  const std::optional<unsigned>& number = device.*kind.number;
  if (!number) return files;
  files.emplace_back(root, *number, device.vendor);
  if (&kind != &kRenderNodes) return files;
  if (const auto card = drm_card_of(*number, root)) files.push_back(DeviceFile::drm_card(root, *card));
  return files;
}

}  // namespace

std::vector<DeviceFile> proof_files(const Device& device, const Root& root) {
  std::vector<DeviceFile> files = own_files(device, root);
  if (!files.empty() && device.vendor == Vendor::amd) files.push_back(DeviceFile::kfd(root));
  return files;
}

bool DeviceFile::is(int folder, const char* entry, const std::optional<FileId>& id) const {
  if (id_ && id == id_) return true;
  if (deleted_.empty()) return false;
  std::array<char, 4096> target{};
  const ssize_t size = ::readlinkat(folder, entry, target.data(), target.size());
  if (size <= 0) return false;
  std::string_view path(target.data(), static_cast<std::size_t>(size));
  if (!any_) return path == deleted_;
  if (!path.starts_with(deleted_) || !path.ends_with(kDeleted)) return false;
  path.remove_prefix(deleted_.size());
  path.remove_suffix(kDeleted.size());
  return to_unsigned(path).has_value();
}

bool open_to_us(const Inventory& inventory, std::size_t device, const Root& root) {
  const Device& it = inventory.devices[device];
  if (!has_own_file(it)) return part_open_to_us(it, root);
  if (const auto own = own_file(it, root)) return may_open(*own, R_OK | W_OK);
  const NodeKind& kind = nodes_of(it.vendor);
  bool open = false;
  const bool looked = each_node(root, kind, [&](unsigned number) {
    const bool anothers =
        std::ranges::any_of(inventory.devices, [&](const Device& other) { return other.*kind.number == number; });
    open = open || (!anothers && may_open(node_path(root, kind, number), R_OK | W_OK));
  });
  return open || !looked;
}

namespace {

constexpr std::size_t kWorthIt = 8;  // descriptors to a thread: fewer are looked at as soon as it is known who slept

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Threads of the kernel and those that ended hold nothing: that we may not look at them hides nothing.
bool has_files(const std::string& folder) {
  const auto text = read_file(folder + "/stat");
  if (!text) return !process_is_gone(text.error().errno_value);
  const auto stat = parse_process_entry(*text);
  return !stat || (!stat->kernel_thread && !stat->ended());
}

// The base name of the executable; nothing where the kernel does not tell.
std::optional<std::string> program_of(const std::string& folder) {
  std::array<char, 4096> target{};
  const ssize_t length = ::readlink((folder + "/exe").c_str(), target.data(), target.size());
  if (length <= 0 || static_cast<std::size_t>(length) == target.size()) return std::nullopt;
  std::string_view path(target.data(), static_cast<std::size_t>(length));
  // Of a program that was replaced while it runs, as an update of the driver does.
  constexpr std::string_view kGone = " (deleted)";
  if (path.ends_with(kGone)) path.remove_suffix(kGone.size());
  return std::string(base_name(path));
}

std::string comm_of(const std::string& folder) {
  std::string comm = read_file(folder + "/comm").value_or("");
  if (comm.ends_with('\n')) comm.pop_back();
  return comm;
}

// The base name of the script that it runs; empty: it is not a known interpreter, or runs none.
std::string script_of(const std::string& folder, std::string_view program) {
  constexpr std::array<std::string_view, 9> kInterpreters = {"python", "pypy", "perl", "ruby", "node",
                                                             "lua",    "php",  "bash", "dash"};
  constexpr std::array<std::string_view, 3> kOtherThanScripts = {"-c", "-m", "-e"};
  if (std::ranges::none_of(kInterpreters, [&](std::string_view one) { return program.starts_with(one); })) return "";
  const auto text = read_file(folder + "/cmdline");
  if (!text) return "";
  bool first = true;
  for (const std::string_view word : split(*text, '\0')) {
    if (std::exchange(first, false)) continue;
    if (std::ranges::count(kOtherThanScripts, word) > 0) return "";
    if (!word.starts_with('-')) return std::string(base_name(word));
  }
  return "";
}

// `lull sim load` stands for a user's program on a simulated GPU, under that program's name if it has one; all other
// programs of ours only read. They are known by our names, since a load may have any other one.
bool plays_a_job(const std::string& folder) {
  constexpr std::array<std::string_view, 4> kDropIns = {"gpu_idle_timeou", "gpu_mon", "gpu_sentinel", "gpuselect"};
  const std::string comm = comm_of(folder);
  if (!comm.starts_with("lull") && std::ranges::count(kDropIns, comm) == 0) return true;
  const auto text = read_file(folder + "/cmdline");
  if (!text) return false;
  const std::vector<std::string_view> words = split(*text, '\0');
  return comm != "lull-sensor" && words.size() > 2 && words[1] == "sim" && words[2] == "load";
}

// A long name is cut by the kernel; then the program's own words must confirm it.
bool is_called(std::string_view name, std::string_view comm, const std::string& folder) {
  if (name.size() <= kCommSize) return comm == name;
  if (comm != name.substr(0, kCommSize)) return false;
  const auto arguments = read_file(folder + "/cmdline");
  return arguments && base_name(std::string_view(*arguments).substr(0, arguments->find('\0'))) == name;
}

bool ignored(const std::string& folder, std::span<const std::string> ignore) {
  const auto in_lists = [&](const auto& is_it) {
    return std::ranges::any_of(kIgnoredOpeners, is_it) || std::ranges::any_of(ignore, is_it);
  };
  if (const auto program = program_of(folder)) {
    if (*program == "lull") return !plays_a_job(folder);
    return in_lists([&](std::string_view name) { return name == *program; });
  }
  const std::string comm = comm_of(folder);
  return !comm.empty() && in_lists([&](std::string_view name) { return is_called(name, comm, folder); });
}

// How often each thread of a process has run, where all of them sleep: one that says the same later has slept all the
// while. Nothing if one runs, or the kernel does not tell.
std::optional<std::string> sleeping_since(const std::string& folder) {
  std::string text;
  Directory threads(folder + "/task");
  while (const char* name = threads.next()) {
    const auto status = read_file(AT_FDCWD, folder + "/task/" + name + "/status", 8192);
    if (!status || status->find("\nState:\tS") == std::string::npos) return std::nullopt;
    const std::size_t counts = status->find("\nvoluntary_ctxt_switches:");
    if (counts == std::string::npos) return std::nullopt;
    text += name + status->substr(counts);
  }
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

std::vector<std::optional<FileId>> files_of(const Root& root, const Inventory& inventory) {
  std::vector<std::optional<FileId>> files(inventory.devices.size());
  for (std::size_t i = 0; i < files.size(); ++i)
    if (const auto own = own_file(inventory.devices[i], root)) files[i] = file_id(AT_FDCWD, own->c_str());
  return files;
}

// Why there can be no count, whoever holds it.
Absence reason(const Device& device, const std::optional<FileId>& file) {
  if (!has_own_file(device)) return Absence::not_supported;
  if (file) return Absence::none;
  return device.absence != Absence::none ? device.absence : Absence::failed;
}

}  // namespace

// What a process held when it was last looked at.
struct OpenerScan::Seen {
  std::optional<std::string> slept;  // sleeping_since()
  std::size_t descriptors = 0;
  std::vector<std::size_t> held;
};

class OpenerScan::Pass {
 public:
  Pass(const OpenerScan& scan, std::vector<std::optional<FileId>> files)
      : root_(scan.root_),
        ignore_(scan.ignore_),
        clock_(scan.clock_),
        before_(*scan.seen_),
        began_(clock_.now()),
        files_(std::move(files)) {
    openers_.holders.resize(files_.size());
    auto pids = process_ids(root_);
    is_whole_ = pids.has_value();
    if (pids) pids_ = *std::move(pids);
  }

  // True: it is done.
  bool go_on(Instant until) {
    if (std::ranges::none_of(files_, [](const auto& file) { return file.has_value(); })) return true;
    while (next_ < pids_.size()) {
      if (pids_[next_] != ::getpid() && !look_at(pids_[next_], until)) return false;
      ++next_;
      if (next_ < pids_.size() && clock_.now() >= until) return false;
    }
    return true;
  }

  Instant began() const { return began_; }
  // No: something could not be read that others may look at.
  bool is_whole() const { return is_whole_; }
  Openers take() { return std::move(openers_); }
  Seens take_seen() { return std::move(seen_); }

 private:
  // The process whose descriptors are being gone through.
  struct Current {
    std::string folder;
    Directory files;
    std::uint64_t start = 0;
    std::optional<std::string> slept;
    std::size_t descriptors = 0;
    std::vector<std::size_t> held;
  };

  // False: time is up in the middle of it.
  bool look_at(pid_t pid, Instant until) {
    constexpr std::size_t kBetween = 256;  // descriptors, between two looks at the clock
    if (!current_ && !begin(pid)) return true;
    Current& one = *current_;
    while (const char* name = one.files.next()) {
      if (const auto file = file_id(one.files.fd(), name)) {
        for (std::size_t i = 0; i < files_.size(); ++i)
          if (files_[i] == file && std::ranges::find(one.held, i) == one.held.end()) one.held.push_back(i);
      }
      if (++one.descriptors % kBetween == 0 && clock_.now() >= until) return false;
    }
    count(pid, one.folder, one.held);
    if (one.files.error() == 0)
      seen_[{pid, one.start}] = {std::move(one.slept), one.descriptors, std::move(one.held)};
    else
      is_whole_ = is_whole_ && process_is_gone(one.files.error());
    current_.reset();
    return true;
  }

  // False: there is nothing to go through.
  bool begin(pid_t pid) {
    Current one;
    one.folder = root_.proc + "/" + std::to_string(pid);
    const auto stat = read_process_entry(pid, root_);
    one.start = stat ? stat->start_ticks : 0;
    const auto known = before_.find({pid, one.start});
    if (known != before_.end() && stat && known->second.descriptors >= kWorthIt * stat->threads) {
      // Before its files are looked at: what it opens when it wakes up meanwhile is seen next time.
      one.slept = sleeping_since(one.folder);
      if (one.slept && one.slept == known->second.slept) {
        count(pid, one.folder, known->second.held);
        seen_[{pid, one.start}] = known->second;
        return false;
      }
    }
    one.files = Directory(one.folder + "/fd");
    if (!one.files) {
      if (process_is_gone(errno)) return false;
      const bool denied = errno == EACCES || errno == EPERM;
      if (!has_files(one.folder)) return false;
      if (denied)
        openers_.hidden.push_back(pid);
      else
        is_whole_ = false;
      return false;
    }
    current_ = std::move(one);
    return true;
  }

  void count(pid_t pid, const std::string& folder, const std::vector<std::size_t>& held) {
    if (held.empty() || ignored(folder, ignore_)) return;
    for (const std::size_t i : held) openers_.holders[i].push_back(pid);
  }

  const Root& root_;
  std::span<const std::string> ignore_;
  const Clock& clock_;
  const Seens& before_;
  Instant began_;
  std::vector<std::optional<FileId>> files_;
  std::vector<pid_t> pids_;
  std::size_t next_ = 0;
  std::optional<Current> current_;
  Seens seen_;
  Openers openers_;
  bool is_whole_ = false;
};

bool is_ignored_opener(pid_t pid, std::span<const std::string> ignore, const Root& root) {
  return ignored(root.proc + "/" + std::to_string(pid), ignore);
}

std::string program_of(pid_t pid, const Root& root) {
  return program_of(root.proc + "/" + std::to_string(pid)).value_or(std::string());
}

bool is_called(pid_t pid, std::span<const std::string> names, const Root& root) {
  if (pid <= 0 || names.empty()) return false;
  const std::string folder = root.proc + "/" + std::to_string(pid);
  const std::string program = program_of(folder).value_or("");
  const std::string comm = comm_of(folder);
  const std::string script = script_of(folder, program);
  return std::ranges::any_of(names, [&](const std::string& name) {
    return !name.empty() && (name == program || name.substr(0, kCommSize) == comm || name == script);
  });
}

FileHolders file_holders(const Inventory& inventory, std::span<const std::size_t> devices, const Root& root) {
  constexpr int kShareOfTime = 20;
  const SystemClock clock;
  const Instant began = clock.now();
  std::vector<std::pair<DeviceFile, std::size_t>> wanted;  // a file, and whose
  const auto known = files_of(root, inventory);
  FileHolders found;
  found.holders.resize(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (const Device& device = inventory.devices[devices[i]]; own_file(device, root)) {
      for (DeviceFile& one : own_files(device, root)) wanted.emplace_back(std::move(one), i);
    } else {
      wanted.emplace_back(DeviceFile::any_removed(root, device.vendor), i);
      each_node(root, nodes_of(device.vendor), [&](unsigned number) {
        if (DeviceFile one(root, number, device.vendor); one.id() && std::ranges::find(known, one.id()) == known.end())
          wanted.emplace_back(std::move(one), i);
      });
    }
  for (const pid_t pid : wanted.empty() ? std::vector<pid_t>() : process_ids(root).value_or(std::vector<pid_t>())) {
    const std::string folder = root.proc + "/" + std::to_string(pid);
    Directory files(folder + "/fd");
    if (!files && !process_is_gone(errno) && has_files(folder)) found.hidden.push_back(pid);
    std::vector<bool> here(devices.size());
    while (const char* name = files.next()) {
      const auto file = file_id(files.fd(), name);
      for (const auto& [one, whose] : wanted)
        if (one.is(files.fd(), name, file)) here[whose] = true;
    }
    if (files.error() != 0 && !process_is_gone(files.error())) found.hidden.push_back(pid);
    if (std::ranges::count(here, true) == 0 || ignored(folder, {})) continue;
    for (std::size_t i = 0; i < here.size(); ++i)
      if (here[i]) found.holders[i].push_back(pid);
  }
  found.rest = kShareOfTime * (clock.now() - began);
  return found;
}

OpenerScan::OpenerScan(Root root, std::vector<std::string> ignore, const Clock& clock)
    : root_(std::move(root)), ignore_(std::move(ignore)), clock_(clock), seen_(std::make_unique<Seens>()) {}
OpenerScan::~OpenerScan() = default;

Openers OpenerScan::look(const Inventory& inventory, Duration budget, bool hidden_count) {
  auto files = files_of(root_, inventory);
  // What was held is kept by the places of the files: other files, other places.
  if (files != last_files_) {
    pass_.reset();
    last_.reset();
    seen_->clear();
    last_files_ = files;
  }
  const Instant now = clock_.now();
  if (!pass_) pass_ = std::make_unique<Pass>(*this, files);
  if (pass_->go_on(now + budget)) {
    last_.reset();
    if (pass_->is_whole()) last_ = pass_->take();  // else the next pass tells
    last_began_ = pass_->began();
    *seen_ = pass_->take_seen();
    pass_.reset();
  }
  const bool known = last_ && clock_.now() - last_began_ <= kOldestPass;
  Openers openers = known ? *last_ : Openers{};
  openers.holders.resize(files.size());
  openers.began = last_began_;
  for (std::size_t i = 0; i < files.size(); ++i) {
    Absence why = reason(inventory.devices[i], files[i]);
    if (why == Absence::none && !known) why = Absence::looking;
    if (why == Absence::none && hidden_count && !openers.hidden.empty()) why = Absence::no_permission;
    if (why != Absence::none) openers.holders[i].clear();
    openers.absence.push_back(why);
  }
  return openers;
}

}  // namespace lull
