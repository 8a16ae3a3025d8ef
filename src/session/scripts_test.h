#pragma once
// Settings and scripts that tests of sessions begin with.

#include <chrono>
#include <limits>
#include <string_view>

#include "session/fake_world_test.h"

namespace lull {

inline constexpr double kNotRead = std::numeric_limits<double>::quiet_NaN();

// When it first happened.
inline Instant time_of(const FakeWorld& world, std::string_view what) {
  for (const Happened& one : world.happened)
    if (one.what == what) return one.at;
  return Instant::max();
}

inline RunSettings run_settings(std::string_view rule = "util < 1 for 60s", Duration every = std::chrono::seconds(5),
                                Duration delay = {}) {
  RunSettings settings;
  settings.common.policy = *Policy::parse(rule);
  settings.common.gpus = "all";
  settings.common.every = every;
  settings.common.delay = delay;
  settings.command = {"train"};
  return settings;
}

inline WatchSettings watch_settings(std::string_view rule = "util < 1 for 60s") {
  WatchSettings settings;
  settings.common.policy = *Policy::parse(rule);
  settings.common.every = std::chrono::seconds(5);
  settings.actions = {*parse_action("exec=true")};
  settings.controlled = false;
  return settings;
}

inline Script busy_until(Instant end) {
  Script script;
  script.util = [end](Instant at, unsigned) { return at < end ? 90.0 : 0.0; };
  return script;
}

}  // namespace lull
