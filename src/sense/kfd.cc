#include "sense/kfd.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>

#include "base/text.h"

namespace lull {
namespace {

constexpr const char* kKfd = "/class/kfd/kfd";
constexpr std::size_t kKfdText = 64U << 10;
constexpr std::uint32_t kFunctionBits = 7;

// sysfs says ENODEV of a file that is removed while it is read.
bool kfd_vanished(int error) { return error == ENOENT || error == ENODEV || error == ESRCH; }

Absence kfd_absence(int error) { return error == EACCES || error == EPERM ? Absence::no_permission : Absence::failed; }

// The numbers that name the entries of a folder, ascending; an error where it cannot be read to its end.
Result<std::vector<std::uint64_t>> kfd_numbers(const std::string& path) {
  Directory folder(path);
  if (!folder) return fail(errno, path);
  std::vector<std::uint64_t> numbers;
  errno = 0;
  while (const char* name = folder.next())
    if (const auto number = to_unsigned(name)) numbers.push_back(*number);
  if (errno != 0) return fail(errno, path);
  std::ranges::sort(numbers);
  return numbers;
}

// One whole number; errno_value 0: the file is empty, or no number.
Result<std::uint64_t> kfd_number(const std::string& path) {
  const std::string text = TRY(read_file(AT_FDCWD, path, kKfdText));
  const auto number = to_unsigned(trim(text));
  if (!number) return fail(path + " is not a number");
  return *number;
}

// "name value" a line.
std::map<std::string, std::uint64_t> kfd_properties(std::string_view text) {
  std::map<std::string, std::uint64_t> values;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos) continue;
    if (const auto value = to_unsigned(trim(line.substr(blank)))) values.emplace(line.substr(0, blank), *value);
  }
  return values;
}

enum class KfdSeen : std::uint8_t { gpu, other, not_ours, unreadable };

// ROCm leaves out a GPU whose render node is not there or that the device cgroup forbids. Any other trouble with the
// node is an error there, and does not move those behind it.
bool rocm_counts(const KfdNode& node, const Root& root) {
  if (node.simd_count == 0) return false;
  if (!node.render_minor) return true;
  const std::string file = fmt::format("{}/dri/renderD{}", root.dev, *node.render_minor);
  return ::access(file.c_str(), R_OK | W_OK) == 0 || (errno != ENOENT && errno != EPERM);
}

KfdSeen read_kfd_node(const std::string& folder, KfdNode& node) {
  const auto id = kfd_number(folder + "/gpu_id");
  if (!id) return id.error().errno_value == EPERM ? KfdSeen::not_ours : KfdSeen::unreadable;
  if (*id == 0) return KfdSeen::other;  // a CPU
  const auto text = read_file(AT_FDCWD, folder + "/properties", kKfdText);
  if (!text) return text.error().errno_value == EPERM ? KfdSeen::not_ours : KfdSeen::unreadable;
  const auto values = kfd_properties(*text);
  const auto value = [&](const char* name) -> std::optional<std::uint64_t> {
    const auto found = values.find(name);
    return found != values.end() ? std::optional(found->second) : std::nullopt;
  };
  const auto simds = value("simd_count");
  if (!simds) return KfdSeen::unreadable;
  node.gpu_id = static_cast<std::uint32_t>(*id);
  node.simd_count = static_cast<std::uint32_t>(*simds);
  node.unique_id = value("unique_id").value_or(0);
  node.location_id = static_cast<std::uint32_t>(value("location_id").value_or(0));
  node.domain = static_cast<std::uint32_t>(value("domain").value_or(0));
  node.gfx_target_version = value("gfx_target_version").value_or(0);
  node.has_cpu = value("cpu_cores_count").value_or(0) > 0;
  if (const auto minor = value("drm_render_minor"); minor && *minor != 0)
    node.render_minor = static_cast<unsigned>(*minor);
  return KfdSeen::gpu;
}

KfdTopology read_kfd_once(const Root& root) {
  KfdTopology topology;
  const std::string folder = root.sys + kKfd + std::string("/topology/nodes");
  const auto numbers = kfd_numbers(folder);
  if (!numbers) {
    const bool none = numbers.error().errno_value == ENOENT && ::access((root.sys + kKfd).c_str(), F_OK) != 0;
    topology.absence = none ? Absence::no_driver : kfd_absence(numbers.error().errno_value);
    topology.order_known = false;
    return topology;
  }
  for (std::size_t i = 0; i < numbers->size(); ++i) {
    KfdNode node;
    node.node = static_cast<unsigned>((*numbers)[i]);
    const KfdSeen seen = read_kfd_node(fmt::format("{}/{}", folder, node.node), node);
    // ROCm counts the folders and reads from 0 on: with a gap its order is unknown.
    if (seen == KfdSeen::unreadable || node.node != i) topology.order_known = false;
    if (seen == KfdSeen::gpu) topology.gpus.push_back(node);
    if (seen == KfdSeen::unreadable) topology.unseen = Absence::failed;
    if (seen == KfdSeen::not_ours && topology.unseen == Absence::none) topology.unseen = Absence::no_permission;
  }
  unsigned rank = 0;
  for (KfdNode& node : topology.gpus) {
    if (topology.order_known && rocm_counts(node, root)) node.rank = rank++;
    node.partition =
        node.unique_id != 0 && std::ranges::count_if(topology.gpus, [&](const KfdNode& other) {
                                 return other.unique_id == node.unique_id && other.domain == node.domain &&
                                        (other.location_id | kFunctionBits) == (node.location_id | kFunctionBits);
                               }) > 1;
  }
  return topology;
}

// What one KFD process, or one of its contexts, has on a GPU.
class KfdReader {
 public:
  explicit KfdReader(std::uint32_t gpu_id) : gpu_id_(gpu_id) {}

  void look(const std::string& folder) {
    const bool has_memory = memory(folder);
    const bool has_queues = bytes_ > 0 || queues(folder + "/queues");
    // Before Linux 5.7 a process has neither, and may do anything.
    if (!has_memory && !has_queues && ::access(folder.c_str(), F_OK) == 0) absence_ = Absence::not_supported;
  }
  bool uses() const { return bytes_ > 0 || has_queue_; }
  // Nothing: some of it could not be read.
  std::optional<std::uint64_t> bytes() const {
    return absence_ == Absence::none ? std::optional(bytes_) : std::nullopt;
  }
  Absence absence() const { return absence_; }

 private:
  // False: there is no such file.
  bool memory(const std::string& folder) {
    const auto bytes = kfd_number(fmt::format("{}/vram_{}", folder, gpu_id_));
    if (!bytes) return !note(bytes.error().errno_value);
    if (!plausible(Metric::mem_used, static_cast<double>(*bytes))) return !note(0);
    bytes_ += *bytes;
    return true;
  }

  bool queues(const std::string& folder) {
    const auto numbers = kfd_numbers(folder);
    if (!numbers) return !note(numbers.error().errno_value);
    for (const std::uint64_t queue : *numbers) {
      const auto gpu = kfd_number(fmt::format("{}/{}/gpuid", folder, queue));
      if (!gpu) (void)note(gpu.error().errno_value);
      if (gpu && *gpu > std::numeric_limits<std::uint32_t>::max()) (void)note(0);  // of no GPU: it may be of any
      if (gpu && *gpu == gpu_id_) has_queue_ = true;
    }
    return true;
  }

  // True: it is not there.
  bool note(int error) {
    if (!kfd_vanished(error)) absence_ = kfd_absence(error);
    return kfd_vanished(error);
  }

  std::uint32_t gpu_id_;
  std::uint64_t bytes_ = 0;
  bool has_queue_ = false;
  Absence absence_ = Absence::none;
};

// "context_3", which newer kernels have for each further context of a process.
std::vector<std::string> kfd_contexts(const std::string& folder) {
  std::vector<std::string> names;
  Directory entries(folder);
  while (const char* name = entries.next())
    if (std::string_view(name).starts_with("context_")) names.push_back(folder + "/" + name);
  return names;
}

}  // namespace

std::string KfdNode::pci() const {
  const std::uint32_t place = partition ? location_id & ~kFunctionBits : location_id;
  return fmt::format("{:08X}:{:02X}:{:02X}.{:X}", domain, place >> 8 & 0xff, place >> 3 & 0x1f, place & kFunctionBits);
}

std::string KfdNode::uuid() const { return unique_id != 0 ? fmt::format("GPU-{:016x}", unique_id) : ""; }

const KfdNode* KfdTopology::with_render_minor(unsigned minor) const {
  const auto found = std::ranges::find(gpus, std::optional(minor), &KfdNode::render_minor);
  return found != gpus.end() ? &*found : nullptr;
}

KfdTopology read_kfd_topology(const Root& root) {
  constexpr int kMostTries = 3;
  const std::string generation = root.sys + kKfd + std::string("/topology/generation_id");
  KfdTopology topology;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const auto before = kfd_number(generation);
    topology = read_kfd_once(root);
    const auto after = kfd_number(generation);
    if (!before || !after || *before == *after) return topology;
  }
  // It changes all the time: what was read may be of two generations.
  topology.order_known = false;
  for (KfdNode& node : topology.gpus) node.rank.reset();
  return topology;
}

KfdTopology SharedKfdTopology::read() {
  const std::scoped_lock lock(mutex_);
  const Instant now = clock_.now();
  if (!topology_ || topology_->absence != Absence::none || !topology_->order_known || now < at_ ||
      now - at_ > kStands) {
    topology_ = read_kfd_topology(root_);
    at_ = now;
  }
  return *topology_;
}

KfdUsers read_kfd_users(const Root& root, std::uint32_t gpu_id) {
  KfdUsers users;
  const std::string folder = root.sys + kKfd + std::string("/proc");
  const auto pids = kfd_numbers(folder);
  if (!pids) {
    users.absence = pids.error().errno_value == ENOENT ? Absence::not_supported  // an old kernel, or no KFD
                                                       : kfd_absence(pids.error().errno_value);
    return users;
  }
  for (const std::uint64_t pid : *pids) {
    if (pid == 0 || !std::in_range<pid_t>(pid)) continue;
    const std::string process = fmt::format("{}/{}", folder, pid);
    KfdReader reader(gpu_id);
    reader.look(process);
    for (const std::string& context : kfd_contexts(process)) reader.look(context);
    // Of one that is seen to be there, the rest need not be read.
    if (reader.uses())
      users.processes.push_back({.pid = static_cast<pid_t>(pid),
                                 .compute = true,
                                 .memory_bytes = reader.bytes(),
                                 .here = false,
                                 .proof = Proof::unproven});
    else if (reader.absence() != Absence::none)
      users.absence = reader.absence();
  }
  return users;
}

bool is_kfd_process(const Root& root, pid_t pid) {
  return ::access(fmt::format("{}{}/proc/{}", root.sys, kKfd, pid).c_str(), F_OK) == 0;
}

}  // namespace lull
