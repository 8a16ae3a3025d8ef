#include "sim/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/fd.h"
#include "base/text.h"
#include "nvml/abi.h"
#include "sim/machine.h"

namespace lull::sim {
namespace {

namespace fs = std::filesystem;

std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::string_view name_in(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// As relative links of the kernel are: up to the root, and down again.
std::string relative_link(const std::string& path, const std::string& to) {
  std::string link;
  for (std::ptrdiff_t up = std::ranges::count(path, '/'); up > 0; --up) link += "../";
  return link + to;
}

}  // namespace

// ---- what there is -------------------------------------------------------------------------------

bool FileList::hidden(std::string_view path) const {
  if (gpu_ == kNone) return false;
  return std::string_view(card().hidden).find(fmt::format(",{},", name_in(path))) != std::string_view::npos;
}

void FileList::text(const std::string& path, std::string_view content) { bytes(path, fmt::format("{}\n", content)); }

void FileList::bytes(const std::string& path, std::string content) {
  if (!hidden(path)) entries_.push_back({path, std::move(content), FileEntry::Kind::file, nullptr, gpu_, 0});
}

void FileList::live(const std::string& path, Render render, unsigned nth) {
  if (!hidden(path)) entries_.push_back({path, {}, FileEntry::Kind::file, render, gpu_, nth});
}

void FileList::link(const std::string& path, const std::string& to) {
  entries_.push_back({path, relative_link(path, to), FileEntry::Kind::link, nullptr, gpu_, 0});
}

void FileList::folder(const std::string& path) {
  entries_.push_back({path, {}, FileEntry::Kind::folder, nullptr, gpu_, 0});
}

std::string FileList::hwmon(const std::string& device, std::string_view name) {
  const unsigned number = hwmons_++;
  const std::string at = fmt::format("{}/hwmon/hwmon{}", device, number);
  text(at + "/name", name);
  bytes(at + "/uevent", "");
  link(at + "/device", device);
  link(at + "/subsystem", "class/hwmon");
  link(fmt::format("class/hwmon/hwmon{}", number), at);
  return at;
}

std::string FileList::drm(const std::string& device, unsigned card) {
  for (const auto& [name, minor] :
       {std::pair{fmt::format("card{}", card), card}, {fmt::format("renderD{}", 128 + card), 128 + card}}) {
    const std::string at = fmt::format("{}/drm/{}", device, name);
    text(at + "/dev", fmt::format("226:{}", minor));
    text(at + "/uevent", fmt::format("MAJOR=226\nMINOR={}\nDEVNAME=dri/{}\nDEVTYPE=drm_minor", minor, name));
    link(at + "/device", device);
    link(at + "/subsystem", "class/drm");
    link("class/drm/" + name, at);
    link(fmt::format("dev/char/226:{}", minor), at);
  }
  return fmt::format("{}/drm/card{}", device, card);
}

std::string FileList::pci(std::string_view driver, std::uint32_t vendor, std::uint32_t device_class) {
  const Gpu& gpu = card();
  const std::string address = pci_address(gpu);
  const std::string device = fmt::format("devices/pci{:04x}:00/{}", gpu.pci_domain, address);
  const std::uint32_t id = gpu.pci_device_id >> 16;
  const std::string at = device + "/";
  text(at + "vendor", fmt::format("0x{:04x}", vendor));
  text(at + "device", fmt::format("0x{:04x}", id));
  text(at + "subsystem_vendor", fmt::format("0x{:04x}", vendor));
  text(at + "subsystem_device", "0x0e3b");
  text(at + "revision", "0xc8");
  text(at + "class", fmt::format("0x{:06x}", device_class));
  text(at + "enable", "1");
  text(at + "uevent",
       fmt::format("DRIVER={}\nPCI_CLASS={:X}\nPCI_ID={:04X}:{:04X}\nPCI_SUBSYS_ID={:04X}:0E3B\nPCI_SLOT_NAME={}\n"
                   "MODALIAS=pci:v{:08X}d{:08X}",
                   driver, device_class, vendor, id, vendor, address, vendor, id));
  text(at + "numa_node", fmt::format("{}", gpu.numa_node));
  const std::string speed = fmt::format("{}.0 GT/s PCIe", gpu.pcie_generation >= 5 ? 32 : 16);
  for (const char* name : {"current_link_speed", "max_link_speed"}) text(at + name, speed);
  for (const char* name : {"current_link_width", "max_link_width"}) text(at + name, fmt::format("{}", gpu.pcie_width));
  live(at + "power/runtime_status", render_runtime_status);
  text(at + "power/control", "auto");
  link(at + "subsystem", "bus/pci");
  link(at + "driver", fmt::format("bus/pci/drivers/{}", driver));
  folder(fmt::format("bus/pci/drivers/{}", driver));
  link("bus/pci/devices/" + address, device);
  return device;
}

std::vector<FileEntry> file_entries(const State& state) {
  FileList list(state);
  for (unsigned gpu = 0; gpu < state.gpu_count; ++gpu) {
    list.gpu(gpu);
    switch (state.gpus[gpu].vendor) {
      case Vendor::amd: add_amd(list); break;
      case Vendor::intel: add_intel(list); break;
      case Vendor::tegra: add_tegra(list); break;
      case Vendor::nvidia: break;
    }
  }
  list.gpu(kNone);
  add_kfd(list);
  return list.take();
}

std::vector<ProcessFile> fdinfo_files(const Scene& scene) {
  std::vector<ProcessFile> files;
  for (unsigned gpu = 0; gpu < scene.state.gpu_count; ++gpu) {
    if (!has_render_node(scene.state.gpus[gpu].vendor)) continue;
    each_load(scene, gpu, scene.now_ns, [&](const Load& load) {
      const bool amd = scene.state.gpus[gpu].vendor == Vendor::amd;
      const std::string text = "pos:\t0\nflags:\t02100002\nmnt_id:\t25\nino:\t1\n" +
                               (amd ? amd_fdinfo(scene, load) : intel_fdinfo(scene, load));
      for (const std::int32_t fd : load.drm_fds)
        if (fd >= 0) files.push_back({fmt::format("{}/fdinfo/{}", host_pid_of(scene.state, load), fd), text, gpu});
    });
  }
  return files;
}

bool has_file_gpus(const State& state) {
  return std::any_of(state.gpus, state.gpus + state.gpu_count,
                     [](const Gpu& gpu) { return gpu.vendor != Vendor::nvidia; });
}

// ---- common contents -----------------------------------------------------------------------------

std::optional<std::string> whole_text(double value, double factor) {
  if (!std::isfinite(value)) return std::nullopt;
  return fmt::format("{}\n", whole(value * factor));
}

std::optional<std::string> render_power(const RenderInput& in) { return whole_text(in.now(Metric::power), 1e6); }
std::optional<std::string> render_limit(const RenderInput& in) { return whole_text(in.now(Metric::power_limit), 1e6); }
std::optional<std::string> render_temp(const RenderInput& in) {
  return whole_text(in.now(Metric::temp) + in.nth, 1000);
}
std::optional<std::string> render_energy(const RenderInput& in) {
  if (!std::isfinite(in.now(Metric::power))) return std::nullopt;
  return fmt::format("{}\n", energy_mj(in.scene, in.gpu, in.scene.now_ns) * 1000);
}
std::optional<std::string> render_fan(const RenderInput& in) { return whole_text(in.now(Metric::fan), 33); }
std::optional<std::string> render_runtime_status(const RenderInput& in) {
  return in.scene.state.touched[in.gpu].asleep.load(std::memory_order_acquire) != 0 ? "suspended\n" : "active\n";
}

double real_seconds(const Scene& scene) { return static_cast<double>(scene.now_ns) * 1e-9 / scene.state.speed; }

double busy_sum(const Scene& scene, unsigned gpu) {
  return ledger_at(scene, gpu, scene.now_ns).util / scene.state.speed;
}

double busy_seconds(const Scene& scene, const Load& load) {
  double sum = 0;
  const std::int64_t age = scene.now_ns - load.start_ns;
  const unsigned count = std::min(load.step_count, kMaxSteps);
  for (unsigned i = 0; i < count && load.steps[i].at_ns < age; ++i) {
    const std::int64_t end = i + 1 < count ? std::min(age, load.steps[i + 1].at_ns) : age;
    sum += load.steps[i].util / 100 * static_cast<double>(end - load.steps[i].at_ns) * 1e-9;
  }
  return sum / scene.state.speed;
}

// ---- what a file says now ------------------------------------------------------------------------

namespace {

// What the kernel says where NVML would answer this.
int errno_for(std::int32_t code) {
  switch (static_cast<nvml::Return>(code)) {
    case nvml::Return::gpu_is_lost: return ENODEV;
    case nvml::Return::reset_required: return EPERM;  // amdgpu refuses while the card is reset
    case nvml::Return::no_permission: return EACCES;
    case nvml::Return::not_supported: return EOPNOTSUPP;
    default: return EIO;
  }
}

}  // namespace

FileTrouble file_trouble(const Scene& scene, unsigned gpu, std::string_view path) {
  FileTrouble found;
  if (gpu == kNone || scene.live.fault_count == 0) return found;
  const std::string name(name_in(path));
  const bool about_util = name.find("busy") != std::string::npos || name.find("residency") != std::string::npos ||
                          name == "gpu_metrics" || name == "load";
  const Trouble trouble =
      sim::trouble(scene.live, static_cast<std::int32_t>(gpu), name.c_str(), about_util, scene.now_ns);
  found.hang_ns = trouble.hang_ns;
  found.dstate = trouble.dstate;
  found.garbage = trouble.garbage;
  found.empty = trouble.file && trouble.file_error == 0;
  const auto code = static_cast<nvml::Return>(trouble.code);
  const bool of_nvml = code == nvml::Return::driver_not_loaded || code == nvml::Return::lib_rm_version_mismatch;
  if (trouble.code != 0 && !of_nvml) found.error = errno_for(trouble.code);
  if (trouble.file_error != 0) found.error = trouble.file_error;
  return found;
}

FileContent content_of(const FileEntry& entry, const Scene& scene) {
  const FileTrouble trouble = file_trouble(scene, entry.gpu, entry.path);
  const bool state = name_in(entry.path) == "runtime_status";  // is the kernel's own, not the driver's
  if (entry.render == nullptr) return {0, entry.text};
  if (!state && trouble.error != 0) return {trouble.error, {}};
  if (!state && trouble.empty) return {0, {}};
  if (!state && trouble.garbage) return {0, "18446744073709551615\n"};
  auto text = entry.render({scene, entry.gpu, entry.nth});
  if (!text) return {EOPNOTSUPP, {}};
  return {0, *std::move(text)};
}

// ---- plain files ---------------------------------------------------------------------------------

namespace {

Result<> make_parents(const std::string& path) {
  std::error_code error;
  fs::create_directories(parent_of(path), error);
  if (error) return fail(error.value(), "making " + parent_of(path));
  return {};
}

// In place, since a reader may keep it open. A shorter text is padded first, and then cut: who reads meanwhile finds
// newlines after it, not the rest of the old one.
Result<> write_in_place(const std::string& path, const std::string& text) {
  const Fd file = TRY(open_file(path, O_RDWR | O_CREAT, 0644));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail(errno, path);
  std::string padded(static_cast<std::size_t>(status.st_size), '\0');
  const bool same_size = padded.size() == text.size();
  if (same_size && ::pread(file.get(), padded.data(), padded.size(), 0) == status.st_size && padded == text) return {};
  padded = text;
  if (static_cast<std::size_t>(status.st_size) > text.size())
    padded.resize(static_cast<std::size_t>(status.st_size), '\n');
  if (::pwrite(file.get(), padded.data(), padded.size(), 0) != static_cast<ssize_t>(padded.size()))
    return fail(errno, "writing " + path);
  if (padded.size() > text.size() && ::ftruncate(file.get(), static_cast<off_t>(text.size())) != 0)
    return fail(errno, "writing " + path);
  return {};
}

Result<> make_entry(const std::string& sys, const FileEntry& entry, const Scene& scene) {
  const std::string path = sys + "/" + entry.path;
  TRY(make_parents(entry.kind == FileEntry::Kind::folder ? path + "/" : path));
  if (entry.kind == FileEntry::Kind::file) return write_in_place(path, content_of(entry, scene).text);
  if (entry.kind == FileEntry::Kind::link && ::symlink(entry.text.c_str(), path.c_str()) != 0 && errno != EEXIST)
    return fail(errno, "linking " + path);
  return {};
}

Result<> make_device(const std::string& path) {
  TRY(make_parents(path));
  const Fd file = TRY(open_file(path, O_WRONLY | O_CREAT, 0666));
  if (::fchmod(file.get(), 0666) != 0) return fail(errno, path);
  return {};
}

// Folders with a number for a name, other than these.
void remove_others(const std::string& folder, const std::set<std::string>& keep) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (to_unsigned(name) && !keep.contains(name)) fs::remove_all(it->path(), ignored);
  }
}

void write_process_files(const std::string& root, const std::vector<ProcessFile>& files, std::string_view below) {
  std::set<std::string> pids;
  for (const ProcessFile& file : files) {
    const std::string_view rest = std::string_view(file.path).substr(below.empty() ? 0 : below.size() + 1);
    pids.emplace(rest.substr(0, rest.find('/')));
    if (make_parents(root + "/" + file.path)) (void)write_in_place(root + "/" + file.path, file.text);
  }
  remove_others(below.empty() ? root : fmt::format("{}/{}", root, below), pids);
}

// A server makes the contents; what leads to them is ours, since proc has other things in it.
void link_fdinfo(const std::string& proc, const std::vector<ProcessFile>& files) {
  std::set<std::string> pids;
  for (const ProcessFile& file : files) pids.insert(file.path.substr(0, file.path.find('/')));
  for (const std::string& pid : pids) {
    ::mkdir((proc + "/" + pid).c_str(), 0755);
    (void)!::symlink(("../fdinfo/" + pid).c_str(), (proc + "/" + pid + "/fdinfo").c_str());
  }
  remove_others(proc, pids);
}

}  // namespace

Result<> furnish_files(const std::string& folder) {
  Mapping mapping;
  if (const int why = mapping.open(folder.c_str()); why != 0) return fail(why, folder + "/state");
  const State& state = mapping.state();
  if (!has_file_gpus(state)) return {};
  const auto entries = file_entries(state);
  const auto made = mapping.read([&](const Live& live) -> Result<> {
    const Scene scene{mapping.writable_state(), mapping.writable(), live, mapping.now_ns()};
    for (const FileEntry& entry : entries) TRY(make_entry(folder + "/sys", entry, scene));
    return {};
  });
  if (!made) return made;
  std::error_code error;
  fs::create_directories(folder + "/proc/fdinfo", error);
  if (error) return fail(error.value(), "making " + folder + "/proc/fdinfo");
  for (unsigned gpu = 0; gpu < state.gpu_count; ++gpu) {
    const Gpu& card = state.gpus[gpu];
    if (!has_render_node(card.vendor)) continue;
    for (const std::string& file : device_files(folder, card)) TRY(make_device(file));
    TRY(make_device(fmt::format("{}/dev/dri/card{}", folder, card.card)));
    for (unsigned part = 1; part < kfd_places(card); ++part)
      TRY(make_device(fmt::format("{}/dev/dri/renderD{}", folder, 128 + card.card + part)));
  }
  return {};
}

std::vector<std::string> device_files(const std::string& folder, const Gpu& card) {
  std::vector<std::string> files;
  if (card.vendor == Vendor::amd) files.push_back(folder + "/dev/kfd");
  files.push_back(fmt::format("{}/dev/dri/renderD{}", folder, 128 + card.card));
  return files;
}

void refresh_files(const std::string& folder, const Scene& scene) {
  if (!has_file_gpus(scene.state) || ::access((folder + "/sys/devices").c_str(), F_OK) != 0) return;
  const bool served = scene.state.files_live.load(std::memory_order_acquire) != 0;
  if (served) return link_fdinfo(folder + "/proc", fdinfo_files(scene));
  const std::string sys = folder + "/sys";
  for (const FileEntry& entry : file_entries(scene.state))
    if (entry.render != nullptr) (void)write_in_place(sys + "/" + entry.path, content_of(entry, scene).text);
  write_process_files(sys, kfd_files(scene), kKfdProcesses);
  write_process_files(folder + "/proc", fdinfo_files(scene), "");
}

}  // namespace lull::sim
