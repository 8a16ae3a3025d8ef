#include "act/notify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "act/picture.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

FiringFacts an_idle_job() {
  FiringFacts facts;
  facts.event = "idle";
  facts.at = WallTime(std::chrono::seconds(1'700'000'000));
  facts.why.rule = "util < 1 for 2h";
  facts.why.gpus = {"0", "1"};
  facts.why.held = 2h + 3min;
  facts.why.window = facts.why.held;
  facts.why.since = facts.at - facts.why.held;
  facts.why.stories = {{.gpu = "0", .metric = Metric::util, .trace = {0, 0, 1, 0}},
                       {.gpu = "1", .metric = Metric::util, .trace = {0, kUnknownSample, 0, 0}}};
  facts.action = "mail";
  facts.announced = "slurm=requeue in 2h at the earliest";
  facts.keep = "lull keep slurm:22 4h";
  facts.subject = "Slurm job 22 of ada on GPUs 0, 1";
  facts.job_name = "slurm:22";
  facts.users = {"ada"};
  return facts;
}

TEST(Mail, SaysAllThatItsReaderHasToKnow) {
  const std::string text = mail_text(an_idle_job(), "gpu1");
  for (const char* part : {"gpu1", "Slurm job 22 of ada", "util < 1 for 2h", "0, 1", "for 2h3m",
                           "slurm=requeue in 2h at the earliest", "lull keep slurm:22 4h"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(mail_subject(an_idle_job(), "gpu1"), "lull: slurm:22 on gpu1 is idle");
}

TEST(Mail, NamesThePageWithTheEvidence) {
  FiringFacts facts = an_idle_job();
  EXPECT_EQ(mail_text(facts, "gpu1").find("Evidence:"), std::string::npos);
  facts.evidence = "/hangs/1/index.html\nBcc: root";
  EXPECT_NE(mail_text(facts, "gpu1").find("\nEvidence:   /hangs/1/index.html Bcc: root\n"), std::string::npos)
      << mail_text(facts, "gpu1");
}

TEST(Mail, GoesToTheUsersOfTheJobOrWhereItIsTold) {
  EXPECT_EQ(*recipients_of({}, an_idle_job()), std::vector<std::string>{"ada"});
  EXPECT_EQ(*recipients_of({"admin@example.org"}, an_idle_job()), std::vector<std::string>{"admin@example.org"});
  FiringFacts nobody = an_idle_job();
  nobody.users.clear();
  EXPECT_FALSE(recipients_of({}, nobody));
}

TEST(Mail, ANameThatIsNoAddressGetsNone) {
  for (const char* name :
       {"-oQ/tmp", "ada, root", "ada\nBcc: root", "", "ada@", "@x", "a@b@c", "ada (subuid 100999)", "|sh"}) {
    FiringFacts facts = an_idle_job();
    facts.users = {name};
    EXPECT_FALSE(recipients_of({}, facts)) << name;
  }
  for (const char* word : {"-t", "a b", "a@b@c", "a,,b", "a\nb"}) EXPECT_FALSE(parse_mail(word)) << word;
  EXPECT_EQ(parse_mail("ada,bob@example.org")->size(), 2U);
}

TEST(Mail, NoNameOfAProcessBecomesAHeaderOrALine) {
  FiringFacts facts = an_idle_job();
  ProcessInfo info;
  info.user = "ada";
  info.name = "x\r\nBcc: root\x1b[2J";
  facts.holders = {{.pid = 4711, .start_ticks = 1, .info = std::make_shared<const ProcessInfo>(info)}};
  facts.job_name = "container:x\nBcc: root";
  facts.subject = facts.job_name;
  const std::string message = mail_message({"ada"}, facts, "gpu1\nBcc: root", "");
  EXPECT_EQ(message.find("\nBcc"), std::string::npos) << message;
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST(Mail, ASubjectThatIsNoAsciiIsEncoded) {
  FiringFacts facts = an_idle_job();
  facts.job_name = "container:größe-größe-größe-größe-größe-größe-größe-größe";
  const std::string message = mail_message({"ada"}, facts, "gpu1", "");
  const std::string head = message.substr(0, message.find("\n\n"));
  for (const char c : head) EXPECT_GE(c, '\0');
  EXPECT_NE(head.find("Subject: =?UTF-8?B?"), std::string::npos);
}

TEST(Picture, HasARowForEachGpuAndLeavesWhatIsUnknownBlank) {
  const std::string svg = picture_of(an_idle_job(), "gpu1");
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  for (const char* part : {">GPU 0<", ">GPU 1<", "Slurm job 22 of ada", "util (util &lt; 1 for 2h)", "gpu1"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  FiringFacts whole = an_idle_job();
  whole.why.stories[1].trace[1] = 0;
  const auto cells = [](const std::string& text) { return std::ranges::count(text, 'Z'); };
  EXPECT_EQ(cells(svg), 7);
  EXPECT_EQ(cells(picture_of(whole, "gpu1")), 8);
}

TEST(Picture, IsNoneWhereTheRuleLooksAtNoGpu) {
  FiringFacts facts = an_idle_job();
  facts.why.stories = {{.gpu = "", .metric = Metric::cpu, .trace = {0, 0}}};
  EXPECT_EQ(picture_of(facts, "gpu1"), "");
  facts.why.stories = {{.gpu = "0", .metric = Metric::power, .trace = {80, 90}}};
  EXPECT_NE(picture_of(facts, "gpu1").find("power"), std::string::npos);
}

TEST(Picture, NamesAreTextAndNothingElse) {
  FiringFacts facts = an_idle_job();
  facts.subject = "</title><script>alert(1)</script>\x1b&\"";
  const std::string svg = picture_of(facts, "<host>");
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find("<host"), std::string::npos);
  EXPECT_EQ(svg.find('\x1b'), std::string::npos);
}

TEST(Picture, OfManyGpusIsStillSmall) {
  FiringFacts facts = an_idle_job();
  facts.why.stories.assign(512, {.gpu = "7", .metric = Metric::util, .trace = std::vector<float>(64, 50)});
  const std::string svg = picture_of(facts, "gpu1");
  EXPECT_LT(svg.size(), 200'000U);
  EXPECT_NE(svg.find("and 496 more GPUs"), std::string::npos);
}

}  // namespace
}  // namespace lull
