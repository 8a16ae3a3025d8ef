#include "view/status.h"
#include "view/events.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

GpuProcess process(pid_t pid, bool compute, bool graphics, std::optional<std::uint64_t> bytes) {
  GpuProcess one;
  one.pid = pid;
  one.compute = compute;
  one.graphics = graphics;
  one.memory_bytes = bytes;
  return one;
}

// Three GPUs: a busy one with two processes, one without a fan, one lost.
Snapshot example() {
  auto inventory = std::make_shared<Inventory>();
  inventory->driver_version = "535.309";
  for (unsigned i = 0; i < 3; ++i) {
    Device device;
    device.index = i;
    device.uuid = "GPU-" + std::to_string(i);
    device.name = i == 1 ? "Tesla T4" : "NVIDIA H100 80GB HBM3";
    device.pci = "00000000:0" + std::to_string(i) + ":00.0";
    inventory->devices.push_back(device);
  }
  inventory->devices[2].absence = Absence::lost;
  Snapshot snapshot;
  snapshot.inventory = inventory;
  snapshot.wall = WallTime(1710500669052ms);
  snapshot.readings.resize(3);
  Reading& busy = snapshot.readings[0];
  busy.set(Metric::util, 72.25);
  busy.set(Metric::mem_used, 8.0 * (1ULL << 30));
  busy.set(Metric::mem_total, 80.0 * (1ULL << 30));
  busy.set(Metric::power, 412.4);
  busy.set(Metric::power_limit, 700);
  busy.set(Metric::temp, 61);
  busy.util_basis = Basis::mean;
  busy.util_coverage = 0.95;
  busy.display_active = true;
  busy.throttle_reasons = 0x5;  // idle and power cap: the first does not count
  busy.processes = {process(100, true, false, 1ULL << 30), process(200, true, true, 7ULL << 30),
                    process(300, false, true, {})};
  ProcessInfo alice;
  alice.pid = 200;
  alice.user = "alice";
  alice.name = "python";
  alice.arguments = {"python", "train.py\x1b[2J\n", "--name=\xff"};
  (*busy.processes)[1].info = std::make_shared<const ProcessInfo>(alice);
  ProcessInfo bob = alice;
  bob.pid = 100;
  bob.user = "bob";
  (*busy.processes)[0].info = std::make_shared<const ProcessInfo>(bob);
  Reading& fanless = snapshot.readings[1];
  fanless.set(Metric::util, 0);
  fanless.miss(Metric::fan, Absence::not_supported);
  fanless.throttle_reasons = 0;
  fanless.processes.emplace();
  snapshot.readings[2].miss_all(Absence::lost);
  return snapshot;
}

TEST(StatusJson, NumbersAreNumbersAndUnknownIsNull) {
  const Snapshot snapshot = example();
  const Json json = Json::parse(status_json({snapshot, {0, 1, 2}, {}}));
  EXPECT_EQ(json["time"], "2024-03-15T11:04:29.052Z");
  const Json& gpus = json["gpus"];
  ASSERT_EQ(gpus.size(), 3U);
  EXPECT_EQ(gpus[0]["util_percent"], 72.25);
  EXPECT_EQ(gpus[0]["util_basis"], "mean");
  EXPECT_EQ(gpus[0]["util_coverage"], 0.95);
  EXPECT_EQ(gpus[0]["asleep"], false);
  EXPECT_EQ(gpus[0]["display_active"], true);
  EXPECT_EQ(gpus[0]["memory_estimated"], false);
  EXPECT_TRUE(gpus[1]["util_coverage"].is_null()) << "only a mean covers a time";
  EXPECT_TRUE(gpus[1]["display_active"].is_null());
  EXPECT_EQ(gpus[0]["mem_used_bytes"], 8589934592);
  EXPECT_TRUE(gpus[0]["mem_used_bytes"].is_number_integer());
  EXPECT_EQ(gpus[0]["temp_celsius"], 61);
  EXPECT_EQ(gpus[0]["throttling"], true);
  EXPECT_EQ(gpus[0]["throttle_reasons"], Json::array({"power_cap"}));
  EXPECT_TRUE(gpus[0]["error"].is_null());
  EXPECT_EQ(gpus[1]["fan_percent"], nullptr);
  EXPECT_EQ(gpus[1]["unknown"]["fan_percent"], "not supported");
  EXPECT_EQ(gpus[1]["throttling"], false);
  EXPECT_EQ(gpus[1]["processes"], Json::array());
  EXPECT_EQ(gpus[2]["error"], "GPU is lost");
  EXPECT_TRUE(gpus[2]["util_percent"].is_null());
  EXPECT_TRUE(gpus[2]["processes"].is_null());
}

TEST(StatusJson, ProcessesAreJoinedWhereTheyCanBeSeen) {
  const Snapshot snapshot = example();
  const Json processes = Json::parse(status_json({snapshot, {0}, {}}))["gpus"][0]["processes"];
  ASSERT_EQ(processes.size(), 3U);
  EXPECT_EQ(processes[1]["user"], "alice");
  EXPECT_EQ(processes[1]["type"], "C+G");
  EXPECT_EQ(processes[2]["pid"], 300);
  EXPECT_TRUE(processes[2]["user"].is_null());
  EXPECT_TRUE(processes[2]["mem_used_bytes"].is_null());
}

TEST(StatusTable, OneRowAGpuAndTroubleInWords) {
  const Snapshot snapshot = example();
  const auto lines = status_table({snapshot, {0, 1, 2}, {}}, {.width = 160});
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_NE(lines[1].find("72 %"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("8.0 / 80.0 GiB"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("412 / 700 W"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("alice,bob,?"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("+2 200 python train.py"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[1].find('\033'), std::string::npos) << "a process name reached the terminal's controls";
  EXPECT_NE(lines[3].find("GPU is lost"), std::string::npos) << lines[3];
}

TEST(StatusTable, SaysForHowLongTheDriverDoesNotAnswer) {
  Snapshot snapshot = example();
  snapshot.readings[1].miss_all(Absence::no_answer);
  snapshot.readings[1].unanswered = 12345ms;
  const auto lines = status_table({snapshot, {1}, {}}, {.width = 120});
  EXPECT_NE(lines[1].find("driver has not answered for 12s"), std::string::npos) << lines[1];
}

// Suspended by the kernel: known to do nothing, and left alone.
Snapshot with_a_sleeper() {
  Snapshot snapshot = example();
  Reading& asleep = snapshot.readings[1];
  asleep.miss_all(Absence::asleep);
  asleep.asleep = true;
  asleep.set(Metric::util, 0);
  return snapshot;
}

TEST(StatusTable, ASleepingGpuIsNoTrouble) {
  const Snapshot snapshot = with_a_sleeper();
  const auto lines = status_table({snapshot, {1, 0}, {}}, {.width = 120});
  EXPECT_TRUE(lines[1].ends_with("asleep               -            -     -")) << lines[1];
  EXPECT_EQ(lines[1].find('%'), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("72 %"), std::string::npos) << lines[2];
}

TEST(StatusJson, ASleepingGpuIsIdleAndTheRestUnknown) {
  const Snapshot snapshot = with_a_sleeper();
  const Json json = Json::parse(status_json({snapshot, {1}, {}}))["gpus"][0];
  EXPECT_EQ(json["asleep"], true);
  EXPECT_EQ(json["util_percent"], 0);
  EXPECT_TRUE(json["error"].is_null()) << json["error"];
  EXPECT_TRUE(json["mem_used_bytes"].is_null());
  EXPECT_EQ(json["unknown"]["mem_used_bytes"], "asleep");
}

TEST(StatusTable, EstimatedMemoryIsMarked) {
  Snapshot snapshot = example();
  snapshot.readings[0].memory_estimated = true;
  EXPECT_NE(status_table({snapshot, {0}, {}}, {.width = 160})[1].find("~8.0 / 80.0 GiB"), std::string::npos);
  EXPECT_EQ(Json::parse(status_json({snapshot, {0}, {}}))["gpus"][0]["memory_estimated"], true);
}

TEST(StatusTable, AnMpsServerIsNobodyWhoHoldsTheGpu) {
  Snapshot snapshot = example();
  (*snapshot.readings[0].processes)[1].mps_server = true;
  const std::string line = status_table({snapshot, {0}, {}}, {.width = 160})[1];
  EXPECT_EQ(line.find("alice"), std::string::npos) << line;
  EXPECT_NE(line.find("bob"), std::string::npos) << line;
  EXPECT_EQ(status_csv({snapshot, {0}, {}}).find("alice"), std::string::npos);
  const Json processes = Json::parse(status_json({snapshot, {0}, {}}))["gpus"][0]["processes"];
  EXPECT_EQ(processes[1]["mps_server"], true) << "programs are told, and decide themselves";
  EXPECT_EQ(processes[0]["mps_server"], false);
}

// A number of the host's may be that of somebody else in our container.
TEST(StatusTable, APidOfAnotherNamespaceIsNotJoined) {
  Snapshot snapshot = example();
  GpuProcess& process = (*snapshot.readings[0].processes)[1];
  const auto alice = std::exchange(process.info, nullptr);
  process.here = false;
  process.set_info(alice);
  const std::string line = status_table({snapshot, {0}, {}}, {.width = 160})[1];
  EXPECT_EQ(line.find("alice"), std::string::npos) << line;
  EXPECT_NE(line.find("200 (not visible from here)"), std::string::npos) << line;
  EXPECT_TRUE(Json::parse(status_json({snapshot, {0}, {}}))["gpus"][0]["processes"][1]["user"].is_null());
  EXPECT_EQ(status_csv({snapshot, {0}, {}}).find("alice"), std::string::npos);
}

TEST(StatusTable, WhoIsNotProvenToBeThereIsMarkedAndAStaleNumberNamesNobody) {
  Snapshot snapshot = example();
  GpuProcess& process = (*snapshot.readings[0].processes)[1];
  const auto line = [&] { return status_table({snapshot, {0}, {}}, {.width = 160})[1]; };
  const auto told = [&] { return Json::parse(status_json({snapshot, {0}, {}}))["gpus"][0]["processes"][1]; };
  EXPECT_EQ(told()["proof"], "proven");
  process.proof = Proof::unproven;
  EXPECT_NE(line().find("alice"), std::string::npos) << line();
  EXPECT_NE(line().find("(unproven)"), std::string::npos) << line();
  EXPECT_EQ(told()["proof"], "unproven");
  process.proof = Proof::proven;
  const auto alice = std::exchange(process.info, nullptr);
  process.start_ticks = alice->start_ticks + 1;
  process.set_info(alice);
  EXPECT_EQ(line().find("alice"), std::string::npos) << "she got the number later: " << line();
  process.proof = Proof::stale;
  process.here = false;
  EXPECT_EQ(line().find("alice"), std::string::npos) << line();
  EXPECT_NE(line().find("(has ended"), std::string::npos) << line();
  EXPECT_EQ(told()["proof"], "stale");
  EXPECT_TRUE(told()["user"].is_null());
}

TEST(StatusTable, WhereProcessesMayBeHiddenNobodyIsNotSaid) {
  Snapshot snapshot = example();
  Reading& quiet = snapshot.readings[1];
  quiet.set(Metric::mem_used, 5.0 * (1ULL << 30));
  quiet.set(Metric::mem_total, 16.0 * (1ULL << 30));
  const auto owner = [&] {
    const std::string line = status_table({snapshot, {1}, {}}, {.width = 160})[1];
    return line.substr(line.find_last_not_of(' '));
  };
  EXPECT_EQ(owner(), "-") << "nobody is there";
  quiet.processes_hidden = true;
  EXPECT_EQ(owner(), "?") << "who holds the 5 GiB?";
  quiet.set(Metric::mem_used, 0);
  EXPECT_EQ(owner(), "-") << "who holds nothing is not there";
}

TEST(StatusTable, AGpuThatWeMayNotUseKeepsItsRow) {
  Snapshot snapshot = example();
  snapshot.readings[1].miss_all(Absence::no_permission);
  const auto lines = status_table({snapshot, {1}, {}}, {.width = 120, .colour = true});
  EXPECT_NE(lines[1].find("\033[2mno permission"), std::string::npos) << lines[1];
}

TEST(StatusTable, PlainScreensGetAsciiOnly) {
  Snapshot snapshot = example();
  ProcessInfo renamed = *(*snapshot.readings[0].processes)[1].info;
  renamed.user = "grüß";
  (*snapshot.readings[0].processes)[1].info = std::make_shared<const ProcessInfo>(renamed);
  for (const std::string& line : status_table({snapshot, {0, 1, 2}, {}}, {.width = 90, .utf8 = false}))
    for (const char c : line) EXPECT_GT(c, 0) << line;
}

TEST(StatusTable, IdleTimesAndLeasesHaveColumnsOnlyWhereThereAreAny) {
  const Snapshot snapshot = example();
  EXPECT_EQ(status_table({snapshot, {0, 1}, {}}, {.width = 200})[0].find("IDLE FOR"), std::string::npos);
  std::vector<StatusExtra> extras(2);
  extras[1].idle_for = 75s;
  extras[1].leases = {LeaseView{"carol", 77, "sleep 9", snapshot.wall - 3h - 12min}};
  const auto lines = status_table({snapshot, {0, 1}, extras}, {.width = 200});
  EXPECT_NE(lines[2].find("1m15s"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("carol 77 for 3h12m: sleep 9"), std::string::npos) << lines[2];
}

TEST(StatusCsv, OneRowAGpuQuotedWhereNeeded) {
  Snapshot snapshot = example();
  auto inventory = std::make_shared<Inventory>(*snapshot.inventory);
  inventory->devices[0].name = "odd, \"name\"";
  snapshot.inventory = inventory;
  const std::string text = status_csv({snapshot, {0, 2}, {}});
  const auto lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[0].find("\"odd, \"\"name\"\"\",72.25,,8589934592"), std::string::npos) << lines[0];
  EXPECT_TRUE(lines[1].ends_with("GPU is lost")) << lines[1];
  const std::string header = status_csv_header();
  EXPECT_EQ(split(header, ',').size(), split(lines[1], ',').size());
}

TEST(WouldTextTest, WhatIsNotDoneIsSaidAsASentence) {
  const auto would = [](std::initializer_list<const char*> texts) {
    std::vector<ActionOption> actions;
    for (const char* text : texts) actions.push_back(*parse_action(text));
    return would_text(actions);
  };
  EXPECT_EQ(would({"shutdown", "exit=3"}), "shut down, then exit with 3");
  EXPECT_EQ(would({"exec=stop, then exec=x", "end"}), "run stop, then exec=x, then end") << "a command stays as it is";
  EXPECT_EQ(would({"kill=holders"}), "end its holders");
  EXPECT_EQ(would({}), "");
}

}  // namespace
}  // namespace lull
