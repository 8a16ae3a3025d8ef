#include "act/determined.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace lull {
namespace {

using Words = std::vector<std::string>;

Variable variables(std::map<std::string, std::string> all) {
  return [all = std::move(all)](const char* name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(found->second);
  };
}

class Determined : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lull-determined-" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ + "/" + name) << text; }

  std::string folder_;
};

TEST_F(Determined, SwappedInTaskByItsEnvironment) {
  EXPECT_FALSE(determined_task(variables({}), folder_));
  EXPECT_FALSE(determined_task(variables({{"DET_TASK_TYPE", "SHELL"}}), folder_));
  const auto shell = determined_task(variables({{"DET_TASK_TYPE", "SHELL"}, {"DET_TASK_ID", "17-ab"}}), folder_);
  ASSERT_TRUE(shell);
  EXPECT_EQ(*determined_kill(*shell), (Words{"det", "shell", "kill", "17-ab"}));
}

TEST_F(Determined, SwappedInTrialGoesByItsOwnNumber) {
  const auto trial = determined_task(
      variables({{"DET_TASK_TYPE", "TRIAL"}, {"DET_TASK_ID", "9.77"}, {"DET_TRIAL_ID", "42"}}), folder_);
  ASSERT_TRUE(trial);
  EXPECT_EQ(*determined_kill(*trial), (Words{"det", "trial", "kill", "42"}));
  const auto nameless = determined_task(variables({{"DET_TASK_TYPE", "TRIAL"}, {"DET_TASK_ID", "9.77"}}), folder_);
  ASSERT_TRUE(nameless);
  EXPECT_NE(determined_kill(*nameless).error().message().find("DET_TRIAL_ID"), std::string::npos);
  write("trial.json", R"({"trial_id": 43, "experiment_id": 5})");
  EXPECT_EQ(*determined_kill(*determined_task(variables({{"DET_TASK_TYPE", "TRIAL"}, {"DET_TASK_ID", "9"}}), folder_)),
            (Words{"det", "trial", "kill", "43"}));
}

TEST_F(Determined, SwappedInGarbageCollectionCannotBeKilled) {
  const auto task = determined_task(variables({{"DET_TASK_TYPE", "CHECKPOINT_GC"}, {"DET_TASK_ID", "1"}}), folder_);
  ASSERT_TRUE(task);
  EXPECT_NE(determined_kill(*task).error().message().find("cannot be killed"), std::string::npos);
}

TEST_F(Determined, SwappedInClusterFileIsReadToo) {
  write("cluster.json", R"({"master_url": "http://m", "task_id": "n-1", "task_type": "NOTEBOOK", "slot_ids": [0]})");
  const auto task = determined_task(variables({}), folder_);
  ASSERT_TRUE(task);
  EXPECT_EQ(*determined_kill(*task), (Words{"det", "notebook", "kill", "n-1"}));
  for (const char* broken : {"", "{", "[]", "7", R"({"task_id": ["x"], "task_type": {}})"}) {
    write("cluster.json", broken);
    EXPECT_FALSE(determined_task(variables({}), folder_)) << broken;
  }
}

TEST_F(Determined, WordsThatAreNoTaskAreNotRun) {
  for (const DeterminedTask& task :
       {DeterminedTask{"SHELL", "1; reboot", ""}, DeterminedTask{"SHELL", "--all", ""}, DeterminedTask{"a b", "1", ""}})
    EXPECT_FALSE(determined_kill(task)) << task.id;
  EXPECT_EQ(shell_line({"det", "it's", "a b"}), "det 'it'\\''s' 'a b'");
}

}  // namespace
}  // namespace lull
