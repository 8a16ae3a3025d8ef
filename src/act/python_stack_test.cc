// On every interpreter that this machine has: in PATH, by pyenv, and in $LULL_TEST_PYTHONS (separated by colons). There
// ROOT//usr/bin/python3.14 is one of another system, which is run with ROOT as its root folder; tests/pythons fetches
// those of Debian's suites.
#include "act/python_stack.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "act/elf_symbols.h"
#include "act/python_report.h"
#include "base/fd.h"
#include "base/process_start.h"
#include "base/text.h"

namespace lull {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kKnown = {"3.9", "3.10", "3.11", "3.12", "3.13", "3.14"};

std::set<std::string> interpreters(const std::vector<std::string>& versions = kKnown) {
  std::set<std::string> found;
  const auto add = [&](const fs::path& path) {
    std::error_code why;
    const bool elsewhere = path.native().contains("//");
    const fs::path real = elsewhere ? path : fs::canonical(path, why);
    std::string head(4, '\0');
    std::ifstream(real).read(head.data(), 4);  // pyenv has scripts of these names
    if (!why &&
        head ==
            "\x7f"
            "ELF" &&
        ::access(real.c_str(), X_OK) == 0)
      found.insert(real.string());
  };
  const char* const path = std::getenv("PATH");
  for (const std::string_view folder : split(path != nullptr ? path : "", ':'))
    for (const std::string& version : versions) add(fs::path(folder) / ("python" + version));
  if (versions == kKnown) add("/usr/bin/python3");
  const passwd* const us = ::getpwuid(::geteuid());
  std::error_code why;
  if (us != nullptr)
    for (const auto& version : fs::directory_iterator(fs::path(us->pw_dir) / ".pyenv/versions", why))
      for (const std::string& one : versions) add(version.path() / ("bin/python" + one));
  if (const char* const more = std::getenv("LULL_TEST_PYTHONS"); more != nullptr)
    for (const std::string_view one : split(more, ':'))
      if (std::ranges::any_of(versions, [&](const auto& version) { return one.ends_with("python" + version); }))
        add(one);
  return found;
}

// A program that writes a byte when it is where it is to be read.
class Program {
 public:
  Program(const std::string& path, const std::string& file, const char* rank = nullptr) {
    const std::size_t cut = path.find("//");
    const std::string root = cut == std::string::npos ? "" : path.substr(0, cut);
    const std::string interpreter = path.substr(root.empty() ? 0 : cut + 1);
    if (!root.empty()) {
      fs::create_directories(fs::path(root + file).parent_path());
      fs::copy_file(file, root + file, fs::copy_options::overwrite_existing);
    }
    int ready[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ready[1], STDOUT_FILENO);
      if (rank != nullptr) ::setenv("RANK", rank, 1);
      if (!root.empty() && (::chroot(root.c_str()) != 0 || ::chdir("/") != 0)) ::_exit(126);
      ::execl(interpreter.c_str(), interpreter.c_str(), "-S", "-E", file.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1) << interpreter;
    ::close(ready[0]);
    // It goes on for a moment after that byte.
    if (pid_ > 0) ::usleep(200'000);
  }
  ~Program() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class PythonStacks : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "lull-python-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    all_ = interpreters();
    if (all_.empty()) GTEST_SKIP() << "there is no Python";
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, std::string_view text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  std::string folder_;
  std::set<std::string> all_;
};

std::vector<std::string> lines_of(const PythonThread& thread, const std::string& file) {
  std::vector<std::string> found;
  for (const PythonFrame& frame : thread.frames)
    if (frame.file == file) found.push_back(std::to_string(frame.line) + " " + frame.function);
  return found;
}

// The function by the version: newer ones know the class.
std::string named(const PythonProcess& process, const std::string& qualified) {
  const bool old = process.version == "3.9" || process.version == "3.10";
  return old ? qualified.substr(qualified.rfind('.') + 1) : qualified;
}

// A job may arrange its memory as it likes: here a frame of the C stack is its own caller.
TEST_F(PythonStacks, FramesThatAreACircleHaveAnEnd) {
  const std::string file = write("circle.py", R"(import ctypes, os, sys, threading, time

def pointer(at):
    return ctypes.c_uint64.from_address(at).value

main = threading.get_ident()

def bend():
    time.sleep(0.05)  # until the other waits
    newer = sys.version_info >= (3, 12)
    runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    thread = pointer(pointer(runtime + 40) + (72 if newer else 16))
    while pointer(thread + (136 if newer else 152)) != main:
        thread = pointer(thread + 8)
    frame = pointer(pointer(thread + 56) + (0 if newer else 8))
    ctypes.c_uint8.from_address(frame + (70 if newer else 69)).value = 3
    ctypes.c_uint64.from_address(frame + (8 if newer else 48)).value = frame
    os.write(1, b"x")

threading.Thread(target=bend, daemon=True).start()
time.sleep(1000)
)");
  unsigned tried = 0;
  for (const std::string& path : interpreters({"3.11", "3.12"})) {
    ++tried;
    const Program program(path, file);
    const auto found = run_with_timeout(
        [&] {
          const auto read = read_python_stacks(program.pid());
          return read ? encode(*read) : read.error().message();
        },
        std::chrono::seconds(20));
    ASSERT_TRUE(found) << path << ": it has no end";
    const auto read = decode_python_process(*found);
    ASSERT_TRUE(read) << path << ": " << *found;
    EXPECT_TRUE(std::ranges::any_of(read->threads, &PythonThread::cut)) << path;
  }
  if (tried == 0) GTEST_SKIP() << "there is no CPython 3.11 or 3.12";
}

TEST_F(PythonStacks, FramesOfAllThreadsHaveFileLineAndFunction) {
  const std::string file = write("wörk.py", R"(import os, threading, time

class Model:
    def forward(self, x):
        assert x, \
            'a statement of several lines'
        return [
            threading.Event().wait(
                1000),
        ]

def train_step(value):
    if value > 3:


        return Model().forward(value)
    return train_step(value + 1)

def produce():
    yield train_step(3)

def schritt_äöü():
    for _ in produce():
        pass

def load():
    while True:
        time.sleep(1000)

threading.Thread(target=load, daemon=True).start()
os.write(1, b'x')
schritt_äöü()
)");
  for (const std::string& interpreter : all_) {
    SCOPED_TRACE(interpreter);
    const Program program(interpreter, file, "3");
    const auto process = read_python_stacks(program.pid());
    ASSERT_TRUE(process) << process.error().message();
    ASSERT_EQ(process->threads.size(), 2U);
    EXPECT_EQ(process->rank, "3");
    const PythonThread& main = process->threads[0];
    EXPECT_EQ(main.id, program.pid());
    EXPECT_FALSE(main.changing);
    EXPECT_EQ(lines_of(main, file),
              (std::vector<std::string>{"8 " + named(*process, "Model.forward"), "16 train_step", "17 train_step",
                                        "20 produce", "23 schritt_äöü", "32 <module>"}));
    EXPECT_NE(main.waits_in, "");
    EXPECT_EQ(lines_of(process->threads[1], file), std::vector<std::string>{"28 load"});
    EXPECT_NE(process->threads[1].waits_in.find("("), std::string::npos);
    const std::string where = where_text(*process);
    EXPECT_TRUE(where.starts_with("wörk.py:8 in " + named(*process, "Model.forward") + " (rank 3, waiting in "))
        << where;
    const auto again = decode_python_process(encode(*process));
    ASSERT_TRUE(again);
    EXPECT_EQ(encode(*again), encode(*process));
    EXPECT_EQ(python_report({*again}), python_report({*process}));
  }
}

TEST_F(PythonStacks, AProgramThatRunsIsReadAsWell) {
  const std::string file = write("spin.py", R"(import os
def inner(n):
    return n + 1
def spin():
    n = 0
    os.write(1, b'x')
    while True:
        n = inner(n)
spin()
)");
  for (const std::string& interpreter : all_) {
    SCOPED_TRACE(interpreter);
    const Program program(interpreter, file);
    for (int i = 0; i < 20; ++i) {
      const auto process = read_python_stacks(program.pid());
      if (!process) continue;  // it changed three times while it was read
      ASSERT_EQ(process->threads.size(), 1U);
      for (const std::string& line : lines_of(process->threads[0], file))
        EXPECT_TRUE(
            (std::set<std::string>{"2 inner", "3 inner", "6 spin", "7 spin", "8 spin", "9 <module>"}).contains(line))
            << line;
    }
  }
}

TEST_F(PythonStacks, DeepOnesAreCut) {
  const std::string file = write("deep.py", R"(import os, time
def down(n):
    if n == 0:
        os.write(1, b'x')
        time.sleep(1000)
    return down(n - 1)
down(400)
)");
  const Program program(*all_.begin(), file);
  const auto process = read_python_stacks(program.pid());
  ASSERT_TRUE(process) << process.error().message();
  EXPECT_TRUE(process->threads[0].cut);
  EXPECT_EQ(process->threads[0].frames.size(), 256U);
  EXPECT_EQ(process->threads[0].frames[0].line, 5U);
}

TEST_F(PythonStacks, AnotherProgramIsNone) {
  const auto shell = read_python_stacks(::getpid());
  ASSERT_FALSE(shell);
  EXPECT_EQ(shell.error().errno_value, ENOEXEC);
  EXPECT_FALSE(read_python_stacks(0x3FFFFFFF));
}

TEST_F(PythonStacks, WhoMayNotIsToldWhichSettingForbidsIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string file = write("wait.py", "import os, time\nos.write(1, b'x')\ntime.sleep(1000)\n");
  const Program program("/usr/bin/python3", file);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    const auto read = read_python_stacks(program.pid());
    ::_exit(!read && read.error().errno_value == EPERM && read.error().what.contains("read its stack") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(PythonStacks, AnInterpreterThatIsNotKnownIsSaidAndNotGuessed) {
  const std::string file = write("wait.py", "import os, time\nos.write(1, b'x')\ntime.sleep(1000)\n");
  const auto old = interpreters({"2.7", "3.6", "3.7", "3.8", "3.15"});
  for (const std::string& interpreter : old) {
    SCOPED_TRACE(interpreter);
    const Program program(interpreter, file);
    const auto read = read_python_stacks(program.pid());
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().errno_value, ENOEXEC) << "it is a Python program";
    EXPECT_NE(read.error().what.find("is not known"), std::string::npos) << read.error().what;
    EXPECT_TRUE(read.error().what.starts_with("process " + std::to_string(program.pid()) + ": "));
  }
  if (old.empty()) GTEST_SKIP() << "there is no old Python";
}

PythonProcess at(pid_t pid, unsigned line, std::string rank = "") {
  return {.pid = pid,
          .version = "3.11",
          .rank = std::move(rank),
          .threads = {{.id = pid,
                       .name = "python",
                       .frames = {{"/home/ada/train.py", line, "step"}},
                       .waits_in = "read (libc.so.6)"}}};
}

TEST(PythonReport, ThoseWhoDifferFromTheRestAreFirst) {
  std::vector<PythonProcess> job;
  for (int i = 0; i < 8; ++i) job.push_back(at(100 + i, i == 3 ? 9U : 16U, std::to_string(i)));
  EXPECT_EQ(where_text(job),
            "rank 3 (process 103) is at train.py:9 in step (rank 3, waiting in read), 7 others at train.py:16 in step "
            "(rank 0, waiting in read)");
  const std::string report = python_report(job);
  EXPECT_TRUE(report.starts_with("==> 1 of 8 Python processes: rank 3 (process 103) <==\n")) << report;
  EXPECT_NE(report.find("==> 7 of 8 Python processes: rank 0 (process 100), rank 1"), std::string::npos) << report;
}

TEST(PythonReport, LaunchersAndHelpersAreNotTakenForTheOneThatDiffers) {
  std::vector<PythonProcess> job = {at(90, 500)};  // the launcher
  for (int i = 0; i < 8; ++i) {
    job.push_back(at(100 + i, i == 3 ? 9U : 16U, std::to_string(i)));
    PythonProcess loader = at(200 + i, 33, std::to_string(i));
    loader.parent = 100 + i;
    job.push_back(loader);
  }
  EXPECT_TRUE(where_text(job).starts_with("rank 3 (process 103) is at train.py:9 in step")) << where_text(job);
  const std::vector<PythonGroup> groups = python_groups(job);
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[0].who, "rank 3 (process 103)");
  EXPECT_TRUE(groups[0].differs);
  EXPECT_EQ(groups[1].processes, 7U);
  for (std::size_t i = 1; i < groups.size(); ++i) EXPECT_FALSE(groups[i].differs) << groups[i].who;
  job[7] = at(103, 16, "3");
  EXPECT_EQ(where_text(job), "at train.py:16 in step (rank 0, waiting in read)");
}

TEST(PythonReport, WhereNobodyStandsOutTheFirstIsNamed) {
  EXPECT_EQ(where_text(std::vector{at(1, 5), at(2, 5)}), "at train.py:5 in step (waiting in read)");
  EXPECT_EQ(where_text(std::vector{at(1, 5), at(2, 6)}), "at train.py:6 in step (waiting in read)");
  EXPECT_EQ(where_text(std::vector<PythonProcess>{}), "");
}

TEST(PythonReport, NamesOfAProgramCannotForgeLines) {
  PythonProcess evil = at(7, 1);
  evil.threads[0].frames[0].function = "f\nF\t1\tx\ty\nP\t1\t1\t3.11\t";
  evil.threads[0].name = "a\tb";
  const auto read = decode_python_process(encode(evil));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->pid, 7);
  ASSERT_EQ(read->threads.size(), 1U);
  EXPECT_EQ(read->threads[0].frames.size(), 1U);
  EXPECT_FALSE(decode_python_process("no permission"));
  EXPECT_FALSE(decode_python_process(""));
  // One wrong line makes all of it wrong.
  const std::string text = encode(at(7, 1));
  ASSERT_TRUE(decode_python_process(text));
  for (const char* line : {"X", "P\t8\t1\t3.11\t0", "T\t8\t0\t0\tname", "T\tx\t0\t0\tname\t", "F\t1\tfile",
                           "F\tx\tfile\tname", "X\t8\t0\t0\tname\t", "X\t1\tfile\tname"})
    EXPECT_FALSE(decode_python_process(text + line + "\n")) << line;
  EXPECT_FALSE(decode_python_process(text.substr(text.find('T')))) << "threads of no process";
}

// The examples of CPython's documents (Objects/lnotab_notes.txt, Objects/locations.md), and tables that end too early.
TEST(LineTables, FindTheLineOfAnInstruction) {
  const std::string_view lnotab("\x06\x01\x2c\x05", 4);
  EXPECT_EQ(line_by_lnotab(lnotab, 1, 0), 1U);
  EXPECT_EQ(line_by_lnotab(lnotab, 1, 6), 2U);
  EXPECT_EQ(line_by_lnotab(lnotab, 1, 49), 2U);
  EXPECT_EQ(line_by_lnotab(lnotab, 1, 50), 7U);
  const std::string_view ranges("\x04\x00\x06\x80\x32\x03", 6);
  EXPECT_EQ(line_by_ranges(ranges, 10, 0), 10U);
  EXPECT_EQ(line_by_ranges(ranges, 10, 6), 0U);
  EXPECT_EQ(line_by_ranges(ranges, 10, 12), 13U);
  EXPECT_EQ(line_by_ranges(ranges, 10, 1000), 0U);
  const std::string_view locations("\xd8\x00\x00\xea\x05\xf8\x02\xf1\x03\x00\x01\x01", 12);
  EXPECT_EQ(line_by_locations(locations, 7, 0), 8U);  // one line further
  EXPECT_EQ(line_by_locations(locations, 7, 1), 6U);  // two lines back, without columns, three units
  EXPECT_EQ(line_by_locations(locations, 7, 3), 6U);
  EXPECT_EQ(line_by_locations(locations, 7, 4), 0U);  // of no line
  for (std::size_t cut = 0; cut < locations.size(); ++cut) (void)line_by_locations(locations.substr(0, cut), 7, 100);
}

TEST(ElfSymbols, HostileFilesAreRefusedOrEmpty) {
  const auto self = read_file("/proc/self/exe");
  ASSERT_TRUE(self);
  const auto parse = [](std::string_view file) {
    return ElfSymbols::parse([file](std::uint64_t offset, std::uint64_t size) {
      return std::string(offset < file.size() ? file.substr(offset, std::min<std::uint64_t>(size, 1U << 24)) : "");
    });
  };
  EXPECT_FALSE(parse(""));
  EXPECT_FALSE(
      parse("\x7f"
            "ELF"));
  EXPECT_FALSE(parse(std::string(4096, '\xff')));
  std::string header = self->substr(0, 4096);
  for (std::size_t i = 16; i < 64; ++i) {
    std::string broken = header;
    broken[i] = '\xff';
    (void)parse(broken);
  }
}

}  // namespace
}  // namespace lull
