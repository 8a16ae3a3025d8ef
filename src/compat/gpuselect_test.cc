#include "compat/gpuselect.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using Words = std::vector<std::string>;

GpuselectOptions parsed_select(const Words& words) {
  auto options = parse_gpuselect(words);
  EXPECT_TRUE(options) << options.error().what;
  return options ? *options : GpuselectOptions();
}

Error refused_select(const Words& words) {
  const auto options = parse_gpuselect(words);
  EXPECT_FALSE(options);
  return options ? Error() : options.error();
}

TEST(Gpuselect, DefaultsAreThePredecessors) {
  const GpuselectOptions options = parsed_select({});
  EXPECT_EQ(options.count, 1U);
  EXPECT_TRUE(options.devices.empty());
  EXPECT_FALSE(options.name);
  EXPECT_EQ(options.util + options.processes, 0U);
  EXPECT_FALSE(options.mem_util);
  EXPECT_TRUE(options.command.empty());
}

TEST(Gpuselect, EverySpelling) {
  EXPECT_EQ(parsed_select({"-c", "2"}).count, 2U);
  EXPECT_EQ(parsed_select({"-c2"}).count, 2U);
  EXPECT_EQ(parsed_select({"--count", "2"}).count, 2U);
  EXPECT_EQ(parsed_select({"--count=2"}).count, 2U);
  EXPECT_EQ(parsed_select({"--cou=2"}).count, 2U);
  EXPECT_TRUE(parsed_select({"-qD"}).quiet);
  EXPECT_TRUE(parsed_select({"-qD"}).debug);
  EXPECT_EQ(parsed_select({"-qc3"}).count, 3U);
  EXPECT_EQ(parsed_select({"--mem_util", "10", "--util", "5", "--processes", "1"}).mem_util, 10U);
  EXPECT_EQ(parsed_select({"--name", "A6000"}).name, "A6000");
}

TEST(Gpuselect, NamedDevicesAreAllWanted) {
  EXPECT_EQ(parsed_select({"-d", "0,1"}).count, 2U);
  EXPECT_EQ(parsed_select({"-d", "0,1"}).devices, (std::vector<long>{0, 1}));
  EXPECT_EQ(parsed_select({"-d", "3"}).count, 1U);
  EXPECT_EQ(parsed_select({"-d", "0", "-c", "2"}).count, 2U);
}

TEST(Gpuselect, TellsWhatItWasAskedFor) {
  EXPECT_EQ(gpuselect_asked(parsed_select({})),
            "count=1,devices=None,name=None,util=0,mem_util=0,processes=0,silent=False");
  EXPECT_EQ(gpuselect_asked(parsed_select({"-d", "+1", "-c1", "-u5", "-m", "1_0", "-p2"})),
            "count=1,devices=1,name=None,util=5,mem_util=10,processes=2,silent=False");
  EXPECT_EQ(gpuselect_asked(parsed_select({"-d", "0,1"})),
            "count=1,devices=[0, 1],name=None,util=0,mem_util=0,processes=0,silent=False");
  EXPECT_EQ(gpuselect_warning(parsed_select({"-d", "0,1"})),
            "count=1 but 2 device IDs were specified, setting count=2");
  EXPECT_EQ(gpuselect_warning(parsed_select({"-d", "0,1", "-c2"})), "");
  EXPECT_EQ(gpuselect_warning(parsed_select({"-d", "0"})), "");
}

TEST(Gpuselect, OptionsEndAtTheCommand) {
  const Words job = {"python3", "train.py", "-c", "3", "--", "x"};
  for (Words words : {Words{"-c", "2"}, Words{"-c", "2", "--"}}) {
    words.insert(words.end(), job.begin(), job.end());
    EXPECT_EQ(parsed_select(words).count, 2U);
    EXPECT_EQ(parsed_select(words).command, job);
  }
}

TEST(Gpuselect, MistakesAreToldAsThere) {
  EXPECT_EQ(refused_select({"-c", "0"}).what, "GPU count must be >= 1");
  EXPECT_EQ(refused_select({"-c", "0"}).errno_value, 1);
  EXPECT_EQ(refused_select({"-d", "0", "-n", "A"}).what, "Use only one of 'devices' and 'name' parameters");
  EXPECT_EQ(refused_select({"-u", "-1"}).what, "Utilization/process count thresholds must be >= 0");
  EXPECT_EQ(refused_select({"-c", "x"}).errno_value, 2);
  EXPECT_EQ(refused_select({"-c"}).what, "argument -c/--count: expected one argument");
  EXPECT_EQ(refused_select({"-d", "a,b"}).errno_value, 2);
  EXPECT_EQ(refused_select({"--frob"}).errno_value, 2);
  EXPECT_EQ(refused_select({"-c", "python3", "-S", "x"}).what, "argument -c/--count: invalid int value: 'python3'");
  EXPECT_EQ(refused_select({"-S", "-c", "x"}).what, "argument -c/--count: invalid int value: 'x'")
      << "though -S comes first";
  EXPECT_EQ(refused_select({"-S", "--frob", "-c", "2", "x", "-T"}).what, "unrecognized arguments: -S --frob");
  EXPECT_EQ(parsed_select({"-c", "99999999999999999999"}).count, 1000000U);
  EXPECT_EQ(refused_select({"--quiet=1"}).errno_value, 2);
}

TEST(Gpuselect, SwappedInADeviceBelowZeroIsNoneOfThem) {
  EXPECT_EQ(refused_select({"-d", "-1"}).what, "Invalid device ID -1");
  EXPECT_EQ(refused_select({"-d", "-1"}).errno_value, 1);
  EXPECT_EQ(refused_select({"-d", "0,-2"}).what, "Invalid device ID -2");
}

TEST(Gpuselect, SwappedInRunningIsPrintedAsPythonDoes) {
  EXPECT_EQ(gpuselect_running(Words{"sh", "-c", "exit 3"}), "Running: ['sh', '-c', 'exit 3']");
  EXPECT_EQ(gpuselect_running(Words{"it's", "a\"b'c", "x\\y\n"}), R"(Running: ["it's", 'a"b\'c', 'x\\y\n'])");
}

}  // namespace
}  // namespace lull
