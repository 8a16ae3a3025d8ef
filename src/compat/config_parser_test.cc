#include "compat/config_parser.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

namespace lull {
namespace {

TEST(ConfigParser, ReadsWhatItsDocumentShows) {
  const auto parsed = ConfigParser::parse(
      "; a comment\n[defaults]\nInterval_Seconds = 10\n\n[DEFAULT]\ndir: /tmp\n[process-0]\ncmd=run %(dir)s 100%% ; "
      "x\n  more\n");
  ASSERT_TRUE(parsed) << parsed.error().what;
  EXPECT_EQ(parsed->sections(), (std::vector<std::string>{"defaults", "process-0"}));
  EXPECT_EQ(parsed->get("defaults", "interval_seconds").value(), "10");
  EXPECT_EQ(parsed->get("process-0", "CMD").value(), "run /tmp 100% ; x\nmore");
  EXPECT_EQ(parsed->get("process-0", "dir").value(), "/tmp");
  EXPECT_EQ(parsed->line_of("process-0", "cmd"), 8U);
}

TEST(ConfigParser, SaysWhichLineIsWrong) {
  const auto complaint = [](std::string_view text) { return ConfigParser::parse(text).error().what; };
  EXPECT_EQ(complaint("x=1\n[a]\n"), "line 1: 'x=1' is before the first [section]");
  EXPECT_EQ(complaint("[a]\nx=1\nX=2\n"), "line 3: 'x' is there already, in line 2");
  EXPECT_EQ(complaint("[a]\n\n[a]\n"), "line 3: section [a] is there already, in line 1");
  EXPECT_EQ(complaint("[a]\nhello\n"), "line 2: 'hello' is neither [section] nor key=value");
  const auto parsed = ConfigParser::parse("[a]\nx=%(y)s\nz=50%\nround=%(round)s\n");
  EXPECT_EQ(parsed->get("a", "x").error().what, "line 2: 'x': it refers to 'y', which is not there");
  EXPECT_EQ(parsed->get("a", "z").error().what, "line 3: 'z': a '%' must be written as '%%'");
  EXPECT_EQ(parsed->get("a", "round").error().what, "line 4: 'round': its references go round in circles");
  EXPECT_EQ(parsed->get("a", "w").error().what, "line 1: section [a] lacks 'w'");
  EXPECT_EQ(parsed->get("b", "w").error().what, "there is no section [b]");
}

TEST(ConfigParser, ReferencesThatGrowAreRefused) {
  std::string text = "[a]\nv0=" + std::string(100, 'x') + "%%\n";
  for (int i = 1; i < 10; ++i) {
    text += "v" + std::to_string(i) + "=";
    for (int j = 0; j < 50; ++j) text += "%(v" + std::to_string(i - 1) + ")s";
    text += "\n";
  }
  EXPECT_FALSE(ConfigParser::parse(text)->get("a", "v9"));
}

// ---- beside Python's own --------------------------------------------------------

constexpr const char* kOracle = R"py(
import configparser, json, sys
answers = []
for text in json.load(open(sys.argv[1])):
    parser = configparser.ConfigParser()
    try:
        parser.read_string(text)
    except configparser.Error:
        answers.append(None)
        continue
    found = {}
    for section in parser.sections():
        found[section] = {}
        for key in parser[section]:
            try:
                found[section][key] = parser.get(section, key)
            except configparser.Error:
                found[section][key] = None
    answers.append([parser.sections(), found])
json.dump(answers, open(sys.argv[2], "w"))
)py";

std::string random_file(std::mt19937& random) {
  static const std::vector<std::string> kPieces = {
      "[a]\n",    "[b]\n",     "[DEFAULT]\n",     "[gpu-all]]\n", " [c] x\n",     "x=1\n",     "y = two words\n",
      "X: 3\n",   "z=%(x)s\n", "w=50%%\n",        "v=%(v)s\n",    "u=100%\n",     "  more\n",  "\tdeeper=1\n",
      "\n",       "   \n",     "; note\n",        "  # note\n",   "k=v ; kept\n", "empty=\n",  "=nothing\n",
      "word\n",   "[]\n",      "q=%(X)s%(y)s\n",  "a:b=c\n",      "  [d]\n",      "x = 2\r\n", "p=%(a b)s\n",
      "p=%()s\n", "[e\n",      "long=1\n\n  2\n", "y=1"};
  std::string text;
  const int count = std::uniform_int_distribution(0, 14)(random);
  if (random() % 4 != 0) text = "[s]\n";
  for (int i = 0; i < count; ++i) text += kPieces[random() % kPieces.size()];
  return text;
}

TEST(ConfigParser, ReadsRandomFilesAsPythonDoes) {
  std::string folder = (std::filesystem::temp_directory_path() / "lull-ini-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::mt19937 random(7);
  nlohmann::json texts = nlohmann::json::array();
  for (int i = 0; i < 3000; ++i) texts.push_back(random_file(random));
  std::ofstream(folder + "/oracle.py") << kOracle;
  std::ofstream(folder + "/texts") << texts;
  const std::string command = "/usr/bin/python3 " + folder + "/oracle.py " + folder + "/texts " + folder + "/answers";
  if (std::system(command.c_str()) != 0) {  // NOLINT(cert-env33-c)
    std::filesystem::remove_all(folder);
    GTEST_SKIP() << "no Python here to compare with";
  }
  nlohmann::json answers;
  std::ifstream(folder + "/answers") >> answers;
  std::filesystem::remove_all(folder);
  ASSERT_EQ(answers.size(), texts.size());
  std::size_t read = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i];
    const auto parsed = ConfigParser::parse(text);
    ASSERT_EQ(parsed.has_value(), !answers[i].is_null()) << text;
    if (!parsed) continue;
    ++read;
    ASSERT_EQ(nlohmann::json(parsed->sections()), answers[i][0]) << text;
    for (const auto& [section, values] : answers[i][1].items())
      for (const auto& [key, value] : values.items()) {
        const auto ours = parsed->get(section, key);
        ASSERT_EQ(ours ? nlohmann::json(*ours) : nlohmann::json(), value)
            << text << "\nsection " << section << " " << key;
      }
  }
  EXPECT_GT(read, texts.size() / 10);
}

}  // namespace
}  // namespace lull
