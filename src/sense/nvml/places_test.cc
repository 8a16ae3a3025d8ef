#include "sense/nvml/places.h"

#include <gtest/gtest.h>

#include "sense/test_tree.h"

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

}  // namespace
}  // namespace lull
