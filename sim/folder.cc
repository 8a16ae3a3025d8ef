#include "sim/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "sim/dstate.h"
#include "sim/files_server.h"

namespace lull::sim {
namespace {

namespace fs = std::filesystem;

// A folder gets its final name only once it is locked, so that a sweep never
// takes one that is just being made for one that was left behind.
constexpr std::string_view kFinal = "lull-sim-";
constexpr std::string_view kInMaking = ".lull-sim-new-";
constexpr std::time_t kMakingTakesAtMost = 60;  // seconds

bool ours(const std::string& path, struct stat& status) {
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

bool left_behind(const std::string& path, std::string_view name) {
  struct stat status{};
  if (name.starts_with(kInMaking))
    return ours(path, status) && std::time(nullptr) - status.st_mtime > kMakingTakesAtMost;
  if (!name.starts_with(kFinal) || !ours(path, status)) return false;
  const auto lock = open_file(path + "/owner", O_RDWR | O_NOFOLLOW);
  if (!lock) return false;
  return ::flock(lock->get(), LOCK_EX | LOCK_NB) == 0;
}

Result<> make_file(const std::string& path) {
  const Fd file = TRY(open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0666));
  if (::fchmod(file.get(), 0666) != 0) return fail(errno, path);  // as a driver's device file, whatever our umask is
  return {};
}

// root's simulation is one that others see: they may look at it and lease its GPUs, and root alone changes it.
Result<> let_others_in(const std::string& path) {
  if (::geteuid() != 0) return {};
  for (const auto& [name, mode] : {std::pair{"", 0755U}, {"/dev", 0755U}, {"/leases", 01777U}})
    if (::chmod((path + name).c_str(), mode) != 0) return fail(errno, path + name);
  return {};
}

Result<Fd> furnish(const std::string& path, std::size_t gpus) {
  Fd lock = TRY(open_file(path + "/owner", O_RDWR | O_CREAT | O_EXCL, 0600));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return fail(errno, "lock " + path);
  TRY(write_all(lock.get(), fmt::format("{}\n", ::getpid())));  // loads end with us
  for (const char* name : {"/dev", "/leases"})
    if (::mkdir((path + name).c_str(), 0700) != 0) return fail(errno, "make " + path + name);
  for (const char* name : {"/dev/nvidiactl", "/dev/nvidia-uvm"})
    if (gpus > 0) TRY(make_file(path + name));
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) TRY(make_file(device_file(path, gpu)));
  // People are real: whoever types at a terminal of this machine is seen inside as well.
  if (::symlink("/dev/pts", (path + "/dev/pts").c_str()) != 0) return fail(errno, "make " + path + "/dev/pts");
  TRY(let_others_in(path));
  return lock;
}

void remove(const std::string& path) {
  unmount_dstate(path);
  unmount_files(path);
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace

std::string folder_base() {
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* value = std::getenv(name);
    struct stat status{};
    if (value != nullptr && *value == '/' && ::stat(value, &status) == 0 && S_ISDIR(status.st_mode)) return value;
  }
  return "/tmp";
}

std::size_t sweep(const std::string& base) {
  std::size_t swept = 0;
  std::error_code error;
  for (fs::directory_iterator it(base, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!left_behind(it->path().string(), name)) continue;
    remove(it->path().string());
    ++swept;
  }
  return swept;
}

std::string device_file(const std::string& folder, std::size_t gpu) {
  return fmt::format("{}/dev/nvidia{}", folder, gpu);
}

Result<Folder> Folder::create(const std::string& base, std::size_t gpus) {
  sweep(base);
  std::string making = base + "/" + std::string(kInMaking) + "XXXXXX";
  if (::mkdtemp(making.data()) == nullptr)
    return fail(errno, "no folder for the simulation can be made in " + base + " (set XDG_RUNTIME_DIR to another)");
  auto lock = furnish(making, gpus);
  const std::string path = fmt::format("{}/{}{}-{}", base, kFinal, ::getpid(), making.substr(making.size() - 6));
  if (lock && ::rename(making.c_str(), path.c_str()) != 0) lock = fail(errno, "make " + path);
  if (!lock) {
    remove(making);
    return std::unexpected(std::move(lock).error());
  }
  return Folder(path, *std::move(lock));
}

Folder::Folder(std::string path, Fd lock) : path_(std::move(path)), lock_(std::move(lock)), owner_(::getpid()) {}

Folder::Folder(Folder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)), owner_(other.owner_) {}

Folder::~Folder() {
  if (!path_.empty() && owner_ == ::getpid()) remove(path_);
}

}  // namespace lull::sim
