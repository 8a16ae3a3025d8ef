#include "sense/nvml/places.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/fd.h"

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
  const auto cgroups = read_file(AT_FDCWD, top + "/proc/self/cgroup", 65536);
  return cgroups && std::ranges::any_of(kRuntimes, [&](std::string_view runtime) {
           return cgroups->find(runtime) != std::string::npos;
         });
}

}  // namespace lull
