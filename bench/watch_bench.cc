// watch_bench SAMPLES: watches simulated GPUs for so many samples, time-warped: the loop,
// the sampler, the scope, the sensor of the job's tree and the watcher as `lull run` has
// them, with hours passing in seconds. Prints resident memory early and at the end.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "act/tree.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/evidence.h"
#include "cli/scope.h"
#include "engine/watcher.h"
#include "loop/loop.h"
#include "sense/job.h"
#include "sense/sampler.h"

namespace {

using namespace std::chrono_literals;
using namespace lull;

long resident_kib() {
  const auto text = read_file("/proc/self/statm");
  const auto pages = text ? to_unsigned(split(*text, ' ')[1]) : std::nullopt;
  return pages ? static_cast<long>(*pages) * (::sysconf(_SC_PAGESIZE) / 1024) : -1;
}

}  // namespace

int main(int argc, char** argv) {
  const long samples = argc > 1 ? std::atol(argv[1]) : 100'000;
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const Process job = *Process::open(child);
  const Tree tree = Tree::of_process(job);
  ManualClock clock;
  auto loop = *Loop::create_warped(clock);
  SamplerOptions options;
  auto sampler = Sampler::start(options);
  ScopeFinder scope("", std::nullopt, std::nullopt, [&](pid_t pid) { return tree.contains(pid); });
  // Now idle, now busy, as the job's own time goes: it arms, counts, fires and begins anew.
  Watcher watcher(
      {.policy = *Policy::parse("util < 1 and quiet < 1h for 5m", "util < 1 for 1m"), .judge = {.interval = 5s}},
      clock.now());
  Recorder recorder;
  JobSensor sensor;
  Snapshot snapshot;
  long done = 0;
  long fired = 0;
  long early = 0;
  const std::function<void()> tick = [&] {
    sampler->sample(snapshot);
    snapshot.at = clock.now();
    // The whole of /proc is looked at now and then: most of the time is the rest's.
    if (done % 50 == 0) fill_job(snapshot, sensor.sample(tree.members(), snapshot.at, std::nullopt));
    recorder.add(snapshot);
    for (const Intent& intent : watcher.observe(snapshot, scope.find(snapshot))) {
      if (!std::holds_alternative<Fire>(intent)) continue;
      ++fired;
      watcher.acted();
    }
    if (++done == samples / 50) early = resident_kib();
    if (done < samples) loop->in(5s, tick);
  };
  tick();
  const bool ran = loop->run().has_value();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  std::printf("early_kib %ld\nend_kib %ld\nsamples %ld\nhours %ld\nfired %ld\n", early, resident_kib(), done,
              static_cast<long>(clock.now().time_since_epoch() / 1h), fired);
  std::fflush(stdout);
  ::_exit(ran ? 0 : 1);
}
