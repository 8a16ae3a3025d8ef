#include "base/curl.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/fd.h"
#include "base/process_start.h"
#include "base/text.h"

namespace lull {
namespace {

constexpr int kNotFound = 127;

}  // namespace

std::string curl_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: out += c;
    }
  }
  return out + "\"";
}

Result<int> run_curl(const std::string& configuration, int output, Duration limit) {
  const Fd input(::memfd_create("lull-curl", MFD_CLOEXEC));
  const Fd said(::memfd_create("lull-curl", MFD_CLOEXEC));
  if (!input || !said) return fail(errno, "memory for curl");
  TRY(write_all(input.get(), configuration));
  ::lseek(input.get(), 0, SEEK_SET);
  const std::string seconds = fmt::format("{}", std::chrono::ceil<std::chrono::seconds>(limit).count());
  const Process curl = TRY(start_child([&] {
    ::dup2(input.get(), STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(said.get(), STDERR_FILENO);
    ::execlp("curl", "curl", "-q", "--config", "-", "--silent", "--show-error", "--proto", "=http,https",
             "--connect-timeout", "10", "--max-time", seconds.c_str(), "--write-out", "%{stderr}\n%{http_code}\n",
             static_cast<char*>(nullptr));
    ::_exit(kNotFound);
  }));
  int status = 0;
  if (!wait_for_child(curl.pid(), limit + std::chrono::seconds(10), &status)) {
    (void)curl.signal(SIGKILL);
    wait_for_child(curl.pid(), std::chrono::seconds(10));
    return fail("curl did not end in time");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) return fail("this needs curl, which is not in PATH");
  const std::string text = read_beginning(said.get(), 300);
  std::string_view words = trim(text);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return static_cast<int>(to_unsigned(words.substr(words.rfind('\n') + 1)).value_or(0));
  if (words.starts_with("000")) words = trim(words.substr(3));  // there was no answer
  words = words.substr(0, words.find('\n'));
  return fail(words.empty() ? "curl failed" : printable(words));
}

}  // namespace lull
