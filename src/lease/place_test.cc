#include "lease/folder.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

namespace lull {
namespace {

namespace fs = std::filesystem;
// Nobody else's, in a test that runs beside this one: its folder is /tmp/lull-UID.
uid_t somebody() { return 300000 + static_cast<uid_t>(::getpid()); }

// Runs it as a user who is not root, with nothing set but this; what it returns is expected to be 0.
int as_somebody(const std::string& runtime, const std::function<int()>& body) {
  const uid_t user = somebody();
  const pid_t child = ::fork();
  if (child == 0) {
    for (const char* name : {"LULL_LEASES", "LULL_SIM", "XDG_RUNTIME_DIR"}) ::unsetenv(name);
    if (!runtime.empty()) ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
    ::_exit(::setresuid(user, user, user) != 0 ? 99 : body());
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
    ASSERT_EQ(::chown(runtime_.c_str(), somebody(), somebody()), 0);
  }
  void TearDown() override {
    if (!runtime_.empty()) fs::remove_all(runtime_);
    fs::remove_all(own());
  }
  static std::string own() { return "/tmp/lull-" + std::to_string(somebody()); }
  std::string runtime_;
};

TEST_F(WithoutSharedFolder, AUserWhoIsNotRootHasOneAlone) {
  EXPECT_EQ(
      as_somebody("",
                  [] {
                    const LeasePlace place = LeasePlace::of_environment();
                    if (!place.alone ||
                        (!place.container && place.caveat().find("other users do not look into") == std::string::npos))
                      return 1;
                    const auto folder = LeaseFolder::open(place);
                    if (!folder) return 2;
                    LeaseRecord record;
                    record.gpu = "GPU-1";
                    const auto folder_lock = folder->enter();
                    if (!folder_lock) return 3;
                    const auto lock = folder->take(*folder_lock, record);
                    if (!lock) return 4;
                    return read_leases(LeasePlace::of_environment())->size() == 1 ? 0 : 5;
                  }),
      0);
  EXPECT_EQ(fs::status(own()).permissions(), fs::perms::owner_all);
}

// In a session, in cron and after su: two folders would be the same GPU twice.
TEST_F(WithoutSharedFolder, ItIsTheSameOneWhateverTheRuntimeFolder) {
  for (const std::string& runtime : {runtime_, std::string()})
    EXPECT_EQ(as_somebody(runtime,
                          [] {
                            const LeasePlace place = LeasePlace::of_environment();
                            return place.alone && place.path == "/tmp/lull-" + std::to_string(::geteuid()) ? 0 : 1;
                          }),
              0);
}

TEST_F(WithoutSharedFolder, OneThatOthersCanWriteToOrThatIsNotOursIsRefused) {
  const auto refused = [] { return LeaseFolder::open(LeasePlace::of_environment()) ? 1 : 0; };
  fs::create_directory(own());
  EXPECT_EQ(as_somebody("", refused), 0) << "it is root's";
  ASSERT_EQ(::chown(own().c_str(), somebody(), somebody()), 0);
  fs::permissions(own(), fs::perms::all);
  EXPECT_EQ(as_somebody("", refused), 0) << "others can write to it";
  fs::remove_all(own());
  fs::create_directory_symlink(runtime_, own());
  EXPECT_EQ(as_somebody("", refused), 0) << "it is a link";
}

// Everybody may make it in /tmp: that keeps nobody from being watched.
TEST_F(WithoutSharedFolder, WhereSomebodyElseSitsOnItsNameThereAreNoLeases) {
  fs::create_directory(own());
  EXPECT_EQ(as_somebody("",
                        [] {
                          const auto leases = read_leases(LeasePlace::of_environment());
                          return leases && leases->empty() ? 0 : 1;
                        }),
            0);
  ASSERT_EQ(::chown(own().c_str(), somebody(), somebody()), 0);
  fs::permissions(own(), fs::perms::all);
  EXPECT_EQ(as_somebody("", [] { return read_leases(LeasePlace::of_environment()) ? 1 : 0; }), 0)
      << "ours, but others could write to it";
}

TEST_F(WithoutSharedFolder, RootMakesTheSharedOne) {
  const char* set = std::getenv("LULL_LEASES");
  if (set != nullptr || std::getenv("LULL_SIM") != nullptr) GTEST_SKIP() << "a folder is named";
  const LeasePlace place = LeasePlace::of_environment();
  EXPECT_EQ(place.path, "/run/lull");
  EXPECT_TRUE(place.shared_default && !place.alone);
  EXPECT_EQ(place.caveat().empty(), !place.container);
}

constexpr std::uint64_t kHostPids = 0xEFFFFFFC;
const std::string kDisk = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";
const std::string kOverlay = "600 500 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/a:/b\n";
const std::string kRun = "610 600 0:60 / /run rw,nosuid - tmpfs tmpfs rw\n";
const std::string kShared = "620 610 0:25 /lull /run/lull rw,nosuid shared:5 - tmpfs tmpfs rw\n";

TEST(Container, WithoutTheHostsFolderHasLeasesOfItsOwn) {
  EXPECT_TRUE((ContainerSigns{4026532000, true, kOverlay + kRun}.has_own_leases()));
  EXPECT_TRUE((ContainerSigns{4026532000, false, kDisk}.has_own_leases())) << "LXC, nspawn";
  EXPECT_TRUE((ContainerSigns{kHostPids, true, kOverlay}.has_own_leases())) << "docker run --pid=host";
  EXPECT_FALSE((ContainerSigns{4026532000, true, kOverlay + kRun + kShared}.has_own_leases()));
  EXPECT_FALSE((ContainerSigns{kHostPids, true, kOverlay + kShared}.has_own_leases()));
}

TEST(Container, AHostIsNone) {
  EXPECT_FALSE((ContainerSigns{kHostPids, false, ""}.has_own_leases()));
  EXPECT_FALSE((ContainerSigns{kHostPids, true, kDisk}.has_own_leases())) << "a machine made of a container's image";
  EXPECT_FALSE((ContainerSigns{kHostPids, false, kOverlay}.has_own_leases())) << "a node without a disk";
  EXPECT_FALSE((ContainerSigns{0, false, "damaged\n\n- \n"}.has_own_leases())) << "what cannot be read is no sign";
}

// Its mounts tell whether it has the host's folder.
TEST(Container, OfAnotherPidNamespaceTheMountsAreRead) {
  constexpr int kNoNamespace = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(kNoNamespace);
    const pid_t first = ::fork();
    if (first == 0) ::_exit(ContainerSigns::of_this_process().mounts.empty() ? 1 : 0);
    int status = 0;
    ::_exit(::waitpid(first, &status, 0) == first && status == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kNoNamespace) GTEST_SKIP() << "no namespaces here";
  EXPECT_EQ(status, 0);
}

// With hostPID the pid namespace of a pod is its node's.
TEST(Container, APodIsMarkedByKubernetes) {
  enum : int { kMarked, kNotMarked, kNoNamespace, kMarkedBefore };
  const auto in_child = [](const auto& make_pod) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (ContainerSigns::of_this_process().marked) ::_exit(kMarkedBefore);
      if (!make_pod()) ::_exit(kNoNamespace);
      ::_exit(ContainerSigns::of_this_process().marked ? kMarked : kNotMarked);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  };
  const int by_address = in_child([] { return ::setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1) == 0; });
  if (by_address == kMarkedBefore) GTEST_SKIP() << "this is a container";
  EXPECT_EQ(by_address, kMarked);
  const int by_secrets = in_child([] {
    std::error_code error;
    return ::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("tmpfs", "/run", "tmpfs", 0, nullptr) == 0 &&
           fs::create_directories("/var/run/secrets/kubernetes.io", error);
  });
  if (by_secrets != kNoNamespace) {
    EXPECT_EQ(by_secrets, kMarked);
  }
}

TEST(Container, IsToldHowToShareTheHostsFolder) {
  LeasePlace place{"/run/lull", true};
  place.container = true;
  EXPECT_EQ(place.caveat(),
            "this container leases GPUs in a folder of its own (/run/lull): the host and other containers may get the "
            "same GPU; share the host's with: docker run -v /run/lull:/run/lull");
}

}  // namespace
}  // namespace lull
