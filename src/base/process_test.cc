#include "base/process.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

namespace lull {
namespace {

std::string stat_line(pid_t pid, std::string_view name, char state, pid_t parent) {
  return std::to_string(pid) + " (" + std::string(name) + ") " + state + " " + std::to_string(parent) +
         " 7 8 34816 7 4194304 100 200 1 2 30 12 5 6 20 0 1 0 987654321 1000 200 18446744073709551615 0 0\n";
}

TEST(ProcessEntry, ReadsAnOrdinaryLine) {
  const auto stat = parse_process_entry(stat_line(42, "python3", 'S', 7));
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->pid, 42);
  EXPECT_EQ(stat->parent, 7);
  EXPECT_EQ(stat->group, 7);
  EXPECT_EQ(stat->session, 8);
  EXPECT_EQ(stat->cpu_ticks, 42U);
  EXPECT_EQ(stat->children_cpu_ticks, 11U);
  EXPECT_EQ(stat->start_ticks, 987654321U);
  EXPECT_EQ(stat->state, 'S');
}

TEST(ProcessEntry, NamesAreHostile) {
  for (const std::string_view name : {"foo) Z ", "(((", ")))", "a b c", "x) Z 1 1 1", "", "\n", "line\n2 (x) S 1"}) {
    const auto stat = parse_process_entry(stat_line(42, name, 'D', 7));
    ASSERT_TRUE(stat) << name;
    EXPECT_EQ(stat->name, name);
    EXPECT_EQ(stat->state, 'D');
    EXPECT_EQ(stat->parent, 7);
    EXPECT_EQ(stat->start_ticks, 987654321U);
  }
}

TEST(ProcessEntry, AnyBytesAreRefusedOrRead) {
  EXPECT_TRUE(rc::check("no input crashes it", [](const std::string& bytes) {
    if (const auto stat = parse_process_entry(bytes)) RC_ASSERT(stat->pid > 0);
  }));
  EXPECT_TRUE(rc::check("any name is read back", [](std::string name) {
    std::erase(name, '\0');
    const auto stat = parse_process_entry(stat_line(42, name, 'S', 7));
    RC_ASSERT(stat.has_value());
    RC_ASSERT(stat->name == name);
    RC_ASSERT(stat->start_ticks == 987654321U);
  }));
  EXPECT_TRUE(rc::check("a line cut short is refused", [] {
    const std::string whole = stat_line(42, "x) y", 'S', 7);
    const auto cut = *rc::gen::inRange<std::size_t>(0, whole.find("987654321"));
    RC_ASSERT(!parse_process_entry(std::string_view(whole).substr(0, cut)));
  }));
  EXPECT_FALSE(parse_process_entry("42 (x) S 1 2 3"));
  EXPECT_FALSE(
      parse_process_entry("42 (x) S parent 7 8 34816 7 4194304 100 200 1 2 30 12 5 6 20 0 1 0 987 1000 200\n"));
}

TEST(ProcessEntry, TellsItsTerminal) {
  const std::string with = stat_line(42, "bash", 'S', 7);
  EXPECT_EQ(parse_process_entry(with)->terminal, makedev(136, 0));
  std::string without = with;
  without.replace(without.find(" 34816 "), 7, " 0 ");
  EXPECT_EQ(parse_process_entry(without)->terminal, 0U);
  without.replace(without.find(" 0 "), 3, " 1083460 ");  // /dev/pts/324: the number is in two parts
  EXPECT_EQ(parse_process_entry(without)->terminal, makedev(136, 324));
}

TEST(StatusField, IsFoundByItsWholeName) {
  const std::string text = "Name:\tx Uid: 7\nPid:\t 12 \nNSpid:\t3\nCapEff:\t000001ffffffffff\nEmpty:\nlast: 4";
  EXPECT_EQ(status_field(text, "Pid"), "12");
  EXPECT_EQ(status_field(text, "Name"), "x Uid: 7");
  EXPECT_EQ(status_field(text, "Empty"), "");
  EXPECT_EQ(status_field(text, "last"), "4");
  EXPECT_FALSE(status_field(text, "Uid"));
  EXPECT_FALSE(status_field(text, "pid"));
  EXPECT_FALSE(status_field(text, "CapEf"));
  EXPECT_FALSE(status_field("", "Pid"));
  EXPECT_EQ(status_mask(text, "CapEff"), 0x1ffffffffffU);
  EXPECT_EQ(status_mask("SigIgn:\t0000000000010000\n", "SigIgn"), 1U << 16U);
  EXPECT_FALSE(status_mask(text, "Empty"));
  EXPECT_FALSE(status_mask("CapEff:\t12 34\n", "CapEff"));
  EXPECT_FALSE(status_mask("CapEff:\tffffffffffffffffff\n", "CapEff"));
}

TEST(ProcessEntry, TellsAThreadOfTheKernel) {
  EXPECT_FALSE(parse_process_entry(stat_line(42, "python3", 'S', 7))->kernel_thread);
  const auto thread = parse_process_entry("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 1 0 0 20 0 1 0 3 0 0\n");
  ASSERT_TRUE(thread);
  EXPECT_TRUE(thread->kernel_thread);
}

TEST(ProcessEntry, ReadsOurselves) {
  ASSERT_EQ(::prctl(PR_SET_NAME, "foo) Z (x"), 0);
  const auto stat = read_process_entry(::getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->name, "foo) Z (x");
  EXPECT_EQ(stat->parent, ::getppid());
  EXPECT_EQ(stat->group, ::getpgrp());
  EXPECT_EQ(stat->session, ::getsid(0));
  EXPECT_EQ(stat->start_ticks, Process::self().start_ticks());
  std::set<pid_t> pids;
  for (const ProcessEntry& one : read_all_processes()) pids.insert(one.pid);
  EXPECT_TRUE(pids.contains(::getpid()));
  EXPECT_TRUE(pids.contains(::getppid()));
}

// The slow twin: a process is below the root if going up its parents leads there.
bool below(const std::vector<ProcessEntry>& all, ProcessEntry one, pid_t root) {
  for (std::size_t steps = 0; steps <= all.size(); ++steps) {
    if (one.pid == root) return true;
    const auto parent = std::ranges::find(all, one.parent, &ProcessEntry::pid);
    if (parent == all.end()) return one.parent == root;
    one = *parent;
  }
  return false;
}

TEST(Descendants, SameAsGoingUpFromEach) {
  EXPECT_TRUE(rc::check("walk down == walk up, parents first, whatever the parents are", [] {
    const int count = *rc::gen::inRange(1, 40);
    std::vector<ProcessEntry> all;
    for (int i = 1; i <= count; ++i) {
      ProcessEntry one;
      one.pid = i;
      one.parent = *rc::gen::inRange(0, count + 1);  // loops included
      all.push_back(one);
    }
    const pid_t root = *rc::gen::inRange(1, count + 3);  // may be absent
    std::set<pid_t> seen;
    for (const ProcessEntry& one : descendants(all, root)) {
      RC_ASSERT(seen.insert(one.pid).second);
      RC_ASSERT(one.pid == root || one.parent == root || seen.contains(one.parent));
    }
    std::set<pid_t> wanted;
    for (const ProcessEntry& one : all)
      if (below(all, one, root)) wanted.insert(one.pid);
    RC_ASSERT(seen == wanted);
  }));
}

TEST(Descendants, SkippedOnesTakeTheirsWithThem) {
  std::vector<ProcessEntry> all(5);
  for (int i = 0; i < 5; ++i) {
    all[static_cast<std::size_t>(i)].pid = i + 1;
    all[static_cast<std::size_t>(i)].parent = i;  // a chain
  }
  const auto tree = descendants(all, 1, [](const ProcessEntry& one) { return one.pid == 3; });
  ASSERT_EQ(tree.size(), 2U);
  EXPECT_EQ(tree[1].pid, 2);
  EXPECT_TRUE(descendants(all, 2, [](const ProcessEntry& one) { return one.pid == 2; }).empty()) << "the root too";
}

TEST(Process, HandleOutlivesTheNumber) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto seen = read_process_entry(child);
  ASSERT_TRUE(seen);
  const auto process = Process::open(*seen);
  ASSERT_TRUE(process);
  EXPECT_FALSE(process->ended());
  ASSERT_TRUE(process->signal(SIGKILL));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(process->ended());
  EXPECT_EQ(process->signal(SIGKILL).error().errno_value, ESRCH);
  // The same number with another start time is somebody else.
  auto other = *read_process_entry(::getpid());
  other.start_ticks += 1;
  EXPECT_EQ(Process::open(other).error().errno_value, ESRCH);
}

TEST(OwnProcesses, AreKnownByPidAndStartTimeUntilTheyAreGone) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  const auto entry = read_process_entry(child);
  ASSERT_TRUE(entry);
  EXPECT_FALSE(is_own_process(child, entry->start_ticks));
  note_own_process(child);
  EXPECT_TRUE(is_own_process(child, entry->start_ticks));
  EXPECT_FALSE(is_own_process(child, entry->start_ticks + 1)) << "the number is somebody else's by now";
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  note_own_process(child);  // gone already: nothing to note, and the old one is forgotten
  EXPECT_FALSE(is_own_process(child, entry->start_ticks));
}

TEST(Signals, NamesBothWays) {
  EXPECT_EQ(parse_signal("TERM"), SIGTERM);
  EXPECT_EQ(parse_signal("SIGTERM"), SIGTERM);
  EXPECT_EQ(parse_signal("sigusr1"), SIGUSR1);
  EXPECT_EQ(parse_signal("9"), SIGKILL);
  EXPECT_EQ(parse_signal("RTMIN+3"), SIGRTMIN + 3);
  EXPECT_EQ(parse_signal("SIGRTMAX-1"), SIGRTMAX - 1);
  for (const std::string_view bad : {"", "SIG", "TREM", "65", "-1", "RTMIN+99", "RTMINx", "RTMAX+1"})
    EXPECT_FALSE(parse_signal(bad)) << bad;
  EXPECT_NE(parse_signal("TREM").error().what.find("'TERM'"), std::string::npos);
  for (int number = 1; number < SIGRTMAX; ++number) {
    if (number < 32 || number >= SIGRTMIN) {
      EXPECT_EQ(parse_signal(signal_name(number)), number) << number;
    }
  }
}

// /proc as a folder: `starts` of process 2, 3, … each the parent of the next.
class Line {
 public:
  explicit Line(const std::vector<std::uint64_t>& starts) {
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const auto pid = static_cast<pid_t>(i + 2);
      const std::filesystem::path folder = folder_ / std::to_string(pid);
      std::filesystem::create_directories(folder);
      std::string text = stat_line(pid, "x", 'S', pid - 1);
      text.replace(text.find("987654321"), 9, std::to_string(starts[i]));
      std::ofstream(folder / "stat") << text;
    }
  }
  ~Line() { std::filesystem::remove_all(folder_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  std::vector<pid_t> above(pid_t pid) const {
    std::vector<pid_t> seen;
    EXPECT_FALSE(climb(pid, [&](const ProcessEntry& one) { return seen.push_back(one.pid), false; }, root_));
    return seen;
  }
  const Root& root() const { return root_; }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / ("lull-climb-" + std::to_string(::getpid()));
  Root root_{.proc = folder_.string()};
};

TEST(Climb, GoesUpToInitAndStopsWhereItIsTold) {
  const Line line({10, 20, 20, 40});
  EXPECT_EQ(line.above(5), (std::vector<pid_t>{5, 4, 3, 2}));
  EXPECT_TRUE(line.above(1).empty());
  EXPECT_TRUE(line.above(6).empty());
  pid_t last = 0;
  EXPECT_TRUE(climb(5, [&](const ProcessEntry& one) { return (last = one.pid) == 3; }, line.root()));
  EXPECT_EQ(last, 3);
}

TEST(Climb, AParentYoungerThanItsChildIsSomebodyElse) { EXPECT_EQ(Line({10, 41, 40}).above(4), std::vector<pid_t>{4}); }

TEST(Cgroups, AreReadLineByLine) {
  const auto lines = cgroup_lines("12:cpu,cpuacct:/a:b\nnothing\n0::/user.slice\n");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].controllers, "cpu,cpuacct");
  EXPECT_EQ(lines[0].path, "/a:b");
  EXPECT_EQ(lines[1].controllers, "");
  EXPECT_EQ(lines[1].path, "/user.slice");
  EXPECT_EQ(read_cgroups(0).value_or("no"), read_cgroups(::getpid()).value_or(""));
  EXPECT_TRUE(has_ended(read_cgroups(0x7FFFFFFF).error()));
}

}  // namespace
}  // namespace lull
