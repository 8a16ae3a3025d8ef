#include "lease/release.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/fd.h"
#include "lease/folder_test.h"

namespace lull {
namespace {

using Words = std::vector<std::string>;

TEST(ReleaseOptions, ListsAndRangesAreReadAsElsewhere) {
  EXPECT_EQ(*release_options({"2,4, 6", "0-3", "GPU-8932f937", "all"}),
            (Words{"2", "4", "6", "0-3", "GPU-8932f937", "all"}));
}

TEST(ReleaseOptions, WhatCannotBeMeantIsSaid) {
  EXPECT_EQ(release_options({"2,,4"}).error().message(), "'2,,4' has an empty entry: write it as 0,2");
  EXPECT_EQ(release_options({"7-0"}).error().message(), "'7-0' runs backwards: write 0-7");
}

class Releasing : public Lease {
 protected:
  // A child of ours that holds back SIGTERM, so that one that was sent to it can be seen.
  static pid_t fork_one_that_waits() {
    sigset_t term;
    sigset_t before;
    ::sigemptyset(&term);
    ::sigaddset(&term, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &term, &before);
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return child;
  }
  static bool was_asked_to_end(pid_t pid) {
    const auto status = read_file("/proc/" + std::to_string(pid) + "/status");
    return status && status->find("ShdPnd:\t0000000000004000") != std::string::npos;
  }
  Release release_of_one(const LeaseFolder& folder, bool force = false) {
    const auto done = must(release(folder, {"GPU-11111111"}, force));
    EXPECT_EQ(done.size(), 1U);
    return done.empty() ? Release{} : done[0];
  }
};

TEST_F(Releasing, WhetherAHolderInAnotherPidNamespaceLivesIsUnknownSoItsLeaseStays) {
  const LeaseFolder leases = folder();
  LeaseRecord job = record("GPU-11111111");
  job.holder = ProcessMark::of(0);
  job.holder.pid_namespace += 1;
  const LockedFile held = must(leases.take(must(leases.enter()), job));
  const Release kept = release_of_one(leases);
  EXPECT_FALSE(kept.released);
  EXPECT_NE(kept.text.find("cannot be seen from here"), std::string::npos) << kept.text;
  EXPECT_TRUE(release_of_one(leases, true).released);
}

TEST_F(Releasing, AHolderThatIsGoneIsReleasedAndOneThatLivesIsNot) {
  const LeaseFolder leases = folder();
  LeaseRecord job = record("GPU-11111111");
  job.holder = ProcessMark::of(0);
  LockedFile held = must(leases.take(must(leases.enter()), job));
  EXPECT_FALSE(release_of_one(leases).released);
  job.holder.start_ticks += 1;  // that process has ended, and we have its number
  must(leases.rewrite(must(leases.enter()), held, write_record(job)));
  EXPECT_TRUE(release_of_one(leases).released);
}

// The number in the file may be that of a later process, which has nothing to do with the lease.
TEST_F(Releasing, OnlyTheProcessThatTheRecordMeansIsEnded) {
  const LeaseFolder leases = folder();
  for (const bool same : {false, true}) {
    LeaseRecord hold = record("GPU-11111111");
    hold.kind = LeaseKind::hold;
    LockedFile held = must(leases.take(must(leases.enter()), hold));
    const pid_t child = fork_one_that_waits();  // has the file open
    hold.holder = ProcessMark::of(child);
    if (!same) hold.holder.start_ticks += 1;
    must(leases.rewrite(must(leases.enter()), held, write_record(hold)));
    EXPECT_TRUE(release_of_one(leases).released);
    EXPECT_EQ(was_asked_to_end(child), same);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

TEST_F(Releasing, RootMayReleaseWhatIsAnothersAndNobodyElseMay) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a second user";
  const LeaseFolder leases = folder();
  const LockedFile held = must(leases.take(must(leases.enter()), record("GPU-11111111")));
  ASSERT_EQ(::fchown(held.fd.get(), 65534, 65534), 0);
  ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
  const pid_t somebody = ::fork();
  if (somebody == 0) ::_exit(::setresuid(65533, 65533, 65533) != 0 || release_of_one(leases, true).released ? 1 : 0);
  int status = 0;
  ASSERT_EQ(::waitpid(somebody, &status, 0), somebody);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(release_of_one(leases, true).released);
}

// One lease holder may hold several GPUs; what the same user holds by another is no matter.
TEST_F(Releasing, ALeaseHolderEndsWithTheLastLeaseThatItHolds) {
  const LeaseFolder leases = folder();
  std::vector<LockedFile> held;
  for (const char* gpu : {"GPU-11111111", "GPU-22222222", "GPU-33333333"}) {
    LeaseRecord hold = record(gpu);
    hold.kind = LeaseKind::hold;
    held.push_back(must(leases.take(must(leases.enter()), hold)));
  }
  const pid_t child = fork_one_that_waits();  // has the files open
  for (std::size_t i = 0; i < 2; ++i) {
    LeaseRecord hold = record(i == 0 ? "GPU-11111111" : "GPU-22222222");
    hold.kind = LeaseKind::hold;
    hold.holder = ProcessMark::of(child);
    must(leases.rewrite(must(leases.enter()), held[i], write_record(hold)));
  }
  EXPECT_TRUE(release_of_one(leases).released);
  EXPECT_FALSE(was_asked_to_end(child));
  EXPECT_TRUE(must(release(leases, {"GPU-22222222"}, false)).at(0).released);
  EXPECT_TRUE(was_asked_to_end(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(Lease, WhatNobodyHasIsNotReleasedAndThatIsSaid) {
  const LeaseFolder leases = folder();
  const LockedFile file = must(leases.take(must(leases.enter()), record("GPU-1")));
  const auto done = must(release(leases, {"GPU-2", "3-5", "0", "all"}, false));
  ASSERT_EQ(done.size(), 4U);
  EXPECT_EQ(done[0].text, "'GPU-2' names no lease; name a lease by its GPU or UUID, as in `lull leases`");
  EXPECT_EQ(done[1].text, "none of GPUs 3-5 is leased; name a lease by its GPU or UUID, as in `lull leases`");
  EXPECT_EQ(done[2].text, "GPU 0 is not leased; name a lease by its GPU or UUID, as in `lull leases`");
  for (const Release& one : done) EXPECT_FALSE(one.released) << one.text;
  EXPECT_EQ(must(read_leases(place_)).size(), 1U);
}

}  // namespace
}  // namespace lull
