// How a pick goes on, step by step: when it looks, what it sleeps on, and what it leaves when it is over.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <set>

#include "gpu/inventory_test.h"
#include "lease/choice_readings_test.h"
#include "lease/folder_test.h"
#include "lease/picker.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// GPUs that show what the test says.
class ScriptedCards final : public PickWorld {
 public:
  explicit ScriptedCards(unsigned count) : inventory_(gpus_for_test(count)), readings(count, idle()) {}
  const Clock& clock() const override { return time; }
  void open(const PickNeeds& needs) override {
    ++opened;
    open_ = true;
    asked = needs;
  }
  void first(Snapshot& into) override { sample(into); }
  void sample(Snapshot& into) override {
    EXPECT_TRUE(open_);
    ++samples;
    time.advance(look_takes);
    into = {};
    into.inventory = inventory_;
    into.readings = readings;
    if (asked.details && pstate)
      for (Reading& reading : into.readings) reading.set(Metric::pstate, *pstate);
  }
  void close() override { open_ = false; }
  Result<std::vector<std::size_t>> scope(const Inventory& inventory, const PickSettings&) override {
    std::vector<std::size_t> all(inventory.devices.size());
    std::iota(all.rbegin(), all.rend(), std::size_t{0});  // the last was named first
    return all;
  }
  std::string user_name(uid_t) override { return "ada"; }
  std::string command_of(pid_t) override { return ""; }
  std::string owner_of(pid_t) override { return ""; }
  bool is_filler(pid_t pid) override { return fillers.contains(pid); }
  void warn(const std::string&) override {}
  void waits(const Waiting&) override { ++waited; }
  void waits_no_more() override { ++ended; }
  bool is_open() const { return open_; }
  void fall_off_the_bus() {
    inventory_ = gpus_for_test(0);
    readings.clear();
  }

  ManualClock time;
  int opened = 0, samples = 0, waited = 0, ended = 0;
  Duration look_takes{};
  PickNeeds asked;
  std::optional<double> pstate;
  std::set<pid_t> fillers;

 private:
  bool open_ = false;
  std::shared_ptr<Inventory> inventory_;

 public:
  std::vector<Reading> readings;
};

Reading busy() {
  Reading reading = idle();
  reading.set(Metric::util, 40);
  return reading;
}

Reading just_woken() {
  Reading reading = busy();
  reading.attached_for = 1s;
  return reading;
}

class PickerSteps : public Lease {
 protected:
  void SetUp() override {
    Lease::SetUp();
    ::setenv("LULL_LEASES", place_.path.c_str(), 1);
    settings_.command = {"true"};
  }
  void TearDown() override {
    ::unsetenv("LULL_LEASES");
    Lease::TearDown();
  }
  static const PickResult* result(const PickStep& step) { return std::get_if<PickResult>(&step); }
  static bool got(const PickStep& step) { return result(step) != nullptr && *result(step); }
  static bool refused(const PickStep& step) { return result(step) != nullptr && !*result(step); }

  PickSettings settings_;
};

TEST_F(PickerSteps, WhenItIsOverNothingOfTheDriverIsLeft) {
  for (const bool idle_card : {true, false}) {
    ScriptedCards cards(1);
    cards.readings[0] = idle_card ? idle() : busy();
    Picker picker(cards, settings_);
    EXPECT_EQ(got(picker.begin()), idle_card);
    EXPECT_FALSE(cards.is_open());
    EXPECT_EQ(cards.ended, 1);
  }
}

TEST_F(PickerSteps, WhoHoldsItIsSaidWhereItIsHeld) {
  ScriptedCards cards(2);
  Picker leased(cards, settings_);
  const PickStep step = leased.begin();
  ASSERT_TRUE(got(step));
  EXPECT_GT((*result(step))->lease_holder.value_or(0), 0);
  settings_.lease = false;
  Picker chosen(cards, settings_);
  const PickStep other = chosen.begin();
  ASSERT_TRUE(got(other));
  EXPECT_FALSE((*result(other))->lease_holder);
}

TEST_F(PickerSteps, ACardThatWasJustWokenIsLookedAtOnceMore) {
  ScriptedCards cards(1);
  cards.readings[0] = just_woken();
  Picker picker(cards, settings_);
  PickStep step = picker.begin();
  ASSERT_TRUE(std::holds_alternative<Sleep>(step));
  EXPECT_EQ(std::get<Sleep>(step).until, cards.time.now() + 1s);
  cards.time.advance(1s);
  EXPECT_TRUE(refused(picker.go_on())) << "and not again";

  ScriptedCards other(1);
  other.readings[0] = just_woken();
  Picker lucky(other, settings_);
  ASSERT_TRUE(std::holds_alternative<Sleep>(lucky.begin()));
  other.time.advance(1s);
  other.readings[0] = idle();
  EXPECT_TRUE(got(lucky.go_on()));
}

TEST_F(PickerSteps, ACardThatIsGoneDoesNotSuit) {
  ScriptedCards cards(1);
  cards.readings[0] = just_woken();
  Picker picker(cards, settings_);
  ASSERT_TRUE(std::holds_alternative<Sleep>(picker.begin()));
  cards.fall_off_the_bus();
  const PickStep step = picker.go_on();
  ASSERT_TRUE(refused(step));
  EXPECT_TRUE(result(step)->error().reasons.at(0).ends_with(": is no longer there"));
}

TEST_F(PickerSteps, WhatIsBusyIsRefusedAtOnceAndWhatIsIdleTakenAtOnce) {
  ScriptedCards cards(2);
  cards.readings = {busy(), busy()};
  EXPECT_TRUE(refused(Picker(cards, settings_).begin()));
  cards.readings = {idle(), just_woken()};
  EXPECT_TRUE(got(Picker(cards, settings_).begin()));
}

TEST_F(PickerSteps, WhereTwoSignalsAreMissingItLooksCloser) {
  ScriptedCards cards(1);
  cards.readings[0] = without({Metric::util, Metric::mem_util, Metric::procs});
  cards.readings[0].miss(Metric::pstate, Absence::not_asked);
  cards.pstate = 8;
  EXPECT_TRUE(got(Picker(cards, settings_).begin()));
  EXPECT_EQ(cards.opened, 2);
  EXPECT_TRUE(cards.asked.details);

  ScriptedCards others(1);
  EXPECT_TRUE(got(Picker(others, settings_).begin()));
  EXPECT_EQ(others.opened, 1) << "others need not pay for it";
}

TEST_F(PickerSteps, WhatIsPickedIsInOrderAndEachSaysWhatItWasJudgedBy) {
  ScriptedCards cards(3);
  cards.readings = {idle(), busy(), without({Metric::procs})};
  settings_.count = 2;
  for (const bool lease : {true, false}) {
    settings_.lease = lease;
    const PickStep step = Picker(cards, settings_).begin();
    ASSERT_TRUE(got(step));
    const Picked& picked = **result(step);
    EXPECT_EQ(picked.devices, (std::vector<std::size_t>{0, 2}));
    EXPECT_EQ(picked.snapshot.readings.size(), 3U);
    ASSERT_EQ(picked.judgements.size(), 2U);
    EXPECT_EQ(picked.judgements[0].judged_by, judged(cards.readings[0]).judged_by);
    EXPECT_EQ(picked.judgements[1].judged_by, judged(cards.readings[2]).judged_by);
    EXPECT_NE(picked.judgements[0].judged_by, picked.judgements[1].judged_by);
    std::filesystem::remove_all(place_.path);
  }
}

TEST_F(PickerSteps, AHoldSaysUntilWhen) {
  for (const bool hold : {true, false}) {
    ScriptedCards cards(1);
    settings_.command = {"true"};
    settings_.hold.reset();
    if (hold) settings_.command = {}, settings_.hold = 10min;
    const PickStep step = Picker(cards, settings_).begin();
    ASSERT_TRUE(got(step));
    const auto leases = must(folder().scan()).leases;
    ASSERT_EQ(leases.size(), 1U);
    EXPECT_EQ(leases[0].record.until, hold ? std::optional(cards.time.wall() + 10min) : std::nullopt);
    std::filesystem::remove_all(place_.path);
  }
}

TEST_F(PickerSteps, ARefusalSaysHowManyThereWouldBe) {
  const auto what = [&](unsigned wanted, std::vector<Reading> readings) {
    ScriptedCards cards(static_cast<unsigned>(readings.size()));
    cards.readings = std::move(readings);
    settings_.count = wanted;
    const PickStep step = Picker(cards, settings_).begin();
    return refused(step) ? result(step)->error().what : "";
  };
  EXPECT_EQ(what(1, {busy()}), "no GPU fits");
  EXPECT_EQ(what(2, {busy(), idle()}), "2 GPUs asked for, 1 fits");
  EXPECT_EQ(what(3, {busy(), idle(), idle()}), "3 GPUs asked for, 2 fit");
  EXPECT_EQ(what(2, {idle()}), "2 GPUs asked for, there is only 1");
  EXPECT_EQ(what(1, {}), "there is no GPU");
}

// A filler yields to who waits, so a pick that does not wait asks for a moment.
class AmongFillers : public PickerSteps {
 protected:
  static Reading filled(pid_t pid) {
    Reading reading = busy();
    reading.processes->push_back({.pid = pid, .compute = true});
    return reading;
  }
  ScriptedCards cards_{2};
};

TEST_F(AmongFillers, APickGetsTheGpuThatAFillerGivesUp) {
  cards_.readings = {filled(7), filled(8)};
  cards_.fillers = {8};
  Picker picker(cards_, settings_);
  PickStep step = picker.begin();
  ASSERT_TRUE(std::holds_alternative<Sleep>(step)) << "it asks";
  EXPECT_EQ(cards_.waited, 1);
  cards_.readings[1] = idle();
  cards_.time.advance(1s);
  for (int i = 0; i < 5 && std::holds_alternative<Sleep>(step); ++i) step = picker.go_on();
  ASSERT_TRUE(got(step));
  EXPECT_EQ(result(step)->value().devices, std::vector<std::size_t>{1});
}

TEST_F(AmongFillers, AFillerThatStaysIsAReasonToRefuse) {
  cards_.readings = {filled(7), filled(8)};
  cards_.fillers = {7, 8};
  Picker picker(cards_, settings_);
  PickStep step = picker.begin();
  ASSERT_TRUE(std::holds_alternative<Sleep>(step));
  cards_.time.advance(15s);
  step = picker.go_on();
  ASSERT_TRUE(refused(step));
  EXPECT_EQ(result(step)->error().kind, Refusal::failure) << "nobody asked to wait";
  EXPECT_EQ(result(step)->error().what, "waited 15s for 1 GPU; no GPU fits");
}

TEST_F(AmongFillers, OthersAreNotWaitedFor) {
  cards_.readings = {filled(7), filled(8)};
  cards_.readings[1].processes->push_back({.pid = 9, .compute = true});
  cards_.fillers = {8};
  EXPECT_TRUE(refused(Picker(cards_, settings_).begin()));
}

// The driver lists a process that has ended, whose number a filler has by now.
TEST_F(AmongFillers, ANumberThatIsListedWithoutItsProcessIsNoFiller) {
  cards_.readings = {filled(7), filled(8)};
  cards_.readings[1].processes->back().here = false;
  cards_.fillers = {8};
  EXPECT_TRUE(refused(Picker(cards_, settings_).begin()));
}

TEST_F(AmongFillers, APrintedChoiceAsksNobody) {
  cards_.readings = {filled(7), filled(8)};
  cards_.fillers = {7, 8};
  settings_.command.clear();
  const PickStep step = Picker(cards_, settings_).begin();
  ASSERT_TRUE(refused(step));
  EXPECT_TRUE(result(step)->error().waiting_helps);
}

// In the queue, as a pick that waits. It is woken by what happens in the folder, and no time passes.
class Waiter : public PickerSteps {
 protected:
  void SetUp() override {
    PickerSteps::SetUp();
    settings_.wait = true;
    folder_.emplace(folder());
  }
  LeaseQueue holder_of(unsigned count) {
    std::vector<Candidate> candidates;
    for (unsigned i = 0; i < count; ++i) candidates.push_back({"GPU-" + std::to_string(i), "", Fit::yes});
    Demand demand;
    demand.count = count;
    LeaseQueue queue(*folder_, demand, candidates, cards_.time);
    EXPECT_TRUE(queue
                    .take_now([](std::span<const std::size_t> open, auto, std::size_t) {
                      return std::vector<std::size_t>(open.begin(), open.end());
                    })
                    .value());
    return queue;
  }
  // Until it sleeps for more than a moment.
  static PickStep settled(Picker& picker, PickStep step, Instant now) {
    for (int i = 0; i < 5 && std::holds_alternative<Sleep>(step) && std::get<Sleep>(step).until == now; ++i)
      step = picker.go_on();
    return step;
  }
  ScriptedCards cards_{2};
  std::optional<LeaseFolder> folder_;
};

TEST_F(Waiter, WhatWasLeasedUntilNowIsLookedAtOnceItIsOurs) {
  LeaseQueue holder = holder_of(2);
  Picker picker(cards_, settings_);
  ASSERT_TRUE(std::holds_alternative<Sleep>(settled(picker, picker.begin(), cards_.time.now())));
  const int before = cards_.samples;
  must(holder.give_back(std::vector<std::size_t>{1}));
  EXPECT_TRUE(got(picker.go_on()));
  EXPECT_EQ(cards_.samples - before, 1);
}

TEST_F(Waiter, WhatOthersUsedWithoutALeaseIsLookedAtBeforeItIsTaken) {
  LeaseQueue holder = holder_of(1);
  cards_.readings[1] = busy();
  Picker picker(cards_, settings_);
  ASSERT_TRUE(std::holds_alternative<Sleep>(settled(picker, picker.begin(), cards_.time.now())));
  cards_.readings[1] = idle();
  const int before = cards_.samples;
  EXPECT_TRUE(got(picker.go_on()));
  EXPECT_EQ(cards_.samples - before, 2);
}

TEST_F(Waiter, OneWhoHasWaitedLongEnoughIsLate) {
  LeaseQueue holder = holder_of(2);
  settings_.wait_limit = 2s;
  Picker picker(cards_, settings_);
  const Instant end = cards_.time.now() + 2s;
  PickStep asleep = settled(picker, picker.begin(), cards_.time.now());
  for (int i = 0; i < 30 && std::get<Sleep>(asleep).until != end; ++i) {  // the leases are read again for a second
    cards_.time.advance(*std::get<Sleep>(asleep).until - cards_.time.now());
    asleep = picker.go_on();
    ASSERT_TRUE(std::holds_alternative<Sleep>(asleep));
  }
  EXPECT_EQ(std::get<Sleep>(asleep).until, end);
  cards_.time.advance(end - cards_.time.now());
  const PickStep step = picker.go_on();
  ASSERT_TRUE(refused(step));
  EXPECT_EQ(result(step)->error().kind, Refusal::late);
  EXPECT_EQ(result(step)->error().what, "waited 2s for 1 GPU; no GPU fits");
}

TEST_F(Waiter, GpusThatOthersUseAreLookedAtSoonAndThenOnceASecond) {
  cards_.readings = {busy(), busy()};
  Picker picker(cards_, settings_);
  PickStep step = settled(picker, picker.begin(), cards_.time.now());
  std::vector<Duration> pauses;
  for (int i = 0; i < 6 && std::holds_alternative<Sleep>(step); ++i) {
    const Instant until = std::get<Sleep>(step).until.value();
    pauses.push_back(until - cards_.time.now());
    cards_.time.advance(until - cards_.time.now());
    const int before = cards_.samples;
    step = settled(picker, picker.go_on(), cards_.time.now());
    EXPECT_EQ(cards_.samples - before, 1);
  }
  EXPECT_EQ(pauses, (std::vector<Duration>{100ms, 200ms, 400ms, 800ms, 1s, 1s}));
}

TEST_F(Waiter, AndSoAlsoWhereTheLimitIsFarAway) {
  cards_.readings = {busy(), busy()};
  settings_.wait_limit = 1h;
  Picker picker(cards_, settings_);
  const PickStep step = settled(picker, picker.begin(), cards_.time.now());
  ASSERT_TRUE(std::holds_alternative<Sleep>(step));
  EXPECT_EQ(std::get<Sleep>(step).until, cards_.time.now() + 100ms);
}

TEST_F(Waiter, InsideALeaseItsOwnGpusAreFreeForUs) {
  const LeaseQueue holder = holder_of(2);
  settings_.wait = false;
  EXPECT_TRUE(refused(Picker(cards_, settings_).begin()));
  ::setenv("LULL_LEASE", must(read_leases(place_)).at(0).record.id.c_str(), 1);
  const PickStep inside = Picker(cards_, settings_).begin();
  ::setenv("LULL_LEASE", "another", 1);
  const PickStep outside = Picker(cards_, settings_).begin();
  ::unsetenv("LULL_LEASE");
  EXPECT_TRUE(got(inside));
  EXPECT_TRUE(refused(outside));
}

// A look that took 100 ms is as old as that.
TEST_F(PickerSteps, ALookThatIsOldIsRepeatedBeforeTheHandOver) {
  ScriptedCards cards(1);
  cards.look_takes = 100ms;
  EXPECT_TRUE(got(Picker(cards, settings_).begin()));
  EXPECT_EQ(cards.samples, 2);
}

TEST_F(PickerSteps, ButNotForEver) {
  ScriptedCards cards(1);
  cards.look_takes = 101ms;
  EXPECT_TRUE(got(Picker(cards, settings_).begin()));
  EXPECT_EQ(cards.samples, 2 + 8);
}

TEST_F(PickerSteps, AnAnswerThatIsLateIsAskedForOnceMoreOnOurTurn) {
  for (const Duration late : {Duration(0), Duration(1s)}) {
    ScriptedCards cards(1);
    cards.readings[0].unanswered = late;
    settings_.wait = true;
    EXPECT_TRUE(got(Picker(cards, settings_).begin()));
    EXPECT_EQ(cards.samples, late > 0s ? 3 : 2);
  }
}

// One who waits is about to take what was just freed.
class Settling : public PickerSteps {
 protected:
  void SetUp() override {
    PickerSteps::SetUp();
    folder_.emplace(folder());
    LeaseQueue holder = queue();
    ASSERT_TRUE(holder.take_now(first).value());
    waiter_.emplace(queue());
    ASSERT_FALSE(waiter_->turn(first).value());
  }
  LeaseQueue queue() { return {*folder_, {}, {{"GPU-0", "0", Fit::yes}}, cards_.time}; }
  static std::vector<std::size_t> first(std::span<const std::size_t> open, std::span<const std::size_t>, std::size_t) {
    return {open.front()};
  }
  ScriptedCards cards_{1};
  std::optional<LeaseFolder> folder_;
  std::optional<LeaseQueue> waiter_;
};

TEST_F(Settling, HalfASecondIsGivenToThoseWhoWait) {
  for (const bool lease : {true, false}) {
    settings_.lease = lease;
    Picker picker(cards_, settings_);
    PickStep step = picker.begin();
    const Instant end = cards_.time.now() + 500ms;
    for (int i = 0; i < 30 && std::holds_alternative<Sleep>(step); ++i) {
      const auto until = std::get<Sleep>(step).until.value();
      EXPECT_LE(until, end);
      cards_.time.advance(until - cards_.time.now());
      step = picker.go_on();
    }
    EXPECT_EQ(cards_.time.now(), end);
    ASSERT_TRUE(refused(step));
    EXPECT_NE(result(step)->error().reasons.at(0).find("ada waits for it"), std::string::npos);
  }
}

TEST_F(Settling, WhatTheyLeaveIsOurs) {
  Picker picker(cards_, settings_);
  ASSERT_TRUE(std::holds_alternative<Sleep>(picker.begin()));
  // It gives up. Its lock is no matter then: the lease holder, a fork of this test, has a copy of that.
  std::filesystem::remove(place_.path + "/" + waiter_->place().ticket);
  EXPECT_TRUE(got(picker.go_on()));
}

// Its lease holder lets go as soon as it runs.
TEST_F(Settling, WhatAJobThatHasEndedStillHoldsIsAboutToBeFree) {
  waiter_.reset();
  for (const bool ended : {true, false}) {
    std::filesystem::remove_all(place_.path);
    LeaseRecord job = record("GPU-0");
    job.holder = ProcessMark::of(0);
    if (ended) job.holder.start_ticks += 1;
    const LeaseFolder leases = folder();
    const LockedFile held = must(leases.take(must(leases.enter()), job));
    const PickStep step = Picker(cards_, settings_).begin();
    EXPECT_EQ(std::holds_alternative<Sleep>(step), ended);
    EXPECT_EQ(refused(step), !ended);
  }
}

TEST_F(Settling, WhatWouldNotSuitIsNotWaitedFor) {
  cards_.readings[0] = busy();
  EXPECT_TRUE(refused(Picker(cards_, settings_).begin()));
}

}  // namespace
}  // namespace lull
