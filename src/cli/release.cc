// `lull release`: gives leased GPUs back.

#include "lease/release.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "lease/folder.h"

namespace lull {

int release_command(int argc, char** argv) {
  CommandLine line("Gives leased GPUs back: your own ones, as root any.", "lull release");
  line.footer(
      "\nA lease ends by itself with its job. This is for a hold that is no longer needed, for what a\n"
      "job left behind, and with --force for a job that keeps a GPU which it should not have.\n"
      "\nExample:\n  lull release 3");
  std::vector<std::string> words;
  bool force = false;
  line.arguments("GPU", words,
                 "an index, a list (0,2) or a range (0-3) of them, a UUID or lease as `lull leases` shows them, or all")
      .required();
  line.flag("--force", force, "also if its holder still runs; the holder is not ended");
  if (const auto status = line.parse(argc, argv)) return *status;
  const auto meant = release_options(words);
  if (!meant) return complain(fmt::format("release: {}", meant.error().message()), kExitUsage);
  const auto folder = LeaseFolder::look(LeasePlace::of_environment());
  if (!folder) return complain(folder.error().message());
  if (!*folder) return complain("nothing is leased");
  const auto done = release(**folder, *meant, force);
  if (!done) return complain(done.error().message());
  int status = 0;
  for (const Release& one : *done) {
    if (one.released)
      fmt::print("{}\n", one.text);
    else
      status = complain(one.text);
  }
  return status;
}

}  // namespace lull
