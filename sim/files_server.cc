#include "sim/files_server.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/files.h"
#include "sim/fuse.h"
#include "sim/mapping.h"

namespace lull::sim {
namespace {

constexpr std::array<std::string_view, 2> kRoots = {"devices", "fdinfo"};  // of the two mounts
constexpr int kLookAgainMs = 20;                                           // while a reader hangs
constexpr std::uint64_t kUnchanging = 3600;  // seconds for which the kernel need not ask again

std::vector<std::string> file_mounts(const std::string& folder) {
  return {folder + "/sys/devices", folder + "/proc/fdinfo"};
}

class FileSystem {
 public:
  FileSystem(std::span<const int> fuse, int owner, int ready, const std::string& folder)
      : fuse_(fuse.begin(), fuse.end()), owner_(owner), ready_(ready) {
    mapping_.open(folder.c_str());
    if (!mapping_) return;
    for (FileEntry& entry : file_entries(mapping_.state())) {
      if (!entry.path.starts_with("devices/")) continue;
      for (std::size_t slash = entry.path.rfind('/'); slash != std::string::npos;
           slash = entry.path.rfind('/', slash - 1))
        children_[entry.path.substr(0, slash)].insert(
            entry.path.substr(slash + 1, entry.path.find('/', slash + 1) - slash - 1));
      if (entry.kind == FileEntry::Kind::folder) children_[entry.path];
      std::string path = entry.path;
      if (entry.kind != FileEntry::Kind::folder) entries_.emplace(std::move(path), std::move(entry));
    }
    children_["fdinfo"];
  }

  void serve() {
    (void)!::write(ready_, "r", 1);
    ::close(ready_);
    while (mapping_) {
      std::vector<pollfd> waits = {{owner_, POLLIN, 0}};
      for (const int fd : fuse_) waits.push_back({fd, POLLIN, 0});
      ::poll(waits.data(), waits.size(), hanging_.empty() ? -1 : kLookAgainMs);
      if (waits[0].revents != 0) return end_simulation();
      for (std::size_t i = 0; i < fuse_.size(); ++i)
        if (waits[i + 1].revents != 0 && !take(i)) return;
      release();
    }
  }

 private:
  enum class Kind : std::uint8_t { none, file, link, folder };
  struct Found {
    Kind kind = Kind::none;
    const FileEntry* entry = nullptr;  // null: of a process
    bool fixed = false;                // is there as long as we are
  };
  struct Open {
    std::string path;
    std::string text;  // made when it was read from the start
  };
  struct Request {
    std::size_t mount;
    std::uint64_t unique;
    std::uint64_t handle;
    std::uint64_t offset;
    std::uint32_t size;
    std::int64_t begun_ns = 0;
  };

  void end_simulation() {
    if (!mapping_.writable()) return;
    State& state = mapping_.writable_state();
    state.closed.store(1, std::memory_order_release);
    ::syscall(SYS_futex, &state.version, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  template <class Use>
  auto with_scene(Use&& use) {
    const std::int64_t now = mapping_.now_ns();
    return mapping_.read(
        [&](const Live& live) { return use(Scene{mapping_.writable_state(), mapping_.writable(), live, now}); });
  }

  // Files of processes as they are now, by their paths here.
  std::map<std::string, ProcessFile> process_files(std::string_view path) {
    const bool fdinfo = path.starts_with(kRoots[1]);
    std::map<std::string, ProcessFile> files;
    for (ProcessFile& file :
         with_scene([&](const Scene& scene) { return fdinfo ? fdinfo_files(scene) : kfd_files(scene); })) {
      std::string at = file.path;
      if (fdinfo) {  // "4711/fdinfo/5" is fdinfo/4711/5
        const auto slash = at.find('/');
        at = "fdinfo/" + at.substr(0, slash) + at.substr(at.rfind('/'));
      }
      files.emplace(std::move(at), std::move(file));
    }
    return files;
  }

  static bool of_processes(std::string_view path) {
    return path.starts_with(kKfdProcesses) || path.starts_with(kRoots[1]);
  }

  Found find(const std::string& path) {
    if (const auto entry = entries_.find(path); entry != entries_.end())
      return {entry->second.kind == FileEntry::Kind::link ? Kind::link : Kind::file, &entry->second, true};
    if (children_.contains(path)) return {Kind::folder, nullptr, true};
    if (!of_processes(path)) return {};
    const auto files = process_files(path);
    if (files.contains(path)) return {Kind::file, nullptr, false};
    const auto below = files.lower_bound(path + "/");
    return {below != files.end() && below->first.starts_with(path + "/") ? Kind::folder : Kind::none, nullptr, false};
  }

  std::set<std::string> list(const std::string& path) {
    std::set<std::string> names;
    if (const auto fixed = children_.find(path); fixed != children_.end()) names = fixed->second;
    if (!of_processes(path)) return names;
    for (const auto& [at, file] : process_files(path))
      if (at.starts_with(path + "/"))
        names.insert(at.substr(path.size() + 1, at.find('/', path.size() + 1) - path.size() - 1));
    return names;
  }

  // ---- nodes

  std::uint64_t node_of(const std::string& path) {
    const auto [at, fresh] = nodes_.emplace(path, paths_.size() + 2);
    if (fresh) paths_.push_back(path);
    return at->second;
  }

  std::string path_of(std::size_t mount, std::uint64_t node) const {
    return node < 2 || node - 2 >= paths_.size() ? std::string(kRoots[mount]) : paths_[node - 2];
  }

  static fuse_attr attributes(std::uint64_t node, const Found& found) {
    fuse_attr attributes{};
    attributes.ino = node;
    attributes.mode = found.kind == Kind::folder ? S_IFDIR | 0755
                      : found.kind == Kind::link ? S_IFLNK | 0777
                                                 : S_IFREG | 0444;
    attributes.nlink = 1;
    attributes.size = found.kind == Kind::link ? found.entry->text.size() : 4096;  // as sysfs says
    return attributes;
  }

  // ---- requests

  // False: the mount is gone.
  bool take(std::size_t mount) {
    alignas(8) static std::array<char, 256U << 10> buffer;  // the kernel asks for room for the largest there is
    const ssize_t got = ::read(fuse_[mount], buffer.data(), buffer.size());
    if (got < 0) return errno == EINTR || errno == EAGAIN || errno == ENOENT;
    if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) return false;
    fuse_in_header header{};
    std::memcpy(&header, buffer.data(), sizeof header);
    const char* const body = buffer.data() + sizeof header;
    const int fuse = fuse_[mount];
    switch (header.opcode) {
      case FUSE_INIT: answer_fuse_init(fuse, header.unique, body); break;
      case FUSE_LOOKUP: look_up(mount, header, body); break;
      case FUSE_GETATTR: get_attributes(mount, header); break;
      case FUSE_READLINK: read_link(mount, header); break;
      case FUSE_OPEN:
      case FUSE_OPENDIR: open(mount, header, body); break;
      case FUSE_READDIR: read_folder(mount, header, body); break;
      case FUSE_READ: read(mount, header, body); break;
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR: {
        fuse_release_in in{};
        std::memcpy(&in, body, sizeof in);
        opened_.erase(in.fh);
        answer_fuse(fuse, header.unique, 0);
        break;
      }
      case FUSE_STATFS: answer_fuse_with(fuse, header.unique, fuse_statfs_out{}); break;
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET: break;  // have no answer
      case FUSE_DESTROY: return false;
      default: answer_fuse(fuse, header.unique, ENOSYS); break;
    }
    return true;
  }

  void look_up(std::size_t mount, const fuse_in_header& header, const char* name) {
    const std::string path = path_of(mount, header.nodeid) + "/" + name;
    const Found found = find(path);
    if (found.kind == Kind::none) return answer_fuse(fuse_[mount], header.unique, ENOENT);
    fuse_entry_out out{};
    out.nodeid = node_of(path);
    out.attr = attributes(out.nodeid, found);
    out.entry_valid = found.fixed ? kUnchanging : 0;
    out.attr_valid = found.fixed ? kUnchanging : 0;
    answer_fuse_with(fuse_[mount], header.unique, out);
  }

  // Taken away by a fault: it is still in its folder, and cannot be opened.
  bool missing(const std::string& path, const Found& found) {
    if (found.kind == Kind::none) return true;
    if (found.entry == nullptr || found.entry->render == nullptr) return false;
    return with_scene([&](const Scene& scene) { return file_trouble(scene, found.entry->gpu, path).error == ENOENT; });
  }

  void get_attributes(std::size_t mount, const fuse_in_header& header) {
    const Found found = find(path_of(mount, header.nodeid));
    if (found.kind == Kind::none) return answer_fuse(fuse_[mount], header.unique, ENOENT);
    fuse_attr_out out{};
    out.attr = attributes(header.nodeid, found);
    out.attr_valid = found.fixed ? kUnchanging : 0;
    answer_fuse_with(fuse_[mount], header.unique, out);
  }

  void read_link(std::size_t mount, const fuse_in_header& header) {
    const Found found = find(path_of(mount, header.nodeid));
    if (found.kind != Kind::link) return answer_fuse(fuse_[mount], header.unique, EINVAL);
    answer_fuse(fuse_[mount], header.unique, 0, found.entry->text.data(), found.entry->text.size());
  }

  void open(std::size_t mount, const fuse_in_header& header, const char* body) {
    fuse_open_in in{};
    std::memcpy(&in, body, sizeof in);
    const std::string path = path_of(mount, header.nodeid);
    if ((in.flags & O_ACCMODE) != O_RDONLY) return answer_fuse(fuse_[mount], header.unique, EACCES);
    if (missing(path, find(path))) return answer_fuse(fuse_[mount], header.unique, ENOENT);
    fuse_open_out out{};
    out.fh = ++last_handle_;
    out.open_flags = header.opcode == FUSE_OPEN ? FOPEN_DIRECT_IO : 0;  // every read comes to us
    opened_.emplace(out.fh, Open{path, {}});
    answer_fuse_with(fuse_[mount], header.unique, out);
  }

  void read_folder(std::size_t mount, const fuse_in_header& header, const char* body) {
    fuse_read_in in{};
    std::memcpy(&in, body, sizeof in);
    const std::string path = path_of(mount, header.nodeid);
    std::vector<std::string> names = {".", ".."};
    for (const std::string& name : list(path)) names.push_back(name);
    std::string out;
    for (std::size_t i = in.offset; i < names.size(); ++i) {
      const Found found = i < 2 ? Found{Kind::folder, nullptr, true} : find(path + "/" + names[i]);
      if (found.kind == Kind::none) continue;  // gone meanwhile
      fuse_dirent entry{};
      entry.ino = i < 2 ? 1 : node_of(path + "/" + names[i]);
      entry.off = i + 1;
      entry.namelen = static_cast<std::uint32_t>(names[i].size());
      entry.type = found.kind == Kind::folder ? DT_DIR : found.kind == Kind::link ? DT_LNK : DT_REG;
      const std::size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + names[i].size());
      if (out.size() + size > in.size) break;
      const std::size_t at = out.size();
      out.resize(at + size, '\0');
      std::memcpy(out.data() + at, &entry, FUSE_NAME_OFFSET);
      std::memcpy(out.data() + at + FUSE_NAME_OFFSET, names[i].data(), names[i].size());
    }
    answer_fuse(fuse_[mount], header.unique, 0, out.data(), out.size());
  }

  void read(std::size_t mount, const fuse_in_header& header, const char* body) {
    fuse_read_in in{};
    std::memcpy(&in, body, sizeof in);
    Request request{mount, header.unique, in.fh, in.offset, in.size, boot_now_ns(mapping_.state())};
    if (!answer(request, true)) hanging_.push_back(request);
  }

  // As the kernel: what is read from the start is made anew, the rest is of the same making. False: it hangs still.
  bool answer(const Request& request, bool wakes) {
    const int fuse = fuse_[request.mount];
    const auto opened = opened_.find(request.handle);
    if (opened == opened_.end()) {
      answer_fuse(fuse, request.unique, EBADF);
      return true;
    }
    if (request.offset == 0) {
      const Found found = find(opened->second.path);
      if (wakes) wake(found);
      const auto content = make(opened->second.path, found, request.begun_ns);
      if (!content) return false;
      if (content->error != 0) {
        answer_fuse(fuse, request.unique, content->error);
        return true;
      }
      opened->second.text = content->text;
    }
    const std::string& text = opened->second.text;
    const std::size_t at = std::min<std::size_t>(request.offset, text.size());
    answer_fuse(fuse, request.unique, 0, text.data() + at, std::min<std::size_t>(request.size, text.size() - at));
    return true;
  }

  // Nothing: the driver hangs.
  std::optional<FileContent> make(const std::string& path, const Found& found, std::int64_t begun_ns) {
    std::optional<ProcessFile> of_process;
    if (found.entry == nullptr) {
      const auto files = process_files(path);
      const auto file = files.find(path);
      if (file == files.end()) return FileContent{ESRCH, {}};
      of_process = file->second;
    }
    const unsigned gpu = of_process ? of_process->gpu : found.entry->gpu;
    const bool driver = of_process || (found.entry->render != nullptr && !path.ends_with("/runtime_status"));
    return with_scene([&](const Scene& scene) -> std::optional<FileContent> {
      const FileTrouble trouble = file_trouble(scene, gpu, path);
      if (driver && scene.state.closed.load(std::memory_order_acquire) == 0) {
        if (trouble.dstate || boot_now_ns(scene.state) < begun_ns + trouble.hang_ns) return std::nullopt;
      }
      if (!of_process) return content_of(*found.entry, scene);
      if (trouble.error != 0) return FileContent{trouble.error, {}};
      return FileContent{0, trouble.empty ? "" : of_process->text};
    });
  }

  // The driver powers the card up to look at it.
  void wake(const Found& found) {
    if (found.entry == nullptr || found.entry->render == nullptr || found.entry->gpu == kNone || !mapping_.writable())
      return;
    if (found.entry->path.ends_with("/runtime_status")) return;
    mapping_.writable_state().touched[found.entry->gpu].asleep.store(0, std::memory_order_release);
  }

  void release() {
    std::erase_if(hanging_, [&](const Request& request) { return answer(request, false); });
  }

  std::vector<int> fuse_;
  int owner_;
  int ready_;
  Mapping mapping_;
  std::map<std::string, FileEntry> entries_;
  std::map<std::string, std::set<std::string>> children_;  // of each folder
  std::map<std::string, std::uint64_t> nodes_;
  std::vector<std::string> paths_;
  std::map<std::uint64_t, Open> opened_;
  std::uint64_t last_handle_ = 0;
  std::vector<Request> hanging_;
};

Result<pid_t> start_files(const std::string& folder, pid_t owner, bool orphan) {
  const pid_t pid = TRY(start_fuse({.name = "lull-sim-files",
                                    .purpose = "making files as they are read",
                                    .points = file_mounts(folder),
                                    .serve = [&](std::span<const int> fuse, int ended,
                                                 int ready) { FileSystem(fuse, ended, ready, folder).serve(); }},
                                   owner, orphan));
  Mapping mapping;
  if (mapping.open(folder.c_str()) == 0 && mapping.writable())
    mapping.writable_state().files_live.store(1, std::memory_order_release);
  return pid;
}

}  // namespace

Result<FuseServer> start_files_server(const std::string& folder) {
  return FuseServer(TRY(start_files(folder, ::getpid(), false)), [folder] { unmount_files(folder); });
}

Result<> serve_files(const std::string& folder, pid_t owner) {
  TRY(start_files(folder, owner, true));
  return {};
}

void unmount_files(const std::string& folder) {
  for (const std::string& point : file_mounts(folder)) unmount_fuse(point);
}

}  // namespace lull::sim
