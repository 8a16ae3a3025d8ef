#include "base/users.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "sense/file_tree_test.h"

namespace {
constexpr uid_t kSlow = 100'555;
}

// A name service that hangs for one user.
extern "C" int getpwuid_r(uid_t uid, passwd* entry, char* buffer, size_t size, passwd** found) {
  if (uid == kSlow) ::sleep(20);
  using Function = int (*)(uid_t, passwd*, char*, size_t, passwd**);
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getpwuid_r"))(uid, entry, buffer, size, found);
}

namespace lull {
namespace {

TEST(UserName, ReadsTheFileBeforeAskingAnybody) {
  const TestTree tree;
  tree.write("passwd", "root:x:0:0::/:/bin/sh\nbroken line\nann:x:4242:1:Ann, 2nd floor:/home/ann:/bin/sh\n::7\n");
  EXPECT_EQ(user_name(4242, {.passwd = tree.at("passwd")}), "ann");
  EXPECT_EQ(user_name(4294967, {.passwd = tree.at("passwd")}), "4294967");
  EXPECT_EQ(user_name(0, {.passwd = tree.at("nothing here")}), "root") << "by the name service";
}

TEST(Users, ASubordinateUidBelongsToItsUser) {
  const TestTree tree;
  const UserFiles files{.passwd = tree.at("passwd"), .subuid = tree.at("subuid")};
  tree.write("passwd", "root:x:0:0::/:/bin/sh\nada:x:1000:1::/:/bin/sh\nbob:x:1001:1::/:/bin/sh\n");
  tree.write("subuid",
             "ada:100000:65536\n1001:165536:65536\nnobody-here:300000:10\nbad line\nada:x:y\nroot:1000:1\n"
             "bob:400000:10\nada:400005:10\nbob:4294967290:4294967295\n");
  EXPECT_EQ(owner_of(100'000, files), 1000U);
  EXPECT_EQ(owner_of(165'535, files), 1000U);
  EXPECT_EQ(owner_of(165'536, files), 1001U) << "by number";
  EXPECT_EQ(owner_of(231'072, files), 231'072U) << "behind the range";
  EXPECT_EQ(owner_of(99'999, files), 99'999U);
  EXPECT_EQ(owner_of(300'003, files), 300'003U) << "of nobody whom the file knows";
  EXPECT_EQ(owner_of(1000, files), 1000U) << "ada has a name of her own, whatever range she is in";
  EXPECT_EQ(owner_of(0, files), 0U);
  EXPECT_EQ(owner_of(400'007, files), 400'007U) << "of two: of neither for sure";
  EXPECT_TRUE(belongs_to(400'007, 1000, files));
  EXPECT_TRUE(belongs_to(400'007, 1001, files));
  EXPECT_TRUE(belongs_to(100'999, 1000, files));
  EXPECT_FALSE(belongs_to(100'999, 1001, files));
  EXPECT_FALSE(belongs_to(1000, 0, files));
  EXPECT_EQ(user_name(100'999, files), "ada (subuid 100999)");
  EXPECT_EQ(user_name(1001, files), "bob");
}

TEST(Users, SubordinateUidsAreReadAgainWhenTheFileChanges) {
  const TestTree tree;
  const UserFiles files{.passwd = tree.at("passwd"), .subuid = tree.at("subuid")};
  tree.write("passwd", "ada:x:1000:1::/:/bin/sh\n");
  EXPECT_EQ(owner_of(100'999, files), 100'999U) << "there is no such file";
  tree.write("subuid", "ada:100000:65536\n");
  EXPECT_EQ(owner_of(100'999, files), 1000U);
  tree.write("subuid", "ada:900000:65536\n# less\n");
  EXPECT_EQ(owner_of(100'999, files), 100'999U);
}

TEST(Users, ANameServiceThatHangsIsNotWaitedFor) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "TSan has a thread in each process; a process with threads asks without a limit";
#endif
  const TestTree tree;
  const UserFiles files{.passwd = tree.at("passwd"), .subuid = tree.at("subuid")};
  tree.write("passwd", "ada:x:1000:1::/:/bin/sh\nbob:x:1001:1::/:/bin/sh\n");
  tree.write("subuid", "ada:100000:65536\n");
  // In a child: the name service is not asked for a while then.
  const pid_t child = ::fork();
  if (child == 0) {
    const SystemClock clock;
    const Instant began = clock.now();
    for (int i = 0; i < 10; ++i) EXPECT_EQ(user_name(kSlow, files), "100555");
    EXPECT_EQ(owner_of(kSlow, files), kSlow) << "it may have a name of its own";
    EXPECT_TRUE(belongs_to(kSlow, 1000, files)) << "and may be hers";
    EXPECT_FALSE(belongs_to(kSlow, 1001, files));
    EXPECT_EQ(user_name(kSlow + 1, files), "100556") << "nobody is asked now";
    EXPECT_EQ(user_name(1000, files), "ada");
    EXPECT_LT(clock.now() - began, std::chrono::seconds(5));
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lull
