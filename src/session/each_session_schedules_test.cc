// Random schedules of many subjects against what is obviously right: nobody is ended who was not idle, alone and in
// sight all the while.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>

#include "session/each_session_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

struct Phase {
  Duration lasts;
  double util;
  int holders;  // 0, 1 or 2 of them; negative: cannot be listed
  bool same;    // as in the phase before
};

// What a GPU goes through: phases one after the other, each with its own processes or those of before.
class Story {
 public:
  Story(const std::vector<Phase>& phases, unsigned gpu) {
    pid_t next = static_cast<pid_t>(1000 * (gpu + 1));
    std::vector<GpuProcess> there;
    Instant at{};
    for (const Phase& phase : phases) {
      if (phase.holders >= 0 && !phase.same) {
        there.clear();
        // Some of one job across GPUs.
        for (int i = 0; i < phase.holders; ++i) there.push_back(holder_for_test(++next, 1000, i == 1 ? "pod:1" : ""));
      }
      parts_.push_back({at, phase.util, phase.holders < 0 ? std::nullopt : std::optional(there)});
      at += phase.lasts;
    }
  }
  double util(Instant at) const { return part(at).util; }
  std::optional<std::vector<GpuProcess>> holders(Instant at) const { return part(at).holders; }

 private:
  struct Part {
    Instant from;
    double util;
    std::optional<std::vector<GpuProcess>> holders;
  };
  const Part& part(Instant at) const {
    const auto after = std::ranges::upper_bound(parts_, at, {}, &Part::from);
    return after == parts_.begin() ? parts_.front() : *std::prev(after);
  }
  std::vector<Part> parts_;
};

// The slow, obvious answer: on every GPU that the process held at the newest sample before it was ended, every sample
// for the time of the rule says idle, lists it, and lists nobody who was not there in the sample before.
void check_end(const FakeWorld& world, pid_t pid, Instant when, Duration time, Duration longest_gap) {
  std::vector<const Seen*> before;
  for (const Seen& one : world.seen)
    if (one.given <= when) before.push_back(&one);
  RC_ASSERT(!before.empty());
  RC_ASSERT(when - before.back()->at <= longest_gap);
  bool held = false;
  for (unsigned gpu = 0; gpu < world.script.gpus; ++gpu) {
    const auto lists = [&](const Seen& one) {
      return one.holders[gpu] &&
             std::ranges::any_of(*one.holders[gpu], [&](const GpuProcess& h) { return h.pid == pid; });
    };
    if (!lists(*before.back())) continue;
    held = true;
    Instant covered = before.back()->at;
    for (std::size_t i = before.size(); i-- > 0 && before.back()->at - covered < time;) {
      const Seen& one = *before[i];
      RC_ASSERT(covered - one.at <= longest_gap);
      covered = one.at;
      RC_ASSERT(one.util[gpu] < 1);  // neither a no nor unknown
      RC_ASSERT(lists(one));
      if (i == 0 || before.back()->at - covered >= time) break;
      for (const GpuProcess& h : *one.holders[gpu])
        RC_ASSERT(before[i - 1]->holders[gpu] &&
                  std::ranges::count(*before[i - 1]->holders[gpu], h.pid, &GpuProcess::pid) > 0);
    }
    RC_ASSERT(before.back()->at - covered >= time);
  }
  RC_ASSERT(held);
}

TEST(EachSessionTest, NobodyIsEverEndedWhoWasNotIdleAndInSightAllTheWhile) {
  unsigned ended = 0;
  const auto property = [&] {
    const auto phase = rc::gen::apply(
        [](int seconds, int util, int holders, bool same) {
          return Phase{std::chrono::seconds(seconds), util < 2 ? kNotRead : util < 9 ? 0.0 : 60.0, holders, same};
        },
        rc::gen::inRange(3, 140), rc::gen::inRange(0, 12),
        rc::gen::weightedElement<int>({{1, -1}, {1, 0}, {6, 1}, {6, 2}}),
        rc::gen::weightedElement<bool>({{3, true}, {1, false}}));
    std::vector<Story> stories;
    for (unsigned gpu = 0; gpu < 3; ++gpu)
      stories.emplace_back(*rc::gen::container<std::vector<Phase>>(12, phase), gpu);
    Script script;
    script.gpus = 3;
    script.util = [&](Instant at, unsigned gpu) { return stories[gpu].util(at); };
    script.holders = [&](Instant at, unsigned gpu) { return stories[gpu].holders(at); };
    const int slow = *rc::gen::inRange(0, 4);
    script.latency = [slow](Instant at) {
      return at.time_since_epoch() / 1s % 7 == slow ? Duration(4s) : Duration(5ms);
    };
    FakeWorld world(script);
    const int takes = *rc::gen::inRange(0, 30);
    world.action_takes = [takes] { return std::chrono::seconds(takes); };
    world.action_works = [n = 0]() mutable { return ++n % 3 != 0; };
    EachSettings settings = each(*rc::gen::element(Per::gpu, Per::job));
    settings.retries.most = 1;
    const int hook = *rc::gen::inRange(0, 2);
    if (hook == 1) settings.steps[0].actions.insert(settings.steps[0].actions.begin(), *parse_action("exec=first"));
    const Duration gap = longest_gap(settings.every);
    Listening sink;
    run_for(std::move(settings), world, sink, 15min);
    for (const Happened& one : world.happened)
      if (one.what.starts_with("end ")) {
        ++ended;
        check_end(world, static_cast<pid_t>(std::stoi(one.what.substr(4))), one.at, 60s, gap);
      }
  };
  EXPECT_TRUE(rc::check("nobody is ended who was not idle and in sight", property));
  EXPECT_GT(ended, 20U) << "the schedules are of no use if nobody is ever ended";
}

TEST(EachSessionTest, WhatHappensToOneDoesNotChangeWhenAnotherIsEnded) {
  EXPECT_TRUE(rc::check("each is ended at the time at which it is ended alone", [] {
    std::map<unsigned, Instant> idle_from;
    for (unsigned gpu = 0; gpu < 4; ++gpu) idle_from[gpu] = Instant(std::chrono::seconds(*rc::gen::inRange(0, 300)));
    const auto ended_at = [&](const std::set<unsigned>& used) {
      std::map<unsigned, std::vector<GpuProcess>> holders;
      for (const unsigned gpu : used) holders[gpu] = {holder_for_test(static_cast<pid_t>(10 + gpu))};
      FakeWorld world(held_by(holders, [&](Instant at, unsigned gpu) { return at < idle_from[gpu] ? 50.0 : 0.0; }));
      Listening sink;
      run_for(each(Per::gpu), world, sink, 10min);
      std::map<unsigned, Instant> times;
      for (const unsigned gpu : used) times[gpu] = time_of(world, "end " + std::to_string(10 + gpu));
      return times;
    };
    const auto together = ended_at({0, 1, 2, 3});
    for (unsigned gpu = 0; gpu < 4; ++gpu) {
      const Duration apart = together.at(gpu) - ended_at({gpu}).at(gpu);
      // Each waits for a confirmation of its own, of 200 ms.
      RC_ASSERT(apart < 1s && apart > -1s);
    }
  }));
}

}  // namespace
}  // namespace lull
