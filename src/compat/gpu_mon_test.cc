#include "compat/gpu_mon.h"

#include <gtest/gtest.h>
#include <pwd.h>

namespace lull {
namespace {

constexpr std::string_view kPerGpu = R"(
[defaults]
; how frequently perform GPU and tty checks
interval_seconds=10

[gpu-all]
gpus=ALL
ignore_programs=nvidia-smi, Xorg

[process-0]
dir=/tmp
cmd=miner-run --name "my miner"
gpus=0
log=/dev/null

[process-1]
dir=/tmp
cmd=miner-run  
gpus=1,0

[tty]
enabled=True
whitelist=user1,user2
idle_seconds=300
)";

std::string complaint(std::string_view text) {
  const auto read = parse_mon_config(text);
  return read ? "" : read.error().what;
}

TEST(GpuMon, ReadsTheConfigurationOfItsDocument) {
  const auto read = parse_mon_config(kPerGpu);
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->interval_seconds, 10);
  ASSERT_EQ(read->ignored.size(), 1U);
  EXPECT_FALSE(read->ignored[0].gpus);
  EXPECT_EQ(read->ignored[0].programs, (std::vector<std::string>{"nvidia-smi", "Xorg"}));
  ASSERT_EQ(read->processes.size(), 2U);
  EXPECT_EQ(read->processes[0].words, (std::vector<std::string>{"miner-run", "--name", "my miner"}));
  EXPECT_EQ(read->processes[0].log, "/dev/null");
  EXPECT_EQ(read->processes[1].command, "miner-run");
  EXPECT_EQ(read->processes[1].log, "");
  EXPECT_EQ(mon_name(read->processes[1].gpus), "GPUs 0,1");
  EXPECT_TRUE(read->tty_enabled);
  EXPECT_EQ(read->tty_whitelist, (std::vector<std::string>{"user1", "user2"}));
  EXPECT_EQ(read->tty_idle_seconds, 300);
}

TEST(GpuMon, TheLeastThatIsNeededMayBeIndented) {
  const auto read =
      parse_mon_config("\n        [defaults]\n        interval_seconds=123\n\n        [tty]\n        enabled=False\n");
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->interval_seconds, 123);
  EXPECT_TRUE(read->ignored.empty());
  EXPECT_TRUE(read->processes.empty());
  EXPECT_FALSE(read->tty_enabled);
  EXPECT_EQ(read->tty_idle_seconds, 0);
}

TEST(GpuMon, TakesNumbersAsPythonDoes) {
  const auto read =
      parse_mon_config("[defaults]\ninterval_seconds=+1_0\n[process]\ngpus=+0, 1\ndir=/\ncmd=x\n[tty]\nenabled=no\n");
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->interval_seconds, 10);
  EXPECT_EQ(read->processes[0].gpus, (std::set<unsigned>{0, 1}));
}

TEST(GpuMon, SaysWhereAMistakeIs) {
  EXPECT_EQ(complaint(""), "there is no section [defaults]");
  EXPECT_EQ(complaint("[defaults]\n"), "line 1: section [defaults] lacks 'interval_seconds'");
  EXPECT_EQ(complaint("[defaults]\ninterval_seconds=soon\n"),
            "line 2: interval_seconds=soon: must be a whole number of seconds from 0 to 31536000");
  const std::string good = "[defaults]\ninterval_seconds=1\n";
  EXPECT_EQ(complaint(good), "there is no section [tty]");
  EXPECT_EQ(complaint(good + "[tty]\nenabled=maybe\n"),
            "line 4: enabled=maybe: must be yes or no (also true, false, on, off, 1, 0)");
  EXPECT_EQ(complaint(good + "[process]\ngpus=0;1\n"),
            "line 4: gpus=0;1: must be ALL or numbers of GPUs with commas between them");
  EXPECT_EQ(complaint(good + "[process]\ngpus=4294967296\n"),
            "line 4: gpus=4294967296: must be ALL or numbers of GPUs with commas between them");
  EXPECT_EQ(complaint(good + "[process]\ngpus=all\ndir=/\ncmd='x\n"), "line 6: cmd='x: a ' is not closed");
  EXPECT_EQ(complaint(good + "[process]\ngpus=all\ndir=/\ncmd=\n"), "line 6: cmd=: names no program");
  EXPECT_EQ(complaint(good + "[gpu]\ngpus=all\n"), "line 3: section [gpu] lacks 'ignore_programs'");
}

TEST(GpuMon, TakesItsOwnOptions) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(parse_mon(Words{})->file, "~/.config/gpu_mon.conf");
  EXPECT_EQ(parse_mon(Words{"-cx"})->file, "x");
  EXPECT_EQ(parse_mon(Words{"--con", "y"})->file, "y");
  EXPECT_TRUE(parse_mon(Words{"-h"})->help);
  EXPECT_EQ(parse_mon(Words{"z"}).error().what, "unrecognized arguments: z");
  EXPECT_EQ(parse_mon(Words{"-c"}).error().what, "argument -c/--conf: expected one argument");
}

TEST(GpuMon, WritesItsLinesAsItDid) {
  EXPECT_EQ(mon_line("2024-03-15 11:04:29,052", "INFO", "gpu_mon", "GPUs detected: "),
            "2024-03-15 11:04:29,052 INFO gpu_mon        GPUs detected: \n");
  EXPECT_EQ(mon_name({}), "all GPUs");
  EXPECT_EQ(mon_name(std::set<unsigned>{3}), "GPU 3");
  EXPECT_EQ(mon_gpu("/dev/nvidia0", 0), "GPUInfo(file_name='/dev/nvidia0', id=0)");
  EXPECT_EQ(mon_process("/dev/nvidia0", 0, 12, "py\n"),
            "ProcInfo(file_name='/dev/nvidia0', gpu_id=0, pid=12, name='py ')");
}

TEST(GpuMon, ATildeIsAHome) {
  EXPECT_EQ(expand_user("/a/~"), "/a/~");
  EXPECT_EQ(expand_user("~root/x"), std::string(::getpwnam("root")->pw_dir) + "/x");
  EXPECT_EQ(expand_user("~nobody-of-that-name/x"), "~nobody-of-that-name/x");
}

}  // namespace
}  // namespace lull
