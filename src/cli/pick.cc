// `lull pick`: its options, and what it prints.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "lease/pick_options.h"
#include "session/machine.h"
#include "session/pick_session.h"

namespace lull {

namespace {

constexpr const char* kFooter =
    "With CMD: it runs on the chosen GPUs, which are leased to it until its last process is gone.\n"
    "Without: the choice is printed; it is held only with --hold or --hold-pid.\n\n"
    "Examples:\n"
    "  lull pick -n 2 --wait -- python train.py\n"
    "  lull pick --mem-free 20GiB --best cool -- ./infer.sh\n"
    "  docker run --gpus $(lull pick -n 2 --format docker --hold 1m) ...";

// An empty value is refused: `--gpus "$MINE"` of a variable that is not set must not mean any GPU.
struct Described {
  std::string_view name;
  std::string_view value;
  const std::string* text;
  CommandLine::Option option;
};

std::vector<Described> describe_options(CommandLine& line, PickOptions& options) {
  std::vector<Described> described;
  const auto add = [&](const char* names, const char* value, std::string& text, const char* help) {
    const std::string_view name = names;
    described.push_back({name.substr(name.rfind(',') + 1), value, &text, line.option(names, text, help).value(value)});
  };
  add("-n,--count", "N", options.count, "how many GPUs, or all of --gpus");
  described.push_back({shared::kGpus.names, shared::kGpus.value, &options.gpus,
                       line.option(shared::kGpus, options.gpus, std::string(shared::kOnlyThese) + " (default: all)")});
  add("--vendor", "amd|intel|nvidia", options.vendor,
      "only GPUs of this vendor (default: that of the first GPU, or as --gpus names them)");
  add("--name", "TEXT", options.name, "only those with this in their name, case-insensitive (default: any)");
  add("--util", "N", options.util, "utilisation at most, in %, or any (default 0)");
  add("--mem-util", "N", options.mem_util, "memory controller activity at most, in %, or any (default 0)");
  add("--mem-free", "SIZE", options.mem_free, "memory free at least, such as 20GiB (default: any)");
  add("--mem-used", "SIZE", options.mem_used, "memory in use at most (default 64MiB)");
  add("--procs", "N", options.procs, "compute processes at most (default 0)");
  add("--temp", "C", options.temp, "temperature at most, in C (default: any)");
  add("--where", "RULE", options.where, "what else must hold: 'power < 60W and pstate >= 8' (default: nothing)");
  add("--tolerate", "SIZE", options.tolerate,
      "overlook idle processes that hold this much memory at most, such as 700MiB (default: none)");
  add("--share", "N", options.share, "be one of N holders of a GPU at most, who all say so");
  add("--joinable", "N", options.joinable, "let others who share join, up to N holders (default: as --share)");
  line.flag("--mine-ok", options.mine_ok, "a GPU that only I use counts as idle");
  add("--best", "memory|cool|random|topology", options.best,
      "which of them; topology: joined most closely (default: topology if several, else random)");
  line.flag("--uuid", options.uuid, "name NVIDIA GPUs by UUID in CUDA_VISIBLE_DEVICES");
  add("--format", "ids|uuids|docker|env|json", options.format, "of a printed choice (default ids)");
  add("--hold", "TIME", options.hold, "hold the printed choice for this long, such as 10m (default: not held)");
  add("--hold-pid", "PID", options.hold_pid, "hold it until this process ends (default: not held)");
  add("--wait", "[=TIME]", options.wait,
      "queue until they are free; --wait=10m: give up after that, with status 124 (default: do not wait)");
  described.back().option.optional_value();
  add("--priority", "N", options.priority, "greater goes first in the queue");
  line.flag("--no-lease", options.no_lease, "do not hold the GPUs: others may get them too");
  line.flag(shared::kQuiet, options.quiet, "print nothing while waiting, and no note that nothing is held");
  return described;
}

Result<> refuse_empty(const std::vector<Described>& described) {
  for (const Described& one : described)
    if (one.option.given() && one.text->empty() && one.name != "--wait")
      return fail(fmt::format("{0} needs a value: {0} {1}", one.name, one.value));
  return {};
}

Result<PickOutput> read_output(const PickOptions& options) {
  PickOutput output;
  output.uuid = options.uuid;
  output.quiet = options.quiet;
  constexpr std::array<std::string_view, 5> kFormats = {"ids", "uuids", "docker", "env", "json"};
  if (!options.format.empty())
    output.format = static_cast<PickFormat>(TRY(choice_option("--format", options.format, kFormats)));
  return output;
}

int print_refusal(const Refusal& refusal) {
  (void)write_all(STDERR_FILENO, "lull: " + refusal_text(refusal));
  if (refusal.waiting_helps) (void)write_all(STDERR_FILENO, "--wait queues for them until they are free\n");
  return refusal.kind == Refusal::usage ? kExitUsage : refusal.kind == Refusal::late ? kExitIdle : kExitFailure;
}

// GPU=$(lull pick) looks like a reservation, and is none.
void warn_not_held(const Picked& picked, const PickSettings& settings) {
  if (!settings.lease || ::isatty(STDOUT_FILENO) == 1) return;
  const bool one = picked.devices.size() == 1;
  complain(
      fmt::format("nothing is held: others may take {} too. --hold 10m or --hold-pid $$ holds {}, "
                  "`lull pick -- CMD` holds {} while CMD runs (-q: do not say this)",
                  one ? "it" : "them", one ? "it" : "them", one ? "it" : "them"));
}

int print_picked(Picker& picker, const Picked& picked, const PickOutput& output) {
  // We hold it ourselves until the lease holder does: what was not printed is given back when we end.
  const auto text = picked_text(picked, output.format, output.uuid);
  if (!text) return complain(text.error().message());
  if (const auto written = write_all(STDOUT_FILENO, *text); !written)
    return complain("stdout: " + written.error().message());
  if (picker.settings().holds())
    if (const auto kept = picker.hand_to_lease_holder(picked); !kept) return complain(kept.error().message());
  if (picked.locks.empty() && !output.quiet) warn_not_held(picked, picker.settings());
  return 0;
}

}  // namespace

int pick_command(int argc, char** argv) {
  CommandLine line("Chooses GPUs that are idle, leases them, and runs a command on them.", "lull pick");
  line.usage("[options] [--] [CMD [ARGUMENT…]]");
  line.footer(kFooter);
  PickOptions options;
  const std::vector<Described> described = describe_options(line, options);
  const int begins = line.command_begins(argc, argv);
  if (const auto status = line.parse(begins, argv)) return *status;
  const auto refuse = [](const Error& error) {
    const std::string text = error.message();
    const bool points = text.contains('\n');  // at a place in a rule: nothing may follow that
    (void)write_all(STDERR_FILENO,
                    fmt::format("lull pick: {}{}\n", text, points ? "" : " (lull pick --help explains)"));
    return kExitUsage;
  };
  if (const auto whole = refuse_empty(described); !whole) return refuse(whole.error());
  options.waits =
      std::ranges::any_of(described, [](const Described& one) { return one.name == "--wait" && one.option.given(); });
  const bool dashes = begins < argc && std::string_view(argv[begins]) == "--";
  std::vector<std::string> command(argv + begins + (dashes ? 1 : 0), argv + argc);
  if (dashes && command.empty()) return refuse(Error{"no command after --"});
  auto settings = settle(options, std::move(command));
  if (!settings) return refuse(settings.error());
  if (!settings->command.empty())
    if (const auto end = cannot_run(settings->command.front())) return ended(*end);

  const auto output = read_output(options);
  if (!output) return refuse(output.error());
  const TellPicker tell = [](const std::string& text) { complain(text); };
  const SystemClock clock;
  const auto senses = LoopSenses::open(clock);
  if (!senses) return complain(senses.error().message());
  const auto world = pick_world(**senses, output->quiet, tell);
  PickSession session((*senses)->loop(), *world, *std::move(settings));
  const auto picked = session.run();
  if (!picked) return print_refusal(picked.error());
  if (session.picker().settings().command.empty()) return print_picked(session.picker(), *picked, *output);
  return ended(run_picked(session.picker(), *picked, *output, tell));
}

}  // namespace lull
