#include "sense/opens.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "base/fd.h"
#include "base/inotify.h"
#include "base/text.h"

namespace lull {

namespace {

class Nothing final : public OpenWatch {
 public:
  OpenWay way() const override { return OpenWay::none; }
  int descriptor() const override { return -1; }
  void take(std::vector<DeviceOpen>&, bool&) override {}
};

class ByInotify final : public OpenWatch {
 public:
  ByInotify(Fd events, std::map<int, std::size_t> files) : events_(std::move(events)), files_(std::move(files)) {}
  OpenWay way() const override { return OpenWay::inotify; }
  int descriptor() const override { return events_.get(); }

  void take(std::vector<DeviceOpen>& opens, bool& lost) override {
    each_inotify_event(events_.get(), [&](const inotify_event& event, std::string_view) {
      // Or the node was made anew (the driver was loaded again): what is opened from now on is not seen.
      if ((event.mask & (IN_Q_OVERFLOW | IN_IGNORED)) != 0) lost = true;
      const auto file = files_.find(event.wd);
      if ((event.mask & IN_OPEN) != 0 && file != files_.end()) opens.push_back({file->second, 0});
      return true;
    });
  }

 private:
  Fd events_;
  std::map<int, std::size_t> files_;
};

// What names a file for fanotify: file system and handle.
using Handle = std::string;

Handle handle_text(std::span<const int, 2> file_system, const file_handle& handle) {
  Handle text(reinterpret_cast<const char*>(file_system.data()), file_system.size_bytes());
  text.append(reinterpret_cast<const char*>(&handle.handle_type), sizeof handle.handle_type);
  text.append(reinterpret_cast<const char*>(handle.f_handle), handle.handle_bytes);
  return text;
}

class ByFanotify final : public OpenWatch {
 public:
  explicit ByFanotify(Fd events) : events_(std::move(events)) {}
  OpenWay way() const override { return OpenWay::fanotify; }
  int descriptor() const override { return events_.get(); }

  // An event names its file by a handle; which one that is for which file, an open of our own tells.
  bool add(const std::string& path, std::size_t number) {
    if (::fanotify_mark(events_.get(), FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, path.c_str()) != 0) return false;
    const Fd ours(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    bool seen = false;
    read_events([&](const Handle& handle, pid_t pid) {
      if (pid != ::getpid() || files_.contains(handle)) return;
      files_.emplace(handle, number);
      seen = true;
    });
    return seen;  // some file systems keep silent
  }

  void take(std::vector<DeviceOpen>& opens, bool& lost) override {
    lost = read_events([&](const Handle& handle, pid_t pid) {
             if (const auto file = files_.find(handle); file != files_.end()) opens.push_back({file->second, pid});
           }) ||
           lost;
  }

 private:
  // True: events were lost.
  template <class Visit>
  bool read_events(const Visit& visit) {
    alignas(fanotify_event_metadata) std::array<char, 8192> buffer;
    bool lost = false;
    while (true) {
      const ssize_t got = ::read(events_.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return lost;
      const auto* end = buffer.data() + got;
      for (const auto* at = buffer.data(); end - at >= static_cast<ssize_t>(sizeof(fanotify_event_metadata));) {
        fanotify_event_metadata event{};
        std::memcpy(&event, at, sizeof event);
        if (event.vers != FANOTIFY_METADATA_VERSION || event.event_len < sizeof event || event.event_len > end - at)
          return true;
        if ((event.mask & FAN_Q_OVERFLOW) != 0) lost = true;
        const auto* info = at + event.metadata_len;
        if (event.event_len >= event.metadata_len + sizeof(fanotify_event_info_fid) + sizeof(file_handle)) {
          fanotify_event_info_fid fid{};
          std::memcpy(&fid, info, sizeof fid);
          const auto* handle = reinterpret_cast<const file_handle*>(info + offsetof(fanotify_event_info_fid, handle));
          if (fid.hdr.info_type == FAN_EVENT_INFO_TYPE_FID && handle->handle_bytes <= MAX_HANDLE_SZ) {
            std::array<int, 2> file_system{};
            std::memcpy(file_system.data(), &fid.fsid, sizeof file_system);
            visit(handle_text(file_system, *handle), event.pid);
          }
        }
        at += event.event_len;
      }
    }
  }

  Fd events_;
  std::map<Handle, std::size_t> files_;
};

}  // namespace

std::string_view words(OpenWay way) {
  switch (way) {
    case OpenWay::cgroup_device: return "a BPF program on device opens";
    case OpenWay::fanotify: return "fanotify";
    case OpenWay::inotify: return "inotify";
    case OpenWay::none: return "scanning";
  }
  return "";
}

Result<OpenWay> parse_open_way(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, OpenWay>, 4> kNames = {{{"bpf", OpenWay::cgroup_device},
                                                                           {"fanotify", OpenWay::fanotify},
                                                                           {"inotify", OpenWay::inotify},
                                                                           {"scan", OpenWay::none}}};
  for (const auto& [name, way] : kNames)
    if (name == text) return way;
  return fail(fmt::format("'{}' is none of bpf, fanotify, inotify and scan", printable(text)));
}

std::unique_ptr<OpenWatch> watch_by_inotify(std::span<const std::string> files) {
  Fd events(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!events) return nullptr;
  std::map<int, std::size_t> watched;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const int watch = ::inotify_add_watch(events.get(), files[i].c_str(), IN_OPEN);
    if (watch < 0) return nullptr;
    watched.emplace(watch, i);
  }
  return std::make_unique<ByInotify>(std::move(events), std::move(watched));
}

std::unique_ptr<OpenWatch> watch_by_fanotify(std::span<const std::string> files) {
  // Without FAN_REPORT_FID nothing is told of device nodes, and without a word.
  Fd events(::fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_NONBLOCK | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC));
  if (!events) return nullptr;
  auto watch = std::make_unique<ByFanotify>(std::move(events));
  for (std::size_t i = 0; i < files.size(); ++i)
    if (!watch->add(files[i], i)) return nullptr;
  return watch;
}

std::unique_ptr<OpenWatch> OpenWatch::start(std::span<const std::string> files, OpenWay best) {
  std::unique_ptr<OpenWatch> watch;
  if (!files.empty()) {
    if (best <= OpenWay::cgroup_device) watch = watch_by_cgroup_device(files);
    if (!watch && best <= OpenWay::fanotify) watch = watch_by_fanotify(files);
    if (!watch && best <= OpenWay::inotify) watch = watch_by_inotify(files);
  }
  return watch ? std::move(watch) : std::make_unique<Nothing>();
}

}  // namespace lull
