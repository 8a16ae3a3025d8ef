#include "config/signal_source.h"

#include <gtest/gtest.h>

#include <string>

namespace lull {
namespace {

std::string why(std::string_view text) {
  const auto read = parse_signal_from(text);
  return read ? "" : read.error().message();
}

TEST(SignalSource, TheCommandLineHasShortFormsAndTables) {
  const auto file = parse_signal_from("queue=file:/run/queue");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->kind, SignalSource::Kind::file);
  EXPECT_EQ(file->file, "/run/queue");
  EXPECT_EQ(parse_signal_from("queue=command:echo a=b")->command, "echo a=b");
  const auto url = parse_signal_from(
      "requests={ url = \"http://127.0.0.1:8000/metrics\", metric = \"vllm:request_success_total\", as = \"rate\", "
      "labels = { model_name = \"m\" }, timeout = \"2s\", max_age = \"5m\" }");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->as, SignalSource::As::rate);
  EXPECT_EQ(url->timeout, std::chrono::seconds(2));
  EXPECT_EQ(url->max_age, std::chrono::minutes(5));
  EXPECT_EQ(url->to_string(), "http://127.0.0.1:8000/metrics vllm:request_success_total{model_name=\"m\"} as rate");
}

TEST(SignalSource, AMistakeIsOneLineThatSaysWhatWouldBeRight) {
  const auto says = [](std::string_view text, std::string_view part) {
    const std::string said = why(text);
    EXPECT_NE(said.find(part), std::string::npos) << text << ": " << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  };
  says("queue", "NAME=SOURCE");
  says("queue=/run/queue", "file:PATH, command:CMD");
  says("queue=file:queue", "whole path");
  says("util=file:/run/queue", "a signal that lull has");
  says("queue={ url = \"https://a/metrics\", metric = \"a\" }", "https is not spoken here");
  says("queue={ url = \"http://a/metrics\" }", "metric says which one");
  says("queue={ url = \"http://a/metrics\", metric = \"a{b=\\\"c\\\"}\" }", "not a metric name");
  says("queue={ file = \"/a\", command = \"b\" }", "one of file, command and url");
  says("queue={ file = \"/a\", metric = \"b\" }", "metric goes with url");
  says("queue={ command = \"a\", max_age = \"1s\" }", "max_age goes with");
  says("queue={ file = \"/a\", as = \"sum\" }", "\"value\", \"rate\" or \"age\"");
  says("queue={ file = \"/a\", timeout = \"1h\" }", "at most 30s");
  says("queue={ file = \"/a\", timeout = \"0s\" }", "above 0");
  says("queue={ fiel = \"/a\" }", "did you mean");
  says("queue={ file = ", "a TOML table");
  says("queue={ file = \"/a\" }\nidle = \"x\"", "a TOML table");
}

TEST(SignalSource, TheCommandLineReplacesTheSettings) {
  const auto known = signals_with({}, {"queue=file:/a"});
  const auto both = signals_with(*known, {"queue=file:/b"});
  ASSERT_EQ(both->size(), 1U);
  EXPECT_EQ(both->front().file, "/b");
  EXPECT_NE(signals_with({}, {"queue=file:/a", "queue=file:/b"}).error().message().find("twice"), std::string::npos);
}

}  // namespace
}  // namespace lull
