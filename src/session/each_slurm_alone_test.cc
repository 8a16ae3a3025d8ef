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


}  // namespace
}  // namespace lull
