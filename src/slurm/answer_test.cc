// Nothing is agreed unless each node has said yes, for the same run of the job, by a sample of now.

#include "slurm/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

Answer yes(std::string node, unsigned restarts = 0) {
  return {
      .job = 22, .node = std::move(node), .says = Says::yes, .restarts = restarts, .age = 1s, .every = 5s, .held = 2h};
}
std::string lines(const std::vector<Answer>& answers) {
  std::string text;
  for (const Answer& one : answers) text += to_line(one) + "\n";
  return text;
}
const std::vector<std::string> kTwo = {"gpu1", "gpu2"};

TEST(Answer, IsReadAsItWasWritten) {
  Answer one = yes("gpu1", 3);
  one.says = Says::no;
  one.yes_in = 90s;
  one.why = "GPU 1 util=90 % is busy";
  EXPECT_EQ(read_answer(to_line(one)), one);
  EXPECT_EQ(read_answer(to_line(yes("gpu2"))), yes("gpu2"));
  one.gpus = 2;
  one.numbers = {0, 3};
  EXPECT_EQ(read_answer(to_line(one)), one);
  one.gpus.reset();
  EXPECT_EQ(to_json(one),
            "{\"job\":22,\"node\":\"gpu1\",\"says\":\"no\",\"restarts\":3,\"gpus\":null,\"sample_age_seconds\":1,"
            "\"interval_seconds\":5,\"held_seconds\":7200,\"yes_in_seconds\":90,\"reason\":\"GPU 1 util=90 % is "
            "busy\"}");
}

TEST(Answer, WhatIsNoneIsNotRead) {
  const std::string good = to_line(yes("gpu1"));
  for (std::size_t cut = 0; cut + 8 < good.size(); ++cut) EXPECT_FALSE(read_answer(good.substr(0, cut))) << cut;
  for (const char* text : {"", "yes", "lull-answer", "lull-answer job=22 node=gpu1 says=yes",
                           "lull-answer job=22 node=gpu1 says=yes says=yes restarts=0 age=1 every=5 held=1 why=",
                           "lull-answer job=22 node=gpu1 says=maybe restarts=0 age=1 every=5 held=1 why=",
                           "lull-answer job=22 node=gpu1 says=yes restarts=-1 age=1 every=5 held=1 why=",
                           "lull-answer job=22 node=gpu1 says=yes restarts=0 numbers=x age=1 every=5 held=1 why=",
                           "lull-answer job=22 node=gpu1 says=yes restarts=0 age=nan every=5 held=1 why="})
    EXPECT_FALSE(read_answer(text)) << text;
}

TEST(Agreement, IsAYesOfEachNode) {
  EXPECT_TRUE(agree(22, 0, kTwo, lines({yes("gpu1"), yes("gpu2")})).agreed);
  EXPECT_TRUE(agree(22, 0, kTwo, "srun: a warning\n" + lines({yes("gpu2"), yes("gpu1")})).agreed);
  EXPECT_TRUE(agree(22, 3, kTwo, lines({yes("gpu1", 3), yes("gpu2", 3)})).agreed);
}

TEST(Agreement, AnythingElseIsNone) {
  const auto with = [](auto change) {
    Answer second = yes("gpu2");
    change(second);
    return agree(22, 0, kTwo, lines({yes("gpu1"), second}));
  };
  EXPECT_FALSE(agree(22, 0, kTwo, "").agreed);
  EXPECT_FALSE(agree(22, 0, {}, "").agreed) << "no node is no agreement";
  EXPECT_FALSE(agree(22, 0, kTwo, lines({yes("gpu1")})).agreed);
  EXPECT_FALSE(agree(22, 0, kTwo, lines({yes("gpu1"), yes("gpu1")})).agreed) << "twice the same is not two";
  EXPECT_FALSE(agree(22, 0, kTwo, lines({yes("gpu1"), yes("gpu2"), yes("gpu2")})).agreed);
  EXPECT_FALSE(agree(22, 0, kTwo, lines({yes("gpu1"), yes("gpu2"), yes("gpu3")})).agreed);
  for (const Says says : {Says::no, Says::unknown, Says::nobody})
    EXPECT_FALSE(with([says](Answer& one) { one.says = says; }).agreed);
  EXPECT_FALSE(with([](Answer& one) { one.restarts = 1; }).agreed);
  EXPECT_FALSE(with([](Answer& one) { one.restarts.reset(); }).agreed);
  EXPECT_FALSE(with([](Answer& one) { one.job = 23; }).agreed);
  EXPECT_FALSE(with([](Answer& one) { one.age = 15s; }).agreed) << "three intervals are too old";
  EXPECT_TRUE(with([](Answer& one) { one.age = 14s; }).agreed);
  EXPECT_FALSE(with([](Answer& one) { one.every = 0s; }).agreed);
}

TEST(Agreement, SaysWhenItCouldBe) {
  Answer busy = yes("gpu1");
  busy.says = Says::no;
  busy.yes_in = 10min;
  Answer later = yes("gpu2");
  later.says = Says::no;
  later.yes_in = 30min;
  const Agreement one = agree(22, 0, kTwo, lines({busy, later}));
  EXPECT_FALSE(one.agreed);
  EXPECT_EQ(one.again_in, Duration(30min));
  EXPECT_NE(one.why.find("gpu1 says no"), std::string::npos);
}

// Whatever is lost, late, doubled or of another run: only n good answers of n nodes agree.
TEST(Agreement, HoldsForRandomAnswersOnlyWhereEachNodeSaidYes) {
  std::mt19937 random(7);
  const auto pick = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
  unsigned agreed = 0;
  for (int i = 0; i < 20000; ++i) {
    const unsigned count = 1 + pick(4);
    std::vector<std::string> nodes;
    for (unsigned n = 0; n < count; ++n) nodes.push_back("n" + std::to_string(n));
    std::vector<Answer> answers;
    std::vector<unsigned> good(count);
    bool spoilt = false;
    for (unsigned n = 0; n < count + pick(2); ++n) {
      const unsigned which = pick(10) == 0 ? pick(count + 1) : n % count;
      Answer one = yes("n" + std::to_string(which));
      switch (pick(8)) {
        case 0: one.says = static_cast<Says>(1 + pick(3)); break;
        case 1: one.restarts = pick(2); break;
        case 2: one.age = std::chrono::seconds(pick(20)); break;
        default: break;
      }
      if (which >= count)
        spoilt = true;
      else if (one.says == Says::yes && one.restarts == 0U && one.age < 15s)
        ++good[which];
      else
        spoilt = true;
      answers.push_back(one);
    }
    const bool all = std::ranges::all_of(good, [](unsigned times) { return times == 1; });
    const bool expected = all && !spoilt && answers.size() == count;
    EXPECT_EQ(agree(22, 0, nodes, lines(answers)).agreed, expected) << lines(answers);
    agreed += expected ? 1 : 0;
  }
  EXPECT_GT(agreed, 1000U);
}

TEST(Question, IsReadAsItWasWritten) {
  const auto one = read_question(to_line(Question{22, "gpu1", "util < 1 for 2h"}));
  ASSERT_TRUE(one);
  EXPECT_EQ(one->job, 22U);
  EXPECT_EQ(one->node, "gpu1");
  EXPECT_EQ(one->rule, "util < 1 for 2h");
  EXPECT_TRUE(read_question(to_line(Question{22, "gpu1", ""})));
  for (const char* text : {"", "3600 slurm:22", "slurm-ask", "slurm-ask x gpu1 ", "slurm-ask 22"})
    EXPECT_FALSE(read_question(text)) << text;
}

}  // namespace
}  // namespace lull::slurm
