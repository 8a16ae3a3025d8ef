// Watching simulated GPUs as `lull run` does: the loop, the sampler, the scope, the engine.
//
//   watch_bench memory SAMPLES   time-warped, hours pass in seconds, the job's tree is looked at as well:
//                                resident memory early and at the end
//   watch_bench cpu SAMPLES      as fast as it goes, each sample brought on by a timer of the loop:
//                                processor time of a sample, all threads together

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "act/evidence.h"
#include "act/tree.h"
#include "base/fd.h"
#include "base/text.h"
#include "engine/engine.h"
#include "jobs/scope.h"
#include "loop/loop.h"
#include "sense/job.h"
#include "sense/sampler.h"
#include "session/feed.h"
#include "session/machine.h"

namespace {

using namespace std::chrono_literals;
using namespace lull;

long resident_kib() {
  const auto text = read_file("/proc/self/statm");
  const auto pages = text ? to_unsigned(split(*text, ' ')[1]) : std::nullopt;
  return pages ? static_cast<long>(*pages) * (::sysconf(_SC_PAGESIZE) / 1024) : -1;
}

int memory(long samples) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const Process job = *Process::open(child);
  const Tree tree = Tree::of_process(job);
  ManualClock clock;
  auto loop = *Loop::create_warped(clock);
  auto sampler = Sampler::start({});
  // The job has no context: all GPUs are asked for, and its processes are looked for all the same.
  ScopeFinder scope({.gpus = "all", .is_ours = [&](pid_t pid) { return tree.contains(pid); }});
  // It arms, counts, fires and begins anew.
  Engine engine({plan_of(*Policy::parse("util < 1 for 5m", "util < 1 for 1m"), {.interval = 5s})});
  Subject subject{.id = {"job"}, .scope = {}};
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
    if (done % 50 == 0) add_to(subject.job, sensor.sample(tree.members(), snapshot.at));
    recorder.add(snapshot, subject.job, Facts());
    subject.scope = scope.find(snapshot);
    for (const Event& event : engine.observe(snapshot, {&subject, 1})) {
      if (!std::holds_alternative<Fired>(event.what)) continue;
      ++fired;
      engine.outcome(subject.id);
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
  return ran ? 0 : 1;
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

int cpu(long samples) {
  const SystemClock clock;
  auto machine = *Machine::open(clock);
  Loop* loop = &machine->loop();
  const Policy policy = *Policy::parse("util < 1 and power < 30% for 1h", std::nullopt);
  Feed feed(*machine, {.policy = policy, .every = 1h, .gpus = "all"});
  Engine engine({plan_of(policy, {.interval = 5s})});
  Subject subject{.id = {"job"}, .scope = {}};
  long done = 0;
  long said = 0;
  double before = 0;
  feed.on_sample = [&](const Snapshot& snapshot, const Scope& scope) {
    subject.scope = scope;
    said += static_cast<long>(engine.observe(snapshot, {&subject, 1}).size());
    if (++done == samples / 10) before = cpu_seconds();  // all is warm from here on
    if (done == samples)
      loop->stop();
    else
      loop->in(0s, [&] { feed.request(); });
  };
  feed.begin();
  const bool ran = loop->run().has_value();
  const double used = cpu_seconds() - before;
  const long measured = done - samples / 10;
  std::printf("cpu_us %.2f\nsaid %ld\n", used / static_cast<double>(measured) * 1e6, said);
  return ran ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 2 ? argv[1] : "";
  const long samples = argc > 2 ? std::atol(argv[2]) : 0;
  const int status = what == "memory" && samples > 0 ? memory(samples)
                     : what == "cpu" && samples > 0  ? cpu(samples)
                                                     : 2;
  if (status == 2) std::fputs("usage: watch_bench memory|cpu SAMPLES\n", stderr);
  std::fflush(stdout);
  ::_exit(status);  // threads of the sampler are not waited for
}
