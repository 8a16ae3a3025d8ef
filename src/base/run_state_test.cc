#include "base/process.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

bool within_5_seconds(const std::function<bool()>& is_so) {
  for (int i = 0; i < 500; ++i) {
    if (is_so()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

TEST(RunState, AProcessWhoseMainThreadHasEndedIsStoppedWhenItsWorkerIs) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    pthread_t worker{};
    ::pthread_create(
        &worker, nullptr,
        [](void*) -> void* {
          for (;;) ::pause();
        },
        nullptr);
    ::syscall(SYS_exit, 0);  // the main thread alone
  }
  const auto entry = [&] { return read_process_entry(child).value_or(ProcessEntry{}); };
  EXPECT_TRUE(within_5_seconds([&] { return entry().state == 'Z' && entry().threads > 1; }));
  EXPECT_FALSE(is_stopped(entry()));
  EXPECT_TRUE(within_5_seconds([&] { return run_state(entry()) == 'S'; })) << "once the worker waits";
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(within_5_seconds([&] { return is_stopped(entry()); }));
  EXPECT_EQ(entry().state, 'Z') << "the main thread's state does not tell";
  ::kill(child, SIGCONT);
  EXPECT_TRUE(within_5_seconds([&] { return !is_stopped(entry()); }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

std::string line(const std::string& pid, const std::string& state) {
  return pid + " (x) " + state + " 1 1 1 0 0 0 0 0 0 0 1 0 0 0 20 0 3 0 77 0 0\n";
}

TEST(RunState, OneThreadThatCanRunIsEnough) {
  const TestTree tree;
  tree.write("proc/10/stat", line("10", "Z"));
  tree.write("proc/10/task/10/stat", line("10", "Z"));
  tree.write("proc/10/task/11/stat", line("11", "T"));
  tree.write("proc/10/task/12/stat", line("12", "t"));
  const auto entry = read_process_entry(10, tree.root());
  ASSERT_TRUE(entry && !entry->ended());
  EXPECT_EQ(run_state(*entry, tree.root()), 't');
  EXPECT_TRUE(is_stopped(*entry, tree.root()));
  tree.write("proc/10/task/12/stat", line("12", "R"));
  EXPECT_FALSE(is_stopped(*entry, tree.root()));
  tree.write("proc/10/task/12/stat", "");  // it ends while we look
  EXPECT_TRUE(is_stopped(*entry, tree.root()));
  EXPECT_FALSE(is_stopped(*entry)) << "where its threads cannot be seen, nothing is known of them";
}

TEST(RunState, IsTheLeadersWhereThatIsAlive) {
  ProcessEntry one;
  for (const char state : {'R', 'S', 'D', 'I'}) {
    one.state = state;
    EXPECT_FALSE(is_stopped(one));
  }
  one.state = 'T';
  EXPECT_TRUE(is_stopped(one));
  one.state = 't';
  EXPECT_TRUE(is_stopped(one));
  one.state = 'Z';
  EXPECT_FALSE(is_stopped(one)) << "it has ended";
}

}  // namespace
}  // namespace lull
