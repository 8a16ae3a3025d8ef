#include "sense/opens.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/bpf.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
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

std::string_view to_string(OpenWay way) {
  switch (way) {
    case OpenWay::cgroup_device: return "a BPF program on device opens";
    case OpenWay::fanotify: return "fanotify";
    case OpenWay::inotify: return "inotify";
    case OpenWay::none: return "scanning";
  }
  return "";
}

Result<OpenWay> parse_open_way(std::string_view text) {
  constexpr std::array<std::string_view, 4> kNames = {"bpf", "fanotify", "inotify", "scan"};
  constexpr std::array kWays = {OpenWay::cgroup_device, OpenWay::fanotify, OpenWay::inotify, OpenWay::none};
  return kWays[TRY(one_of(text, kNames))];
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

// ---- by a program in the kernel

// A cgroup-device program is asked whether a process may open a
// device; ours always says yes, and notes who it was in a ring buffer. It is two dozen instructions, written out here:
// libbpf would bring an ELF reader and a compiler's output into the build for them. The link by which it is attached
// belongs to our descriptor, so it goes when we do, however we end.

namespace {

constexpr std::uint32_t kRingBytes = 64 * 1024;  // 4096 opens that were not read yet
constexpr std::uint32_t kMinorBits = 20;
constexpr std::size_t kMostFiles = 1000;

struct Record {
  std::uint32_t device;  // major << 20 | minor
  std::uint32_t pid;
};

long bpf(int command, bpf_attr& attributes) { return ::syscall(SYS_bpf, command, &attributes, sizeof attributes); }

bpf_insn instruction(int code, int to, int from, int offset, std::int32_t number) {
  bpf_insn made{};
  made.code = static_cast<std::uint8_t>(code);
  made.dst_reg = static_cast<std::uint8_t>(to & 15);
  made.src_reg = static_cast<std::uint8_t>(from & 15);
  made.off = static_cast<std::int16_t>(offset);
  made.imm = number;
  return made;
}

// Jumps are counted from the instruction behind them.
std::vector<bpf_insn> program(std::span<const std::uint32_t> devices, int ring) {
  const auto move = [](int to, int from) { return instruction(BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0); };
  const auto compute = [](int what, int to, std::int32_t number) {
    return instruction(BPF_ALU64 | what | BPF_K, to, 0, 0, number);
  };
  const auto load = [](int to, int from, int offset) {
    return instruction(BPF_LDX | BPF_MEM | BPF_W, to, from, offset, 0);
  };
  const auto store = [](int from, int offset) {
    return instruction(BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, from, offset, 0);
  };
  const auto call = [](std::int32_t function) { return instruction(BPF_JMP | BPF_CALL, 0, 0, 0, function); };

  const std::vector<bpf_insn> tell = {
      call(BPF_FUNC_get_current_pid_tgid),
      compute(BPF_RSH, BPF_REG_0, 32),
      store(BPF_REG_7, -8),
      store(BPF_REG_0, -4),
      instruction(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, ring),
      instruction(0, 0, 0, 0, 0),  // the upper half of the number
      move(BPF_REG_2, BPF_REG_10),
      compute(BPF_ADD, BPF_REG_2, -8),
      compute(BPF_MOV, BPF_REG_3, sizeof(Record)),
      compute(BPF_MOV, BPF_REG_4, 0),
      call(BPF_FUNC_ringbuf_output),
  };
  const std::vector<bpf_insn> allow = {compute(BPF_MOV, BPF_REG_0, 1), instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)};
  const auto count = static_cast<int>(devices.size());
  const auto telling = static_cast<int>(tell.size());
  constexpr int kReading = BPF_DEVCG_ACC_READ | BPF_DEVCG_ACC_WRITE;

  std::vector<bpf_insn> code = {
      load(BPF_REG_2, BPF_REG_1, offsetof(bpf_cgroup_dev_ctx, access_type)),
      load(BPF_REG_3, BPF_REG_1, offsetof(bpf_cgroup_dev_ctx, major)),
      load(BPF_REG_4, BPF_REG_1, offsetof(bpf_cgroup_dev_ctx, minor)),
      move(BPF_REG_7, BPF_REG_3),
      compute(BPF_LSH, BPF_REG_7, kMinorBits),
      instruction(BPF_ALU64 | BPF_OR | BPF_X, BPF_REG_7, BPF_REG_4, 0, 0),
      move(BPF_REG_3, BPF_REG_2),
      compute(BPF_AND, BPF_REG_3, 0xffff),
      // A character device, opened and not only made.
      instruction(BPF_JMP | BPF_JNE | BPF_K, BPF_REG_3, 0, 4 + count + telling, BPF_DEVCG_DEV_CHAR),
      compute(BPF_RSH, BPF_REG_2, 16),
      instruction(BPF_JMP | BPF_JSET | BPF_K, BPF_REG_2, 0, 1, kReading),
      instruction(BPF_JMP | BPF_JA, 0, 0, 1 + count + telling, 0),
  };
  for (int i = 0; i < count; ++i)
    code.push_back(instruction(BPF_JMP32 | BPF_JEQ | BPF_K, BPF_REG_7, 0, count - i,
                               static_cast<std::int32_t>(devices[static_cast<std::size_t>(i)])));
  code.push_back(instruction(BPF_JMP | BPF_JA, 0, 0, telling, 0));
  code.insert(code.end(), tell.begin(), tell.end());
  code.insert(code.end(), allow.begin(), allow.end());
  return code;
}

Fd make_ring() {
  bpf_attr attributes{};
  attributes.map_type = BPF_MAP_TYPE_RINGBUF;
  attributes.max_entries = kRingBytes;
  return Fd(static_cast<int>(bpf(BPF_MAP_CREATE, attributes)));
}

Fd load_program(const std::vector<bpf_insn>& code) {
  static constexpr char kLicense[] = "GPL";  // what the kernel asks of a program that asks who runs it
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  attributes.insn_cnt = static_cast<std::uint32_t>(code.size());
  attributes.insns = reinterpret_cast<std::uintptr_t>(code.data());
  attributes.license = reinterpret_cast<std::uintptr_t>(kLicense);
  attributes.expected_attach_type = BPF_CGROUP_DEVICE;
  return Fd(static_cast<int>(bpf(BPF_PROG_LOAD, attributes)));
}

Fd attach(int program, int cgroup) {
  bpf_attr attributes{};
  attributes.link_create.prog_fd = static_cast<std::uint32_t>(program);
  attributes.link_create.target_fd = static_cast<std::uint32_t>(cgroup);
  attributes.link_create.attach_type = BPF_CGROUP_DEVICE;
  return Fd(static_cast<int>(bpf(BPF_LINK_CREATE, attributes)));
}

// The root of the unified hierarchy, wherever it is mounted; not a part of it that we were shown.
Fd root_cgroup() {
  const auto mounts = read_file("/proc/self/mountinfo");
  if (!mounts) return {};
  for (const std::string_view line : split(*mounts, '\n')) {
    const auto fields = split(line, ' ');
    if (fields.size() < 6 || line.find(" - cgroup2 ") == std::string_view::npos || fields[3] != "/") continue;
    if (auto folder = open_file(std::string(fields[4]), O_RDONLY | O_DIRECTORY)) return *std::move(folder);
  }
  return {};
}

class ByCgroupDevice final : public OpenWatch {
 public:
  ByCgroupDevice(Fd ring, Fd link, std::vector<std::uint32_t> devices)
      : ring_(std::move(ring)), link_(std::move(link)), devices_(std::move(devices)) {}
  ByCgroupDevice(const ByCgroupDevice&) = delete;
  ByCgroupDevice& operator=(const ByCgroupDevice&) = delete;
  ~ByCgroupDevice() override {
    if (ours_ != MAP_FAILED) ::munmap(ours_, page());
    if (theirs_ != MAP_FAILED) ::munmap(theirs_, page() + 2 * kRingBytes);
  }

  bool map() {
    ours_ = ::mmap(nullptr, page(), PROT_READ | PROT_WRITE, MAP_SHARED, ring_.get(), 0);
    theirs_ = ::mmap(nullptr, page() + 2 * kRingBytes, PROT_READ, MAP_SHARED, ring_.get(), static_cast<off_t>(page()));
    return ours_ != MAP_FAILED && theirs_ != MAP_FAILED;
  }

  OpenWay way() const override { return OpenWay::cgroup_device; }
  int descriptor() const override { return ring_.get(); }

  void take(std::vector<DeviceOpen>& opens, bool& lost) override {
    auto& consumed = *static_cast<std::atomic<unsigned long>*>(ours_);
    const auto& produced = *static_cast<const std::atomic<unsigned long>*>(theirs_);
    const char* data = static_cast<const char*>(theirs_) + page();
    unsigned long at = consumed.load(std::memory_order_relaxed);
    const unsigned long end = produced.load(std::memory_order_acquire);
    // The kernel drops what does not fit, without a word.
    if (end - at > kRingBytes - 2 * (BPF_RINGBUF_HDR_SZ + sizeof(Record))) lost = true;
    while (at < end) {
      const char* head = data + (at & (kRingBytes - 1));
      const std::uint32_t length =
          reinterpret_cast<const std::atomic<std::uint32_t>*>(head)->load(std::memory_order_acquire);
      if ((length & BPF_RINGBUF_BUSY_BIT) != 0) break;  // still being written
      const std::uint32_t bytes = length & ~BPF_RINGBUF_DISCARD_BIT;
      if ((length & BPF_RINGBUF_DISCARD_BIT) == 0 && bytes == sizeof(Record)) {
        Record record{};
        std::memcpy(&record, head + BPF_RINGBUF_HDR_SZ, sizeof record);
        for (std::size_t i = 0; i < devices_.size(); ++i)
          if (devices_[i] == record.device) opens.push_back({i, static_cast<pid_t>(record.pid)});
      }
      at += (bytes + BPF_RINGBUF_HDR_SZ + 7) / 8 * 8;
      consumed.store(at, std::memory_order_release);
    }
  }

 private:
  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

  Fd ring_;
  Fd link_;
  std::vector<std::uint32_t> devices_;
  void* ours_ = MAP_FAILED;
  void* theirs_ = MAP_FAILED;
};

}  // namespace

std::unique_ptr<OpenWatch> watch_by_cgroup_device(std::span<const std::string> files) {
  if (files.size() > kMostFiles) return nullptr;
  std::vector<std::uint32_t> devices;
  for (const std::string& file : files) {
    struct stat status{};
    if (::stat(file.c_str(), &status) != 0 || !S_ISCHR(status.st_mode)) return nullptr;  // as in a simulation
    devices.push_back(::gnu_dev_major(status.st_rdev) << kMinorBits | ::gnu_dev_minor(status.st_rdev));
  }
  const Fd cgroup = root_cgroup();
  Fd ring = make_ring();
  if (!cgroup || !ring) return nullptr;
  const Fd program_fd = load_program(program(devices, ring.get()));
  if (!program_fd) return nullptr;
  Fd link = attach(program_fd.get(), cgroup.get());
  if (!link) return nullptr;
  auto watch = std::make_unique<ByCgroupDevice>(std::move(ring), std::move(link), std::move(devices));
  return watch->map() ? std::move(watch) : nullptr;
}

}  // namespace lull
