#pragma once
// Where a signal of the user's own comes from: a file, a command or a metric of an HTTP endpoint in Prometheus' text
// format. Written in [signals] of lull.toml, or behind --signal-from. Reading it is signals/reading.h.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/http_get.h"
#include "base/result.h"
#include "gpu/metric.h"

namespace lull {

struct SignalSource {
  enum class Kind : std::uint8_t { file, command, url };
  enum class As : std::uint8_t {
    value,  // the number itself; of several series their sum
    rate,   // of a counter: how much it grows each second; of several series the sum of their rates
    age,    // of a time (seconds since 1970): how long ago that is; of several series the latest
  };
  std::string name;
  Metric metric{};  // that has this name
  Kind kind = Kind::file;
  std::string file;     // a whole path
  std::string command;  // for sh -c
  HttpAddress address;
  std::string series;                                       // the metric of the endpoint
  std::vector<std::pair<std::string, std::string>> labels;  // that its series must have
  As as = As::value;
  Duration timeout = std::chrono::seconds(3);
  Duration max_age = std::chrono::minutes(1);  // older is stale: when the file was written, what the endpoint says
  std::string from;                            // "/etc/lull/lull.toml:3:9", "--signal-from"
  std::string given = {};                      // NAME=SOURCE, where it was written so
  bool operator==(const SignalSource&) const = default;

  std::string to_string() const;  // "http://127.0.0.1:8000/metrics vllm:request_success_total as rate"
};

// NAME=SOURCE of --signal-from. SOURCE is file:PATH, command:CMD, or as in a file: { url = "…", metric = "…" }.
// `option`: what that is called where it is given.
Result<SignalSource> parse_signal_from(std::string_view text, std::string_view option = "--signal-from");
// Those of the settings, with those of the command line in place of any of the same name.
Result<std::vector<SignalSource>> signals_with(std::vector<SignalSource> known, const std::vector<std::string>& more,
                                               std::string_view option = "--signal-from");

}  // namespace lull
