// Part of every program of unit tests: they see nothing of the environment that they were started in but what is said
// here. tests/hermetic.py does the same for tests in Python, and hides files of the machine from both under ./test.

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::array<std::string_view, 17> kKept = {
    "PATH=", "USER=", "LOGNAME=", "RC_PARAMS=", "LULL_TEST_", "LULL_SCHEDULES=", "LULL_DAYS=", "LULL_CASES=", "GTEST_",
    "TEST_", "XML_",  "CTEST_",   "GCOV_",      "ASAN_",      "TSAN_",           "UBSAN_",     "LSAN_"};

class NoEnvironment {
 public:
  NoEnvironment() {
    std::vector<std::string> dropped;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view line = *entry;
      if (std::ranges::none_of(kKept, [line](std::string_view kept) { return line.starts_with(kept); }))
        dropped.emplace_back(line.substr(0, line.find('=')));
    }
    for (const std::string& name : dropped) ::unsetenv(name.c_str());
    ::setenv("HOME", "/nonexistent", 1);
    ::setenv("LULL_CONFIG", "", 1);                              // no file of settings
    ::setenv("LULL_NVML", "/nonexistent/libnvidia-ml.so.1", 1);  // nor a driver that no test named
    ::setenv("LC_ALL", "C.UTF-8", 1);
    ::setenv("TZ", "UTC", 1);
    for (const int number : {SIGHUP, SIGINT, SIGQUIT}) {  // ignored in what a shell starts in the background
      struct sigaction action{};
      if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) ::signal(number, SIG_DFL);
    }
  }
};

const NoEnvironment kNoEnvironment;

}  // namespace
