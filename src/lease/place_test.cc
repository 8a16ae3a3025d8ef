#include "lease/place.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "lease/folder.h"

namespace lull {
namespace {

namespace fs = std::filesystem;
constexpr uid_t kSomebody = 54321;

// Runs it as a user who is not root, with nothing set but this; what it returns is expected to be 0.
int as_somebody(const std::string& runtime, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const char* name : {"LULL_LEASES", "LULL_SIM", "XDG_RUNTIME_DIR"}) ::unsetenv(name);
    if (!runtime.empty()) ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
    ::_exit(::setresuid(kSomebody, kSomebody, kSomebody) != 0 ? 99 : body());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class WithoutSharedFolder : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs a second user";
    if (fs::exists("/run/lull")) GTEST_SKIP() << "this machine has a lease folder";
    std::string pattern = "/tmp/lull-place-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    runtime_ = pattern;
    ASSERT_EQ(::chown(runtime_.c_str(), kSomebody, kSomebody), 0);
  }
  void TearDown() override {
    if (!runtime_.empty()) fs::remove_all(runtime_);
  }
  std::string runtime_;
};

TEST_F(WithoutSharedFolder, AUserWhoIsNotRootHasOneAlone) {
  EXPECT_EQ(as_somebody(runtime_,
                        [] {
                          const LeasePlace place = LeasePlace::of_environment();
                          if (!place.alone || place.caveat().find("other users do not look into") == std::string::npos)
                            return 1;
                          const auto folder = LeaseFolder::open(place);
                          if (!folder) return 2;
                          LeaseRecord record;
                          record.gpu = "GPU-1";
                          const auto door = folder->enter();
                          if (!door) return 3;
                          const auto lock = folder->take(*door, record);
                          if (!lock) return 4;
                          return read_leases(LeasePlace::of_environment())->size() == 1 ? 0 : 5;
                        }),
            0);
  EXPECT_EQ(fs::status(runtime_ + "/lull").permissions(), fs::perms::owner_all);
}

TEST_F(WithoutSharedFolder, OneThatOthersCanWriteToIsRefused) {
  fs::create_directory(runtime_ + "/lull");
  ASSERT_EQ(::chown((runtime_ + "/lull").c_str(), kSomebody, kSomebody), 0);
  fs::permissions(runtime_ + "/lull", fs::perms::all);
  EXPECT_EQ(as_somebody(runtime_, [] { return LeaseFolder::open(LeasePlace::of_environment()) ? 1 : 0; }), 0);
}

TEST_F(WithoutSharedFolder, ARuntimeFolderOfSomebodyElseIsNotUsed) {
  ASSERT_EQ(::chown(runtime_.c_str(), 0, 0), 0);
  EXPECT_EQ(as_somebody(runtime_,
                        [] {
                          const LeasePlace place = LeasePlace::of_environment();
                          return place.alone && place.path == "/tmp/lull-" + std::to_string(kSomebody) ? 0 : 1;
                        }),
            0);
}

TEST_F(WithoutSharedFolder, RootMakesTheSharedOne) {
  const char* set = std::getenv("LULL_LEASES");
  if (set != nullptr || std::getenv("LULL_SIM") != nullptr) GTEST_SKIP() << "a folder is named";
  const LeasePlace place = LeasePlace::of_environment();
  EXPECT_EQ(place.path, "/run/lull");
  EXPECT_TRUE(place.shared_default && !place.alone && place.caveat().empty());
}

}  // namespace
}  // namespace lull
