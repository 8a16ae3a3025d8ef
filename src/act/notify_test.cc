#include "act/notify.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "act/actions.h"

namespace lull {
namespace {

using nlohmann::json;

FiringFacts facts_of_a_firing() {
  FiringFacts facts;
  facts.event = "idle";
  facts.why.rule = "util < 1 for 30m";
  facts.why.gpus = {"3"};
  facts.why.held = std::chrono::minutes(31);
  facts.action = "kill=holders";
  facts.subject = "GPU 3";
  ProcessInfo info;
  info.uid = 1000;
  info.user = "ada";
  info.name = "<!channel> @everyone \"x\"\\";
  facts.holders = {{.pid = 4711, .start_ticks = 1, .info = std::make_shared<const ProcessInfo>(info)}};
  return facts;
}

TEST(NotifyWord, SaysWhereTheAddressIsAndForWhom) {
  const NotifyTo plain = *parse_notify("");
  EXPECT_EQ(plain.from, NotifyTo::From::nowhere);
  const NotifyTo file = *parse_notify("slack:file:/etc/lull/slack");
  EXPECT_EQ(file.from, NotifyTo::From::file);
  EXPECT_EQ(file.place, "/etc/lull/slack");
  EXPECT_EQ(file.service, Service::slack);
  const NotifyTo variable = *parse_notify("variable:HOOK");
  EXPECT_EQ(variable.from, NotifyTo::From::variable);
  EXPECT_FALSE(variable.service);
  const NotifyTo written = *parse_notify("ntfy:https://ntfy.example.org/gpus");
  EXPECT_EQ(written.from, NotifyTo::From::written);
  EXPECT_EQ(written.service, Service::ntfy);
  EXPECT_EQ(parse_notify("teams")->service, Service::teams);
  for (const char* wrong : {"ftp://x", "file:", "slak:file:/x", "hooks.slack.com/services/T0/SECRET"}) {
    const auto to = parse_notify(wrong);
    ASSERT_FALSE(to) << wrong;
    EXPECT_EQ(to.error().message().find("SECRET"), std::string::npos);
  }
}

TEST(NotifyWord, NothingSecretOfItIsEverShown) {
  const char* secret = "https://me:pass@hooks.slack.com/services/T0/B0/SECRET?token=SECRET";
  const ActionOption word = *parse_action(std::string("notify=") + secret);
  EXPECT_EQ(word.text, "notify=https://hooks.slack.com/…");
  EXPECT_EQ(to_text({word}).find("SECRET"), std::string::npos);
  EXPECT_EQ(to_text({word}).find("pass"), std::string::npos);
}

TEST(NotifyAddress, ComesFromAFileOrAVariable) {
  const std::string path = testing::TempDir() + "lull-notify-address";
  std::ofstream(path) << "  https://discord.com/api/webhooks/1/SECRET \nanother line\n";
  NotifyTo to{NotifyTo::From::file, path, {}};
  ASSERT_TRUE(address_of(to));
  EXPECT_EQ(*address_of(to), "https://discord.com/api/webhooks/1/SECRET");
  EXPECT_EQ(service_of(to, *address_of(to)), Service::discord);
  std::ofstream(path) << "SECRET";
  EXPECT_NE(address_of(to).error().message().find("holds no http"), std::string::npos);
  EXPECT_EQ(address_of(to).error().message().find("SECRET"), std::string::npos);
  std::ofstream(path) << "https://x.example/\"\r\noutput = /etc/passwd";
  EXPECT_EQ(address_of(to).value_or("refused"), "https://x.example/\"");
  std::filesystem::remove(path);
  EXPECT_FALSE(address_of(to));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(address_of(to).error().message().find("not a regular file"), std::string::npos) << "and nobody waits";
  std::filesystem::remove(path);

  ::setenv("LULL_TEST_HOOK", "https://ntfy.sh/gpus", 1);
  const NotifyTo variable{NotifyTo::From::variable, "LULL_TEST_HOOK", {}};
  EXPECT_EQ(*address_of(variable), "https://ntfy.sh/gpus");
  ::unsetenv("LULL_TEST_HOOK");
  EXPECT_NE(address_of(variable).error().message().find("is not set"), std::string::npos);
  EXPECT_FALSE(address_of({}));
}

TEST(NotifyService, IsKnownByItsAddress) {
  const auto of = [](std::string_view address) { return service_of({}, address); };
  EXPECT_EQ(of("https://hooks.slack.com/services/T/B/x"), Service::slack);
  EXPECT_EQ(of("https://discord.com/api/webhooks/1/x"), Service::discord);
  EXPECT_EQ(of("https://org.webhook.office.com/webhookb2/x"), Service::teams);
  EXPECT_EQ(of("https://prod-01.westeurope.logic.azure.com:443/workflows/x"), Service::teams);
  EXPECT_EQ(of("https://ntfy.sh/gpus"), Service::ntfy);
  EXPECT_EQ(of("https://hooks.slack.com.evil.example/x"), Service::webhook);
  EXPECT_EQ(of("https://evil.example/hooks.slack.com"), Service::webhook);
}

TEST(NotifyMessage, NamesThePageWithTheEvidence) {
  FiringFacts facts = facts_of_a_firing();
  for (const std::string page : {"", "/hangs/1/index.html"}) {
    facts.evidence = page;
    for (const Service service : {Service::slack, Service::discord, Service::teams, Service::ntfy, Service::webhook})
      EXPECT_EQ(message_for(service, facts, "box").body.contains("/hangs/1/index.html"), !page.empty());
  }
}

TEST(NotifyMessage, SlackCannotBeMadeToCallEverybody) {
  const json body = json::parse(message_for(Service::slack, facts_of_a_firing(), "box").body);
  const std::string text = body.at("text");
  EXPECT_NE(text.find("lull on box: GPU 3 idle"), std::string::npos) << text;
  EXPECT_NE(text.find("&lt;!channel&gt;"), std::string::npos) << text;
  EXPECT_EQ(text.find('<'), std::string::npos);
}

TEST(NotifyMessage, DiscordGetsAtMostWhatItTakesAndMentionsNobody) {
  FiringFacts facts = facts_of_a_firing();
  facts.action = std::string(5000, 'x') + "ä";
  const json body = json::parse(message_for(Service::discord, facts, "box").body);
  EXPECT_LE(body.at("content").get<std::string>().size(), 2000U);
  EXPECT_TRUE(body.at("allowed_mentions").at("parse").empty());
}

TEST(NotifyMessage, TeamsGetsACardAndNtfyATitle) {
  const json body = json::parse(message_for(Service::teams, facts_of_a_firing(), "box").body);
  EXPECT_EQ(body.at("type"), "message");
  const json& card = body.at("attachments").at(0);
  EXPECT_EQ(card.at("contentType"), "application/vnd.microsoft.card.adaptive");
  EXPECT_EQ(card.at("content").at("type"), "AdaptiveCard");
  EXPECT_FALSE(card.at("content").at("body").empty());
  const Message ntfy = message_for(Service::ntfy, facts_of_a_firing(), "box");
  EXPECT_EQ(ntfy.headers.at(0).second, "lull on box: GPU 3 idle");
  EXPECT_TRUE(ntfy.content_type.starts_with("text/plain"));
  EXPECT_FALSE(ntfy.body.empty() || ntfy.body.starts_with('{')) << "text for a person: " << ntfy.body;
}

TEST(NotifyMessage, AnyOtherHookGetsTheFacts) {
  const json body = json::parse(message_for(Service::webhook, facts_of_a_firing(), "box").body);
  EXPECT_EQ(body.at("rule"), "util < 1 for 30m");
  EXPECT_EQ(body.at("subject"), "GPU 3");
  EXPECT_EQ(body.at("holders").at(0).at("pid"), 4711);
}

TEST(NotifyMessage, PeopleReadWhereItIsWhatComesNextAndHowToAskForTime) {
  FiringFacts facts = facts_of_a_firing();
  facts.announced = "end in 2h at the earliest";
  facts.keep = "lull keep 4711 4h";
  const std::string text = json::parse(message_for(Service::discord, facts, "box").body).at("content");
  EXPECT_TRUE(text.starts_with("lull on box: GPU 3 ")) << text;
  EXPECT_NE(text.find("\nnext: end in 2h at the earliest\nmore time: `lull keep 4711 4h`"), std::string::npos) << text;
}

TEST(NotifyCurl, GetsEverythingQuoted) {
  const std::string config =
      curl_config("https://x.example/a\"b", {"text/plain", "line\n\"quoted\" \\ tab\t", {{"Title", "a\r\nEvil: b"}}});
  EXPECT_NE(config.find("url = \"https://x.example/a\\\"b\"\n"), std::string::npos) << config;
  EXPECT_NE(config.find("data-raw = \"line\\n\\\"quoted\\\" \\\\ tab\\t\"\n"), std::string::npos) << config;
  EXPECT_EQ(config.find("\nEvil"), std::string::npos) << config;
}

}  // namespace
}  // namespace lull
