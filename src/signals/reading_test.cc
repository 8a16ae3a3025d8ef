#include "signals/reading.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace lull {
namespace {

SignalSource endpoint_of_a(std::string_view more = "") {
  return *parse_signal_from("requests={ url = \"http://127.0.0.1:8000/metrics\", metric = \"a\"" + std::string(more) +
                            " }");
}

TEST(SignalReading, SurvivesTheWayBetweenTwoProcesses) {
  const SignalReading reading{{{"a=b c,", 1.0 / 3, 1.5}, {"", -2, {}}}, 7.25};
  EXPECT_EQ(*parse_reading(to_text(reading)), reading);
  for (const char* bad : {"", "-", "-\n", "-\nx - \n", "-\n1\n", "-\n1 2\n"}) EXPECT_FALSE(parse_reading(bad)) << bad;
}

TEST(SignalReading, LabelsSelectSeries) {
  const std::string body = "a{m=\"x\",n=\"1\"} 2\na{m=\"y\",n=\"1\"} 3\nprocess_start_time_seconds 99\n";
  EXPECT_EQ(read_endpoint(endpoint_of_a(), body, false)->series.size(), 2U);
  const auto one = read_endpoint(endpoint_of_a(", labels = { m = \"y\" }"), body, false);
  ASSERT_EQ(one->series.size(), 1U);
  EXPECT_EQ(one->series[0].value, 3);
  EXPECT_EQ(one->started, 99);
  EXPECT_NE(
      read_endpoint(endpoint_of_a(", labels = { m = \"z\" }"), body, false).error().message().find("these labels"),
      std::string::npos);
  EXPECT_EQ(read_endpoint(endpoint_of_a(), "b 1\n", false).error().message(), "it has no a now");
  EXPECT_FALSE(read_endpoint(endpoint_of_a(), "a NaN\n", false));
}

TEST(SignalReading, AFileIsOneNumberAndNothingElse) {
  std::string folder = ::testing::TempDir() + "lull-signal-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/queue";
  const auto read = [&] { return read_source(*parse_signal_from("queue=file:" + path)); };
  EXPECT_FALSE(read());  // not there
  std::ofstream(path) << " 42.5\n";
  ASSERT_TRUE(read());
  EXPECT_EQ(read()->series[0].value, 42.5);
  EXPECT_TRUE(read()->series[0].time);
  for (const std::string bad : {"", "secret", "1 2", "nan", "inf", "0x10"}) {
    std::ofstream(path, std::ios::trunc) << bad;
    ASSERT_FALSE(read()) << bad;
    EXPECT_EQ(read().error().message().find("secret"), std::string::npos);
  }
  std::ofstream(path, std::ios::trunc) << std::string(100'000, '1');
  EXPECT_FALSE(read());
  ::unlink(path.c_str());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(read().error().message().find("not a regular file"), std::string::npos);
  ::unlink(path.c_str());
  // A link is followed, and is what it leads to.
  const std::string file = folder + "/number";
  std::ofstream(file) << "7";
  for (const std::string& to : {std::string("/dev/zero"), std::string("/dev/tty"), folder, folder + "/nothing", path}) {
    ASSERT_EQ(::symlink(to.c_str(), path.c_str()), 0);
    EXPECT_FALSE(read()) << to;
    ::unlink(path.c_str());
  }
  ASSERT_EQ(::symlink(file.c_str(), path.c_str()), 0);
  EXPECT_EQ(read()->series[0].value, 7);
  ::unlink(path.c_str());
  ::unlink(file.c_str());
  ::rmdir(folder.c_str());
}

}  // namespace
}  // namespace lull
