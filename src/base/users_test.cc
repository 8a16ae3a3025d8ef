#include "base/users.h"

#include <gtest/gtest.h>

#include "sense/test_tree.h"

namespace lull {
namespace {

TEST(UserName, ReadsTheFileBeforeAskingAnybody) {
  const TestTree tree;
  tree.write("passwd", "root:x:0:0::/:/bin/sh\nbroken line\nann:x:4242:1:Ann, 2nd floor:/home/ann:/bin/sh\n::7\n");
  EXPECT_EQ(user_name(4242, tree.at("passwd")), "ann");
  EXPECT_EQ(user_name(4294967, tree.at("passwd")), "4294967");
  EXPECT_EQ(user_name(0, tree.at("nothing here")), "root") << "by the name service";
}

}  // namespace
}  // namespace lull
