#include "session/end_program.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

TEST(SharedOfferTest, IsTakenOnceByTheOtherOne) {
  SharedOffer ours = *SharedOffer::make();
  SharedOffer theirs = *SharedOffer::open(ours.fd());
  EXPECT_FALSE(theirs.take()) << "nothing is offered";
  ours.put();
  EXPECT_TRUE(theirs.take());
  EXPECT_FALSE(theirs.take());
  EXPECT_TRUE(ours.taken());
  EXPECT_FALSE(ours.withdraw()) << "too late";
  ours.put();
  EXPECT_FALSE(theirs.take()) << "what was taken is not offered again";
}

TEST(SharedOfferTest, IsNotTakenOnceItWasWithdrawn) {
  SharedOffer ours = *SharedOffer::make();
  SharedOffer theirs = *SharedOffer::open(ours.fd());
  EXPECT_FALSE(ours.withdraw());
  ours.put();
  EXPECT_TRUE(ours.withdraw());
  EXPECT_FALSE(theirs.take());
  EXPECT_FALSE(ours.taken());
  ours.put();
  EXPECT_TRUE(theirs.take()) << "another one";
}

TEST(SharedOfferTest, AnotherFileIsNone) { EXPECT_FALSE(SharedOffer::open(-1)); }

}  // namespace
}  // namespace lull
