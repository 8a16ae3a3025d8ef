#pragma once
// The socket that requests come in through. One in the file system that is no longer in use is replaced; one that
// is in use, or belongs to another user, is not. Ours is removed when we end.

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "cli/serve_options.h"

namespace lull {

class Listening {
 public:
  static Result<Listening> open(const ListenAddress& address);
  Listening(Listening&&) = default;
  Listening& operator=(Listening&&) = delete;
  ~Listening();

  int fd() const { return fd_.get(); }
  const ListenAddress& address() const { return address_; }  // with the port that the kernel chose

 private:
  explicit Listening(ListenAddress address) : address_(std::move(address)) {}
  Result<> open_path();
  Result<> open_port();

  ListenAddress address_;
  Fd fd_;
  Fd folder_;         // of the path
  std::string name_;  // in it
  ino_t inode_ = 0;
};

}  // namespace lull
