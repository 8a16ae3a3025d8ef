#include "view/screen.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "view/columns.h"

namespace lull {
namespace {

TEST(HelpText, SetsSentencesAnewAndLeavesExamplesWhole) {
  const std::string text = set_paragraphs(
      "One sentence that was\nbroken somewhere else.\n\nExamples:\n"
      "  lull watch --arm 'util > 50 for 1m' --do shutdown\n"
      "  exec=CMD  run a command with all of the facts in variables",
      40);
  EXPECT_EQ(text,
            "One sentence that was broken somewhere\nelse.\n\nExamples:\n"
            "  lull watch --arm 'util > 50 for 1m' --do shutdown\n"
            "  exec=CMD  run a command with all of\n"
            "            the facts in variables\n");
}

TEST(HelpText, NoDescriptionIsWiderThanTheScreen) {
  Help help;
  help.about = "What it does, in a sentence that is longer than a narrow screen is wide.";
  help.usage = "lull thing [options]";
  help.options = {{"-q,--quiet", "say only what is done, and nothing else at all, however long it takes"},
                  {"--also PID|CGROUP|CONTAINER|MORE", "work outside of the job's tree (default: none)"}};
  for (std::size_t width = 40; width <= 100; ++width) {
    const std::string text = help_text(help, width);
    for (const std::string_view line : split(text, '\n')) EXPECT_LE(display_width(line), width) << line;
  }
  EXPECT_EQ(help_text(help, 60),
            "What it does, in a sentence that is longer than a narrow\nscreen is wide.\n\n"
            "usage: lull thing [options]\n\noptions:\n"
            "  -q,--quiet  say only what is done, and nothing else at\n"
            "              all, however long it takes\n"
            "  --also PID|CGROUP|CONTAINER|MORE\n"
            "              work outside of the job's tree (default: none)\n");
}

}  // namespace
}  // namespace lull
