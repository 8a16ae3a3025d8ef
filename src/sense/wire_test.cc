// What comes from the sensor is input from outside: it arrives whole, or is refused; it never does harm.
#include "sense/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "sense/sampler_options.h"

namespace lull {
namespace {

using std::chrono::seconds;

Reading some_reading(std::mt19937& random) {
  Reading reading;
  for (const MetricInfo& row : kMetricTable)
    random() % 3 != 0 ? reading.set(row.metric, static_cast<double>(random() % 10))
                      : reading.miss(row.metric, static_cast<Absence>(1 + random() % 15));
  reading.util_basis = static_cast<Basis>(random() % 3);
  reading.util_coverage = 0.25;
  if (random() % 2 == 0) reading.util_newest = {3, 70};
  if (random() % 2 == 0) reading.power_newest = {30, 300};
  reading.newest_span = std::chrono::milliseconds(random() % 2000);
  reading.newest_period = std::chrono::milliseconds(random() % 1000);
  reading.asleep = random() % 2 == 0;
  if (random() % 2 == 0) reading.idle_before = seconds(random() % 1000);
  if (random() % 2 == 0) reading.attached_for = seconds(random() % 1000);
  if (random() % 2 == 0) reading.energy_joules = 12.5;
  if (random() % 2 == 0) reading.throttle_reasons = random();
  if (random() % 2 == 0) reading.mig_mode = random() % 2 == 0;
  if (random() % 3 != 0) {
    reading.processes.emplace();
    for (unsigned i = 0; i < random() % 5; ++i) {
      GpuProcess& process = reading.processes->emplace_back();
      process.pid = static_cast<pid_t>(random() % 99999);
      process.compute = random() % 2 == 0;
      process.here = random() % 2 == 0;
      process.proof = random() % 2 == 0 ? Proof::unproven : process.here ? Proof::proven : Proof::stale;
      process.start_ticks = random();
      if (random() % 2 == 0) process.memory_bytes = random();
      if (random() % 2 == 0) process.gpu_instance = 3;
    }
  }
  if (random() % 2 == 0) {
    reading.shares_absence = Absence::none;
    for (unsigned i = 0; i < random() % 4; ++i)
      reading.shares.push_back({static_cast<pid_t>(random() % 99999), static_cast<double>(random() % 101),
                                static_cast<double>(random() % 101)});
    reading.unlisted_util = static_cast<double>(random() % 101);
    reading.shares_span = std::chrono::milliseconds(random() % 2000);
  }
  return reading;
}

Answer some_answer(std::mt19937& random) {
  Answer answer;
  answer.driver_gone = random() % 2 == 0;
  answer.gpu = some_reading(random);
  for (unsigned i = 0; i < random() % 4; ++i) answer.parts.push_back(some_reading(random));
  return answer;
}

MachineReport some_report() {
  MachineReport report;
  ProcessInfo& process = report.process_info.emplace_back();
  process.pid = 4711;
  process.start_ticks = 99;
  process.user = "ada";
  process.name = "python3";
  process.arguments = {"python3", "", "train.py"};
  report.holders = {{Absence::none, 3}, {Absence::no_permission, 0}};
  report.holders_began = Instant(seconds(7));
  report.topology.emplace(3);
  report.topology->set(0, 2, {4, Nearness::one_switch});
  return report;
}

template <class Message>
std::vector<std::byte> bytes_of(const Message& message) {
  std::vector<std::byte> buffer(1 << 16);
  Encoder out(buffer);
  encode(out, message);
  EXPECT_FALSE(out.full());
  buffer.resize(out.size());
  return buffer;
}

void expect_same(const Reading& a, const Reading& b) {
  for (std::size_t i = 0; i < kMetrics; ++i) {
    EXPECT_EQ(a.absence[i], b.absence[i]);
    if (a.absence[i] == Absence::none) {
      EXPECT_EQ(a.value[i], b.value[i]);
    }
    EXPECT_EQ(std::isnan(a.value[i]), std::isnan(b.value[i]));
  }
  EXPECT_EQ(a.processes, b.processes);
  EXPECT_EQ(a.shares_absence, b.shares_absence);
  EXPECT_EQ(a.shares_span, b.shares_span);
  EXPECT_EQ(a.shares, b.shares);
  EXPECT_TRUE(a.unlisted_util == b.unlisted_util || (std::isnan(a.unlisted_util) && std::isnan(b.unlisted_util)));
  EXPECT_EQ(a.idle_before, b.idle_before);
  EXPECT_EQ(a.attached_for, b.attached_for);
  EXPECT_EQ(a.throttle_reasons, b.throttle_reasons);
  EXPECT_EQ(a.mig_mode, b.mig_mode);
  EXPECT_EQ(a.asleep, b.asleep);
  EXPECT_EQ(a.newest_span, b.newest_span);
  EXPECT_EQ(a.newest_period, b.newest_period);
  for (const auto& [one, other] :
       {std::pair{a.util_newest, b.util_newest}, std::pair{a.power_newest, b.power_newest}}) {
    EXPECT_EQ(std::isnan(one.low), std::isnan(other.low));
    if (std::isnan(one.low)) continue;
    EXPECT_EQ(one.low, other.low);
    EXPECT_EQ(one.high, other.high);
  }
}

TEST(Wire, AShareOfAProcessIsAPercentageOrUnknown) {
  Answer received;
  for (const auto& [percent, sound] :
       {std::pair{50.0, true}, std::pair{kUnknown, true}, std::pair{37100.0, false}, std::pair{-1.0, false}}) {
    for (const ProcessShare& share : {ProcessShare{10, percent, 0}, ProcessShare{10, 0, percent}}) {
      Answer sent;
      sent.gpu.shares.push_back(share);
      EXPECT_EQ(decode(bytes_of(sent), received), sound) << percent;
    }
  }
}

TEST(Wire, AnswersArriveAsTheyWereSent) {
  std::mt19937 random(1);
  Answer received;  // again and again into the same one: nothing of an older answer may stay
  for (int i = 0; i < 500; ++i) {
    const Answer sent = some_answer(random);
    ASSERT_TRUE(decode(bytes_of(sent), received));
    EXPECT_EQ(received.driver_gone, sent.driver_gone);
    expect_same(received.gpu, sent.gpu);
    ASSERT_EQ(received.parts.size(), sent.parts.size());
    for (std::size_t p = 0; p < sent.parts.size(); ++p) expect_same(received.parts[p], sent.parts[p]);
  }
}

TEST(Wire, NewestDataThatCannotBeAreRefused) {
  const auto arrives = [](auto change) {
    Answer sent;
    sent.gpu.util_newest = {3, 70};
    change(sent.gpu);
    Answer heard;
    return decode(bytes_of(sent), heard);
  };
  EXPECT_TRUE(arrives([](Reading&) {}));
  EXPECT_FALSE(arrives([](Reading& one) { one.util_newest = {70, 3}; }));
  EXPECT_FALSE(arrives([](Reading& one) { one.util_newest = {0, 101}; }));
  EXPECT_FALSE(arrives([](Reading& one) { one.util_newest.low = kUnknown; }));
  EXPECT_FALSE(arrives([](Reading& one) { one.power_newest = {-1, 3}; }));
  EXPECT_FALSE(arrives([](Reading& one) { one.newest_span = seconds(-1); }));
  EXPECT_FALSE(arrives([](Reading& one) { one.newest_period = seconds(-1); }));
}

TEST(Wire, TheRestArrivesToo) {
  Identity identity{7, {}, std::vector<Device>(2)};
  identity.device.uuid = "GPU-1";
  identity.device.minor = 3;
  identity.parts[1].kind = DeviceKind::mig;
  Identity heard;
  ASSERT_TRUE(decode(bytes_of(identity), heard));
  EXPECT_EQ(heard.version, 7U);
  EXPECT_EQ(heard.device, identity.device);
  EXPECT_EQ(heard.parts, identity.parts);

  MachineReport report;
  ASSERT_TRUE(decode(bytes_of(some_report()), report));
  EXPECT_EQ(report.process_info.at(0).arguments, (std::vector<std::string>{"python3", "", "train.py"}));
  EXPECT_EQ(report.holders.at(0).count, 3U);
  EXPECT_EQ(report.holders_began, Instant(seconds(7)));
  EXPECT_EQ(report.topology->between(2, 0), (Join{4, Nearness::one_switch}));

  DriverReport driver;
  ASSERT_TRUE(decode(bytes_of(DriverReport{{Absence::mismatch, "differ", {}}, "535", "/lib"}), driver));
  EXPECT_EQ(driver.state.absence, Absence::mismatch);
  EXPECT_EQ(driver.library, "/lib");
}

TEST(Wire, OptionsOfASensorProgramArrive) {
  SamplerOptions sent;
  sent.power = false;
  sent.openers = sent.once = true;
  sent.lists_every = seconds(7);
  sent.deadline = seconds(3);
  sent.root.dev = "/somewhere/dev";
  sent.library = "libother.so";
  sent.ignore_openers = {"monitor", ""};
  SamplerOptions heard;
  heard.processes = heard.topology = true;
  ASSERT_TRUE(decode(bytes_of(sent), heard));
  EXPECT_FALSE(heard.power);
  EXPECT_FALSE(heard.topology);
  EXPECT_TRUE(heard.processes && heard.openers && heard.once);
  EXPECT_EQ(heard.lists_every, seconds(7));
  EXPECT_EQ(heard.deadline, seconds(3));
  EXPECT_EQ(heard.root.dev, "/somewhere/dev");
  EXPECT_EQ(heard.library, "libother.so");
  EXPECT_EQ(heard.ignore_openers, sent.ignore_openers);
}

TEST(Wire, WhatDoesNotFitIsSaidNotCut) {
  std::mt19937 random(2);
  const Answer answer = some_answer(random);
  std::array<std::byte, 64> little{};
  Encoder out(little);
  encode(out, answer);
  EXPECT_TRUE(out.full());
}

TEST(Wire, HalfAMessageIsNone) {
  std::mt19937 random(3);
  const std::vector<std::byte> whole = bytes_of(some_answer(random));
  Answer answer;
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(decode(std::span(whole).first(size), answer));
  std::vector<std::byte> more = whole;
  more.push_back(std::byte{0});
  EXPECT_FALSE(decode(more, answer));
}

// A known value is a number, an unknown one has a reason: whatever a mad driver writes.
TEST(Wire, WhatADriverWroteOverIsRefusedOrStillSound) {
  std::mt19937 random(4);
  unsigned refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = bytes_of(some_answer(random));
    for (unsigned k = 0; k < 1 + random() % 8; ++k)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 4 == 0 ? 0xFF : random());
    Answer answer;
    if (!decode(bytes, answer)) {
      ++refused;
      continue;
    }
    for (std::size_t m = 0; m < kMetrics; ++m)
      ASSERT_EQ(answer.gpu.absence[m] == Absence::none, std::isfinite(answer.gpu.value[m]));
  }
  EXPECT_GT(refused, 1000U);
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::byte> bytes = bytes_of(some_report());
    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    MachineReport report;
    (void)decode(bytes, report);
  }
}

TEST(Wire, TheChecksumCoversEveryByteAndTheRound) {
  std::mt19937 random(5);
  std::vector<std::byte> bytes = bytes_of(some_answer(random));
  const std::uint64_t checksum = checksum_of(bytes, 9);
  EXPECT_NE(checksum_of(bytes, 10), checksum);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{1};
    EXPECT_NE(checksum_of(bytes, 9), checksum);
    bytes[i] ^= std::byte{1};
  }
}

}  // namespace
}  // namespace lull
