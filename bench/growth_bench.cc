// What grows with the machine and should not.
//
//   growth_bench look PROCESSES SAMPLES   CPU of looking at a job of one process (its members, CPU and bytes), alone
//   and
//                                         beside so many other processes
//   growth_bench openers DESCRIPTORS      the first pass over so many open files, and a later one

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "act/children.h"
#include "act/tree.h"
#include "sense/job.h"
#include "sense/openers.h"

namespace {

using namespace std::chrono_literals;
using namespace lull;

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// Processes that do nothing, made by one that is none of ours: gone with this object.
class Crowd {
 public:
  Crowd(long count, long descriptors) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    holder_ = ::fork();
    if (holder_ != 0) {
      ::close(ends[1]);
      char byte = 0;
      for (long i = 0; i < count; ++i)
        if (::read(ends[0], &byte, 1) != 1) std::exit((std::fprintf(stderr, "no crowd of %ld\n", count), 1));
      ::close(ends[0]);
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (long i = 0; i < count; ++i) {
      const pid_t child = ::fork();
      if (child < 0) ::_exit(1);
      if (child > 0) continue;
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (long file = 0; file < descriptors; ++file)
        if (::open("/dev/null", O_RDONLY) < 0) ::_exit(1);
      if (::write(ends[1], "x", 1) != 1) ::_exit(1);
      ::close(ends[1]);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    for (;;) ::pause();
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  ~Crowd() {
    ::kill(holder_, SIGKILL);
    ::waitpid(holder_, nullptr, 0);
  }

 private:
  pid_t holder_;
};

double sample_us(const Tree& tree, JobSensor& sensor, const Clock& clock, long samples) {
  const double before = cpu_seconds();
  for (long i = 0; i < samples; ++i) (void)sensor.sample(tree.look(), clock.now());
  return (cpu_seconds() - before) / static_cast<double>(samples) * 1e6;
}

int look(long processes, long samples) {
  Children::become_subreaper();
  const auto measure = [&] {
    const auto earlier = own_children();
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    const SystemClock clock;
    JobSensor sensor;
    const double us = sample_us(Tree::of_job(*Process::open(child), nullptr, earlier), sensor, clock, samples);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return us;
  };
  std::printf("alone_us %f\n", measure());
  const Crowd crowd(processes, 0);
  std::printf("beside_us %f\n", measure());
  return 0;
}

int openers(long descriptors) {
  constexpr long kEach = 1000;
  char folder[] = "/tmp/lull-bench-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  const std::string file = std::string(folder) + "/nvidia0";
  ::close(::open(file.c_str(), O_CREAT | O_WRONLY, 0600));
  const Crowd crowd((descriptors + kEach - 1) / kEach, kEach);
  Root root;
  root.dev = folder;
  Inventory inventory;
  inventory.devices.resize(1);
  inventory.devices[0].minor = 0;
  const SystemClock clock;
  OpenerScan scan(root, {}, clock);
  const double before = cpu_seconds();
  int looks = 1;
  while (scan.look(inventory, 1s).absence[0] == Absence::looking) ++looks;
  std::printf("first_ms %f\nfirst_looks %d\n", (cpu_seconds() - before) * 1e3, looks);
  // The second pass learns who sleeps; where the machine is busy it takes several looks.
  double later = 0;
  for (int i = 0; i < 10; ++i) {
    const double began = cpu_seconds();
    (void)scan.look(inventory, 1s);
    later = (cpu_seconds() - began) * 1e3;
  }
  std::printf("later_ms %f\n", later);
  ::unlink(file.c_str());
  ::rmdir(folder);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const long first = argc > 2 ? std::atol(argv[2]) : 0;
  if (argc == 4 && std::strcmp(argv[1], "look") == 0) return look(first, std::atol(argv[3]));
  if (argc == 3 && std::strcmp(argv[1], "openers") == 0) return openers(first);
  std::fprintf(stderr, "usage: growth_bench look PROCESSES SAMPLES | openers DESCRIPTORS\n");
  return 2;
}
