#include "sim/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/fd.h"
#include "nvml/abi.h"
#include "sim/files.h"

namespace lull::sim {
namespace {

namespace fs = std::filesystem;

// Whole or not at all: a reader never sees half a word.
Result<> write_file(const std::string& path, const std::string& text) {
  const std::string fresh = fmt::format("{}.{}", path, ::gettid());
  {
    const Fd file = TRY(open_file(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    TRY(write_all(file.get(), text));
  }
  if (::rename(fresh.c_str(), path.c_str()) == 0) return {};
  const int why = errno;
  ::unlink(fresh.c_str());
  return fail(why, "writing " + path);
}

Result<> make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return fail(error.value(), "making " + path);
  return {};
}

std::string driver_folder(const std::string& folder) { return folder + "/proc/driver/nvidia"; }
std::string device_folder(const std::string& folder, const Gpu& gpu) {
  return fmt::format("{}/sys/bus/pci/devices/{}", folder, pci_address(gpu));
}
std::string status_file(const std::string& folder, const Gpu& gpu) {
  return device_folder(folder, gpu) + "/power/runtime_status";
}

std::string version_text(std::string_view driver) {
  return fmt::format("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  (simulated)\n", driver);
}

std::string information(const Gpu& gpu) {
  return fmt::format(
      "Model: \t\t {}\nIRQ:   \t\t 100\nGPU UUID: \t {}\nVideo BIOS: \t {}\nBus Type: \t PCIe\n"
      "DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {}\nDevice Minor: \t {}\n"
      "GPU Excluded:\t No\n",
      gpu.name, gpu.uuid, gpu.vbios, pci_address(gpu), gpu.minor);
}

Result<> furnish_gpu(const std::string& folder, const Gpu& gpu) {
  const std::string device = device_folder(folder, gpu);
  TRY(make_folder(device + "/power"));
  TRY(write_file(device + "/vendor", "0x10de\n"));
  TRY(write_file(device + "/device", fmt::format("0x{:04x}\n", gpu.pci_device_id >> 16)));
  // A card with a plug for a screen is a VGA controller, one without a 3D controller.
  TRY(write_file(device + "/class", gpu.brand == nvml::kBrandGeForce ? "0x030000\n" : "0x030200\n"));
  TRY(write_file(status_file(folder, gpu), gpu.begins_asleep != 0 ? "suspended\n" : "active\n"));
  const std::string told = fmt::format("{}/gpus/{}", driver_folder(folder), pci_address(gpu));
  TRY(make_folder(told));
  return write_file(told + "/information", information(gpu));
}

}  // namespace

std::string pci_address(const Gpu& gpu) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", gpu.pci_domain, gpu.pci_bus, gpu.pci_device);
}

Result<> furnish_machine(const std::string& folder, const Plan& plan) {
  TRY(make_folder(folder + "/sys/bus/pci/devices"));
  if (plan.wsl) return {};  // the driver is in another kernel, and the cards are on no bus of ours
  if (std::ranges::none_of(plan.gpus, [](const GpuPlan& gpu) { return in_nvml(gpu.gpu.vendor); })) {
    TRY(make_folder(folder + "/proc"));
    return furnish_files(folder);
  }
  TRY(make_folder(driver_folder(folder)));
  const std::string driver = plan.driver_version.empty() ? std::string(kDriverVersion) : plan.driver_version;
  TRY(write_file(driver_folder(folder) + "/version", version_text(driver)));
  for (const GpuPlan& gpu : plan.gpus)
    if (gpu.gpu.vendor == Vendor::nvidia && (gpu.gpu.quirks & kIdentityOnly) == 0)
      TRY(furnish_gpu(folder, gpu.gpu));  // else part of the processor
  return furnish_files(folder);
}

void show_driver(const std::string& folder, State& state, bool loaded) {
  if (state.driver_hidden.exchange(loaded ? 0 : 1, std::memory_order_acq_rel) == (loaded ? 0U : 1U)) return;
  const std::string file = driver_folder(folder) + "/version";
  if (!loaded)
    ::unlink(file.c_str());
  else if (::access(driver_folder(folder).c_str(), F_OK) == 0)
    (void)write_file(file, version_text(state.driver_version));
}

Result<> set_runtime_status(const std::string& folder, State& state, unsigned gpu, bool asleep) {
  const std::string file = status_file(folder, state.gpus[gpu]);
  if (has_render_node(state.gpus[gpu].vendor)) {  // its file says so by itself, once it is made anew
    state.touched[gpu].asleep.store(asleep ? 1 : 0, std::memory_order_release);
    return {};
  }
  if (::access(file.c_str(), F_OK) != 0) return fail(fmt::format("GPU {} has no power/runtime_status here", gpu));
  if (!asleep) state.touched[gpu].asleep.store(0, std::memory_order_release);
  TRY(write_file(file, asleep ? "suspended\n" : "active\n"));
  if (asleep) state.touched[gpu].asleep.store(1, std::memory_order_release);
  return {};
}

}  // namespace lull::sim
