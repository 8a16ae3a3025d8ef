// `lull status`: the GPUs now, once or live.

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <array>
#include <cerrno>
#include <climits>
#include <string>

#include "base/fd.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "session/machine.h"
#include "session/status_session.h"

namespace lull {
namespace {

// A new folder for a report, with what it is of: the sensor fills it.
Result<std::string> make_dump(const std::string& name) {
  if (::mkdir(name.c_str(), 0755) != 0) return fail(errno, "--dump " + printable(name));
  std::string path;
  if (!name.starts_with('/')) {
    std::array<char, PATH_MAX> here{};
    if (::getcwd(here.data(), here.size()) == nullptr) return fail(errno, "--dump " + printable(name));
    path = std::string(here.data()) + "/";
  }
  path += name;
  utsname kernel{};
  (void)::uname(&kernel);
  const Fd file = TRY(open_file(path + "/lull.txt", O_WRONLY | O_CREAT | O_EXCL, 0644));
  TRY(write_all(file.get(),
                fmt::format("lull {}\n{} {} {}\n", version(), kernel.sysname, kernel.release, kernel.machine)));
  return path;
}

}  // namespace

int status_command(int argc, char** argv) {
  StatusSettings settings;
  CommandLine line("The GPUs now: what they do, who holds them, with what.", "lull status");
  bool json = false;
  bool csv = false;
  std::string every;
  line.flag(shared::kJson, json, shared::kObjectPerLine);
  line.flag(shared::kCsv, csv).excludes("--json");
  const CommandLine::Option watch_option = line.option(shared::kWatch, every).optional_value();
  line.option(shared::kGpus, settings.gpus, std::string(shared::kOnlyThese) + " (default: all)");
  line.flag("--procs", settings.processes, "list every process on them, with its memory");
  line.flag("--visible", settings.visible, "only those of CUDA_VISIBLE_DEVICES, or of what other vendors have for it")
      .excludes("--gpus");
  const CommandLine::Option dump_option =
      line.option("--dump", settings.dump,
                  "copy the files that are read of GPUs of AMD, Intel and Jetsons to DIR, a new "
                  "folder, for a report; no process and no user is in it (default: nothing)")
          .value("DIR")
          .excludes("--watch");
  line.footer(std::string(shared::kScreenKeys) +
              "p shows processes, e what is known of the marked GPU and why not more, h all keys.\n"
              "IDLE FOR shows >=19s where the GPU was idle already when lull first looked.\n\n"
              "Example:\n  lull status --watch 2s --gpus 0,1");
  if (const auto done = line.parse(argc, argv)) return *done;
  settings.format = json ? StatusFormat::json : csv ? StatusFormat::csv : StatusFormat::table;
  if (const auto status = settle_interval(watch_option, every, settings.every)) return *status;

  if (dump_option.given()) {
    auto folder = make_dump(settings.dump);
    if (!folder) return complain("status: " + folder.error().message(), kExitUsage);
    settings.dump = *std::move(folder);
  }

  const bool live = settings.every.has_value();
  StatusSession session(std::move(settings), [](const std::string& text) { complain(text); });
  return show_list(session, live);
}

}  // namespace lull
