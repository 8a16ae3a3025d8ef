#include "act/power.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

TEST(TellTerminals, ReachesThoseThatCanBeWrittenToAndWaitsForNobody) {
  const TestTree tree;
  tree.write("dev/pts/0", "");
  tree.write("dev/pts/7", "");
  tree.write("dev/pts/ptmx", "not a terminal\n");
  ASSERT_EQ(::mkfifo(tree.at("dev/pts/8").c_str(), 0600), 0);  // its reader is gone
  const Fd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (master && ::grantpt(master.get()) == 0 && ::unlockpt(master.get()) == 0) {
    const std::string name = ::ptsname(master.get());
    const auto terminal = open_file(name, O_RDWR | O_NOCTTY);
    ASSERT_TRUE(terminal);
    ASSERT_EQ(::tcflow(terminal->get(), TCOOFF), 0);  // as by Ctrl-S
    tree.link("dev/pts/9", name);
    EXPECT_EQ(write_to_terminals("going down", tree.root()), 2U);
  }
  std::filesystem::remove(tree.at("dev/pts/9"));
  EXPECT_EQ(write_to_terminals("going down", tree.root()), 2U);
  EXPECT_NE(read_file(tree.at("dev/pts/7"))->find("going down\r\n"), std::string::npos);
  EXPECT_EQ(*read_file(tree.at("dev/pts/ptmx")), "not a terminal\n");
}

// What find_power_command says to somebody who is not root, with these programs in PATH.
std::string as_somebody(const TestTree& tree, Power power = Power::off, bool as_root = false) {
  ::chmod(tree.path().c_str(), 0755);
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && !as_root && ::setresuid(65534, 65534, 65534) != 0) ::_exit(9);
    ::setenv("PATH", tree.at("bin").c_str(), 1);
    const auto command = find_power_command(power, nullptr);
    std::string text = command ? "" : command.error().message();
    if (command)
      for (const std::string& word : *command) text += word + " ";
    (void)!::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said(4096, '\0');
  const ssize_t got = ::read(ends[0], said.data(), said.size());
  said.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return said;
}

TEST(PowerCommand, IsFoundOutBeforeItMatters) {
  const TestTree tree;
  const auto program = [&](const std::string& name, const std::string& script) {
    tree.write("bin/" + name, "#!/bin/sh\n" + script + "\n");
    ::chmod(tree.at("bin/" + name).c_str(), 0755);
  };
  std::filesystem::create_directories(tree.at("bin"));
  EXPECT_NE(as_somebody(tree).find("no permission to power this machine off"), std::string::npos);
  program("shutdown", "exit 0");
  EXPECT_NE(as_somebody(tree).find("sudo -n shutdown"), std::string::npos) << "says what would help";
  program("sudo", "exit 1");
  EXPECT_NE(as_somebody(tree).find("no permission to"), std::string::npos) << "it wants a password";
  program("sudo", "[ \"$1 $2 $3\" = '-n -l shutdown' ]");
  EXPECT_EQ(as_somebody(tree), "sudo -n shutdown -h now ");
  program("busctl", "echo 's \"challenge\"'");
  EXPECT_EQ(as_somebody(tree), "sudo -n shutdown -h now ");
  program("busctl", "echo 's \"yes\"'");
  EXPECT_EQ(as_somebody(tree).find("busctl --system call org.freedesktop.login1"), 0U);
}

TEST(PowerCommand, SwappedInLooksInSbinToo) {
  const TestTree tree;
  std::filesystem::create_directories(tree.at("bin"));
  ::unsetenv("LULL_SIM");
  if (::geteuid() != 0 || ::access("/usr/sbin/shutdown", X_OK) != 0) GTEST_SKIP() << "not root, or no shutdown";
  EXPECT_NE(as_somebody(tree, Power::off, true).find("sbin/shutdown -h now"), std::string::npos);
  ::setenv("LULL_SIM", "/nowhere", 1);
  EXPECT_NE(as_somebody(tree, Power::off, true).find("no permission to"), std::string::npos);
  ::unsetenv("LULL_SIM");
}

TEST(PowerCommand, SwappedInAsksSudoForTheSameCommandsWithoutSbinInPath) {
  const TestTree tree;
  const auto sudo_allows = [&](const std::string& command) {
    tree.write("bin/sudo", "#!/bin/sh\n[ \"$*\" = '-n -l " + command + "' ]\n");
    ::chmod(tree.at("bin/sudo").c_str(), 0755);
  };
  sudo_allows("shutdown -h now");  // and no shutdown in PATH
  EXPECT_EQ(as_somebody(tree), "sudo -n shutdown -h now ");
  EXPECT_NE(as_somebody(tree, Power::reboot).find("no permission to reboot"), std::string::npos);
  sudo_allows("reboot");
  EXPECT_EQ(as_somebody(tree, Power::reboot), "sudo -n reboot ");
  EXPECT_NE(as_somebody(tree).find("no permission to power"), std::string::npos);
  sudo_allows("shutdown -r now");
  EXPECT_EQ(as_somebody(tree, Power::reboot), "sudo -n shutdown -r now ");
  tree.write("bin/sudo", "#!/bin/sh\nexit 0\n");
  EXPECT_EQ(as_somebody(tree, Power::reboot), "sudo -n reboot ") << "as its predecessor";
}

}  // namespace
}  // namespace lull
