#include "sense/sensor_program.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/process.h"
#include "sense/wire.h"

namespace lull {
namespace {

// Where the program finds what it was given.
enum Given : int { kMemory = 3, kBell, kPipe, kParent, kBehind };
constexpr int kAbove = 64;  // ours are moved there first, so that none lies where another is to go
constexpr std::size_t kStack = std::size_t{64} << 10;
constexpr int kExitUsage = 2;
constexpr char kOtherBoard = 'v';  // in the byte behind the board

// What both sides must agree on; a library and a program of different builds may not.
std::string board_mark() {
  return "lull-board-1." + std::to_string(sizeof(Board)) + "." + std::to_string(kMetrics) + "." +
         std::to_string(sizeof(Reading));
}

// What the two children of a birth share with us: our memory is theirs until the second has become the program, and
// we wait for that.
struct Birth {
  const char* path = nullptr;
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  std::array<int, kBehind - kMemory> given{};
  std::byte* stack = nullptr;  // of the second
  pid_t pid = -1;              // likewise
  int pidfd = -1;              // likewise; the first shares our descriptors, so this is one of ours
  int error = 0;
};

// Stacks grow downwards, from an address that suits any processor.
void* top_of(std::byte* stack) {
  return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(stack) + kStack) & ~std::uintptr_t{63});
}

// Both do system calls alone: another thread may hold any lock there is.
int second_child(void* data) {
  auto& birth = *static_cast<Birth*>(data);
  for (int i = 0; i < static_cast<int>(birth.given.size()); ++i) {
    if (::dup2(birth.given[static_cast<std::size_t>(i)], kMemory + i) < 0) {
      birth.error = errno;
      ::_exit(1);
    }
  }
  ::close_range(kBehind, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execve(birth.path, birth.argv, birth.envp);
  birth.error = errno;
  ::_exit(1);
}

// A process that has called exec gives SIGCHLD at its end, whatever it was made with. This one does not, and is between
// us and the program, whose parent it thus is not for long.
int first_child(void* data) {
  auto& birth = *static_cast<Birth*>(data);
  birth.pid = ::clone(second_child, top_of(birth.stack), CLONE_VM | CLONE_VFORK | CLONE_PIDFD, &birth, &birth.pidfd);
  if (birth.pid < 0) birth.error = errno;
  ::_exit(0);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& one : strings) out.push_back(const_cast<char*>(one.c_str()));
  out.push_back(nullptr);
  return out;
}

Error cannot_start(const SensorProgram& program, int why) {
  return Error{"the driver is asked by " + program.path + ", which cannot be started", why};
}

bool write_task(Board& board, const SensorTask& task) {
  Encoder out(board.task.bytes);
  encode(out, task);
  if (out.full()) return false;
  board.task.size = static_cast<std::uint32_t>(out.size());
  board.task.seal = seal_of(std::span(board.task.bytes).first(out.size()), 0);
  return true;
}

}  // namespace

Fd make_board_file() {
  Fd file(::memfd_create("lull-board", MFD_CLOEXEC));
  if (file && ::ftruncate(file.get(), sizeof(Board) + 1) != 0) file.reset();
  return file;
}

bool is_other_board(const Fd& file) {
  char mark = 0;
  return ::pread(file.get(), &mark, 1, sizeof(Board)) == 1 && mark == kOtherBoard;
}

Result<Sensor> start_sensor_program(Board& board, const Fd& memory, int bell, const SensorTask& task,
                                    const SensorProgram& program) {
  if (!write_task(board, task)) return fail("there is more to tell the sensor than there is room for");
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::unexpected(cannot_start(program, errno));
  const Fd theirs(ends[0]);
  Fd ours(ends[1]);
  const Fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!self) return std::unexpected(cannot_start(program, errno));
  std::array<Fd, kBehind - kMemory> moved;
  Birth birth;
  const std::array<int, kBehind - kMemory> given = {memory.get(), bell, theirs.get(), self.get()};
  for (std::size_t i = 0; i < given.size(); ++i) {
    moved[i] = Fd(::fcntl(given[i], F_DUPFD_CLOEXEC, kAbove));
    if (!moved[i]) return std::unexpected(cannot_start(program, errno));
    birth.given[i] = moved[i].get();
  }
  const std::vector<std::string> words = {std::string(kSensorName), board_mark()};
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(program.environment);
  birth.path = program.path.c_str();
  birth.argv = argv.data();
  birth.envp = envp.data();

  const std::unique_ptr<std::byte[]> stacks(new std::byte[2 * kStack]);
  birth.stack = stacks.get();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of ours may run in the children
  const int between = ::clone(first_child, top_of(stacks.get() + kStack), CLONE_VM | CLONE_VFORK | CLONE_FILES, &birth);
  const int why = between < 0 ? errno : birth.error;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (between > 0)
    while (::waitpid(between, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  Fd pidfd(birth.pidfd);
  if (why != 0) return std::unexpected(cannot_start(program, why));
  return Sensor{Process::adopt(birth.pid, std::move(pidfd)), std::move(ours)};
}

int sensor_program(int argc, char** argv) {
  if (argc != 2) return kExitUsage;
  if (argv[1] != board_mark()) {  // all that is known of the board then is where it ends
    struct stat file{};
    if (::fstat(kMemory, &file) == 0) (void)!::pwrite(kMemory, &kOtherBoard, 1, file.st_size - 1);
    return kExitUsage;
  }
  void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, kMemory, 0);
  if (memory == MAP_FAILED) return kExitUsage;
  auto& board = *static_cast<Board*>(memory);
  std::vector<std::byte> room;
  SensorTask task;
  if (!copy_box(board.task, 0, room) || !decode(room, task)) return kExitUsage;
  become_sensor(board, kBell, {.pipe = kPipe, .parent = kParent}, task);
}

}  // namespace lull
