#include "sense/learned_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace lull {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

const std::string kUuid = "GPU-5c5dcd5c-0000-1111-2222-333344445555";

class LearnedStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "learned.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    top_ = name;
    folder_ = top_ + "/state/lull/learned";
    file_ = folder_ + "/" + kUuid;
  }
  void TearDown() override { fs::remove_all(top_); }

  LearnedStore store() const { return LearnedStore(folder_, ::geteuid()); }
  static PowerLearner::Learned some(double seconds = 600) {
    PowerLearner::Learned learned{.idle_watts = 61.25, .limit_watts = 700, .seconds = seconds, .stride = 4};
    for (int i = 0; i < 30; ++i)
      learned.windows.push_back({static_cast<float>(70 + i), static_cast<float>(400 + 7 * i)});
    return learned;
  }
  void write(const std::string& text) const {
    fs::create_directories(folder_);
    fs::permissions(folder_, fs::perms::owner_all);
    std::ofstream(file_) << text;
    fs::permissions(file_, fs::perms::owner_read | fs::perms::owner_write);
  }
  // Why the file is ignored; empty: it is not.
  std::string ignored() const {
    const auto loaded = store().load(kUuid);
    if (loaded) return "";
    EXPECT_EQ(loaded.error().message().find('\n'), std::string::npos);
    EXPECT_NE(loaded.error().message().find("is ignored: "), std::string::npos) << loaded.error().message();
    return loaded.error().message();
  }

  std::string top_;
  std::string folder_;
  std::string file_;
};

TEST_F(LearnedStoreTest, WhatIsKeptComesBack) {
  ASSERT_TRUE(store().load(kUuid)) << "nothing is kept";
  EXPECT_FALSE(store().load(kUuid)->has_value());
  const PowerLearner::Learned learned = some();
  ASSERT_TRUE(store().save(kUuid, learned));
  const auto loaded = store().load(kUuid);
  ASSERT_TRUE(loaded && *loaded);
  EXPECT_EQ((*loaded)->idle_watts, learned.idle_watts);
  EXPECT_EQ((*loaded)->limit_watts, learned.limit_watts);
  EXPECT_EQ((*loaded)->seconds, learned.seconds);
  EXPECT_EQ((*loaded)->stride, learned.stride);
  EXPECT_EQ((*loaded)->windows, learned.windows);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "no draft is left";
}

TEST_F(LearnedStoreTest, CardsWithoutALimitAndWithoutWorkAreKept) {
  ASSERT_TRUE(store().save(kUuid, {.idle_watts = 4}));
  const auto loaded = store().load(kUuid);
  ASSERT_TRUE(loaded && *loaded);
  EXPECT_EQ((*loaded)->idle_watts, 4);
  EXPECT_TRUE(std::isnan((*loaded)->limit_watts));
  EXPECT_TRUE((*loaded)->windows.empty());
}

TEST_F(LearnedStoreTest, WhoLearnedMoreStays) {
  ASSERT_TRUE(store().save(kUuid, some(5000)));
  ASSERT_TRUE(store().save(kUuid, some(600)));
  EXPECT_EQ((**store().load(kUuid)).seconds, 5000);
  PowerLearner::Learned other = some(600);
  other.limit_watts = 300;  // the limit was changed, and learning began anew
  ASSERT_TRUE(store().save(kUuid, other));
  EXPECT_EQ((**store().load(kUuid)).seconds, 600);
}

TEST_F(LearnedStoreTest, DamagedFilesAreIgnored) {
  const std::string good = learned_text(kUuid, some());
  write(good);
  ASSERT_EQ(ignored(), "");
  for (std::size_t length = 1; length < good.size(); length += 7) {
    write(good.substr(0, length));
    EXPECT_NE(ignored(), "") << length;
  }
  write("");  // the machine stopped before it was written
  EXPECT_EQ(ignored(), "");
  EXPECT_FALSE(store().load(kUuid)->has_value());
  for (const std::string& bad :
       {good + "more\n", "lull-learned 2\n" + good.substr(15), learned_text("GPU-another", some()),
        std::string(100'000, 'x'), std::string("\0\0\0\n", 4), good.substr(0, good.size() - 4) + "window 50 nan\nend\n",
        good.substr(0, good.size() - 4) + "window 0 50\nend\n", good.substr(0, good.size() - 4) + "window 50 -1\nend\n",
        good.substr(0, good.size() - 4) + "idle_watts 3\nend\n",
        std::string("lull-learned 1\nuuid ") + kUuid + "\nseconds 600\nstride 1\nend\n",
        std::string("lull-learned 1\nuuid ") + kUuid + "\nseconds 1e300\nstride 1\nwindow 50 50\nend\n",
        std::string("lull-learned 1\nuuid ") + kUuid + "\nseconds 60\nstride 0\nwindow 50 50\nend\n"}) {
    write(bad);
    EXPECT_NE(ignored(), "") << bad.substr(0, 200);
  }
  std::string many = good.substr(0, good.size() - 4);
  for (int i = 0; i < 300; ++i) many += "window 50 50\n";
  write(many + "end\n");
  EXPECT_NE(ignored(), "");
}

TEST_F(LearnedStoreTest, ScribbledFilesNeverLoadAsSomethingImplausible) {
  std::mt19937 random(3);
  const std::string good = learned_text(kUuid, some());
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (unsigned k = 0; k < 1 + random() % 4; ++k) text[random() % text.size()] = static_cast<char>(random());
    const auto read = parse_learned(text, kUuid);
    if (!read) continue;
    EXPECT_TRUE(std::isnan(read->idle_watts) || plausible(Metric::power, read->idle_watts));
    EXPECT_LE(read->windows.size(), PowerLearner::kMostWindows);
    for (const PowerLearner::Window& one : read->windows)
      EXPECT_TRUE(one.util >= 5 && one.util <= 100 && one.watts >= 0) << one.util << " " << one.watts;
  }
}

TEST_F(LearnedStoreTest, FilesThatOthersCanWriteAreIgnored) {
  ASSERT_TRUE(store().save(kUuid, some()));
  ::chmod(file_.c_str(), 0666);
  EXPECT_NE(ignored().find("everybody"), std::string::npos);
  ::chmod(file_.c_str(), 0600);
  EXPECT_EQ(ignored(), "");
  for (const std::string& folder : {folder_, top_ + "/state/lull", top_ + "/state"}) {
    ::chmod(folder.c_str(), 0777);
    EXPECT_NE(ignored().find(folder), std::string::npos);
    EXPECT_FALSE(store().save(kUuid, some(9000)));
    ::chmod(folder.c_str(), 0700);
    EXPECT_EQ(ignored(), "");
  }
}

TEST_F(LearnedStoreTest, RootDoesNotBelieveWhatAUserCouldHaveWritten) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_TRUE(store().save(kUuid, some()));
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(::chown(file_.c_str(), kNobody, kNobody), 0);
  EXPECT_NE(ignored().find("belongs to uid 65534"), std::string::npos);
  ASSERT_EQ(::chown(file_.c_str(), 0, 0), 0);
  EXPECT_EQ(ignored(), "");
  // A folder of theirs: whatever is in it, they can put it there.
  ASSERT_EQ(::chown((top_ + "/state").c_str(), kNobody, kNobody), 0);
  EXPECT_NE(ignored().find("belongs to uid 65534"), std::string::npos);
  EXPECT_FALSE(store().save(kUuid, some(9000)));
}

TEST_F(LearnedStoreTest, WhatIsNoFileIsIgnoredAndNotWaitedFor) {
  fs::create_directories(folder_);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_NE(ignored(), "");
  fs::remove(file_);
  fs::create_symlink("/etc/passwd", file_);
  EXPECT_NE(ignored(), "");
  fs::remove(file_);
  fs::create_directory(file_);
  EXPECT_NE(ignored(), "");
  EXPECT_FALSE(store().save(kUuid, some())) << "and it is not replaced";
}

TEST_F(LearnedStoreTest, AFileWithTwoNamesIsIgnored) {
  ASSERT_TRUE(store().save(kUuid, some()));
  fs::create_hard_link(file_, top_ + "/other");
  EXPECT_NE(ignored(), "");
}

TEST_F(LearnedStoreTest, AUuidThatIsNoFileNameIsKeptNowhere) {
  for (const std::string uuid : {"", "../../etc/passwd", ".", "..", "a/b", "-rf", "a b"}) {
    EXPECT_TRUE(store().save(uuid, some()));
    EXPECT_FALSE(store().load(uuid)->has_value());
  }
  EXPECT_FALSE(fs::exists(top_ + "/state"));
  EXPECT_TRUE(LearnedStore("", ::geteuid()).save(kUuid, some()));
}

TEST(LearnedFolderTest, IsWhereTheUserKeepsState) {
  for (const char* name : {"LULL_LEARNED", "LULL_SIM", "XDG_STATE_HOME", "HOME"}) ::unsetenv(name);
  EXPECT_EQ(learned_folder(1000), "");
  ::setenv("HOME", "/home/ada", 1);
  EXPECT_EQ(learned_folder(1000), "/home/ada/.local/state/lull/learned");
  EXPECT_EQ(learned_folder(0), "/var/lib/lull/learned") << "a HOME that sudo kept is somebody else's";
  ::setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(learned_folder(1000), "/state/lull/learned");
  ::setenv("LULL_SIM", "/sim", 1);
  EXPECT_EQ(learned_folder(0), "/sim/learned");
  ::setenv("LULL_LEARNED", "/else", 1);
  EXPECT_EQ(learned_folder(0), "/else");
  ::setenv("LULL_LEARNED", "", 1);
  EXPECT_EQ(learned_folder(0), "");
  for (const char* name : {"LULL_LEARNED", "LULL_SIM", "XDG_STATE_HOME", "HOME"}) ::unsetenv(name);
}

// ---- CardLearners

struct Machine {
  std::shared_ptr<Inventory> inventory = std::make_shared<Inventory>();
  Instant at{1h};

  explicit Machine(std::vector<std::string> uuids) {
    for (std::size_t i = 0; i < uuids.size(); ++i) {
      Device device;
      device.index = static_cast<unsigned>(i);
      device.uuid = uuids[i];
      device.pci = "00000000:0" + std::to_string(i) + ":00.0";
      inventory->devices.push_back(device);
    }
  }
  Snapshot sample(double util, double watts) {
    Snapshot snapshot;
    snapshot.at = at += 5s;
    snapshot.inventory = inventory;
    snapshot.readings.resize(inventory->devices.size());
    for (Reading& reading : snapshot.readings) {
      reading.set(Metric::util, util);
      reading.set(Metric::power, watts);
      reading.set(Metric::power_limit, 700);
    }
    return snapshot;
  }
  void work(CardLearners& learners, int samples, double util, double watts) {
    for (int i = 0; i < samples; ++i) {
      Snapshot snapshot = sample(util, watts);
      learners.learn(snapshot);
    }
  }
};

TEST_F(LearnedStoreTest, LearningGoesOnWhereTheLastOneStopped) {
  Machine machine({kUuid});
  {
    CardLearners learners(store(), true);
    EXPECT_TRUE(learners.meet(*machine.inventory).empty());
    machine.work(learners, 20, 0, 70);
    machine.work(learners, 60, 100, 570);
    EXPECT_FALSE(fs::exists(file_));
  }
  ASSERT_TRUE(fs::exists(file_));
  CardLearners again(store(), false);
  EXPECT_TRUE(again.meet(*machine.inventory).empty());
  Snapshot snapshot = machine.sample(100, 152);
  again.learn(snapshot);  // the first sample of all
  EXPECT_NEAR(snapshot.readings[0][Metric::effort], 16.4, 0.1);
  EXPECT_EQ(snapshot.readings[0][Metric::idle_power], 70);
  EXPECT_EQ(snapshot.readings[0][Metric::learned], 300);
}

TEST_F(LearnedStoreTest, WhatIsLearnedIsWrittenEveryTenMinutes) {
  Machine machine({kUuid});
  CardLearners learners(store(), true);
  (void)learners.meet(*machine.inventory);
  EXPECT_EQ(learners.keep_now_and_then(machine.at), "");
  machine.work(learners, 20, 0, 70);
  EXPECT_EQ(learners.keep_now_and_then(machine.at), "");
  EXPECT_FALSE(fs::exists(file_));
  machine.work(learners, 120, 100, 570);
  EXPECT_EQ(learners.keep_now_and_then(machine.at), "");
  EXPECT_TRUE(fs::exists(file_));
}

TEST_F(LearnedStoreTest, ThatNothingCanBeKeptIsSaidOnce) {
  std::ofstream(top_ + "/state") << "a file in its way";
  Machine machine({kUuid});
  CardLearners learners(store(), true);
  (void)learners.meet(*machine.inventory);
  (void)learners.keep_now_and_then(machine.at);
  machine.work(learners, 200, 0, 70);
  EXPECT_NE(learners.keep_now_and_then(machine.at).find("cannot be kept"), std::string::npos);
  machine.work(learners, 200, 100, 570);
  EXPECT_EQ(learners.keep_now_and_then(machine.at), "");
}

TEST_F(LearnedStoreTest, ACardWithoutAUuidOfItsOwnLearnsInMemoryAlone) {
  Machine machine({"", kUuid, kUuid});
  machine.inventory->devices[1].shares_uuid = machine.inventory->devices[2].shares_uuid = true;
  {
    CardLearners learners(store(), true);
    (void)learners.meet(*machine.inventory);
    machine.work(learners, 20, 0, 70);
    machine.work(learners, 60, 100, 570);
    Snapshot snapshot = machine.sample(100, 570);
    learners.learn(snapshot);
    for (const Reading& reading : snapshot.readings) EXPECT_NEAR(reading[Metric::effort], 100, 1);
  }
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(LearnedStoreTest, AnIgnoredFileIsSaidInOneLineAndReplaced) {
  write("nonsense\n");
  Machine machine({kUuid});
  {
    CardLearners learners(store(), true);
    const auto lines = learners.meet(*machine.inventory);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_NE(lines[0].find("line 1 makes no sense"), std::string::npos);
    EXPECT_TRUE(learners.meet(*machine.inventory).empty()) << "once";
    machine.work(learners, 20, 0, 70);
  }
  EXPECT_EQ(ignored(), "");
}

}  // namespace
}  // namespace lull
