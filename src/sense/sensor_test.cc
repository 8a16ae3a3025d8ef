// The sensor as a process: what it holds, what it leaves behind, and what its owner notices of its end.
#include "sense/sensor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/text.h"
#include "sense/sampler.h"
#include "sense/sim_machine_test.h"
#include "sense/wire.h"

namespace lull {
namespace {

using std::chrono::seconds;

// Waits for an event that is sure to come, with a limit.
template <class Condition>
bool eventually(const Condition& condition) {
  const Instant end = now() + seconds(20);
  while (!condition()) {
    if (now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

pid_t only_sensor() {
  const std::vector<pid_t> sensors = sensors_of_ours();
  return sensors.size() == 1 ? sensors.front() : -1;
}

// Never by a number that is not one.
bool signal_sensor(int signal) {
  const pid_t sensor = only_sensor();
  return sensor > 0 && ::kill(sensor, signal) == 0;
}

std::string of_process(pid_t pid, const std::string& file) {
  return read_file("/proc/" + std::to_string(pid) + "/" + file).value_or("");
}

TEST(Sensor, IsSeenAsWhatItIs) {
  SimMachine machine({"H100"});
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  const pid_t sensor = only_sensor();
  ASSERT_GT(sensor, 0);
  EXPECT_EQ(of_process(sensor, "comm"), "lull-sensor\n");
  EXPECT_EQ(of_process(sensor, "cmdline").substr(0, 12), std::string("lull-sensor\0", 12)) << "not our own arguments";
  const auto entry = read_process_entry(sensor);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->session, sensor) << "no terminal sends it signals";
}

// A program that uses the library may wait for children of its own.
TEST(Sensor, IsFoundByNoWaitOfAProgramThatIsNoSubreaper) {
  SimMachine machine({"H100"});
  machine.begin();
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  errno = 0;
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a wait() must not find it";
  EXPECT_EQ(errno, ECHILD);
}

// Who reads our output to its end must not wait for a sensor that is stuck.
TEST(Sensor, HoldsNoDescriptorOfOurs) {
  SimMachine machine({"H100"});
  machine.begin();
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, 0), 0);  // inherited by whoever does not care
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  ::close(ends[1]);
  pollfd closed{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&closed, 1, 5000), 1);
  EXPECT_NE(closed.revents & POLLHUP, 0);
  ::close(ends[0]);
}

// Several times a second, for every GPU: it would wake us up all day.
TEST(Sensor, LooksBetweenSamplesWithoutAWord) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  const pid_t sensor = only_sensor();
  ASSERT_GT(sensor, 0);
  const auto wakes = [&] {
    std::uint64_t sum = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(sensor) + "/task")) {
      const std::string text = read_file(thread.path().string() + "/status").value_or("");
      if (const auto at = text.find("\nvoluntary_ctxt_switches:\t"); at != std::string::npos)
        sum += std::strtoull(text.c_str() + at + 26, nullptr, 10);
    }
    return sum;
  };
  // Whatever the sample still had to say.
  pollfd wakeup{sampler->event_fd(), POLLIN, 0};
  const std::uint64_t before = wakes();
  ASSERT_TRUE(eventually([&] { return wakes() >= before + 3; })) << "it looks";
  while (::poll(&wakeup, 1, 0) > 0) {
    std::uint64_t step = 0;
    (void)!::read(wakeup.fd, &step, sizeof step);
  }
  const std::uint64_t quiet = wakes();
  EXPECT_TRUE(eventually([&] { return wakes() >= quiet + 10; })) << "it looks";
  EXPECT_EQ(::poll(&wakeup, 1, 0), 0);
}

TEST(Sensor, IsGoneWithItsSampler) {
  SimMachine machine({"H100"});
  machine.begin();
  auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  const pid_t sensor = only_sensor();
  sampler.reset();
  EXPECT_TRUE(eventually([&] { return !read_process_entry(sensor); }));
}

TEST(Sensor, IsGoneWithItsParentHoweverThatEnds) {
  SimMachine machine({"H100"});
  machine.begin();
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // not inherited
    const auto sampler = Sampler::start(machine.options());
    (void)sampler->sample();
    const pid_t sensor = only_sensor();
    (void)!::write(ends[1], &sensor, sizeof sensor);
    ::kill(::getpid(), SIGKILL);
  }
  pid_t sensor = 0;
  ASSERT_EQ(::read(ends[0], &sensor, sizeof sensor), static_cast<ssize_t>(sizeof sensor));
  ASSERT_GT(sensor, 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(eventually([&] {
    const auto entry = read_process_entry(sensor);
    return !entry || entry->ended();
  }));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Sensor, ThatCrashesCostsNoMoreThanASample) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  for (const int signal : {SIGSEGV, SIGKILL, SIGABRT}) {
    const pid_t sensor = only_sensor();
    ASSERT_GT(sensor, 0);
    ASSERT_TRUE(signal_sensor(signal));
    // It may take a moment to die (a sanitizer reports first), and may still answer meanwhile.
    EXPECT_TRUE(eventually([&] {
      (void)sampler->sample();
      return only_sensor() != sensor;
    })) << "signal "
        << signal;
    EXPECT_TRUE(all_known(sample_until(*sampler, all_known))) << "signal " << signal;
  }
}

// The memory that the sensor writes to, as a stray pointer of a driver would find it.
SensorMemory* own_shared_memory() {
  const std::string maps = read_file("/proc/self/maps").value_or("");
  for (const std::string_view line : split(maps, '\n')) {
    unsigned long from = 0;
    unsigned long to = 0;
    if (std::sscanf(std::string(line).c_str(), "%lx-%lx", &from, &to) != 2) continue;
    const std::size_t pages = (sizeof(SensorMemory) + 4095) / 4096 * 4096;
    if (to - from == pages && line.find("rw-s") != std::string_view::npos) return reinterpret_cast<SensorMemory*>(from);
  }
  return nullptr;
}

TEST(Sensor, AnAnswerThatFailsItsCheckIsNotRead) {
  SimMachine machine({"H100"});
  machine.begin();
  machine.set(0, sim::Metric::util, 66);
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  sampler->request();
  pollfd wakeup{sampler->event_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&wakeup, 1, 20'000), 1);
  SensorMemory* shared = own_shared_memory();
  ASSERT_NE(shared, nullptr);
  // Behind the first byte are the values, utilisation first: the lowest bit of it, which is still a percentage.
  shared->answers[0].bytes[1] ^= std::byte{1};
  Snapshot snapshot;
  sampler->wait(snapshot);
  EXPECT_FALSE(snapshot.readings.at(0)[Metric::util] != 66 && all_known(snapshot));
  EXPECT_TRUE(eventually([&] { return all_known(sampler->sample()); }));
}

TEST(Sensor, AnAnswerThatIsWholeAndMakesNoSenseIsNotUsedEither) {
  SimMachine machine({"H100"});
  machine.begin();
  machine.set(0, sim::Metric::util, 66);
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  sampler->request();
  pollfd wakeup{sampler->event_fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&wakeup, 1, 20'000), 1);
  SensorMemory* shared = own_shared_memory();
  ASSERT_NE(shared, nullptr);
  auto& answer = shared->answers[0];
  const double nonsense = 4711;  // per cent
  std::memcpy(answer.bytes.data() + 1, &nonsense, sizeof nonsense);
  answer.checksum = checksum_of(std::span(answer.bytes).first(answer.size), shared->slots[0].round);
  Snapshot snapshot;
  sampler->wait(snapshot);
  // A new sensor may have answered by now.
  EXPECT_FALSE(snapshot.readings.at(0)[Metric::util] != 66 && all_known(snapshot));
  EXPECT_TRUE(eventually([&] { return all_known(sampler->sample()); }));
}

// Who watches only the moments of sensors that come and go has not watched: a busy card would read 0 % between two of
// them.
TEST(Sensor, ThatIsNewKnowsNothingOfTheTimeBeforeIt) {
  SimMachine machine({"H100"});
  machine.begin();
  machine.set(0, sim::Metric::util, 90);
  const auto sampler = Sampler::start(machine.options());
  EXPECT_EQ(sampler->sample().readings.at(0)[Metric::util], 90) << "of a first sample the moment is known";
  const Instant before = now();
  ASSERT_TRUE(eventually([&] { return now() - before > std::chrono::milliseconds(1700); }));
  machine.set(0, sim::Metric::util, 0);
  ASSERT_TRUE(signal_sensor(SIGKILL));
  const Snapshot snapshot = sampler->sample();
  EXPECT_EQ(snapshot.readings.at(0).why_missing(Metric::util), Absence::not_covered);
  EXPECT_EQ(snapshot.readings.at(0).why_missing(Metric::power), Absence::not_covered);
  EXPECT_EQ(snapshot.readings.at(0).why_missing(Metric::mem_used), Absence::none) << "that is of the moment anyway";
  EXPECT_EQ(sampler->sample().readings.at(0)[Metric::util], 0) << "from now on it is watched";
}

// What cannot be had once is tried again; nobody stays blind who says "still looking".
TEST(Sensor, ComesBackWhenItCouldNotBeStartedOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs all the address space there is";
#endif
  SimMachine machine({"H100"});
  machine.begin();
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit before{};
    ::getrlimit(RLIMIT_AS, &before);
    const auto sampler = Sampler::start(machine.options());
    rlimit none = before;
    none.rlim_cur = 1;  // no shared memory can be mapped
    ::setrlimit(RLIMIT_AS, &none);
    sampler->request();
    Snapshot snapshot;
    const bool taken = sampler->take(snapshot);
    ::setrlimit(RLIMIT_AS, &before);
    if (!taken || snapshot.driver.absence != Absence::failed) ::_exit(1);
    ::_exit(all_known(sample_until(*sampler, all_known)) ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// `pkill -USR1 lull-sensor` before a GPU is reset, MIG is changed, the driver is unloaded.
TEST(Sensor, LetsGoOfTheDriverWhenAskedAndSaysSo) {
  SimMachine machine({"H100"});
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  ASSERT_TRUE(signal_sensor(SIGUSR1));
  const Snapshot snapshot = sample_until(*sampler, [](const Snapshot& s) { return s.driver.absence != Absence::none; });
  EXPECT_EQ(snapshot.driver.absence, Absence::no_driver);
  EXPECT_NE(snapshot.driver.detail.find("let go of the driver"), std::string::npos) << snapshot.driver.detail;
  EXPECT_EQ(snapshot.readings.at(0).why_missing(Metric::util), Absence::no_driver) << "unknown, not idle";
  EXPECT_TRUE(sensors_of_ours().empty());
}

TEST(Sensor, ThatIsStoppedIsReplaced) {
  SimMachine machine({"H100"});
  machine.begin();
  SamplerOptions options = machine.options();
  options.deadline = std::chrono::milliseconds(2500);
  const auto sampler = Sampler::start(options);
  ASSERT_TRUE(all_known(sampler->sample()));
  ASSERT_TRUE(signal_sensor(SIGSTOP));
  EXPECT_TRUE(all_known(sample_until(*sampler, all_known)));
}

// A card can only be reset when nobody holds it.
TEST(Sensor, LetsGoOfAGpuThatRequiresAReset) {
  SimMachine machine({"H100", "H100"});
  machine.begin();
  const auto sampler = Sampler::start(machine.options());
  ASSERT_TRUE(all_known(sampler->sample()));
  const pid_t before = only_sensor();
  machine.fault(1, nvml::Return::reset_required);
  const Snapshot first = sampler->sample();
  EXPECT_EQ(first.readings.at(1).device_absence, Absence::reset_required);
  EXPECT_EQ(first.readings.at(0).device_absence, Absence::none);
  EXPECT_TRUE(sensors_of_ours().empty()) << "all is let go";
  const Snapshot second = sampler->sample();
  EXPECT_EQ(second.readings.at(0).device_absence, Absence::none) << "the other one is watched on";
  EXPECT_EQ(second.readings.at(1).device_absence, Absence::reset_required);
  EXPECT_EQ(second.inventory->devices.at(1).uuid, first.inventory->devices.at(1).uuid);
  EXPECT_NE(only_sensor(), before);
  machine.heal();
  EXPECT_TRUE(all_known(sample_until(*sampler, all_known))) << "and comes back by itself";
}

}  // namespace
}  // namespace lull
