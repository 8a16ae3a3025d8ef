// A hostile program on the other end of `lull watch --cancel` and `lull fill --status`, and whatever stands in a folder
// of sockets: what is answered over a real socket moves no cursor, that of a watcher is one line of limited length, and
// each name is somebody's pid or none. What is sent to a watcher is never read: connecting is asking.

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "fuzz/require.h"
#include "session/control.h"

namespace {

using namespace lull;

void require_no_cursor_moves(std::string_view text, bool lines) {
  for (const char c : text) require((static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) || (lines && c == '\n'));
}

// A folder of ours as watchers make them, for as long as the fuzzer runs.
class Place {
 public:
  Place() {
    std::array<char, 32> name{"/tmp/lull-fuzz-XXXXXX"};
    require(::mkdtemp(name.data()) != nullptr);
    place_ = name.data();
    folder_ = place_ + "/lull-control-" + std::to_string(::geteuid());
    require(::mkdir(folder_.c_str(), 0700) == 0 && ::setenv("LULL_CONTROL", place_.c_str(), 1) == 0);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    ::rmdir(folder_.c_str());
    ::rmdir(place_.c_str());
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string place_;
  std::string folder_;
};

// Answers one caller with these bytes.
void answer_with(std::string_view bytes, ControlOf what) {
  static const Place place;
  const std::string pid = std::to_string(::getpid());
  const std::string path = place.folder() + (what == ControlOf::watch ? "/watch." : "/fill.") + pid + ".0";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  require(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  require(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  require(::listen(socket.get(), 4) == 0);
  std::thread answering([&] {
    const Fd caller(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    (void)!::send(caller.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  });
  const std::vector<Reply> answers = ask_all(what);
  answering.join();
  ::unlink(path.c_str());
  require(answers.size() == 1 && answers[0].watcher == pid);
  require_no_cursor_moves(answers[0].line, what == ControlOf::fill);
  require_no_cursor_moves(answers[0].json, false);
  if (what == ControlOf::watch) require(answers[0].line == (bytes.empty() ? "no answer" : answer_line(bytes)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  require_no_cursor_moves(answer_line(text), false);
  require(answer_line(text).size() <= 4 * 512);
  for (const ControlOf what : {ControlOf::watch, ControlOf::fill}) {
    const std::string_view pid = watcher_in(text, what);
    require(pid.empty() || to_pid(pid).has_value());
    answer_with(text, what);
  }
  return 0;
}
