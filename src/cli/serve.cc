// `lull serve`: checks the options and becomes lull-serve, a program of its own since it needs libraries that lull does
// not.

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/text.h"
#include "cli/command.h"
#include "cli/serve_options.h"

namespace lull {

int serve_command(int argc, char** argv) {
  ServeSettings settings;
  if (const auto status = parse_serve(argc, argv, settings)) return *status;
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (error ? "/usr/bin" : own.parent_path()) / "lull-serve";
  std::string name = "lull-serve";
  argv[0] = name.data();
  ::execv(program.c_str(), argv);
  if (errno == ENOENT)
    return complain(
        fmt::format("serve: {} is not installed: it comes with the package lull-serve, or with a build on "
                    "a machine with libmicrohttpd",
                    printable(program)));
  return complain(fmt::format("serve: {}: {}", printable(program), std::strerror(errno)));
}

}  // namespace lull
