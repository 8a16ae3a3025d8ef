#include "config/settings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lull {
namespace {

namespace fs = std::filesystem;

// Two files, some variables, and a user.
class SettingsOf : public ::testing::Test {
 protected:
  SettingsOf() {
    std::string name = (fs::temp_directory_path() / "lull-settings-XXXXXX").string();
    folder = ::mkdtemp(name.data());
    sources.system_file = folder + "/system.toml";
    sources.user_file = folder + "/user.toml";
    sources.user = ::geteuid();
  }
  ~SettingsOf() override { fs::remove_all(folder); }

  void write(const std::string& path, const std::string& text) const {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0644);
  }
  std::string mistake() const {
    const auto settings = Settings::load(sources);
    return settings ? "" : settings.error().message();
  }
  Settings good() const {
    const auto settings = Settings::load(sources);
    EXPECT_TRUE(settings) << settings.error().message();
    return settings.value_or(Settings());
  }

  std::string folder;
  SettingsSources sources;
};

TEST_F(SettingsOf, ComeWithLullWhereThereIsNoFile) {
  const Settings settings = good();
  EXPECT_EQ(settings.text(Setting::grace), "10s");
  EXPECT_EQ(settings[Setting::grace].from, "built in");
  ASSERT_TRUE(settings.rule("idle"));
  EXPECT_EQ(settings.rule("idle")->text, "util < 1 for 30m");
  EXPECT_EQ(settings.files()[0].state, "not there");
  for (const char* name : {"idle", "held", "hung", "free"}) EXPECT_TRUE(settings.rule(name)) << name;
}

TEST_F(SettingsOf, TheLaterWinAndEachSaysWhereItIsFrom) {
  if (::geteuid() != 0) GTEST_SKIP() << "the system's file must be root's";
  write(sources.system_file,
        "grace = \"20s\"\nprice = 2.5\nexcept_users = [\"root\", \"ada\"]\n[rules]\nserver = \"util < 1 for 2h\"\n");
  write(sources.user_file, "idle = \"server\"\ngrace = \"30s\"\n");
  sources.variables = {
      {"LULL_GRACE", "40s"}, {"LULL_RULE_NIGHT", "util < 2 for 1h"}, {"LULL_NOTIFY_ADDRESS", "secret"}};
  const Settings settings = good();
  EXPECT_EQ(settings.text(Setting::grace), "40s");
  EXPECT_EQ(settings[Setting::grace].from, "LULL_GRACE");
  EXPECT_EQ(settings.text(Setting::idle), "server");
  EXPECT_EQ(settings[Setting::idle].from, sources.user_file + ":1:8");
  EXPECT_EQ(settings.text(Setting::price), "2.5");
  EXPECT_EQ(settings[Setting::price].from, sources.system_file + ":2:9");
  EXPECT_EQ(settings.list(Setting::except_users), (std::vector<std::string>{"root", "ada"}));
  EXPECT_EQ(settings.rule("server")->text, "util < 1 for 2h");
  EXPECT_EQ(settings.rule("night")->text, "util < 2 for 1h");
  EXPECT_EQ(settings.notify_address(), "secret");
}

TEST_F(SettingsOf, StepsAreAListOfRulesAndActions) {
  write(sources.user_file,
        "[slurm]\nsteps = [\"warned: slurm=comment\", \"2h: exec=echo a, b; c\"]\n[rules]\nwarned = \"util < 1 for "
        "1h\"\n");
  EXPECT_EQ(good().list(Setting::slurm_steps),
            (std::vector<std::string>{"warned: slurm=comment", "2h: exec=echo a, b; c"}));
  EXPECT_EQ(good().one_line(Setting::slurm_steps), "warned: slurm=comment; 2h: exec=echo a, b; c");
  sources.variables = {{"LULL_SLURM_STEPS", "1h: slurm=comment\n 2h: slurm=cancel \n"}};
  EXPECT_EQ(good().list(Setting::slurm_steps), (std::vector<std::string>{"1h: slurm=comment", "2h: slurm=cancel"}));
}

struct Mistake {
  std::string text;
  std::string said;
};
class Mistakes : public SettingsOf, public ::testing::WithParamInterface<Mistake> {};

TEST_P(Mistakes, AreNamedWithTheirPlace) {
  write(sources.user_file, GetParam().text);
  const std::string said = mistake();
  EXPECT_TRUE(said.starts_with(sources.user_file + ":")) << said;
  EXPECT_NE(said.find(GetParam().said), std::string::npos) << said;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Mistakes,
    ::testing::Values(
        Mistake{"price = 2\ngrase = \"10s\"\n", ":2:1: there is no setting 'grase'; did you mean 'grace'?"},
        Mistake{"grace = \"10 parsecs\"\n", ":1:9: grace: "}, Mistake{"grace = true\n", ":1:9: grace is true or false"},
        Mistake{"idle = \"hnug\"\n", ":1:8: idle: there is no rule called 'hnug'; did you mean 'hung'?"},
        Mistake{"idle = \"utl < 5 for 1m\"\n", ":1:8: idle: "},
        Mistake{"[rules]\nserver = \"utl < 5 for 1m\"\n", ":2:10: rule server: "},
        Mistake{"[rules]\n\"Big Name\" = \"util < 5 for 1m\"\n", ":2:14: 'Big Name' is not a valid rule name"},
        Mistake{"rules = 5\n", ":1:9: rules is a number"}, Mistake{"[notify]\nto = \"slac\"\n", "did you mean 'slack'"},
        Mistake{"[notify]\nadress_file = \"/x\"\n", ":2:1: there is no setting 'notify.adress_file'"},
        Mistake{"[notify]\naddress_file = \"slack\"\n", ":2:16: notify.address_file: 'slack' must be a whole path"},
        Mistake{"[slurm]\ninteractive = \"kill\"\n",
                ":2:15: slurm.interactive: 'kill': leave or cancel would be right"},
        Mistake{"[slurm]\nrestarts_at_most = -1\n", ":2:20: slurm.restarts_at_most: "},
        Mistake{"[slurm]\nexcept_partition = [1]\n", ":2:20: slurm.except_partition is a list of names"},
        Mistake{"[slurm]\nsteps = [\"util < 1 for 2h\"]\n",
                ":2:9: slurm.steps: 'util < 1 for 2h': a rule and what to do"},
        Mistake{"[slurm]\nsteps = [\"utl < 1 for 2h: slurm=cancel\"]\n", ":2:9: slurm.steps: 'utl < 1 for 2h: "},
        Mistake{"[slurm]\nsteps = [\"a: b\\nc\"]\n", ":2:9: slurm.steps is a list of steps"},
        Mistake{"[slurm]\nsteps = [2]\n", ":2:9: slurm.steps is a list of steps"},
        Mistake{"[slurm]\nsteps = 2\n", ":2:9: slurm.steps is a number: a list of texts would be right"},
        Mistake{"[slurm]\nuser_rule_at_most = \"4\"\n", ":2:21: slurm.user_rule_at_most: '4' needs a unit"},
        Mistake{"[slurm]\ndelay = -1\n", ":2:9: slurm.delay: "},
        Mistake{"[slurm]\nexcept_partitoin = []\n", "did you mean 'except_partition'"},
        Mistake{"except_users = [1]\n", ":1:16: except_users is a list of user names"},
        Mistake{"price = -1\n", ":1:9: price: "}, Mistake{"grace = \"10s\"\ngrace = \"20s\"\n", "not TOML"},
        Mistake{"signal = \"TREM\"\n", ":1:10: signal: "}, Mistake{"= 5\n", "not TOML"},
        Mistake{"grace = \"1m\nprice = 2\n", "a text is not closed"}));

TEST_F(SettingsOf, AMistakeInAVariableNamesIt) {
  sources.variables = {{"LULL_GRACE", "soon"}};
  EXPECT_TRUE(mistake().starts_with("LULL_GRACE: grace: ")) << mistake();
}

TEST_F(SettingsOf, AVariableThatLooksLikeOneOfOursIsNoted) {
  sources.variables = {{"LULL_GRASE", "5s"}, {"LULL_GPUS", "0,1"}, {"LULL_SIM", "/x"}};
  const Settings settings = good();
  ASSERT_EQ(settings.notes().size(), 1U);
  EXPECT_NE(settings.notes()[0].find("LULL_GRACE"), std::string::npos) << settings.notes()[0];
}

// ---- files that must not be believed, or not be waited for

TEST_F(SettingsOf, AFileThatOthersCanWriteIsRefused) {
  write(sources.user_file, "on_idle = \"touch /tmp/owned\"\n");
  ::chmod(sources.user_file.c_str(), 0666);
  EXPECT_NE(mistake().find("can be written by everybody"), std::string::npos) << mistake();
}

TEST_F(SettingsOf, AFifoADeviceAFolderAndAHugeFileNeitherHangNorCount) {
  ASSERT_EQ(::mkfifo(sources.user_file.c_str(), 0600), 0);
  EXPECT_NE(mistake().find("not a regular file"), std::string::npos) << mistake();
  ::unlink(sources.user_file.c_str());
  fs::create_directory(sources.user_file);
  EXPECT_NE(mistake().find("not a regular file"), std::string::npos) << mistake();
  fs::remove(sources.user_file);
  fs::create_symlink("/dev/zero", sources.user_file);
  EXPECT_NE(mistake().find("not a regular file"), std::string::npos) << mistake();
  ::unlink(sources.user_file.c_str());
  write(sources.user_file, "");
  ASSERT_EQ(::truncate(sources.user_file.c_str(), off_t{1} << 40), 0);
  EXPECT_NE(mistake().find("more than 256 KiB"), std::string::npos) << mistake();
}

TEST_F(SettingsOf, AFileOfSomebodyElseIsPassedOver) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  write(sources.user_file, "grace = \"99s\"\n");
  ASSERT_EQ(::chown(sources.user_file.c_str(), 12345, 12345), 0);
  const Settings settings = good();
  EXPECT_EQ(settings.text(Setting::grace), "10s");
  ASSERT_EQ(settings.notes().size(), 1U);
  EXPECT_NE(settings.notes()[0].find("belongs to uid 12345"), std::string::npos) << settings.notes()[0];
  // By a link, too: who the file belongs to counts.
  fs::rename(sources.user_file, folder + "/theirs");
  fs::create_symlink(folder + "/theirs", sources.user_file);
  EXPECT_EQ(good().text(Setting::grace), "10s");
  // One that was asked for by name must be good.
  sources.must_be_there = true;
  EXPECT_NE(mistake().find("belongs to uid 12345"), std::string::npos) << mistake();
}

TEST_F(SettingsOf, TheSystemsFileMustBeRoots) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  write(sources.system_file, "grace = \"99s\"\n");
  ASSERT_EQ(::chown(sources.system_file.c_str(), 12345, 12345), 0);
  EXPECT_NE(mistake().find("belongs to uid 12345"), std::string::npos) << mistake();
}

TEST_F(SettingsOf, RootDoesNotGoByTheHomeThatSomebodyLeftInItsEnvironment) {
  ::setenv("XDG_CONFIG_HOME", "/home/mallory/.config", 1);
  EXPECT_EQ(user_settings_path(0).find("mallory"), std::string::npos) << user_settings_path(0);
  EXPECT_EQ(user_settings_path(12345), "/home/mallory/.config/lull/lull.toml");
  ::unsetenv("XDG_CONFIG_HOME");
}

TEST_F(SettingsOf, ATimeAloneIsTheDefaultRuleForThatTime) {
  EXPECT_EQ(good().idle_option("--idle", "2h")->text, "util < 1 for 2h");
  EXPECT_EQ(good().idle_option("--idle", "held")->text, "util < 1 and mem_used > 1GiB for 30m");
  write(sources.user_file, "idle = \"held\"\n");
  EXPECT_EQ(good().idle_option("--idle", "2h")->text, "util < 1 and mem_used > 1GiB for 2h");
  write(sources.user_file, "idle = \"45m\"\n");
  EXPECT_EQ(good().idle_rule(good().text(Setting::idle))->text, "util < 1 for 45m");
  EXPECT_EQ(good().idle_option("--idle", "2h")->text, "util < 1 for 2h");
  EXPECT_EQ(good().idle_option("--idle", "30").error().message(),
            "--idle: '30' needs a unit: 30s, 30m or 30h; or 30 samples");
}

TEST(RuleName, IsAWordThatNoRuleIs) {
  for (const char* good : {"idle", "hung", "big-jobs", "a2"}) EXPECT_TRUE(is_rule_name(good)) << good;
  for (const char* bad : {"", "util < 5", "Idle", "2h", "a b", "all(util)"}) EXPECT_FALSE(is_rule_name(bad)) << bad;
  const Settings settings;
  EXPECT_NE(settings.rule("util").error().message().find("util"), std::string::npos);
  EXPECT_EQ(settings.rule("util < 5 for 1m")->text, "util < 5 for 1m");
}

}  // namespace
}  // namespace lull
