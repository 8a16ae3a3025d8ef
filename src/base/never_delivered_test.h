#pragma once
// For tests: a file whose reader sleeps in the kernel where not even SIGKILL ends it, as under a driver that hangs.

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/fd.h"

namespace lull {

// A file system with one file that is never delivered: whoever reads it waits in a sleep that SIGKILL does not end,
// until the process that should deliver it is gone.
class NeverDelivered {
 public:
  NeverDelivered() {
    std::string name = (std::filesystem::temp_directory_path() / "lull-never-XXXXXX").string();
    place_ = ::mkdtemp(name.data());
    Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    const std::string options = "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
    mounted_ = device && ::mount("never", place_.c_str(), "fuse", 0, options.c_str()) == 0;
    if (!mounted_) return;
    server_ = ::fork();
    if (server_ == 0) serve(device.get());
  }
  NeverDelivered(const NeverDelivered&) = delete;
  NeverDelivered& operator=(const NeverDelivered&) = delete;
  ~NeverDelivered() {
    if (server_ > 0) {
      ::kill(server_, SIGKILL);
      ::waitpid(server_, nullptr, 0);
    }
    if (mounted_) ::umount2(place_.c_str(), MNT_DETACH);
    ::rmdir(place_.c_str());
  }
  bool mounted() const { return mounted_; }
  std::string file() const { return place_ + "/file"; }

 private:
  static fuse_attr attributes(std::uint64_t node) {
    fuse_attr attr{};
    attr.ino = node;
    attr.size = 4096;
    attr.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
    attr.nlink = 1;
    return attr;
  }
  template <class Body>
  static void reply(int device, std::uint64_t unique, const Body& body) {
    struct {
      fuse_out_header header;
      Body body;
    } out{};
    out.header = {.len = sizeof out, .error = 0, .unique = unique};
    out.body = body;
    (void)!::write(device, &out, sizeof out);
  }
  [[noreturn]] static void serve(int device) {
    ::alarm(120);
    std::vector<char> bytes(1U << 17);
    while (::read(device, bytes.data(), bytes.size()) > 0) {
      fuse_in_header in{};
      std::memcpy(&in, bytes.data(), sizeof in);
      if (in.opcode == FUSE_INIT) {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = FUSE_KERNEL_MINOR_VERSION;
        out.max_write = 65536;
        reply(device, in.unique, out);
      } else if (in.opcode == FUSE_LOOKUP) {
        fuse_entry_out out{};
        out.nodeid = 2;
        out.entry_valid = out.attr_valid = 3600;
        out.attr = attributes(2);
        reply(device, in.unique, out);
      } else if (in.opcode == FUSE_GETATTR) {
        fuse_attr_out out{};
        out.attr_valid = 3600;
        out.attr = attributes(in.nodeid);
        reply(device, in.unique, out);
      } else if (in.opcode == FUSE_OPEN) {
        reply(device, in.unique, fuse_open_out{});
      } else if (in.opcode != FUSE_READ) {
        const fuse_out_header no{.len = sizeof no, .error = -ENOSYS, .unique = in.unique};
        (void)!::write(device, &no, sizeof no);
      }
    }
    ::_exit(0);
  }

  std::string place_;
  bool mounted_ = false;
  pid_t server_ = -1;
};

}  // namespace lull
