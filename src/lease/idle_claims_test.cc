#include "lease/standings.h"

#include <gtest/gtest.h>

#include <vector>

namespace lull {
namespace {

using namespace std::chrono_literals;

class IdleClaimsTest : public ::testing::Test {
 protected:
  bool too_long(const std::string& speaker) {
    const std::vector<IdleClaims::Claim> claims = {{"GPU-0", speaker}};
    return claims_.look(
                      claims, [&](const std::string& ticket) { return !gone_.contains(ticket); }, now_)
        .contains("GPU-0");
  }
  // As a waiter does who is woken by nothing else.
  Duration until_too_long(const std::string& speaker) {
    const Instant begin = now_;
    while (!too_long(speaker) && now_ - begin < 1h) now_ = claims_.due().value();
    return now_ - begin;
  }

  IdleClaims claims_;
  Instant now_{1h};
  std::set<std::string> gone_;
};

TEST_F(IdleClaimsTest, OneWhoDoesNotComeHasFiveSeconds) { EXPECT_EQ(until_too_long("ticket.1"), 5s); }

TEST_F(IdleClaimsTest, APauseOfTheMachineIsNotTheFaultOfTheOneAhead) {
  EXPECT_FALSE(too_long("ticket.1"));
  now_ += 10h;
  EXPECT_FALSE(too_long("ticket.1"));
  EXPECT_EQ(until_too_long("ticket.1"), 4s);
}

TEST_F(IdleClaimsTest, TheNextOneInLineHasItsOwnTime) {
  EXPECT_FALSE(too_long("ticket.1"));
  now_ += 900ms;
  EXPECT_FALSE(too_long("ticket.1"));
  gone_.insert("ticket.1");
  EXPECT_EQ(until_too_long("ticket.2"), 5s);
}

TEST_F(IdleClaimsTest, ATicketWrittenAnewDoesNotBeginAnew) {
  for (int second = 0; second < 5; ++second, now_ += 1s)
    EXPECT_FALSE(too_long(second % 2 == 0 ? "ticket.1" : "ticket.2"));
  EXPECT_TRUE(too_long("ticket.1"));
}

TEST_F(IdleClaimsTest, AQueueThatMovesWithoutTakingEndsAfterAMinute) {
  const Instant begin = now_;
  int turn = 0;
  while (!too_long("ticket." + std::to_string(turn))) {
    gone_.insert("ticket." + std::to_string(turn++));
    now_ += 1s;
    ASSERT_LT(now_ - begin, 2min);
  }
  EXPECT_EQ(now_ - begin, 60s);
}

TEST_F(IdleClaimsTest, WhoTookItBeginsANewTime) {
  EXPECT_FALSE(too_long("ticket.1"));
  now_ += 1s;
  EXPECT_FALSE(too_long("ticket.1"));
  EXPECT_TRUE(claims_.look({}, [](const std::string&) { return true; }, now_).empty());
  EXPECT_EQ(claims_.due(), std::nullopt);
  EXPECT_EQ(until_too_long("ticket.1"), 5s);
}

}  // namespace
}  // namespace lull
