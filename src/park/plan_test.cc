#include "park/plan.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace lull {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;

class ParkPlan : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "plan-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
    root_.proc = path_ + "/proc";
    root_.sys = path_ + "/sys";
    record_.processes = {{7, 1, {{"GPU-a", "0", 100 * kMiB}}}, {8, 1, {{"GPU-b", "1", 100 * kMiB}}}};
    write("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable:   900000 kB\n");
    write("proc/7/cgroup", "0::/a/b\n");
    write("proc/8/cgroup", "0::/a\n");
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = path_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string objection() {
    const auto well = check_host_memory(record_, root_);
    return well ? "" : well.error().message();
  }

  std::string path_;
  Root root_;
  ParkRecord record_;
};

TEST_F(ParkPlan, MemoryOfTheMachineMustBeKnownAndEnough) {
  EXPECT_EQ(objection(), "");
  write("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable:   400000 kB\n");
  EXPECT_NE(objection().find("the machine has"), std::string::npos);
  write("proc/meminfo", "MemTotal: 1000000 kB\n");
  EXPECT_NE(objection().find("cannot be read"), std::string::npos);
}

TEST_F(ParkPlan, EveryCgroupAboveTheProcessesTakesTheirMemory) {
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(objection(), "");
  write("sys/fs/cgroup/a/memory.max", std::to_string(500 * kMiB));
  EXPECT_NE(objection().find("cannot be read"), std::string::npos) << "what it uses is not known";
  write("sys/fs/cgroup/a/memory.current", std::to_string(40 * kMiB));
  EXPECT_EQ(objection(), "") << "456 of 460 MiB";
  write("sys/fs/cgroup/a/memory.current", std::to_string(100 * kMiB));
  EXPECT_NE(objection().find("its cgroup has"), std::string::npos);
  write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file " + std::to_string(90 * kMiB) + "\n");
  EXPECT_EQ(objection(), "") << "the kernel gives back what is cached";
  write("proc/7/cgroup", "0::/../b\n");
  EXPECT_NE(objection().find("cannot be seen"), std::string::npos);
}

TEST_F(ParkPlan, LimitsOfTheFirstVersionCount) {
  write("proc/7/cgroup", "5:cpu,memory:/x\n0::/\n");
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", std::to_string(200 * kMiB));
  write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1");
  EXPECT_NE(objection().find("its cgroup has"), std::string::npos);
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(objection(), "");
}

TEST(ParkTarget, OneJobOrSeveralProcesses) {
  const auto several = ParkTarget::parse({"7@12", "8@13+", "9"});
  ASSERT_TRUE(several);
  ASSERT_EQ(several->processes.size(), 3U);
  EXPECT_TRUE(several->processes[0].alone);
  EXPECT_FALSE(several->processes[1].alone);
  EXPECT_EQ(several->processes[1].start_ticks, 13U);
  EXPECT_FALSE(several->processes[2].start_ticks);
  EXPECT_EQ(ParkTarget::parse({"slurm:22"})->job, "slurm:22");
  for (const auto& words :
       std::vector<std::vector<std::string>>{{}, {"7", "slurm:22"}, {"7@"}, {"7@x"}, {"7@+"}, {"a", "b"}})
    EXPECT_FALSE(ParkTarget::parse(words));
}

}  // namespace
}  // namespace lull
