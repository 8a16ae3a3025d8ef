#include "act/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <set>

#include "base/process.h"
#include "base/text.h"
#include "base/users.h"

namespace lull {
namespace {

constexpr std::string_view kPrefix = "lull-";

// Mount points spell blanks and backslashes as three octal digits.
std::string unescape(std::string_view text) {
  std::string plain;
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) && octal(text[i + 3])) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

void add_members(int dir, const std::string& path, std::vector<pid_t>& members) {
  const auto text = read_file(dir, path + "cgroup.procs");
  if (!text) return;
  for (const std::string_view line : split(*text, '\n'))
    if (const auto pid = to_pid(line)) members.push_back(*pid);
}

template <class Visit>
void for_each_folder(int dir, const std::string& path, const Visit& visit) {
  auto fd = open_at(dir, path.empty() ? "." : path, O_RDONLY | O_DIRECTORY);
  if (!fd) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd->release()), ::closedir);
  if (!stream) return;
  while (const dirent* entry = ::readdir(stream.get()))
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.') visit(std::string(entry->d_name));
}

void add_tree(int dir, const std::string& path, std::vector<pid_t>& members) {
  add_members(dir, path, members);
  for_each_folder(dir, path, [&](const std::string& name) { add_tree(dir, path + name + "/", members); });
}

// The folder of the cgroup `own` in the first mount of which `is_it` says yes to what stands behind the dash. `mount`:
// where that mount is, and whether it shows the hierarchy from its top.
struct CgroupMount {
  std::string path;
  bool whole = false;
};
template <class IsIt>
std::optional<std::string> cgroup_folder_of(std::string_view mountinfo, std::string_view own, const IsIt& is_it,
                                            CgroupMount* mount = nullptr) {
  if (own.empty() || own.starts_with("/..")) return std::nullopt;
  for (const std::string_view line : split(mountinfo, '\n')) {
    const auto dash = line.find(" - ");
    if (dash == std::string_view::npos || !is_it(line.substr(dash + 3))) continue;
    const auto fields = split(line, ' ');
    if (fields.size() < 6) continue;
    const std::string top = unescape(fields[3]);  // which part of the tree is mounted
    std::string_view below = own;
    if (top != "/") {
      if (!below.starts_with(top) || (below.size() > top.size() && below[top.size()] != '/')) continue;
      below.remove_prefix(top.size());
    }
    std::string path = unescape(fields[4]);
    if (mount != nullptr) *mount = {path, top == "/"};
    if (below != "/") path += below;
    return path;
  }
  return std::nullopt;
}

// Whether what is behind the dash of a line of mountinfo is the hierarchy of that line.
bool is_mount_of(const CgroupLine& line, std::string_view mounted) {
  if (line.controllers.empty()) return mounted.starts_with("cgroup2 ");
  const auto options = split(mounted.substr(mounted.rfind(' ') + 1), ',');
  return mounted.starts_with("cgroup ") && std::ranges::find(options, split(line.controllers, ',')[0]) != options.end();
}

// The older kind, where the freezer is a hierarchy of its own.
std::optional<std::string> find_freezer(std::string_view mountinfo, std::string_view cgroups) {
  for (const CgroupLine& line : cgroup_lines(cgroups))
    if (line.controllers == "freezer")
      return cgroup_folder_of(mountinfo, line.path,
                              [&](std::string_view mounted) { return is_mount_of(line, mounted); });
  return std::nullopt;
}

bool says(int dir, const std::string& file, std::string_view word) {
  const auto text = read_file(dir, file, 4096);
  return text && text->find(word) != std::string::npos;
}

// "lull-PID-START-N" of a process that is no more.
bool is_abandoned(std::string_view name, const Root& root) {
  if (!name.starts_with(kPrefix)) return false;
  const auto parts = split(name, '-');
  if (parts.size() != 4) return false;
  const auto pid = to_pid(parts[1]);
  const auto start = to_unsigned(parts[2]);
  if (!pid || !start) return false;
  const auto maker = read_process_entry(*pid, root);
  return maker ? maker->start_ticks != *start : maker.error().errno_value == ENOENT;
}

// The folders below `path` ("" or "name/") without processes, deepest first; the kernel keeps the others.
void remove_empty(int dir, const std::string& path, bool all) {
  std::vector<std::string> names;
  for_each_folder(dir, path, [&](const std::string& name) { names.push_back(name); });
  for (const std::string& name : names) {
    if (!all && !is_abandoned(name, {})) continue;
    remove_empty(dir, path + name + "/", all);
    ::unlinkat(dir, (path + name).c_str(), AT_REMOVEDIR);
  }
}

// Where our own cgroup is in the file system, and its name in /proc.
struct OwnCgroup {
  std::string folder;
  std::string name;
};

std::string_view unified_name(std::string_view cgroups) {
  std::string_view own;
  for (const std::string_view line : split(cgroups, '\n'))
    if (line.starts_with("0::/")) own = line.substr(3);
  return own;
}

Result<OwnCgroup> own_path(const Root& root) {
  const std::string mounts = TRY(read_file(root.proc + "/self/mountinfo"));
  const std::string self = TRY(read_cgroups(0, root));
  if (auto path = find_own_cgroup(mounts, self)) return OwnCgroup{*std::move(path), std::string(unified_name(self))};
  return fail("no unified cgroup hierarchy");
}

}  // namespace

std::optional<std::string> find_own_cgroup(std::string_view mountinfo, std::string_view self_cgroup) {
  return cgroup_folder_of(mountinfo, unified_name(self_cgroup),
                          [](std::string_view mounted) { return mounted.starts_with("cgroup2 "); });
}

bool is_in_folder(std::string_view path, std::string_view folder) {
  if (folder == "/") return path.starts_with('/');
  return path == folder || (path.starts_with(folder) && path[folder.size()] == '/');
}

std::optional<uid_t> maker_of_cgroup(std::string_view cgroups, std::string_view path, const Root& root) {
  const auto mounts = read_file(root.proc + "/self/mountinfo");
  if (!mounts || path.empty()) return std::nullopt;
  std::optional<uid_t> maker;
  for (const CgroupLine& line : cgroup_lines(cgroups)) {
    if (!is_in_folder(line.path, path)) continue;
    CgroupMount mount;
    auto folder =
        cgroup_folder_of(*mounts, path, [&](std::string_view mounted) { return is_mount_of(line, mounted); }, &mount);
    if (!folder) continue;
    // The top of a hierarchy is root's. A mount that shows a part of it ends with a folder that a user may have made.
    // The owners of those above it are not visible: then it is not certain that all of them are root's.
    for (;;) {
      if (folder->size() <= mount.path.size() && mount.whole) break;
      struct stat info{};
      if (::stat(folder->c_str(), &info) != 0) return std::nullopt;
      const uid_t owner = owner_of(info.st_uid);
      maker = !maker || *maker == 0 || *maker == owner ? owner : owner == 0 ? *maker : kSeveralMakers;
      if (*maker == kSeveralMakers) return maker;
      if (folder->size() <= mount.path.size()) break;
      folder->erase(folder->rfind('/'));
    }
    if (!mount.whole && maker == uid_t{0}) return std::nullopt;
  }
  return maker;
}

Result<Cgroup> Cgroup::own(const Root& root) {
  Cgroup cgroup;
  OwnCgroup own = TRY(own_path(root));
  cgroup.path_ = std::move(own.folder);
  cgroup.name_ = std::move(own.name);
  cgroup.dir_ = TRY(open_file(cgroup.path_, O_RDONLY | O_DIRECTORY));
  return cgroup;
}

Result<Cgroup> Cgroup::create(const Root& root) {
  static std::atomic<unsigned> counter = 0;
  const OwnCgroup parent = TRY(own_path(root));
  const auto self = TRY(read_process_entry(::getpid(), root));
  Cgroup cgroup;
  const std::string name = "/" + std::string(kPrefix) + std::to_string(self.pid) + "-" +
                           std::to_string(self.start_ticks) + "-" + std::to_string(++counter);
  cgroup.path_ = parent.folder + name;
  cgroup.name_ = (parent.name == "/" ? "" : parent.name) + name;
  if (::mkdir(cgroup.path_.c_str(), 0755) != 0) return fail(errno, "mkdir " + cgroup.path_);
  auto dir = open_file(cgroup.path_, O_RDONLY | O_DIRECTORY);
  // Without cgroup.kill it would be no better than a walk.
  if (!dir || ::faccessat(dir->get(), "cgroup.kill", W_OK, AT_EACCESS) != 0) {
    const int why = errno;
    ::rmdir(cgroup.path_.c_str());
    return fail(why, cgroup.path_ + "/cgroup.kill");
  }
  cgroup.dir_ = *std::move(dir);
  return cgroup;
}

// Their jobs may still be in them: then removing fails, as it should.
void Cgroup::remove_abandoned(const Root& root) const {
  if (!dir_) return;
  const auto above = open_at(dir_.get(), "..", O_RDONLY | O_DIRECTORY);
  if (!above) return;
  std::vector<std::string> names;
  for_each_folder(above->get(), "", [&](const std::string& name) {
    if (is_abandoned(name, root)) names.push_back(name);
  });
  for (const std::string& name : names) {
    if (!says(above->get(), name + "/cgroup.events", "populated 0")) continue;
    remove_empty(above->get(), name + "/", true);
    ::unlinkat(above->get(), name.c_str(), AT_REMOVEDIR);
  }
}

bool Cgroup::holds(pid_t pid, const Root& root) const {
  const auto where = dir_ ? read_cgroups(pid, root) : fail("");
  return where && holds(*where);
}

bool Cgroup::holds(std::string_view cgroups) const { return dir_ && is_in_folder(unified_name(cgroups), name_); }

std::vector<pid_t> Cgroup::members() const {
  std::vector<pid_t> members;
  if (dir_) add_tree(dir_.get(), "", members);
  return members;
}

std::optional<std::uint64_t> Cgroup::cpu_microseconds() const {
  if (!dir_) return std::nullopt;
  const auto text = read_file(dir_.get(), "cpu.stat", 4096);
  if (!text) return std::nullopt;
  for (const std::string_view line : split(*text, '\n'))
    if (line.starts_with("usage_usec ")) return to_unsigned(line.substr(11));
  return std::nullopt;
}

bool Cgroup::populated() const {
  if (!dir_) return false;
  const auto text = read_file(dir_.get(), "cgroup.events", 4096);
  if (text) return text->find("populated 1") != std::string::npos;
  // Only an empty one can have been removed.
  return text.error().errno_value != ENOENT && text.error().errno_value != ENODEV;
}

bool Cgroup::frozen() const { return dir_ && says(dir_.get(), "cgroup.events", "frozen 1"); }

bool is_any_frozen(const std::vector<pid_t>& pids, const Root& root) {
  std::set<std::string> seen;
  for (const pid_t pid : pids)
    if (auto where = read_cgroups(pid, root)) seen.insert(*std::move(where));
  if (seen.empty()) return false;
  const auto mounts = read_file(root.proc + "/self/mountinfo");
  if (!mounts) return false;
  return std::ranges::any_of(seen, [&](const std::string& where) {
    const auto unified = find_own_cgroup(*mounts, where);
    if (unified && says(AT_FDCWD, *unified + "/cgroup.events", "frozen 1")) return true;
    const auto freezer = find_freezer(*mounts, where);
    return freezer && says(AT_FDCWD, *freezer + "/freezer.state", "FR");  // FREEZING, FROZEN; else THAWED
  });
}

Result<> Cgroup::kill() const {
  const Fd fd = TRY(open_at(dir_.get(), "cgroup.kill", O_WRONLY));
  return write_all(fd.get(), "1");
}

Result<> Cgroup::set_frozen(bool frozen) const {
  const Fd fd = TRY(open_at(dir_.get(), "cgroup.freeze", O_WRONLY));
  return write_all(fd.get(), frozen ? "1" : "0");
}

Result<> Cgroup::move_here(pid_t pid) const {
  const Fd fd = TRY(open_at(dir_.get(), "cgroup.procs", O_WRONLY));
  return write_all(fd.get(), std::to_string(pid));
}

void Cgroup::remove() {
  if (!dir_) return;
  constexpr int kTries = 20;  // a job that forks while it is moved; bounded
  const auto above = open_at(dir_.get(), "../cgroup.procs", O_WRONLY);
  // Of a job that still runs only what lulls left that are no more: the other folders are its own.
  remove_empty(dir_.get(), "", !populated());
  for (int i = 0; i < kTries; ++i) {
    if (::rmdir(path_.c_str()) == 0 || errno != EBUSY) break;
    std::vector<pid_t> left;
    add_members(dir_.get(), "", left);
    if (left.empty() || !above) break;  // only folders that the job made below it: theirs
    for (const pid_t pid : left) (void)write_all(above->get(), std::to_string(pid));
  }
  dir_.reset();
  // A lull that we ran inside of may have ended before us, and could not remove its own while ours was in it.
  for (std::string folder = path_;;) {
    folder.erase(folder.rfind('/'));
    const auto name = folder.rfind('/');
    if (name == std::string::npos || !is_abandoned(std::string_view(folder).substr(name + 1), {})) break;
    if (::rmdir(folder.c_str()) != 0) break;
  }
}

}  // namespace lull
