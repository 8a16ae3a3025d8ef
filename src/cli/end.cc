// `lull-end PID WAIT GRACE`: ends the process that started us, with its children, if it has not ended by itself after
// WAIT. Python's lull.watch(do="exit") and do="kill" start it (base/beside.h): who hangs in a driver or holds the
// interpreter's lock can no longer end itself. Descriptor 3 is a handle of that process.

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "session/machine.h"
#include "view/news.h"

namespace lull {

int end_program(int argc, char** argv);

namespace {

using namespace std::chrono_literals;

constexpr int kHandle = 3;

struct Task {
  Process target;
  Duration wait{};
  Duration grace{};
};

Result<Task> read_task(int argc, char** argv) {
  const auto pid = argc == 4 ? to_pid(argv[1]) : std::nullopt;
  if (!pid) return fail("is started by Python's lull.watch(), not by hand");
  Task task;
  task.wait = TRY(parse_duration(argv[2]));
  task.grace = TRY(parse_duration(argv[3]));
  task.target = TRY(Process::open(*pid));
  // By the handle, not by the number alone: who started us may have ended, and somebody else have its number.
  const std::string handle = TRY(read_file(fmt::format("/proc/self/fdinfo/{}", kHandle)));
  if (handle.find(fmt::format("\nPid:\t{}\n", *pid)) == std::string::npos)
    return fail(fmt::format("process {} is not the one that started us", *pid));
  return task;
}

bool ends_by_itself(Duration wait) {
  pollfd handle{kHandle, POLLIN, 0};
  const SystemClock clock;
  const Instant end = clock.now() + wait;
  while (true) {
    const Duration left = std::max<Duration>(end - clock.now(), 0ns);
    const timespec pause{.tv_sec = left / 1s, .tv_nsec = (left % 1s).count()};
    if (::ppoll(&handle, 1, &pause, nullptr) > 0) return true;
    if (clock.now() >= end) return false;
  }
}

Result<int> end_it(const Task& task) {
  const SystemClock clock;
  const std::unique_ptr<Machine> machine = TRY(Machine::open(clock));
  const ActionWord word = TRY(parse_action(fmt::format("kill={}", task.target.pid())));
  ActionOptions how;
  how.ending.grace = task.grace;
  const auto actions = machine->actions_of(word, how);
  TRY(actions.front()->prepare());
  std::optional<int> status;
  actions.front()->start(
      {},
      [&](const Outcome& outcome) {
        status = outcome.ok ? 0 : complain(outcome.trouble);
        machine->loop().stop();
      },
      [](const News& news) { (void)complain(to_words(news)); });
  if (!status) TRY(machine->loop().run());  // it may have been gone at the first look
  return status.value_or(kExitFailure);
}

}  // namespace

int end_program(int argc, char** argv) {
  ::setsid();  // what ends the group that we came from does not end us
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // who started us let none through meanwhile
  const auto task = read_task(argc, argv);
  if (!task) return complain(task.error().message(), kExitUsage);
  if (task->wait > Duration::zero()) {
    if (ends_by_itself(task->wait)) return 0;
    (void)complain(fmt::format("process {} has not ended within {}: ending it and its children", task->target.pid(),
                               format_duration(task->wait)));
  }
  const auto ended = end_it(*task);
  return ended ? *ended : complain(ended.error().message());
}

}  // namespace lull
