// Slurm jobs to which nothing is done, or of which a node does not know enough, on injected time.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "session/each_slurm_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST_F(EachSlurmTest, NoCommandIsRunForAnInteractiveJobThatIsLeftAlone) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0});
  using Interactive = slurm::ActPolicy::Interactive;
  for (const Interactive interactive : {Interactive::leave, Interactive::cancel})
    for (const std::string action : {"exec=true", "mail=ada"}) {
      FakeWorld world(with_util(idle));
      world.answer_command = [&, slurm = running()](const std::vector<std::string>& command) {
        return command[0] == "squeue" ? done(row("n1", 1, "0")) : slurm(command);
      };
      EachSettings made = settings(action);
      made.slurm->policy.interactive = interactive;
      Listening sink;
      run_for(std::move(made), world, sink, 2min);
      EXPECT_EQ(world.count(action), interactive == Interactive::leave && action == "exec=true" ? 0U : 1U) << action;
    }
}

// Shards and MPS: the job has no GPU of its own here, and may work all the same.
TEST_F(EachSlurmTest, ANodeWithAJobThatSharesGpusSaysThatItIsUnknown) {
  give({.job = 22, .gpus = {}, .shares_gpus = true, .nodes = "n1", .restarts = 0});
  give({.job = 23, .gpus = {}, .nodes = "n1", .restarts = 0});
  FakeWorld world(with_util(idle));
  Listening sink;
  EachSession session(settings(), world, sink);
  std::map<std::uint64_t, slurm::Answer> heard;
  world.loop().at(Instant(120s), [&] {
    for (const std::uint64_t job : {22, 23})
      heard[job] = session.on_slurm_question(0, {job, "n1", to_text(settings().steps[0].when)});
    world.send(SIGTERM);
  });
  (void)session.run();
  EXPECT_EQ(heard[22].says, slurm::Says::unknown);
  EXPECT_NE(heard[22].why.find("which GPUs it shares"), std::string::npos) << heard[22].why;
  EXPECT_EQ(heard[23].says, slurm::Says::yes) << "it has none: " << heard[23].why;
}

TEST_F(EachSlurmTest, TheSluidsOfAllocationsNameJobs) {
  give({.job = 22, .gpus = {0}, .nodes = "n1", .restarts = 0, .sluid = "s8FXKTA79XAR00"});
  give({.job = 23, .gpus = {1}, .nodes = "n1", .restarts = 0});
  SlurmJobs jobs(*settings().slurm);
  (void)jobs.look(Instant(1s), WallTime(100s));
  EXPECT_EQ(jobs.sluids(), (std::map<std::string, std::uint64_t>{{"s8FXKTA79XAR00", 22}}));
}

}  // namespace
}  // namespace lull
