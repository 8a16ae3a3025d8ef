#pragma once
// For tests of sessions that judge many: settings, who holds what, and when something was done.

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "session/each_session.h"
#include "session/fake_world_test.h"
#include "session/scripts_test.h"

namespace lull {

inline EachSettings each(Per per,
                         std::vector<std::pair<std::string, std::string>> steps = {{"util < 1 for 60s", "end"}}) {
  EachSettings settings;
  settings.who.per = per;
  for (const auto& [rule, action] : steps) settings.steps.push_back({*parse_rule(rule), {*parse_action(action)}});
  settings.controlled = false;
  return settings;
}

inline Script held_by(std::map<unsigned, std::vector<GpuProcess>> holders,
                      std::function<double(Instant, unsigned)> util) {
  Script script;
  script.gpus = 4;
  script.util = std::move(util);
  script.holders = [holders = std::move(holders)](Instant, unsigned gpu) {
    const auto found = holders.find(gpu);
    return found == holders.end() ? std::vector<GpuProcess>() : found->second;
  };
  return script;
}

inline double idle(Instant, unsigned) { return 0; }

inline void run_for(EachSettings settings, FakeWorld& world, Sink& sink, Duration time) {
  world.loop().at(Instant(time), [&] { world.send(SIGTERM); });
  EXPECT_EQ(EachSession(std::move(settings), world, sink).run().status, 128 + SIGTERM);
}

}  // namespace lull
