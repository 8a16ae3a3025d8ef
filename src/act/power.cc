#include "act/power.h"

#include <fcntl.h>
#include <unistd.h>
#include <utmp.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>

#include "base/text.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 5s;

std::vector<std::string> logind(std::string_view method) {
  return {"busctl",
          "--system",
          "call",
          "org.freedesktop.login1",
          "/org/freedesktop/login1",
          "org.freedesktop.login1.Manager",
          std::string(method)};
}

// Lines of /dev on which users are logged in, by utmp; where there is none, every pseudo terminal.
std::set<std::string> terminals(const Root& root) {
  std::set<std::string> lines;
  if (root.dev == "/dev") {
    if (const auto file = read_file(_PATH_UTMP)) {
      utmp entry{};
      for (std::size_t at = 0; at + sizeof entry <= file->size(); at += sizeof entry) {
        std::memcpy(&entry, file->data() + at, sizeof entry);
        const std::string line(entry.ut_line, ::strnlen(entry.ut_line, sizeof entry.ut_line));
        if (entry.ut_type == USER_PROCESS && !line.empty() && line.find("..") == std::string::npos) lines.insert(line);
      }
    }
    if (!lines.empty()) return lines;
  }
  Directory terminals(root.dev + "/pts");
  while (const char* name = terminals.next())
    if (to_unsigned(name)) lines.insert("pts/" + std::string(name));
  return lines;
}

// By its name where PATH has it; cron's, for one, has no sbin. Inside a simulation only what PATH offers: the machine
// that would go down is a real one.
std::optional<std::string> find_in_sbin(const std::string& name) {
  if (is_executable(name)) return name;
  if (std::getenv("LULL_SIM") != nullptr) return std::nullopt;
  for (const std::string_view folder : {"/usr/local/sbin", "/usr/sbin", "/sbin"})
    if (std::string path = std::string(folder) + "/" + name; is_executable(path)) return path;
  return std::nullopt;
}

// What sudo lets us do without a password; sudo has a path of its own to look in. A rule may allow one command and not
// the other. Empty: neither.
std::vector<std::string> by_sudo(bool off, const InheritedSignals* signals) {
  const std::vector<std::vector<std::string>> constraints =
      off ? std::vector<std::vector<std::string>>{{"shutdown", "-h", "now"}}
          : std::vector<std::vector<std::string>>{{"reboot"}, {"shutdown", "-r", "now"}};
  for (const std::vector<std::string>& constraint : constraints) {
    std::vector<std::string> question = {"sudo", "-n", "-l"};
    question.insert(question.end(), constraint.begin(), constraint.end());
    const auto may = run_and_wait({.arguments = question, .signals = signals}, kPatience);
    if (!may || may->status != 0) continue;
    std::vector<std::string> command = {"sudo", "-n"};
    command.insert(command.end(), constraint.begin(), constraint.end());
    return command;
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> find_power_command(Power power, const InheritedSignals* signals) {
  const bool off = power == Power::off;
  std::string logind_says;
  if (is_executable("busctl")) {
    const auto answer =
        run_and_wait({.arguments = logind(off ? "CanPowerOff" : "CanReboot"), .signals = signals}, kPatience);
    if (answer && answer->status == 0) {
      logind_says = trim(answer->text);
      if (logind_says == "s \"yes\"") {
        auto command = logind(off ? "PowerOff" : "Reboot");
        command.insert(command.end(), {"b", "false"});  // do not ask for a password
        return command;
      }
    }
  }
  if (::geteuid() == 0) {
    if (auto shutdown = find_in_sbin("shutdown")) return std::vector<std::string>{*shutdown, off ? "-h" : "-r", "now"};
  } else if (auto command = by_sudo(off, signals); !command.empty()) {
    return command;
  }
  std::string why = off ? "no permission to power this machine off" : "no permission to reboot this machine";
  if (!logind_says.empty()) why += " (logind says " + printable(logind_says) + ")";
  return fail(why + (off ? ": run as root, or allow `sudo -n shutdown`" : ": run as root, or allow `sudo -n reboot`"));
}

std::size_t write_to_terminals(const std::string& message, const Root& root) {
  std::size_t told = 0;
  for (const std::string& line : terminals(root)) {
    // A terminal that is stopped (Ctrl-S) must not stop us.
    const auto terminal = open_file(root.dev + "/" + line, O_WRONLY | O_NOCTTY | O_NONBLOCK);
    if (terminal && write_all(terminal->get(), "\r\n" + message + "\r\n")) ++told;
  }
  return told;
}

}  // namespace lull
