// `lull check RULE`: what a rule means, what it needs, and what this machine gives of it.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"
#include "config/settings.h"
#include "engine/judge.h"
#include "jobs/contexts.h"
#include "rule/rule.h"
#include "sense/sampler.h"
#include "sense/select.h"
#include "view/rule_look.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 1500ms;

Result<RuleLook> look(const Rule& rule, const std::string& gpus) {
  const std::vector<Metric> signals = rule.signals();
  SamplerOptions sampling;
  sampling.want_only(signals);
  sampling.deadline = kPatience;
  sampling.once = true;
  sampling.gpus = gpus;
  RuleLook looked{.snapshot = Sampler::start(sampling)->sample(), .devices = {}};
  const Inventory& inventory = *looked.snapshot.inventory;
  if (!gpus.empty() && looked.driver()) {
    looked.devices = TRY(select_devices(gpus, inventory));
  } else {
    // As `lull watch` does: what says "no permission" and is closed to everybody here is not meant for us.
    JobContexts contexts(Root::machine());
    contexts.look(looked.snapshot, nullptr);
    const std::vector<Device> closed = contexts.closed();
    for (std::size_t i = 0; i < inventory.devices.size(); ++i)
      if (std::ranges::find(closed, inventory.devices[i]) == closed.end()) looked.devices.push_back(i);
  }
  std::vector<Device> scope;
  scope.reserve(looked.devices.size());
  for (const std::size_t i : looked.devices) scope.push_back(inventory.devices[i]);
  Judge judge(Policy{.idle = rule}, std::move(scope), {});
  looked.now = TRY(judge.observe(looked.snapshot)).condition;
  return looked;
}

}  // namespace

int check_command(int argc, char** argv) {
  std::vector<std::string> words;
  std::string gpus;
  bool json = false;
  CommandLine line("What a rule means, what it needs, and what this machine gives of it.", "lull check");
  line.arguments("RULE", words,
                 "such as 'util < 5 for 20m' (lull-rules(7) explains the language), or the name of one (`lull config` "
                 "lists them)")
      .required();
  line.option("--gpus", gpus, "only these: 0,2 or UUIDs or the beginning of one (default: all)")
      .value("LIST")
      .not_empty("0,2");
  line.flag("--json", json, "one JSON object");
  line.footer("Examples:\n  lull check 'util < 5 and mem_used > 1GiB for 30m'\n  lull check hung");
  if (const auto done = line.parse(argc, argv)) return *done;

  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  const auto settings = Settings::load();
  if (!settings) return complain(settings.error().message(), kExitUsage);
  const Result<Rule> rule = settings->rule(text);
  if (!rule) return complain(rule.error().message(), kExitUsage);
  const Result<RuleLook> looked = look(*rule, gpus);
  if (!looked) return complain(looked.error().message(), kExitUsage);
  fmt::print("{}", json ? rule_json(*rule, *looked) : rule_text(*rule, *looked, screen_of(STDOUT_FILENO)));
  return 0;
}

}  // namespace lull
