#include "slurm/node_list.h"

#include <gtest/gtest.h>

namespace lull::slurm {
namespace {

using Names = std::vector<std::string>;

TEST(NodeList, IsWrittenOutAsSlurmMeansIt) {
  EXPECT_EQ(*parse_node_list("gpu1"), Names{"gpu1"});
  EXPECT_EQ(*parse_node_list("gpu1,login"), (Names{"gpu1", "login"}));
  EXPECT_EQ(*parse_node_list("gpu[1-3,7],login"), (Names{"gpu1", "gpu2", "gpu3", "gpu7", "login"}));
  EXPECT_EQ(*parse_node_list("n[08-11]"), (Names{"n08", "n09", "n10", "n11"}));
  EXPECT_EQ(*parse_node_list("r[1-2]n[1-2]-ib"), (Names{"r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"}));
  EXPECT_EQ(parse_node_list("n[1-64]")->size(), 64U);
}

TEST(NodeList, WhatIsNoneIsRefused) {
  for (const char* text : {"", ",", "gpu[1-3", "gpu1]", "gpu[3-1]", "gpu[a-b]", "gpu[]", "gpu[[1]]", "a b",
                           "gpu1,,gpu2", "n[1-99999999]", "n[1-9999][1-9999]", "gpu[1-]", "(null) x"})
    EXPECT_FALSE(parse_node_list(text)) << text;
}

}  // namespace
}  // namespace lull::slurm
