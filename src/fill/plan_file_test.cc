#include "fill/plan_file.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(PlanFile, HasEveryKey) {
  const auto plan = parse_plan(R"(
idle = "util < 2 for 1m"
every = "500ms"
confirm = "2s"
ignore = ["my-exporter"]
ignore_hidden = true

[people]
idle = "60s"
except_user = ["ada"]
except_self = false

[[filler]]
name = "fold"
command = "./fold --name 'a b'"
gpus = [0, 2]
per_gpu = true
priority = 3
once = true
directory = "/srv"
environment = { OMP_NUM_THREADS = 2, MODE = "night" }
log = "/var/log/fold.log"
log_size = "1MiB"
log_keep = 5
user = "nobody"
nice = 10
io_class = "idle"
hours = "22-06:30"
max_temp = 80
memory = "8GiB"
yield = "pause"
yield_command = "park"
resume_command = "unpark"
yield_limit = "30s"
signal = "INT"
grace = "1m"

[[filler]]
command = ["sh", "-c", "work"]
)",
                               "fill.toml");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(to_text(plan->idle), "util < 2 for 1m");
  EXPECT_EQ(plan->every, 500ms);
  EXPECT_EQ(plan->confirm, 2s);
  EXPECT_EQ(plan->ignore, std::vector<std::string>{"my-exporter"});
  EXPECT_TRUE(plan->ignore_hidden);
  EXPECT_EQ(plan->people.idle, 1min);
  EXPECT_EQ(plan->people.except_user, std::vector<std::string>{"ada"});
  EXPECT_FALSE(plan->people.except_self);
  ASSERT_EQ(plan->fillers.size(), 2U);
  FillerSettings one;
  one.name = "fold";
  one.command = {"./fold", "--name", "a b"};
  one.gpus = "0,2";
  one.per_gpu = one.once = true;
  one.priority = 3;
  one.directory = "/srv";
  one.environment = {{"MODE", "night"}, {"OMP_NUM_THREADS", "2"}};
  one.log = "/var/log/fold.log";
  one.log_size = 1 << 20;
  one.log_keep = 5;
  one.user = "nobody";
  one.nice = 10;
  one.io_class = IoClass::idle;
  one.hours = *Hours::parse("22:00-06:30");
  one.max_temp = 80;
  one.memory = 8.0 * (1ULL << 30);
  one.yield = YieldWay::pause;
  one.yield_command = "park";
  one.resume_command = "unpark";
  one.yield_limit = 30s;
  one.signal = SIGINT;
  one.grace = 1min;
  EXPECT_TRUE(plan->fillers[0] == one);
  EXPECT_EQ(plan->fillers[1].name, "filler 2");
  EXPECT_EQ(plan->fillers[1].command, (std::vector<std::string>{"sh", "-c", "work"}));
}

TEST(PlanFile, MistakesNameTheirPlaceAndWhatWouldBeRight) {
  const std::pair<const char*, const char*> kRows[] = {
      {"", "fill.toml: no filler: it needs a [[filler]] table"},
      {"idl = \"util < 5\"\n", "fill.toml:1:7: 'idl' means nothing here; did you mean 'idle'?"},
      {"idle = \"utl < 5\"\n[[filler]]\ncommand = \"x\"\n", "fill.toml:1:8: idle: "},
      {"every = \"1ms\"\n[[filler]]\ncommand = \"x\"\n", "fill.toml:1:9: every: at least 100ms"},
      {"[[filler]]\nname = \"a\"\n", "fill.toml:1:1: a filler needs a command"},
      {"[[filler]]\ncommand = []\n", "fill.toml:2:11: command is empty"},
      {"[[filler]]\ncommand = \"a 'b\"\n", "fill.toml:2:11: command: a ' is not closed"},
      {"[[filler]]\ncommand = 3\n", "fill.toml:2:11: command is a number: a text or a list of texts"},
      {"[[filler]]\ncommand = \"x\"\nhours = \"25:00-1:00\"\n",
       "fill.toml:3:9: hours: '25:00-1:00' is not a span of hours"},
      {"[[filler]]\ncommand = \"x\"\nyield = \"no\"\n",
       "fill.toml:3:9: yield: 'no': confirm, stop, pause or park would be right"},
      {"[[filler]]\ncommand = \"x\"\nnice = 40\n", "fill.toml:3:8: nice is 40: -20 to 19 would be right"},
      {"[[filler]]\ncommand = \"x\"\nio_class = \"fast\"\n", "fill.toml:3:12: io_class is 'fast'"},
      {"[[filler]]\ncommand = \"x\"\ngpus = []\n", "fill.toml:3:8: gpus names none"},
      {"[[filler]]\ncommand = \"x\"\ngpus = [-1]\n", "gpus is a number such as 0"},
      {"[[filler]]\ncommand = \"x\"\nsignal = \"NIX\"\n", "fill.toml:3:10: signal: "},
      {"[[filler]]\ncommand = \"x\"\nname = \"a\"\n[[filler]]\ncommand = \"x\"\nname = \"a\"\n",
       "there are two fillers called 'a'"},
      {"[filler]\ncommand = \"x\"\n", "fill.toml:1:"},
      {"[[filler]]\ncommand = \"x\"\nmemory = \"20\"\n",
       "fill.toml:3:10: memory = '20' needs a unit: 20GiB or 20MiB would be right"},
      {"[[filler]]\ncommand = \"x\"\nlog_size = 20\n",
       "fill.toml:3:12: log_size = 20 needs a unit: log_size = \"20MiB\" would be right"},
      {"[[filler]]\ncommand = \"x\"\ngrace = 5\n",
       "fill.toml:3:9: grace = 5 needs a unit: grace = \"5s\" would be right"},
      {"confirm = \"5\"\n[[filler]]\ncommand = \"x\"\n",
       "fill.toml:1:11: confirm = '5' needs a unit: 5s, 5m or 5h would be right"},
      {"[people]\nidle = \"soon\"\n", "fill.toml:2:8: idle = "},
  };
  for (const auto& [text, said] : kRows) {
    const auto plan = parse_plan(text, "fill.toml");
    ASSERT_FALSE(plan) << text;
    EXPECT_NE(plan.error().message().find(said), std::string::npos) << plan.error().message() << " for " << text;
  }
}

TEST(PlanFile, WhatKeepsAFillerFromStarting) {
  const auto said = [](const std::string& keys) {
    const auto plan = parse_plan("[[filler]]\nname = \"a\"\n" + keys + "\n", "fill.toml");
    return plan ? obstacles(*plan) : std::vector{plan.error().message()};
  };
  using Lines = std::vector<std::string>;
  const std::string works = "command = \"/bin/true\"\n";
  EXPECT_EQ(said(works), Lines{});
  EXPECT_EQ(said(works + "log = \"/nowhere/at/all/log\""),
            Lines{"a: its log /nowhere/at/all/log: No such file or directory"});
  EXPECT_EQ(said(works + "log = \"/tmp\""), Lines{"a: its log /tmp: Is a directory"});
  EXPECT_EQ(said(works + "directory = \"/nowhere\""), Lines{"a: its directory /nowhere: No such file or directory"});
  EXPECT_EQ(said(works + "user = \"nobody-here\""), Lines{"a: there is no user nobody-here"});
  EXPECT_EQ(said("command = \"/nowhere/train\""), Lines{"a: /nowhere/train: No such file or directory"});
  EXPECT_EQ(said("command = \"/etc/passwd\""), Lines{"a: /etc/passwd: Permission denied"});
  EXPECT_EQ(said("command = \"./true\"\ndirectory = \"/bin\""), Lines{});
}

TEST(PlanFile, TheQuickestSampleIsAllowed) {
  const auto plan = parse_plan("every = \"100ms\"\n[[filler]]\ncommand = \"x\"\n", "fill.toml");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->every, 100ms);
}

}  // namespace
}  // namespace lull
