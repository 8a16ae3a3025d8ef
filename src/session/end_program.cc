#include "session/end_program.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "session/machine.h"
#include "view/news.h"

namespace lull {

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

// Who was to be ended has ended by itself meanwhile: that is no trouble.
bool gone(const Error& error) { return error.errno_value == ESRCH; }

bool ends_by_itself(Duration wait) {
  pollfd handle{kHandle, POLLIN, 0};
  const SystemClock clock;
  const Instant end = clock.now() + wait;
  while (true) {
    const Duration left = std::max<Duration>(end - clock.now(), 0ns);
    const timespec pause{.tv_sec = left / 1s, .tv_nsec = (left % 1s).count()};
    if (::ppoll(&handle, 1, &pause, nullptr) > 0 && (handle.revents & POLLIN) != 0) return true;
    if (clock.now() >= end) return false;
  }
}

Result<SessionEnd> end_it(const Task& task, const std::function<void(const std::string&)>& tell) {
  const SystemClock clock;
  const std::unique_ptr<Machine> machine = TRY(Machine::open(clock));
  const ActionWord word = TRY(parse_action(fmt::format("kill={}", task.target.pid())));
  ActionOptions how;
  how.ending.grace = task.grace;
  const auto actions = machine->actions_of(word, how);
  TRY(actions.front()->prepare());
  std::optional<SessionEnd> end;
  actions.front()->start(
      {},
      [&](const Outcome& outcome) {
        end = outcome.ok ? SessionEnd{} : SessionEnd{kExitFailure, outcome.trouble};
        machine->loop().stop();
      },
      [&](const News& news) { tell(to_words(news)); });
  if (!end) TRY(machine->loop().run());  // it may have been gone at the first look
  return end.value_or(SessionEnd{kExitFailure});
}

}  // namespace

SessionEnd end_program(int argc, char** argv, const std::function<void(const std::string&)>& tell) {
  ::setsid();  // what ends the group that we came from does not end us
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // who started us let none through meanwhile
  const auto task = read_task(argc, argv);
  if (!task && gone(task.error())) return {};
  if (!task) return {kExitUsage, task.error().message()};
  if (task->wait > Duration::zero()) {
    if (ends_by_itself(task->wait)) return {};
    tell(fmt::format("process {} has not ended within {}: ending it and its children", task->target.pid(),
                     format_duration(task->wait)));
  }
  auto ended = end_it(*task, tell);
  if (!ended && gone(ended.error())) return {};
  return ended ? *std::move(ended) : SessionEnd{kExitFailure, ended.error().message()};
}

}  // namespace lull
