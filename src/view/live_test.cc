#include "view/live.h"
#include "view/leases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

namespace lull {
namespace {

using namespace std::chrono_literals;

Snapshot machine(unsigned gpus) {
  auto inventory = std::make_shared<Inventory>();
  Snapshot snapshot;
  for (unsigned i = 0; i < gpus; ++i) {
    Device device;
    device.index = i;
    device.uuid = "GPU-" + std::to_string(i);
    device.name = i % 2 == 0 ? "NVIDIA H100 80GB HBM3" : "Tesla T4";
    inventory->devices.push_back(device);
    Reading reading;
    reading.set(Metric::util, i * 7 % 101);
    reading.set(Metric::mem_used, 1e9 * i);
    reading.set(Metric::mem_total, 80e9);
    reading.processes.emplace();
    snapshot.readings.push_back(reading);
  }
  snapshot.inventory = inventory;
  return snapshot;
}

// Process 4711 computes on some of them.
void compute(Snapshot& snapshot, const std::vector<std::size_t>& gpus, const std::string& user,
             const std::vector<std::string>& arguments) {
  ProcessInfo info;
  info.pid = 4711;
  info.user = user;
  info.arguments = arguments;
  GpuProcess process;
  process.pid = 4711;
  process.compute = true;
  process.set_info(std::make_shared<const ProcessInfo>(info));
  for (const std::size_t gpu : gpus) snapshot.readings[gpu].processes->push_back(process);
}

StatusView all_of(const Snapshot& snapshot) {
  StatusView view{snapshot, {}, {}};
  for (std::size_t i = 0; i < snapshot.readings.size(); ++i) view.devices.push_back(i);
  return view;
}

Key letter(char c) { return {KeyKind::text, std::string(1, c)}; }

// The GPUs that are shown, by their numbers.
std::vector<std::string> shown(const std::vector<std::string>& lines) {
  std::vector<std::string> labels;
  for (std::size_t i = 2; i + 1 < lines.size() && !lines[i].empty(); ++i) {
    const std::size_t begin = lines[i].find_first_not_of(" >");
    labels.push_back(lines[i].substr(begin, lines[i].find(' ', begin) - begin));
  }
  return labels;
}

TEST(LiveScreen, FillsTheScreenAndNoMore) {
  const Snapshot snapshot = machine(128);
  std::mt19937 random(1);
  LiveScreen live;
  const auto view = all_of(snapshot);
  constexpr KeyKind kKeys[] = {KeyKind::up,  KeyKind::down,   KeyKind::page_up,   KeyKind::page_down, KeyKind::home,
                               KeyKind::end, KeyKind::escape, KeyKind::backspace, KeyKind::enter};
  for (int i = 0; i < 2000; ++i) {
    const Screen screen{.width = random() % 200, .height = random() % 60};
    const auto lines = live.draw(StatusRows(view), "11:04:29  every 1s", screen);
    ASSERT_EQ(lines.size(), screen.height);
    for (const std::string& line : lines) ASSERT_LE(display_width(line), screen.width) << line;
    (void)live.press(random() % 2 == 0 ? Key{kKeys[random() % std::size(kKeys)]} : letter("speh/x1"[random() % 7]));
  }
}

TEST(LiveScreen, ScrollsThroughAllOf128) {
  const Snapshot snapshot = machine(128);
  const Screen screen{.width = 120, .height = 20};
  LiveScreen live;
  const auto view = all_of(snapshot);
  std::vector<std::string> lines = live.draw(StatusRows(view), "", screen);
  EXPECT_EQ(shown(lines).front(), "0");
  EXPECT_EQ(shown(lines).size(), 17U);
  EXPECT_NE(lines.back().find("111 more below"), std::string::npos) << lines.back();
  EXPECT_NE(lines[2].find(">0"), std::string::npos) << lines[2];
  EXPECT_TRUE(live.press({KeyKind::end}));
  EXPECT_EQ(shown(live.draw(StatusRows(view), "", screen)).back(), "127");
  EXPECT_TRUE(live.press({KeyKind::page_up}));
  EXPECT_TRUE(live.press({KeyKind::up}));
  lines = live.draw(StatusRows(view), "", screen);
  EXPECT_NE(lines[2].find(">109"), std::string::npos) << lines[2];
  EXPECT_TRUE(live.press(letter('s')));
  EXPECT_NE(live.draw(StatusRows(view), "", screen)[2].find(" 100 %"), std::string::npos) << "the busiest, in sight";
  EXPECT_FALSE(live.press(letter('q')));
}

TEST(LiveScreen, SortsFiltersAndTellsWhy) {
  Snapshot snapshot = machine(6);
  snapshot.readings[4].miss(Metric::util, Absence::no_answer);
  const Screen screen{.width = 120, .height = 30};
  LiveScreen live;
  const auto view = all_of(snapshot);
  using Labels = std::vector<std::string>;
  EXPECT_EQ(shown(live.draw(StatusRows(view), "", screen)), (Labels{"0", "1", "2", "3", "4", "5"}));
  live.press(letter('s'));
  EXPECT_EQ(shown(live.draw(StatusRows(view), "", screen)), (Labels{"5", "3", "2", "1", "0", "4"}))
      << "unknown is last";
  for (int i = 0; i < 3; ++i) live.press(letter('s'));
  for (const char c : {'/', 't', '4'}) live.press(letter(c));
  EXPECT_EQ(shown(live.draw(StatusRows(view), "", screen)), (Labels{"1", "3", "5"}));
  EXPECT_NE(live.draw(StatusRows(view), "", screen).back().find("show only: t4_"), std::string::npos);
  live.press(letter('q'));  // a letter of the filter, not the end
  EXPECT_EQ(live.draw(StatusRows(view), "", screen)[2], "no GPU matches");
  live.press({KeyKind::backspace});
  live.press({KeyKind::enter});
  live.press({KeyKind::escape});
  (void)live.draw(StatusRows(view), "", screen);
  for (int i = 0; i < 4; ++i) live.press({KeyKind::down});
  live.press(letter('e'));
  const auto lines = live.draw(StatusRows(view), "", screen);
  EXPECT_NE(std::ranges::find_if(lines, [](const std::string& line) { return line.contains("unknown: util ("); }),
            lines.end());
  EXPECT_NE(lines[6].find(">4"), std::string::npos) << lines[6];
}

TEST(LiveScreen, ShowsLeasesAndThoseWhoWait) {
  LeasesView leases;
  for (const char* label : {"0", "1", "2"}) {
    LeaseInfo lease;
    lease.gpu = std::string("GPU-") + label;
    lease.record.label = label;
    lease.record.kind = LeaseKind::hold;
    lease.record.command = std::string("train-") + label;
    leases.state.leases.push_back(lease);
  }
  leases.state.tickets.resize(1);
  leases.state.tickets[0].record.count = leases.state.tickets[0].record.missing = 2;
  leases.gpus["GPU-0"] = {.util = 0, .idle_for = 19s, .idle_for_longer = true};
  leases.gpus["GPU-1"] = {.util = 70};
  leases.gpus["GPU-2"] = {.trouble = "GPU is lost"};
  LiveScreen live;
  const LeaseRows rows(leases);
  const Screen screen{.width = 80, .height = 16};
  auto lines = live.draw(rows, "", screen);
  EXPECT_NE(lines[0].find("3 GPUs are leased, 1 waits"), std::string::npos) << lines[0];
  for (const char* title : {"STATE", "UTIL", "IDLE FOR", "COMMAND"})
    EXPECT_NE(lines[1].find(title), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("≥19s"), std::string::npos) << lines[2];
  EXPECT_NE(lines[5].find("waits for 2"), std::string::npos) << lines[5];
  EXPECT_EQ(lines.back().find("processes"), std::string::npos) << lines.back();
  live.press(letter('s'));
  EXPECT_EQ(shown(live.draw(rows, "", screen)), (std::vector<std::string>{"1", "0", "2", "-"})) << "by util";
  live.press({KeyKind::down});
  live.press({KeyKind::down});
  live.press(letter('e'));
  lines = live.draw(rows, "", screen);
  EXPECT_NE(std::ranges::find(lines, "  util is unknown: GPU is lost"), lines.end());
}

TEST(Keys, ArriveInPieces) {
  KeyReader reader;
  EXPECT_EQ(reader.feed("q\033"), (std::vector<Key>{letter('q')}));
  EXPECT_TRUE(reader.pending());
  EXPECT_EQ(reader.feed("[A\033[5~\r"), (std::vector<Key>{{KeyKind::up}, {KeyKind::page_up}, {KeyKind::enter}}));
  EXPECT_EQ(reader.feed("\033[1;5Cx\xc3"), (std::vector<Key>{letter('x')})) << "what nobody knows is passed over";
  EXPECT_EQ(reader.feed("\xbc"), (std::vector<Key>{{KeyKind::text, "ü"}}));
  EXPECT_EQ(reader.feed("\033"), std::vector<Key>{});
  EXPECT_EQ(reader.flush(), (std::vector<Key>{{KeyKind::escape}}));
  EXPECT_FALSE(reader.pending());
}

TEST(StatusSummary, CountsEachOnce) {
  Snapshot snapshot = machine(5);  // util 0, 7, 14, 21, 28
  snapshot.readings[4].miss(Metric::util, Absence::lost);
  StatusView view = all_of(snapshot);
  view.extras.resize(5);
  EXPECT_EQ(status_summary(view), "5 GPUs: 3 busy, 1 free, 1 unknown");
  view.extras[0].leases = {LeaseView{"carol", 7, "x", {}}};
  EXPECT_EQ(status_summary(view), "5 GPUs: 3 busy, 1 held idle, 1 unknown");
}

// Of a MIG device no driver says how busy it is; `lull pick` hands out an empty one all the same.
TEST(StatusSummary, AnEmptyMigDeviceIsFree) {
  Snapshot snapshot = machine(3);
  for (Reading& reading : snapshot.readings) {
    reading.miss(Metric::util, Absence::not_supported);
    reading.set(Metric::mem_used, 8e6);
  }
  EXPECT_EQ(status_summary(all_of(snapshot)), "3 GPUs: 3 free");
  snapshot.readings[0].set(Metric::mem_used, 2e9);         // whose?
  snapshot.readings[1].processes->push_back({});           // busy or not?
  snapshot.readings[2].miss(Metric::util, Absence::lost);  // it has one, and did not tell
  EXPECT_EQ(status_summary(all_of(snapshot)), "3 GPUs: 3 unknown");
}

TEST(StatusTable, At80ColumnsIdleOwnerAndCommandStay) {
  Snapshot snapshot = machine(2);
  compute(snapshot, {1}, "alexandra", {"python3", "train.py", "--config", "/home/alexandra/experiments/large.yaml"});
  StatusView view = all_of(snapshot);
  view.extras.resize(2);
  view.extras[1].idle_for = 3h + 12min;
  view.extras[1].idle_for_longer = true;
  const auto lines = status_table(view, {.width = 80});
  for (const char* title : {"IDLE FOR", "OWNER", "COMMAND"})
    EXPECT_NE(lines[0].find(title), std::string::npos) << lines[0];
  EXPECT_NE(lines[2].find("≥3h12m"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("alexandra"), std::string::npos) << lines[2];
  EXPECT_NE(lines[2].find("4711 python3 tra"), std::string::npos) << lines[2];
  EXPECT_EQ(lines[0].find("TEMP"), std::string::npos) << lines[0];
  EXPECT_NE(status_table(view, {.width = 160})[0].find("TEMP"), std::string::npos);
}

TEST(StatusTable, ALeaseIsSeenAtEveryWidth) {
  Snapshot snapshot = machine(3);
  compute(snapshot, {1, 2}, "ada", {"python", "train.py"});
  StatusView view = all_of(snapshot);
  view.extras.resize(3);
  for (StatusExtra& extra : view.extras) extra.leases = {LeaseView{"ada", 77, "python train.py --epochs 100", {}}};
  view.extras[2].leases[0].user = "bob";
  for (std::size_t width = 60; width < 200; ++width) {
    const auto lines = status_table(view, {.width = width});
    const bool column = lines[0].find("LEASED TO") != std::string::npos;
    for (const std::size_t row : {1, 2, 3})
      EXPECT_NE(lines[row].find(column ? "77: p" : "leased"), std::string::npos) << width << "\n" << lines[row];
    if (width == 80) {
      EXPECT_NE(lines[1].find("leased: ada"), std::string::npos) << lines[1];
      EXPECT_NE(lines[2].find("ada (leased)"), std::string::npos) << lines[2];
      EXPECT_NE(lines[3].find("ada (leased: bob)"), std::string::npos) << lines[3];
      EXPECT_NE(lines[1].find("H100 80GB"), std::string::npos) << lines[1];
    }
    if (width >= 120) {
      EXPECT_NE(lines[0].find("POWER"), std::string::npos) << lines[0];
    }
  }
}

TEST(StatusTable, AllWhoShareAGpuAreNamedAtEveryWidth) {
  Snapshot snapshot = machine(2);
  compute(snapshot, {1}, "alexandra", {"python3", "train.py", "--config", "/home/alexandra/experiments/large.yaml"});
  compute(snapshot, {1}, "bob", {"./infer"});
  StatusView view = all_of(snapshot);
  for (std::size_t width = 40; width < 200; ++width)
    EXPECT_NE(status_table(view, {.width = width})[2].find("alexandra,bob"), std::string::npos) << width;
  view.extras.resize(2);
  view.extras[0].leases = {LeaseView{"ada", 77, "python train.py", {}}, LeaseView{"carol", 78, "./x", {}}};
  for (std::size_t width = 60; width < 200; ++width) {
    const auto lines = status_table(view, {.width = width});
    for (const char* name : {"ada", "carol"})
      EXPECT_NE(lines[1].find(name), std::string::npos) << width << "\n" << lines[1];
  }
}

TEST(StatusTable, AFillerIsNoStranger) {
  Snapshot snapshot = machine(3);
  compute(snapshot, {1, 2}, "ada", {"./background.sh"});
  StatusView view = all_of(snapshot);
  view.extras.resize(3);
  view.extras[1].fillers = {4711};
  EXPECT_NE(status_table(view, {.width = 80})[2].find("ada's filler"), std::string::npos);
  EXPECT_EQ(status_table(view, {.width = 80})[3].find("filler"), std::string::npos);
  EXPECT_EQ(status_summary(view), "3 GPUs: 1 busy, 1 filled, 1 free");
  EXPECT_NE(status_json(view, -1).find(R"("pid":4711,"type":"C","mem_used_bytes":null,"mps_server":false,)"),
            std::string::npos);
  EXPECT_NE(status_json(view, -1).find(R"("filler":true)"), std::string::npos);
  view.extras[1].leases = {LeaseView{"bob", 7, "x", {}}};
  EXPECT_EQ(status_summary(view), "3 GPUs: 2 busy, 1 free") << "somebody has leased it: it is no longer to be had";
}

TEST(LiveScreen, NoKeyOfTheLastLineIsCut) {
  const Snapshot snapshot = machine(8);
  const StatusView view = all_of(snapshot);
  for (std::size_t width = 20; width < 140; ++width) {
    LiveScreen screen;
    const auto lines = screen.draw(StatusRows(view), "12:00:00  every 1s", {.width = width, .height = 24});
    EXPECT_EQ(lines.back().find("…"), std::string::npos) << width << ": " << lines.back();
    EXPECT_NE(lines.back().find("q leave"), std::string::npos) << width << ": " << lines.back();
    EXPECT_LE(display_width(lines.back()), width);
    if (width >= 60) {
      EXPECT_NE(lines.front().find("8 GPUs: 7 busy, 1 free"), std::string::npos) << lines.front();
    }
  }
}

TEST(LeasesTable, TheCommandGivesWayBeforeTheState) {
  LeasesView leases;
  leases.state.leases.resize(1);
  LeaseRecord& record = leases.state.leases[0].record;
  record.label = "6";
  record.kind = LeaseKind::hold;
  record.until = WallTime(1710500669052ms);
  record.command = "/home/alexandra/envs/large/bin/python train.py --config experiments/large.yaml";
  leases.state.tickets.resize(1);
  leases.state.tickets[0].record.count = leases.state.tickets[0].record.missing = 4;
  leases.state.tickets[0].record.command = record.command;
  for (const std::size_t width : {50U, 60U, 80U, 120U}) {
    const auto lines = leases_table(leases, {.width = width});
    EXPECT_NE(lines[0].find("FOR  STATE"), std::string::npos) << lines[0];
    EXPECT_NE(lines[1].find("held until "), std::string::npos) << lines[1];
    EXPECT_NE(lines[2].find("waits for 4"), std::string::npos) << lines[2];
    EXPECT_NE(lines[1].find("/home/"), std::string::npos) << lines[1];
  }
  EXPECT_EQ(leases_table(leases, {.width = 60})[0].find("IDLE FOR"), std::string::npos) << "nothing to say";
}

}  // namespace
}  // namespace lull
