// `lull COMMAND …`, or a predecessor's name as a link to the same binary.

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "park/parking.h"

namespace {

using lull::Command;

const Command* find(std::span<const Command> table, std::string_view name) {
  for (const Command& command : table)
    if (command.name == name) return &command;
  return nullptr;
}

int help() {
  fmt::print(
      "lull finds GPUs that sit idle, says why it believes so, and does something about it.\n\n"
      "usage: lull [COMMAND] [options]     lull alone shows the GPUs (lull status)\n\n");
  for (const Command& command : lull::commands()) fmt::print("  {:<9} {}\n", command.name, command.summary);
  fmt::print("\n`lull help COMMAND` explains each with an example. `lull --version` says which one this is.\n");
  return 0;
}

int unknown(std::string_view word) {
  const std::string hint = lull::did_you_mean(word, lull::commands());
  return lull::complain(fmt::format("there is no command '{}'{}", lull::printable(word),
                                    hint.empty() ? "; `lull --help` lists them" : hint),
                        lull::kExitUsage);
}

// `lull help run`, `lull help sim set`: what `lull run --help` says.
int help_of(int count, char** words) {
  const Command* command = find(lull::commands(), words[0]);
  if (command == nullptr) {
    const std::string_view word = words[0];
    return word == "help" || word == "--help" || word == "-h" ? help() : unknown(word);
  }
  std::string asks = "--help";
  std::vector<char*> arguments(words, words + count);
  arguments.push_back(asks.data());
  const int argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  return command->run(argc, arguments.data());
}

int run(int argc, char** argv) {
  std::string_view self = argc > 0 ? argv[0] : "lull";
  self.remove_prefix(self.find_last_of('/') + 1);    // npos + 1 is 0
  if (self.ends_with(".py")) self.remove_suffix(3);  // the predecessors' files are called so
  if (const Command* inside = find(lull::inside(), self)) return inside->run(argc, argv);
  if (const Command* drop_in = find(lull::drop_ins(), self)) {
    lull::set_program_name(drop_in->name);
    return drop_in->run(argc, argv);
  }

  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "--help" || word == "-h") return help();
  if (word == "help") return argc > 2 ? help_of(argc - 2, argv + 2) : help();
  if (word == "--version" || word == "-V") {
    fmt::print("lull {}\n", lull::version());
    return 0;
  }
  if (word == "__complete") return lull::complete_command(argc - 1, argv + 1);
  if (word != "unpark") lull::repair_in_background();
  if (const Command* command = find(lull::commands(), word)) return command->run(argc - 1, argv + 1);
  if (word.empty() || word.front() == '-') return find(lull::commands(), "status")->run(argc, argv);
  return unknown(word);
}

// What was printed has arrived, or that is said: a script must not take half an answer for a whole one. A reader that
// has gone away has seen enough.
int flushed(int status) {
  errno = 0;
  const bool good = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (good || errno == EPIPE) return status;
  lull::complain(fmt::format("standard output: {}", std::strerror(errno == 0 ? EIO : errno)));
  return status == 0 ? lull::kExitFailure : status;
}

// A shell goes on behind a program that exits with 130, and stops behind one that Ctrl-C ended. As timeout(1) does;
// process 1 of a container does not die of it.
int dead_of(int signal, int status) {
  (void)::prctl(PR_SET_DUMPABLE, 0);  // the job has written its core
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  ::sigprocmask(SIG_UNBLOCK, &one, nullptr);
  (void)std::raise(signal);
  return status;
}

// Where there is no memory left even for saying so, C++ gives up in the middle of a throw: in our words, and with our
// status. Anything else that ends here is a mistake of ours.
[[noreturn]] void give_up() {
  if (std::current_exception() != nullptr) std::abort();
  constexpr std::string_view kWords = "lull: there is no memory left\n";
  (void)!::write(STDERR_FILENO, kWords.data(), kWords.size());
  std::_Exit(lull::kExitFailure);
}
// Before everything that is made before main(): 101 is the first that is not the compiler's own.
[[gnu::constructor(101)]] void prepare_to_give_up() { std::set_terminate(give_up); }

}  // namespace

// What throws is a library that found no memory or no room on the disk; no command of ours does.
int main(int argc, char** argv) {
  try {
    const int status = flushed(run(argc, argv));
    const int signal = lull::ending_signal();
    return signal == 0 ? status : dead_of(signal, status);
  } catch (const std::bad_alloc&) {
    return lull::complain("there is no memory left");
  } catch (const std::system_error& error) {
    if (error.code().value() == EPIPE) return 0;
    return lull::complain(std::ferror(stdout) != 0 ? "standard output: " + error.code().message() : error.what());
  }
}
