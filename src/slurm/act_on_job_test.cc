// What is done to a job, with a Slurm that is scripted: each of its commands may fail, hang, or say something else.

#include "slurm/act_on_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "slurm/answer.h"
#include "slurm/job_step.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

HelperResult ended(int code, std::string output = "") {
  HelperResult result;
  result.status = ExitStatus{.code = code};
  result.trouble = code == 0 ? "" : fmt::format("exit status {}", code);
  result.output = std::move(output);
  return result;
}
HelperResult timed_out() {
  HelperResult result;
  result.timed_out = true;
  result.trouble = "not done within 5s";
  return result;
}
HelperResult killed() {
  HelperResult result;
  result.status = ExitStatus{.signal = 9};
  result.trouble = "SIGKILL";
  return result;
}
HelperResult silent() {
  return ended(1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)");
}

// What squeue says of job 22.
struct Shown {
  std::string state = "RUNNING";
  unsigned restarts = 0;
  std::string het = "N/A";
  bool batch = true;
  bool requeue = true;
  std::string user = "1000";
  std::string nodes = "gpu1";
  unsigned count = 1;
  std::string qos = "(null)";
  std::string tres = "cpu=1,node=1,billing=1";
};
std::string squeue_row(const Shown& row) {
  return fmt::format("{:24}{:24}{:<16}{:8}{:8}{:24}{:64}{:24}{:16}{:<12}{:64}{:64}{:64}{:256}{:1024}\n", "22",
                     row.state, row.restarts, row.batch ? "1" : "0", row.requeue ? "1" : "0", "22", "N/A", row.het,
                     row.user, row.count, "main", row.qos, "physics", row.tres, row.nodes);
}
std::string squeue_row(const std::string& state, unsigned restarts, const std::string& het = "N/A", bool batch = true) {
  return squeue_row(Shown{.state = state, .restarts = restarts, .het = het, .batch = batch});
}
const Shown kOnTwo{.nodes = "gpu[1-2]", .count = 2};
Answer says_yes(std::string node, unsigned restarts = 0) {
  return {.job = 22,
          .node = std::move(node),
          .says = Says::yes,
          .restarts = restarts,
          .gpus = 1,
          .numbers = {0},
          .age = 1s,
          .every = 5s};
}
// What `scontrol show job -d` says: the same GPUs on each of its nodes.
std::string details(std::uint64_t job, std::string_view nodes, std::string_view gres = "gpu:1(IDX:0)",
                    std::string_view suspended = "None", std::string_view start = "1") {
  return fmt::format(
      "JobId={} JobName=x\n   JobState=RUNNING\n   StartTime={} EndTime=Unknown Deadline=N/A\n"
      "   SuspendTime={} SecsPreSuspend=0\n     Nodes={} CPU_IDs=0 Mem=0 GRES={}\n",
      job, start, suspended, nodes, gres);
}

class SlurmTest : public ::testing::Test {
 protected:
  SlurmTest() { clock.advance(24h); }  // the jobs began before
  // What each program answers; every command is noted.
  slurm::Run run() {
    return [this](const Command& command, Duration limit, Helpers::Done done) {
      EXPECT_LE(limit, kCommandLimit);
      const std::string text = fmt::format("{}", fmt::join(command, " "));
      ran.push_back(text);
      std::string key = command[0];
      if (key == "scontrol") key = text.find("AdminComment") != std::string::npos ? "comment" : command[1];
      if (text.find("HetJobIDSet") != std::string::npos) key = "components";
      if (text.find("%k") != std::string::npos) key = "Comment";
      if (command[0] == "env") key = "given " + command.back();
      if (const auto group = text.find("--het-group="); group != std::string::npos)
        key = fmt::format("runuser {}", text[group + 12]);
      const auto found = answers.find(key);
      const auto runs = slurm_gave.find(command.back());
      const HelperResult result = found != answers.end()                                 ? found->second
                                  : runs != slurm_gave.end() && key.starts_with("given") ? ended(0, runs->second)
                                                                                         : ended(0);
      const auto slow = takes.find(key);
      const Duration time = slow == takes.end() ? 1ms : slow->second;
      loop->in(std::min(time, limit),
               [done = std::move(done), late = time > limit, result] { done(late ? timed_out() : result); });
    };
  }
  std::size_t count(std::string_view beginning) const {
    std::size_t found = 0;
    for (const std::string& one : ran) found += one.starts_with(beginning) ? 1U : 0U;
    return found;
  }
  bool any_verb() const { return count("scontrol requeue") + count("scancel") > 0; }
  void go_on() {
    for (int i = 0; i < 1000; ++i)
      if (!loop->turn().value_or(false)) break;
  }

  ActResult act(ActOnJob::Request request) {
    ActResult got;
    request.judged.job = 22;
    if (!request.judged.restarts) request.judged.restarts = 0;
    ActOnJob acting(
        run(), request,
        [this](const std::function<void()>& go) {
          ++checks;
          if (wanted) go();
        },
        [&](const ActResult& result) { got = result; });
    acting.start();
    go_on();
    return got;
  }

  struct StepResult {
    std::optional<Outcome> outcome;
  };
  // `asked_before`: its nodes, so long before.
  StepResult step(const Allocation& job, std::optional<Verb> verb, const FiringFacts& facts = {},
                  std::optional<Duration> asked_before = {}) {
    StepResult got;
    slurm_gave.try_emplace(std::to_string(job.job), details(job.job, job.nodes));
    std::shared_ptr<AskNodes> early;
    if (asked_before) {
      early = std::make_shared<AskNodes>(*loop, run(), AskNodes::Options{.job = job});
      early->start();
      bool over = false;
      loop->in(*asked_before, [&] { over = true; });
      while (!over) (void)loop->turn();
      if (after_asking_early) after_asking_early();
    }
    JobStep one(*loop, run(),
                {.text = "slurm=requeue", .job = job, .verb = std::move(verb), .early = std::move(early)});
    one.on_keep = on_keep;
    one.on_gone = [this] { ++gone; };
    one.ask_before_acting({.holds = [this] { return wanted; },
                           .may_kill = nullptr,
                           .until = nullptr,
                           .again = [this](const std::function<void()>&) { ++checks; }});
    one.start(facts, [&](const Outcome& outcome) { got.outcome = outcome; }, [](const ActionEvent&) {});
    go_on();
    return got;
  }
  static Allocation job_on(std::string nodes) {
    return {
        .job = 22, .node = "gpu1", .uid = 1000, .user = "ada", .gpus = {0}, .nodes = std::move(nodes), .restarts = 0};
  }

  ManualClock clock;
  std::unique_ptr<Loop> loop = *Loop::create_warped(clock);
  std::map<std::string, HelperResult> answers = {{"squeue", ended(0, squeue_row("RUNNING", 0))}};
  std::map<std::string, std::string> slurm_gave;  // by job: what Slurm gave it, where nothing else is said
  std::map<std::string, std::chrono::milliseconds> takes;
  std::vector<std::string> ran;
  bool wanted = true;
  int checks = 0;
  int gone = 0;
  std::function<bool(WallTime)> on_keep;
  std::function<void()> after_asking_early;
};

TEST_F(SlurmTest, LooksCommentsAndActs) {
  const ActResult result = act({.verb = Verb{VerbKind::requeue}, .reason = "idle"});
  EXPECT_EQ(result.kind, ActResult::Kind::done) << result.text;
  ASSERT_EQ(ran.size(), 3U);
  EXPECT_TRUE(ran[0].starts_with("squeue "));
  EXPECT_EQ(ran[1], "scontrol update jobid=22 AdminComment=idle");
  EXPECT_EQ(ran[2], "scontrol requeue 22");
  EXPECT_EQ(checks, 2) << "before the first change, and right before the verb";
}

TEST_F(SlurmTest, DoesNothingWithoutTheLastYes) {
  wanted = false;
  act({.verb = Verb{VerbKind::cancel}, .reason = "idle"});
  EXPECT_EQ(ran.size(), 1U);
}

TEST_F(SlurmTest, EachCommandThatHangsOrFailsIsSaid) {
  struct Case {
    std::string key;
    HelperResult result;
    ActResult::Kind kind;
    bool acts;
    bool unanswered = false;
  };
  const std::vector<Case> cases = {
      {"squeue", timed_out(), ActResult::Kind::not_now, false},
      {"squeue", silent(), ActResult::Kind::not_now, false},
      {"squeue", ended(1, "slurm_load_jobs error: Invalid job id specified"), ActResult::Kind::no_longer, false},
      {"squeue", ended(127, ""), ActResult::Kind::failed, false},
      {"squeue", ended(0, ""), ActResult::Kind::no_longer, false},
      {"squeue", ended(0, squeue_row("COMPLETING", 0)), ActResult::Kind::no_longer, false},
      {"squeue", ended(0, squeue_row("RUNNING", 1)), ActResult::Kind::no_longer, false},
      {"comment", timed_out(), ActResult::Kind::not_now, false},
      {"comment", ended(1, "slurm_update error: Access/permission denied"), ActResult::Kind::done, true},
      {"requeue", timed_out(), ActResult::Kind::not_now, true, true},
      {"requeue", killed(), ActResult::Kind::not_now, true, true},
      {"requeue", silent(), ActResult::Kind::not_now, true},
      {"requeue", ended(1, "Slurm backup controller in standby mode"), ActResult::Kind::not_now, true},
      {"requeue", ended(1, "Socket timed out on send/recv operation"), ActResult::Kind::not_now, true, true},
      {"requeue", ended(1, "Unable to contact slurm controller (receive failure)"), ActResult::Kind::not_now, true,
       true},
      {"requeue", ended(1, "Requested operation is presently disabled"), ActResult::Kind::failed, true},
  };
  for (const Case& one : cases) {
    answers = {{"squeue", ended(0, squeue_row("RUNNING", 0))}};
    answers[one.key] = one.result;
    ran.clear();
    const ActResult result = act({.verb = Verb{VerbKind::requeue}, .reason = "idle"});
    EXPECT_EQ(result.kind, one.kind) << one.key << ": " << result.text;
    EXPECT_EQ(any_verb(), one.acts) << one.key;
    EXPECT_EQ(result.unanswered, one.unanswered) << one.key << ": " << result.text;
  }
}

// Such a controller might do it after the command's time, when nothing is known of the job any more.
TEST_F(SlurmTest, ASlowControllerIsSentNoVerb) {
  takes = {{"comment", 2500ms}};
  EXPECT_EQ(act({.verb = Verb{VerbKind::cancel}, .reason = "idle"}).text,
            "Slurm's controller does not answer within 2s");
  EXPECT_FALSE(any_verb());
  answers["squeue"] = ended(0, squeue_row(Shown{.requeue = false}));
  takes = {{"update", 2500ms}};
  EXPECT_EQ(act({.verb = Verb{VerbKind::requeue}}).kind, ActResult::Kind::not_now);
  EXPECT_FALSE(any_verb());
  takes = {{"comment", 1500ms}};
  EXPECT_EQ(act({.verb = Verb{VerbKind::cancel}, .reason = "idle"}).kind, ActResult::Kind::done);
}

// The same number, and as many restarts, need not be the same job.
TEST_F(SlurmTest, AnotherJobUnderItsNumberIsNotTheOneThatWasJudged) {
  const auto kind_of = [&](const Shown& row, const Judged& judged) {
    answers["squeue"] = ended(0, squeue_row(row));
    ran.clear();
    const ActResult::Kind kind = act({.judged = judged, .verb = Verb{VerbKind::cancel}}).kind;
    EXPECT_EQ(any_verb(), kind == ActResult::Kind::done);
    return kind;
  };
  const Judged judged{.user = 1000, .nodes = "gpu[1-2]"};
  EXPECT_EQ(kind_of(kOnTwo, judged), ActResult::Kind::done);
  EXPECT_EQ(kind_of({.nodes = "gpu2,gpu1", .count = 2}, judged), ActResult::Kind::done);
  EXPECT_EQ(kind_of({.user = "1001", .nodes = "gpu[1-2]", .count = 2}, judged), ActResult::Kind::no_longer);
  EXPECT_EQ(kind_of({.user = "", .nodes = "gpu[1-2]", .count = 2}, judged), ActResult::Kind::no_longer);
  EXPECT_EQ(kind_of({.nodes = "gpu[1-3]", .count = 3}, judged), ActResult::Kind::no_longer) << "it grew";
  EXPECT_EQ(kind_of({.nodes = "gpu[2-3]", .count = 2}, judged), ActResult::Kind::no_longer);
  EXPECT_EQ(kind_of({.nodes = std::string(1024, 'x'), .count = 2}, judged), ActResult::Kind::done) << "was cut off";
  EXPECT_EQ(kind_of({.nodes = std::string(1024, 'x'), .count = 3}, judged), ActResult::Kind::no_longer);
}

TEST_F(SlurmTest, AGpuThatNoNodeAnswersForKeepsAJob) {
  for (const auto& [tres, kind] : {std::pair("cpu=1,gres/gpu=2,gres/gpu:a=2", ActResult::Kind::done),
                                   std::pair("cpu=1,gres/gpu=3", ActResult::Kind::not_now),
                                   std::pair("cpu=1,gres/gpu=1", ActResult::Kind::not_now),
                                   std::pair("cpu=1,billing=2", ActResult::Kind::done)}) {  // nothing is accounted for
    answers["squeue"] = ended(0, squeue_row(Shown{.tres = tres}));
    EXPECT_EQ(act({.judged = {.gpus = 2}, .verb = Verb{VerbKind::cancel}}).kind, kind) << tres;
  }
}

TEST_F(SlurmTest, WhatASiteLeavesAloneIsLeftAloneByWhatSqueueSays) {
  answers["squeue"] = ended(0, squeue_row(Shown{.qos = "high"}));
  for (const ActPolicy& policy : {ActPolicy{.except_qos = {"high"}}, ActPolicy{.except_accounts = {"physics"}},
                                  ActPolicy{.except_partitions = {"main"}}})
    for (const VerbKind verb : {VerbKind::comment, VerbKind::signal, VerbKind::cancel}) {
      ran.clear();
      EXPECT_EQ(act({.verb = Verb{verb}, .policy = policy, .reason = "x"}).kind, ActResult::Kind::refused);
      EXPECT_EQ(ran.size(), 1U);
    }
  EXPECT_EQ(act({.verb = Verb{VerbKind::cancel}, .policy = {.except_qos = {"low"}}}).kind, ActResult::Kind::done);
}

TEST_F(SlurmTest, AnInteractiveJobIsLeftWhereTheSiteLeavesIt) {
  answers["squeue"] = ended(0, squeue_row("RUNNING", 0, "N/A", false));
  using Interactive = ActPolicy::Interactive;
  for (const auto& [verb, interactive, kind] :
       {std::tuple(VerbKind::cancel, Interactive::leave, ActResult::Kind::refused),
        std::tuple(VerbKind::signal, Interactive::leave, ActResult::Kind::refused),
        std::tuple(VerbKind::requeue, Interactive::leave, ActResult::Kind::refused),
        std::tuple(VerbKind::comment, Interactive::leave, ActResult::Kind::done),
        std::tuple(VerbKind::cancel, Interactive::cancel, ActResult::Kind::done),
        std::tuple(VerbKind::requeue, Interactive::cancel, ActResult::Kind::done),
        std::tuple(VerbKind::signal, Interactive::cancel, ActResult::Kind::done),
        std::tuple(VerbKind::cancel, Interactive::cancel_alone, ActResult::Kind::done),
        std::tuple(VerbKind::requeue, Interactive::cancel_alone, ActResult::Kind::refused)}) {
    ran.clear();
    EXPECT_EQ(act({.verb = Verb{verb, "TERM"}, .policy = {.interactive = interactive}, .reason = "x"}).kind, kind);
    EXPECT_EQ(count("scontrol requeue"), 0U);
    EXPECT_TRUE(kind == ActResult::Kind::done || ran.size() == 1);
  }
}

// What a user writes is not what a command says of itself.
TEST_F(SlurmTest, NobodyIsLeftAloneForAComment) {
  for (const char* comment :
       {"Connection refused", "Invalid job id specified", "Socket timed out", "Unable to contact slurm controller"}) {
    answers["Comment"] = ended(0, fmt::format("22 {}\n", comment));
    on_keep = [](WallTime) { return false; };
    ran.clear();
    EXPECT_TRUE(step(job_on("gpu1"), Verb{VerbKind::cancel}).outcome->ok) << comment;
    EXPECT_EQ(count("scancel"), 1U) << comment;
  }
}

TEST_F(SlurmTest, WhatMadeARequeuePossibleIsTakenBackWhereThereIsNone) {
  answers["squeue"] = ended(0, squeue_row(Shown{.requeue = false}));
  const std::string back = "scontrol update jobid=22 Requeue=0";
  EXPECT_EQ(act({.verb = Verb{VerbKind::requeue}}).kind, ActResult::Kind::done);
  EXPECT_EQ(ran.back(), "scontrol requeue 22");
  answers["requeue"] = ended(1, "disabled");
  EXPECT_EQ(act({.verb = Verb{VerbKind::requeue}}).kind, ActResult::Kind::failed);
  EXPECT_EQ(ran.back(), back);
  // It works again after all, between the change and the verb.
  ran.clear();
  int asked = 0;
  {
    ActOnJob acting(
        run(), {.judged = {.job = 22}, .verb = Verb{VerbKind::requeue}},
        [&](const std::function<void()>& go) {
          if (++asked == 1) go();
        },
        [](const ActResult&) {});
    acting.start();
    go_on();
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(count(back), 0U);
  }
  EXPECT_EQ(ran.back(), back);
  EXPECT_EQ(count("scontrol requeue"), 0U);
}

TEST_F(SlurmTest, ADryRunOnlyLooks) {
  const ActResult result = act({.verb = Verb{VerbKind::cancel}, .reason = "idle", .dry_run = true});
  EXPECT_EQ(result.kind, ActResult::Kind::done);
  EXPECT_EQ(result.text, "would run: scancel 22");
  EXPECT_EQ(ran.size(), 1U);
}

TEST_F(SlurmTest, APartOfAHetJobIsLeftAloneUnlessAllPartsAreMeant) {
  answers["squeue"] = ended(0, squeue_row("RUNNING", 0, "21"));
  EXPECT_EQ(act({.verb = Verb{VerbKind::cancel}, .het_job = 0}).kind, ActResult::Kind::refused);
  EXPECT_EQ(act({.verb = Verb{VerbKind::cancel}, .het_job = 20}).kind, ActResult::Kind::refused);
  EXPECT_FALSE(any_verb());
  EXPECT_EQ(act({.verb = Verb{VerbKind::cancel}}).kind, ActResult::Kind::done);
  EXPECT_EQ(ran.back(), "scancel 21");
}

// ---- after a requeue

TEST_F(SlurmTest, AJobIsStartedAgainSomeSecondsAfterItIsPending) {
  answers["squeue"] = ended(0, squeue_row("COMPLETING", 0));
  std::optional<bool> over;
  const StartAgain again(*loop, run(), 22, "22", [&](bool asked) { over = asked; });
  Instant pending{};
  loop->in(7500ms, [&] {
    answers["squeue"] = ended(0, squeue_row("PENDING", 1));
    pending = loop->now();
  });
  go_on();
  EXPECT_EQ(over, true);
  EXPECT_EQ(ran.back(), "scontrol update jobid=22 StartTime=now");
  EXPECT_GE(loop->now() - pending, 3s);
  EXPECT_LE(loop->now() - pending, 6s);
}

TEST_F(SlurmTest, AJobThatNeverIsPendingIsLeftAlone) {
  answers["squeue"] = ended(0, squeue_row("COMPLETING", 0));
  std::optional<bool> over;
  const StartAgain again(*loop, run(), 22, "22", [&](bool asked) { over = asked; }, 10s);
  go_on();
  EXPECT_EQ(over, false);
  EXPECT_EQ(count("scontrol"), 0U);
}

// ---- the step of a watcher

TEST_F(SlurmTest, AJobOnOneNodeIsActedOnWithoutAsking) {
  const auto got = step(job_on("gpu1"), Verb{VerbKind::requeue});
  ASSERT_TRUE(got.outcome);
  EXPECT_TRUE(got.outcome->ok) << got.outcome->trouble;
  EXPECT_EQ(count("runuser"), 0U);
  EXPECT_EQ(count("scontrol requeue"), 1U);
}

TEST_F(SlurmTest, AJobOnTwoNodesIsActedOnIfBothSayYes) {
  answers["squeue"] = ended(0, squeue_row(kOnTwo));
  answers["runuser"] = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(says_yes("gpu2")) + "\n");
  EXPECT_TRUE(step(job_on("gpu[1-2]"), Verb{VerbKind::requeue}).outcome->ok);
  EXPECT_EQ(count("scontrol requeue"), 1U);
}

TEST_F(SlurmTest, NodesThatWereAskedBeforeAreNotAskedAgainIfTheyAgree) {
  answers["squeue"] = ended(0, squeue_row(kOnTwo));
  answers["runuser"] = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(says_yes("gpu2")) + "\n");
  for (const Duration took : {100ms, 1500ms}) {  // heard before it fires, and after
    takes = {{"runuser", std::chrono::duration_cast<std::chrono::milliseconds>(took)}};
    ran.clear();
    const auto got = step(job_on("gpu[1-2]"), Verb{VerbKind::requeue}, {}, 1s);
    ASSERT_TRUE(got.outcome);
    EXPECT_TRUE(got.outcome->ok) << got.outcome->trouble;
    EXPECT_EQ(count("runuser"), 1U);
    EXPECT_EQ(count("scontrol requeue"), 1U);
  }
}

TEST_F(SlurmTest, NodesThatDidNotAgreeBeforeOrTooLongAgoAreAskedAgain) {
  answers["squeue"] = ended(0, squeue_row(kOnTwo));
  Answer busy = says_yes("gpu2");
  busy.says = Says::no;
  const HelperResult agreed = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(says_yes("gpu2")) + "\n");
  const HelperResult not_agreed = ended(1, to_line(says_yes("gpu1")) + "\n" + to_line(busy) + "\n");
  struct Case {
    HelperResult before, after;
    Duration ago;
    bool acts;
  };
  for (const Case& one : {Case{not_agreed, agreed, 1s, true}, Case{agreed, not_agreed, 4s, false},
                          Case{timed_out(), not_agreed, 1s, false}, Case{timed_out(), agreed, 1s, true}}) {
    answers["runuser"] = one.before;
    after_asking_early = [&] { answers["runuser"] = one.after; };
    ran.clear();
    const auto got = step(job_on("gpu[1-2]"), Verb{VerbKind::requeue}, {}, one.ago);
    ASSERT_TRUE(got.outcome);
    EXPECT_EQ(got.outcome->ok, one.acts);
    EXPECT_EQ(any_verb(), one.acts);
    EXPECT_EQ(count("runuser"), 2U);
  }
}

// The verb comes within the limit of the first question.
TEST_F(SlurmTest, WhatNodesSaidBeforeIsGoodForAWhileOnly) {
  answers["squeue"] = ended(0, squeue_row(kOnTwo));
  answers["runuser"] = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(says_yes("gpu2")) + "\n");
  takes = {{"squeue", 3500ms}};
  const auto got = step(job_on("gpu[1-2]"), Verb{VerbKind::requeue}, {}, 2s);
  ASSERT_TRUE(got.outcome);
  EXPECT_TRUE(got.outcome->not_now);
  EXPECT_FALSE(any_verb());
}

// Each command may take its time; what the nodes said does not become older than that.
TEST_F(SlurmTest, WhatTheNodesSaidIsGoodForAWhileOnly) {
  answers["squeue"] = ended(0, squeue_row(kOnTwo));
  answers["runuser"] = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(says_yes("gpu2")) + "\n");
  for (const std::string slow : {"squeue", "comment"}) {
    takes = {{"runuser", 4000ms}, {slow, 1500ms}};
    const auto got = step(job_on("gpu[1-2]"), Verb{VerbKind::requeue});
    ASSERT_TRUE(got.outcome) << slow;
    EXPECT_TRUE(got.outcome->not_now) << slow;
    EXPECT_FALSE(any_verb()) << slow;
  }
  takes = {{"runuser", 2000ms}, {"comment", 1000ms}};
  EXPECT_TRUE(step(job_on("gpu[1-2]"), Verb{VerbKind::requeue}).outcome->ok);
}

TEST_F(SlurmTest, AKeepThatComesWhileTheNodesAreAskedCounts) {
  answers["squeue"] = ended(0, squeue_row(kOnTwo));
  answers["runuser"] = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(says_yes("gpu2")) + "\n");
  answers["Comment"] = ended(0, "22 (null)\n");
  takes = {{"runuser", 2000ms}};
  on_keep = [](WallTime) { return true; };
  loop->in(1s, [this] { answers["Comment"] = ended(0, "22 lull-keep=2026-11-18T12:00:00Z\n"); });
  EXPECT_TRUE(step(job_on("gpu[1-2]"), Verb{VerbKind::requeue}).outcome->called_off);
  EXPECT_FALSE(any_verb());
}

TEST_F(SlurmTest, AFileOfAJobThatSlurmDoesNotKnowIsSaid) {
  answers["squeue"] = ended(1, "slurm_load_jobs error: Invalid job id specified");
  answers["runuser"] = ended(1, "srun: error: Unable to confirm allocation for job 22: Invalid job id specified");
  answers["given 22"] = ended(1, "slurm_load_jobs error: Invalid job id specified");
  for (const char* nodes : {"gpu1", "gpu[1-2]"}) {
    gone = 0;
    EXPECT_TRUE(step(job_on(nodes), Verb{VerbKind::cancel}).outcome->not_now);
    EXPECT_EQ(gone, 1) << nodes;
  }
  answers["squeue"] = ended(0, squeue_row(kOnTwo));
  EXPECT_TRUE(step(job_on("gpu[1-2]"), Verb{VerbKind::cancel}).outcome->not_now)
      << "by srun's word alone it is not gone";
  EXPECT_EQ(gone, 1);
  EXPECT_FALSE(any_verb());
}

TEST_F(SlurmTest, ANodeThatIsBusyPutsItOffUntilItCouldSayYes) {
  Answer busy = says_yes("gpu2");
  busy.says = Says::no;
  busy.yes_in = 2h;
  busy.why = "busy";
  answers["runuser"] =
      ended(1, to_line(says_yes("gpu1")) + "\n" + to_line(busy) + "\nsrun: error: gpu2: task 1: Exited\n");
  const auto got = step(job_on("gpu[1-2]"), Verb{VerbKind::requeue});
  ASSERT_TRUE(got.outcome);
  EXPECT_TRUE(got.outcome->not_now);
  EXPECT_EQ(got.outcome->again_in, Duration(2h));
  EXPECT_EQ(got.outcome->trouble, "gpu2 says no: busy");
  EXPECT_FALSE(any_verb());
}

TEST_F(SlurmTest, WhatIsNotKnownOfAJobIsNoReasonToAct) {
  Allocation job = job_on("gpu[1-2]");
  answers["runuser"] = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(says_yes("gpu2")) + "\n");
  for (const int what : {0, 1, 2, 3, 4}) {
    Allocation one = job;
    if (what == 0) one.restarts.reset();
    if (what == 1) one.nodes.clear();
    if (what == 2) one.nodes = "gpu[1-";
    if (what == 3) one.node = "gpu7";
    if (what == 4) one.user.clear();
    const auto got = step(one, Verb{VerbKind::cancel});
    ASSERT_TRUE(got.outcome);
    EXPECT_FALSE(got.outcome->ok || got.outcome->not_now) << what;
  }
  EXPECT_FALSE(any_verb());
}

// ---- het jobs: 21 on gpu1, 22 on gpu[2-3]

std::string component_row(unsigned job, unsigned group, const std::string& nodes, const std::string& state = "RUNNING",
                          unsigned restarts = 0) {
  return fmt::format("{:<24}{:24}{:<16}{:24}{:<16}{:512}{:8192}\n", job, state, restarts, "21", group, "21-22", nodes);
}
std::string answers_of(std::uint64_t job, const std::vector<std::string>& nodes, unsigned gpus = 1,
                       Says says = Says::yes) {
  std::string lines;
  for (const std::string& node : nodes) {
    Answer one = says_yes(node);
    one.job = job;
    one.gpus = gpus;
    one.numbers.resize(gpus);
    one.says = says;
    lines += to_line(one) + "\n";
  }
  return lines;
}

class HetJobTest : public SlurmTest {
 protected:
  HetJobTest() {
    answers["components"] = ended(0, component_row(22, 1, "gpu[2-3]") + component_row(21, 0, "gpu1"));
    answers["runuser 0"] = ended(0, answers_of(21, {"gpu1"}));
    answers["runuser 1"] = ended(0, answers_of(22, {"gpu2", "gpu3"}));
    slurm_gave = {{"21", details(21, "gpu1")}, {"22", details(22, "gpu[2-3]")}};
  }
  StepResult first() {
    answers["squeue"] = ended(0, squeue_of("21"));
    Allocation job = job_on("gpu1");
    job.job = job.het_job = 21;
    return step(job, Verb{VerbKind::requeue});
  }
  StepResult second() {
    answers["squeue"] = ended(0, squeue_of("22", "gpu[2-3]", 2));
    Allocation job = job_on("gpu[2-3]");
    job.node = "gpu2";
    job.het_job = 21;
    return step(job, Verb{VerbKind::requeue});
  }
  static std::string squeue_of(const std::string& job, const std::string& nodes = "gpu1", unsigned count = 1) {
    return job + squeue_row(Shown{.het = "21", .nodes = nodes, .count = count}).substr(job.size());
  }
};

TEST_F(HetJobTest, AllComponentsAreAskedAndTheFirstOneActsOnTheWhole) {
  EXPECT_TRUE(first().outcome->ok);
  EXPECT_EQ(count("runuser"), 2U);
  EXPECT_EQ(ran.back(), "scontrol requeue 21");
}

TEST_F(HetJobTest, IsKeptByTheCommentOfAnyComponent) {
  answers["Comment"] = ended(0, "21 (null)\n22 x lull-keep=2026-11-18T12:00:00Z\n");
  int asked = 0;
  for (const bool given : {true, false}) {
    ran.clear();
    on_keep = [&](WallTime) {
      ++asked;
      return given;
    };
    EXPECT_EQ(first().outcome->called_off, given);
    EXPECT_EQ(any_verb(), !given);
  }
  EXPECT_EQ(asked, 2);
  EXPECT_NE(ran[0].find("--jobs=21"), std::string::npos);
}

TEST_F(SlurmTest, ATaskOfAnArrayIsNotKeptByTheCommentOfAnother) {
  answers["Comment"] = ended(0, "22 x\n23 lull-keep=2026-11-18T12:00:00Z\n");
  on_keep = [](WallTime) { return true; };
  EXPECT_TRUE(step(job_on("gpu1"), Verb{VerbKind::requeue}).outcome->ok);
  EXPECT_TRUE(any_verb());
  answers["Comment"] = ended(0, "22 a\nlull-keep=2026-11-18T12:00:00Z\n");
  EXPECT_TRUE(step(job_on("gpu1"), Verb{VerbKind::requeue}).outcome->called_off) << "of several lines";
}

TEST_F(HetJobTest, AnotherComponentLeavesItToTheFirstThatHasGpus) {
  const auto got = second();
  ASSERT_TRUE(got.outcome);
  EXPECT_TRUE(got.outcome->not_now) << "called off, its streak would begin again, and the first would wait for it";
  EXPECT_FALSE(any_verb());
  answers["runuser 0"] = ended(0, answers_of(21, {"gpu1"}, 0));
  EXPECT_TRUE(second().outcome->not_now) << "Slurm gave the first one a GPU";
  slurm_gave["21"] = details(21, "gpu1", "(null)");
  EXPECT_TRUE(second().outcome->ok);
  EXPECT_EQ(ran.back(), "scontrol requeue 21");
}

TEST_F(HetJobTest, NothingIsDoneUnlessEachComponentRunsAndSaysYes) {
  const auto good = answers;
  const std::vector<std::pair<std::string, HelperResult>> cases = {
      {"components", timed_out()},
      {"components", silent()},
      {"components", ended(0, "")},
      {"components", ended(0, component_row(21, 0, "gpu1"))},
      {"components", ended(0, component_row(21, 0, "gpu1") + component_row(22, 1, "gpu[2-3]", "COMPLETING"))},
      {"components", ended(0, component_row(21, 0, "gpu1", "RUNNING", 1) + component_row(22, 1, "gpu[2-3]"))},
      {"components", ended(0, component_row(21, 0, "gpu1") + component_row(22, 1, "gpu[2-3]", "RUNNING", 1))},
      {"components", ended(0, component_row(21, 0, "gpu1") + component_row(22, 1, ""))},
      {"components", ended(0, component_row(21, 0, "gpu1") + component_row(22, 1, std::string(8192, 'x')))},
      {"components", ended(0, component_row(21, 0, "gpu1") + component_row(22, 0, "gpu[2-3]"))},
      {"runuser 1", timed_out()},
      {"runuser 1", ended(1, "srun: error: Invalid job id")},
      {"runuser 1", ended(0, answers_of(22, {"gpu2"}))},
      {"runuser 1", ended(0, answers_of(21, {"gpu2", "gpu3"}))},
      {"runuser 1", ended(1, answers_of(22, {"gpu2"}) + answers_of(22, {"gpu3"}, 1, Says::no))},
      {"runuser 0", ended(1, answers_of(21, {"gpu1"}, 1, Says::unknown))},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    answers = good;
    answers[cases[i].first] = cases[i].second;
    ran.clear();
    const auto got = first();
    ASSERT_TRUE(got.outcome) << i;
    EXPECT_TRUE(got.outcome->not_now) << i;
    EXPECT_FALSE(any_verb()) << i;
  }
}

// With everything that can go wrong at random: a verb only after n yes of n nodes for the run that Slurm
// shows, and while our own GPUs are idle.
TEST_F(SlurmTest, NothingIsDoneWithoutAYesOfEachNode) {
  std::mt19937 random(11);
  const auto pick = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
  unsigned acted = 0;
  for (int i = 0; i < 7000; ++i) {
    const unsigned nodes = 1 + pick(4);
    bool all = true;
    std::string output;
    for (unsigned n = 1; n <= nodes; ++n) {
      Answer one = says_yes(fmt::format("gpu{}", n));
      const unsigned what = pick(12);
      if (what == 0) one.says = static_cast<Says>(1 + pick(3));
      if (what == 1) one.restarts = 1;
      if (what == 2) one.age = 20s;
      if (what == 3) one.node = "gpu1";
      const bool lost = what == 4;
      const bool good = what > 4 || (what == 3 && n == 1);
      all = all && good;
      if (!lost) output += to_line(one) + "\n";
    }
    const unsigned how = pick(10);
    const bool asked = how > 1;
    answers["runuser"] = how == 0 ? timed_out() : ended(how == 1 ? 1 : 0, output);
    const unsigned state = pick(12);
    const std::string list = nodes == 1 ? "gpu1" : fmt::format("gpu[1-{}]", nodes);
    Shown shown{.nodes = list, .count = nodes, .tres = fmt::format("gres/gpu={}", nodes)};
    if (state == 1) shown.state = "COMPLETING";
    if (state == 2) shown.restarts = 1;
    if (state == 4) shown.user = "1001";
    if (state == 5) shown.nodes = fmt::format("gpu[1-{}]", ++shown.count);
    if (state == 6) shown.tres = fmt::format("gres/gpu={}", nodes + 1);
    answers["squeue"] = state == 0 ? timed_out() : state == 3 ? silent() : ended(0, squeue_row(shown));
    wanted = pick(4) > 0;
    ran.clear();
    const unsigned gave = pick(12);
    slurm_gave["22"] = gave == 0   ? details(22, list, "gpu:1(IDX:1)")
                       : gave == 1 ? details(22, list, "gpu:2(IDX:0-1)")
                       : gave == 2 ? details(22, list, "gpu:1(IDX:0)", "4102444800")  // it goes on in the future
                                   : details(22, list);
    (void)step(job_on(list), Verb{VerbKind::requeue});
    const bool may = (nodes == 1 || (all && asked)) && state > 6 && gave > 2 && wanted;
    EXPECT_EQ(any_verb(), may) << output;
    acted += may ? 1 : 0;
  }
  EXPECT_GT(acted, 500U);
}

// The file of an older job that had the same number, user, nodes and restarts: as after slurmctld lost its state.
TEST_F(SlurmTest, AJobIsLeftAloneUnlessSlurmGaveItTheGpusThatWereJudged) {
  answers["runuser"] = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(says_yes("gpu2")) + "\n");
  const std::string other = "     Nodes=gpu2 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:3)\n";
  const std::vector<std::pair<std::string, HelperResult>> cases = {
      {"gpu1", ended(0, details(22, "gpu1", "gpu:1(IDX:1)"))},
      {"gpu1", ended(0, details(22, "gpu1", "gpu:2(IDX:0-1)"))},
      {"gpu1", ended(0, details(22, "gpu1", "(null)"))},
      {"gpu1", ended(0, details(22, "gpu1", "shard:1(0/4)"))},
      {"gpu1", ended(0, details(22, "gpu2"))},
      {"gpu1", ended(0, details(23, "gpu1"))},
      {"gpu1", ended(0, "")},
      {"gpu1", timed_out()},
      {"gpu1", silent()},
      {"gpu1", ended(1, "slurm_load_jobs error: Invalid job id specified")},
      {"gpu[1-2]", ended(0, details(22, "gpu1") + other)},
      {"gpu[1-2]", ended(0, details(22, "gpu1"))},
  };
  for (const auto& [nodes, said] : cases) {
    answers["squeue"] = ended(0, squeue_row(nodes == "gpu1" ? Shown{} : kOnTwo));
    answers["given 22"] = said;
    ran.clear();
    const auto got = step(job_on(nodes), Verb{VerbKind::cancel});
    ASSERT_TRUE(got.outcome) << said.output;
    EXPECT_TRUE(got.outcome->not_now) << said.output;
    EXPECT_FALSE(any_verb()) << said.output;
    EXPECT_EQ(count("scontrol update"), 0U) << "not even a word to its user";
  }
  answers["squeue"] = ended(0, squeue_row(kOnTwo));
  for (const char* more : {",nic:1", ",nic:1(IDX:0)", ",tmpfs(CNT:5)"}) {
    answers["given 22"] = ended(0, details(22, "gpu[1-2]", std::string("gpu:1(IDX:0)") + more));
    EXPECT_TRUE(step(job_on("gpu[1-2]"), Verb{VerbKind::cancel}).outcome->ok) << "what else it has does not matter";
  }
}

TEST_F(SlurmTest, ANodeThatDoesNotSayWhichGpusItJudgedKeepsAJob) {
  answers["squeue"] = ended(0, squeue_row(kOnTwo));
  Answer second = says_yes("gpu2");
  second.numbers.clear();
  answers["runuser"] = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(second) + "\n");
  EXPECT_TRUE(step(job_on("gpu[1-2]"), Verb{VerbKind::cancel}).outcome->not_now);
  EXPECT_FALSE(any_verb());
}

// While it was suspended it could not use its GPUs. Before it began, an older job with its number may have had them,
// whose file was left behind.
TEST_F(SlurmTest, TimeBeforeAJobBeganOrWasResumedDoesNotCount) {
  clock.advance(std::chrono::hours(24 * 20000));
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(loop->clock().wall().time_since_epoch()).count();
  FiringFacts facts;
  facts.why.needed = {.time = 2h};
  for (const auto& [ago, resumed, acts] : {std::tuple(2h - 10s, true, false), std::tuple(2h + 10s, true, true),
                                           std::tuple(2h - 10s, false, false), std::tuple(2h + 10s, false, true)}) {
    ran.clear();
    const std::string since = std::to_string(now - ago.count());
    slurm_gave["22"] = details(22, "gpu1", "gpu:1(IDX:0)", resumed ? since : "None", resumed ? "1" : since);
    const auto got = step(job_on("gpu1"), Verb{VerbKind::cancel}, facts);
    ASSERT_TRUE(got.outcome);
    EXPECT_EQ(any_verb(), acts);
    EXPECT_EQ(got.outcome->not_now, !acts);
    if (acts) continue;
    ASSERT_TRUE(got.outcome->again_in);
    EXPECT_GE(*got.outcome->again_in, 9s);
    EXPECT_LE(*got.outcome->again_in, 11s);
  }
}

TEST_F(SlurmTest, WhatIsCalledOffWhileNodesAreAskedIsNotDone) {
  answers["runuser"] = ended(0, to_line(says_yes("gpu1")) + "\n" + to_line(says_yes("gpu2")) + "\n");
  bool over = false;
  JobStep one(*loop, run(), {.text = "slurm=cancel", .job = job_on("gpu[1-2]"), .verb = Verb{VerbKind::cancel}});
  one.ask_before_acting({.holds = [] { return true; }, .may_kill = nullptr, .until = nullptr, .again = nullptr});
  one.start({}, [&](const Outcome&) { over = true; }, [](const ActionEvent&) {});
  EXPECT_TRUE(one.undo());
  go_on();
  EXPECT_FALSE(over || any_verb());
}

}  // namespace
}  // namespace lull::slurm
