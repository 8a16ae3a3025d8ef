#include "sense/nvml/library.h"

#include <gtest/gtest.h>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

TEST(LibraryPlaces, FoldersThatTheLoaderDoesNotKnow) {
  for (const std::string folder : {"run/opengl-driver/lib", "usr/lib/wsl/lib", "usr/local/nvidia/lib64",
                                   "home/kubernetes/bin/nvidia/lib64", "usr/lib64-nvidia"}) {
    const TestTree tree;
    EXPECT_EQ(find_library("libnvidia-ml.so.1", tree.path()), "");
    tree.write(folder + "/libnvidia-ml.so.1", "");
    EXPECT_EQ(find_library("libnvidia-ml.so.1", tree.path()), tree.at(folder + "/libnvidia-ml.so.1"));
  }
}

TEST(LibraryPlaces, AContainerIsKnownByWhatItsRuntimeLeaves) {
  const TestTree plain;
  EXPECT_FALSE(in_container(plain.path()));
  plain.write("proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n");
  EXPECT_FALSE(in_container(plain.path()));
  plain.write("proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice\n");
  EXPECT_TRUE(in_container(plain.path()));
  for (const std::string mark : {".dockerenv", "run/.containerenv"}) {
    const TestTree tree;
    tree.write(mark, "");
    EXPECT_TRUE(in_container(tree.path())) << mark;
  }
}

TEST(StartWords, SayWhatIsWrongAndWhatHelps) {
  using nvml::Return;
  const auto has = [](Return code, bool container, std::string_view words) {
    return start_text(code, "/lib/x.so", container).find(words) != std::string::npos;
  };
  EXPECT_EQ(start_text(Return::driver_not_loaded, "/lib/x.so", false), "the NVIDIA driver is not loaded");
  EXPECT_TRUE(has(Return::unknown, true, "restart the container")) << "systemctl daemon-reload on the host";
  EXPECT_TRUE(has(Return::unknown, false, "/lib/x.so cannot start: unknown error (999)"));
  for (const Return code : {Return::driver_not_loaded, Return::lib_rm_version_mismatch, Return::no_permission})
    EXPECT_TRUE(has(code, false, to_string(absence_of(code)))) << static_cast<int>(code);
}

}  // namespace
}  // namespace lull
