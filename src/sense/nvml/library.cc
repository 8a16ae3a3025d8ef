#include "sense/nvml/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"

namespace lull {
namespace {

constexpr std::array<std::string_view, 5> kFolders = {
    "/run/opengl-driver/lib",             // NixOS
    "/usr/lib/wsl/lib",                   // Windows' subsystem for Linux
    "/usr/local/nvidia/lib64",            // GKE, in a container
    "/home/kubernetes/bin/nvidia/lib64",  // GKE, on the node
    "/usr/lib64-nvidia",                  // Colab
};
constexpr std::array<std::string_view, 6> kRuntimes = {"docker", "kubepods", "containerd", "libpod", "lxc", "crio"};
constexpr const char* kLibrary = "libnvidia-ml.so.1";

std::string wanted_library(const std::string& library) {
  if (!library.empty()) return library;
  const std::string named = environment_variable("LULL_NVML").value_or("");
  return !named.empty() ? named : kLibrary;
}

// The loader's own words begin with the name that we have said already.
std::string loader_text(std::string_view library) {
  const char* said = ::dlerror();
  std::string_view words = said == nullptr ? "no reason given" : said;
  if (words.starts_with(library) && words.substr(library.size()).starts_with(": "))
    words.remove_prefix(library.size() + 2);
  return std::string(words);
}

// "535.54.03" -> 535, 54.
bool between(std::string_view version, unsigned major, unsigned first_minor, unsigned last_minor) {
  const std::vector<std::string_view> parts = split(version, '.');
  const auto minor = parts.size() < 2 ? std::nullopt : to_unsigned(parts[1]);
  return minor && to_unsigned(parts[0]) == major && *minor >= first_minor && *minor <= last_minor;
}

}  // namespace

std::string find_library(std::string_view name, const std::string& top) {
  for (const std::string_view folder : kFolders) {
    const std::string path = top + std::string(folder) + "/" + std::string(name);
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

bool in_container(const std::string& top) {
  for (const char* mark : {"/.dockerenv", "/run/.containerenv"})
    if (::access((top + mark).c_str(), F_OK) == 0) return true;
  const auto cgroups = read_cgroups(0, {.proc = top + "/proc"});
  return cgroups && std::ranges::any_of(kRuntimes, [&](std::string_view runtime) {
           return cgroups->find(runtime) != std::string::npos;
         });
}

std::string start_text(nvml::Return code, const std::string& path, bool container) {
  using enum nvml::Return;
  switch (code) {
    case driver_not_loaded: return "the NVIDIA driver is not loaded";
    case lib_rm_version_mismatch:
      return "the NVIDIA driver and library versions differ: the driver was updated, and its kernel modules must be "
             "loaded anew (or the machine started anew)";
    case no_permission:
      if (const char* folder = std::getenv("LULL_SIM"); folder != nullptr && *folder != '\0')
        return fmt::format(
            "LULL_SIM={}: that simulation is another user's; start one of your own with `lull sim`, or let root start "
            "it "
            "where all may enter: TMPDIR=/tmp XDG_RUNTIME_DIR= lull sim",
            printable(folder));
      return "no permission to talk to the NVIDIA driver";
    case gpu_is_lost: return "the NVIDIA driver has lost a GPU";
    case reset_required: return "a GPU requires a reset";
    case timeout: return "the NVIDIA driver does not answer";
    case unknown:
      if (container)
        return "the container lost its GPU devices ('systemctl daemon-reload' on the host does that): restart the "
               "container";
      break;
    default: break;
  }
  const Absence absence = absence_of(code);
  std::string text = "the NVIDIA driver's library " + path + " cannot start: " + std::string(to_string(absence));
  if (absence == Absence::failed) text += " (" + std::to_string(static_cast<int>(code)) + ")";
  return text;
}

Absence absence_of(nvml::Return code) {
  using enum nvml::Return;
  switch (code) {
    case success: return Absence::none;
    case not_supported:
    case vgpu_ecc_not_supported:
    case deprecated: return Absence::not_supported;
    case no_permission: return Absence::no_permission;
    case gpu_is_lost:
    case gpu_not_found: return Absence::lost;
    case reset_required: return Absence::reset_required;
    case uninitialized:
    case driver_not_loaded:
    case library_not_found: return Absence::no_driver;
    case lib_rm_version_mismatch: return Absence::mismatch;
    case function_not_found: return Absence::no_symbol;
    case timeout: return Absence::no_answer;
    default: return Absence::failed;
  }
}

bool driver_gone(nvml::Return code) {
  return code == nvml::Return::uninitialized || code == nvml::Return::driver_not_loaded ||
         code == nvml::Return::lib_rm_version_mismatch;
}

void Nvml::resolve() {
  // A function pointer by way of an object pointer is what dlsym is made for.
#define LULL_RESOLVE(name, arguments) calls_.name = reinterpret_cast<nvml::call::name*>(::dlsym(handle_, "nvml" #name));
  LULL_NVML_CALLS(LULL_RESOLVE)
  LULL_RESOLVE(DeviceGetNumGpuCores, )
#undef LULL_RESOLVE
  ::dlerror();
  link_map* map = nullptr;
  if (::dlinfo(handle_, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr && map->l_name != nullptr)
    path_ = map->l_name;
}

nvml::Return Nvml::initialise() {
  nvml::Return code = ask(calls_.Init_v2);
  if (code == nvml::Return::function_not_found) code = ask(calls_.InitWithFlags, 0U);
  if (code != nvml::Return::success) return code;
  initialised_ = true;
  code = ask(calls_.DeviceGetCount_v2, &gpu_count_);
  if (code != nvml::Return::success) return code;
  char version[nvml::kVersionSize] = {};
  if (ask(calls_.SystemGetDriverVersion, version, nvml::kVersionSize) == nvml::Return::success)
    driver_version_ = std::string(version, ::strnlen(version, sizeof version));
  // The lists of these drivers have longer entries than those before and after them
  // under the same name; the second version kept its layout.
  if (between(driver_version_, 535, 43, 97)) {
    calls_.DeviceGetComputeRunningProcesses_v3 = nullptr;
    calls_.DeviceGetGraphicsRunningProcesses_v3 = nullptr;
    calls_.DeviceGetMPSComputeRunningProcesses_v3 = nullptr;
  }
  return code;
}

std::shared_ptr<Nvml> Nvml::open(const std::string& library, DriverState& state) {
  const std::string wanted = wanted_library(library);
  state = {};
  std::shared_ptr<Nvml> nvml(new Nvml);
  nvml->handle_ = ::dlopen(wanted.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nvml->handle_ == nullptr) {
    const std::string why = loader_text(wanted);
    const std::string elsewhere = wanted == kLibrary ? find_library(wanted) : "";
    if (!elsewhere.empty()) nvml->handle_ = ::dlopen(elsewhere.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (nvml->handle_ == nullptr) {
      state.absence = Absence::no_driver;
      state.detail = "the driver's library " + printable(wanted) + " cannot be loaded: " + printable(why);
      if (wanted == kLibrary && in_container())
        state.detail += "; in a container it is there only with NVIDIA_DRIVER_CAPABILITIES=utility (or all)";
      return nullptr;
    }
  }
  nvml->resolve();
  if (const nvml::Return code = nvml->initialise(); code != nvml::Return::success) {
    nvml->shutdown();
    state.absence = absence_of(code);
    state.detail = start_text(code, printable(nvml->path_), in_container());
    return nullptr;
  }
  return nvml;
}

void Nvml::shutdown() {
  if (initialised_) ask(calls_.Shutdown);
  initialised_ = false;
}

Nvml::~Nvml() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

}  // namespace lull
