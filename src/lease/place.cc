#include "lease/place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

namespace lull {

namespace {

constexpr const char* kShared = "/run/lull";

std::string own_path() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/' && check_own_folder(runtime)) return std::string(runtime) + "/lull";
  return fmt::format("/tmp/lull-{}", ::geteuid());
}

}  // namespace

Result<> check_own_folder(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return fail(errno, path);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 022) != 0)
    return fail(path + " is not a folder of ours");
  return {};
}

LeasePlace LeasePlace::of_environment() {
  if (const char* path = std::getenv("LULL_LEASES"); path != nullptr && *path != '\0')
    return {std::filesystem::absolute(path)};  // its keeper works from another folder
  if (const char* sim = std::getenv("LULL_SIM"); sim != nullptr && *sim != '\0') return {std::string(sim) + "/leases"};
  if (::geteuid() != 0 && ::access(kShared, F_OK) != 0 && errno == ENOENT) return {own_path(), false, true};
  return {kShared, true};
}

std::string LeasePlace::caveat() const {
  if (!alone) return "";
  return fmt::format(
      "there is no {0}: GPUs are leased in {1}, which other users do not look into, so they may get the same GPU; "
      "once: sudo install -d -m 1777 {0}",
      kShared, path);
}

}  // namespace lull
