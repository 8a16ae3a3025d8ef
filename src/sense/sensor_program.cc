#include "sense/sensor_program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/beside.h"
#include "sense/wire.h"

namespace lull {
namespace {

// Where the program finds what it was given.
enum Given : int { kMemory = 3, kBell, kPipe, kParent };
constexpr int kExitUsage = 2;
constexpr char kOtherBoard = 'v';  // in the byte behind the board

// What both sides must agree on; a library and a program of different builds may not.
std::string board_mark() {
  return "lull-board-1." + std::to_string(sizeof(Board)) + "." + std::to_string(kMetrics) + "." +
         std::to_string(sizeof(Reading));
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
  const std::array<int, 4> given = {memory.get(), bell, theirs.get(), self.get()};
  auto process = start_beside({program.path, {std::string(kSensorName), board_mark()}, program.environment}, given);
  if (!process) return std::unexpected(cannot_start(program, process.error().errno_value));
  return Sensor{*std::move(process), std::move(ours)};
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
