// `lull keep`: asks those who watch for more time for a GPU or a job.

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "session/control.h"
#include "session/each_session.h"

namespace lull {
namespace {

constexpr const char* kAbout =
    "Asks every `lull watch --per` on this machine for more time: nothing is done about the GPU or job\n"
    "before that is over. Its owner may ask, and root. No more than --keep-at-most of the watcher is\n"
    "given, until it works again.\n";
constexpr const char* kMore =
    "A JOB is a PID of its processes, slurm:ID, a container's or a lease's id; a GPU is its number or UUID.\n"
    "Without one it is about every GPU and job that is yours.\n\n"
    "Exit status: 0 somebody gave more time; 1 nobody did; 2 the command line was wrong.\n\n"
    "Examples:\n"
    "  lull keep 4h\n"
    "  lull keep 4711 4h\n"
    "  lull keep gpu3 30m\n";

}  // namespace

int keep_command(int argc, char** argv) {
  std::vector<std::string> words;
  CommandLine line(kAbout, "lull keep");
  line.usage("[JOB|GPU] TIME");
  line.arguments("TIME", words, "how long from now on, such as 4h; before it a JOB or GPU (default: all of mine)")
      .required();
  line.footer(kMore);
  if (const auto status = line.parse(argc, argv)) return *status;
  if (words.size() > 2) return complain("keep: '" + printable(words[2]) + "' is one argument too many", kExitUsage);
  const auto time = parse_duration(words.back());
  if (!time) return complain("keep: " + time.error().message(), kExitUsage);
  if (*time <= Duration::zero()) return complain("keep: more than 0 would be right, such as 4h", kExitUsage);
  const std::string target = words.size() == 2 ? words[0] : "";
  if (target.size() > 256) return complain("keep: that is no GPU and no job", kExitUsage);
  bool kept = false;
  const std::vector<Reply> answers = ask_all(ControlOf::keep, keep_question(target, *time));
  for (const Reply& answer : answers) {
    fmt::print("lull watch {}: {}\n", answer.watcher, answer.line);
    kept |= answer.line.starts_with("kept");
  }
  if (answers.empty()) return complain("keep: nobody watches with `lull watch --per` here", 1);
  return kept ? 0 : 1;
}

}  // namespace lull
