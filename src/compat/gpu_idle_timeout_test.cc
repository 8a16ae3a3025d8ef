#include "compat/gpu_idle_timeout.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <csignal>
#include <cstdlib>
#include <sstream>

#include "rule/policy.h"

namespace lull {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> out;
  for (std::string word; stream >> word;) out.push_back(word);
  return out;
}

IdleTimeoutOptions parsed(const std::string& line) {
  const auto options = parse_idle_timeout(words(line));
  EXPECT_TRUE(options) << line << ": " << (options ? "" : options.error().message());
  return options.value_or(IdleTimeoutOptions{});
}

std::string refused(const std::string& line) {
  const auto options = parse_idle_timeout(words(line));
  return options ? "" : options.error().what;
}

TEST(GpuIdleTimeout, DefaultsOfItsDocument) {
  const auto options = parsed("python3 train.py");
  EXPECT_EQ(options.threshold, 1);
  EXPECT_EQ(options.sample_freq, 5);
  EXPECT_EQ(options.num_samples, 60U);
  EXPECT_EQ(options.delay_samples, 12U);
  EXPECT_FALSE(options.any);
  EXPECT_FALSE(options.debug);
  EXPECT_EQ(options.rule(), "util < 1 for 60 samples");
  EXPECT_EQ(options.command, (std::vector<std::string>{"python3", "train.py"}));
}

TEST(GpuIdleTimeout, CommandLinesOfItsDocuments) {
  auto options = parsed("-t 50 -s 6 -n 5 -d 3 -x grep foo");
  EXPECT_EQ(options.rule(), "util < 50 for 5 samples");
  EXPECT_EQ(options.every(), std::chrono::seconds(6));
  EXPECT_EQ(options.delay(), std::chrono::seconds(18));
  EXPECT_TRUE(options.debug);
  EXPECT_EQ(options.command, (std::vector<std::string>{"grep", "foo"}));
  EXPECT_EQ(idle_timeout_started(options),
            "Starting GPU idle watcher: threshhold_percentage=50%, sample_freq=6, num_samples=5, delay_samples=3, "
            "window_size=30");
  EXPECT_EQ(idle_timeout_waiting(options, 0), std::nullopt);
  EXPECT_EQ(idle_timeout_waiting(options, 1), "waiting for delay samples. 12 seconds left");
  EXPECT_EQ(idle_timeout_waiting(options, 2), "waiting for delay samples. 6 seconds left");
  EXPECT_EQ(idle_timeout_waiting(options, 3), std::nullopt);
  const std::vector<std::string> uuids = {"GPU-a5b02c30-9c95-cb81-e41e-ca204d57aa3b",
                                          "GPU-b805d632-775b-c673-fe68-26b26996cd09"};
  EXPECT_EQ(idle_timeout_usage_of(uuids[0], 0.4), "GPU-a5b02c30-9c95-cb81-e41e-ca204d57aa3b usage 0%");
  EXPECT_EQ(idle_timeout_fired(options, uuids),
            "usage for all GPUs: ['GPU-a5b02c30-9c95-cb81-e41e-ca204d57aa3b', "
            "'GPU-b805d632-775b-c673-fe68-26b26996cd09'] was below threshhold 50% for last 30 seconds. Killing "
            "process.");

  options = parsed("-t 50 -s 30 -n 6 -d 2 -a any -x");
  EXPECT_EQ(options.rule(), "any(util < 50 for 6 samples)");
  EXPECT_TRUE(options.command.empty());
  EXPECT_TRUE(parsed("--all_or_any any").any);
  EXPECT_TRUE(parsed("--all-or-any=any").any);

  options = parsed("-t 20 -s 3 -n 7 -d 1 -x python3 -m determined.launch.torch_distributed python3 train.py");
  EXPECT_EQ(options.command.size(), 5U);
  EXPECT_EQ(idle_timeout_waiting(options, 1), std::nullopt);
}

TEST(GpuIdleTimeout, LogLine) {
  ::setenv("TZ", "UTC", 1);
  const WallTime at(std::chrono::milliseconds(1710500669052));
  EXPECT_EQ(idle_timeout_log(at, "INFO", "x"), "2024-03-15 11:04:29,052: INFO: gpu_idle_timeout: x\n");
}

TEST(GpuIdleTimeout, ReadsWordsAsArgparseDoes) {
  EXPECT_EQ(parsed("-t50 --samp 2").sample_freq, 2);
  EXPECT_EQ(parsed("-xt 5").threshold, 5);
  EXPECT_EQ(parsed("--num-samples=7").num_samples, 7U);
  EXPECT_EQ(parsed("-n 3 -- -x").command, std::vector<std::string>{"-x"});
  EXPECT_EQ(parsed("-n 3 cmd -n 4 --help").num_samples, 3U);
  EXPECT_EQ(parsed("x").signal, SIGQUIT);
  EXPECT_EQ(parsed("--signal-name SIGUSR1 x").signal, SIGUSR1);
  EXPECT_TRUE(parsed("--signal-children x").signal_children);
  EXPECT_TRUE(parsed("-h").help);
}

TEST(GpuIdleTimeout, RefusesInArgparsesWords) {
  EXPECT_EQ(refused("-n x cmd"), "argument -n/--num-samples: invalid int value: 'x'");
  EXPECT_EQ(refused("-n x -n 5 cmd"), "argument -n/--num-samples: invalid int value: 'x'")
      << "though a right one follows";
  EXPECT_EQ(refused("--num_samples x cmd"), "argument -n/--num-samples: invalid int value: 'x'");
  EXPECT_EQ(refused("--s 5"), "ambiguous option: --s could match --sample-freq, --signal-name, --signal-children");
  EXPECT_EQ(refused("-xq cmd"), "argument -x/--debug: ignored explicit argument 'q'");
  EXPECT_TRUE(parse_idle_timeout(words("-h --nothing"))->help) << "what comes after it does not matter";
  EXPECT_EQ(refused("-t 0 x"), "THRESHHOLD_PERCENTAGE must be greater than 0.");
  EXPECT_EQ(refused("-s 0 x"), "SAMPLE_FREQ must be greater than 0.");
  EXPECT_EQ(refused("-s -1 x"), "SAMPLE_FREQ must be greater than 0.");
  EXPECT_EQ(refused("-n 0 x"), "NUM_SAMPLES must be greater than 0.");
  EXPECT_EQ(refused("--signal-name NOPE x"), "unknown SIGNAL 'NOPE'.");
  EXPECT_EQ(parsed("--signal-name SIGCLD x").signal, SIGCHLD);
  EXPECT_EQ(parsed("--signal-name SIGPOLL x").signal, SIGIO);
  EXPECT_EQ(parsed("-n +1_0 -s +1 x").num_samples, 10U);
  EXPECT_EQ(refused("-s nan x"), "argument -s/--sample-freq: invalid int value: 'nan'");
  EXPECT_EQ(parse_idle_timeout(words("-n 0 x")).error().errno_value, 1);
  EXPECT_EQ(parse_idle_timeout(words("-n x x")).error().errno_value, 2);
  EXPECT_EQ(parse_idle_timeout(words("--nothing x")).error().errno_value, 2);
  const auto none = parsed("-d -1 x");
  EXPECT_EQ(none.delay(), none.every());
  EXPECT_EQ(idle_timeout_waiting(none, 1), std::nullopt);
  EXPECT_NE(idle_timeout_started(none).find("delay_samples=-1,"), std::string::npos);
  EXPECT_NE(refused("-n 2.5 x").find("invalid int"), std::string::npos);
  EXPECT_NE(refused("-a some").find("must be either all or any"), std::string::npos);
  EXPECT_NE(refused("--signal").find("ambiguous option: --signal could match"), std::string::npos);
  EXPECT_EQ(refused("--nothing"), "unrecognized arguments: --nothing");
  EXPECT_NE(refused("-t").find("expected one argument"), std::string::npos);
}

TEST(GpuIdleTimeout, SignallingInItsWords) {
  const std::vector<IdleTimeoutMember> members = {{10, 0, "sh -c x"}, {12, 2, "deep"}, {11, 1, "child"}};
  EXPECT_EQ(idle_timeout_children(3, members),
            (std::vector<std::string>{
                "signal children: logging process tree", "signal children: layer 0: pid 10: 'sh -c x'",
                "signal children: layer 1: pid 11: 'child'", "signal children: layer 2: pid 12: 'deep'",
                "signal children: signalling started", "signal children: send signal 3 to pid 12 in layer 2",
                "signal children: send signal 3 to pid 11 in layer 1", "signal children: signaling ended"}));
  EXPECT_EQ(idle_timeout_signalling(3, 10), "Sending signal 3 to process 10");
}

TEST(GpuIdleTimeout, WhateverIsAcceptedIsARule) {
  EXPECT_TRUE(rc::check("any words are refused or make a valid rule", [] {
    const auto line = *rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(
        rc::gen::element<std::string>("-t", "-s", "-n", "-d", "-a", "-x", "any", "--", "50", "1e9", "0.25", "--gpus"),
        rc::gen::arbitrary<std::string>()));
    const auto options = parse_idle_timeout(line);
    if (options) RC_ASSERT(Policy::parse(options->rule()).has_value());
  }));
}

}  // namespace
}  // namespace lull
