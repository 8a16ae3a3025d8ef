#include "shared_sampler.h"

#include <poll.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "errors.h"

namespace py = pybind11;

namespace lull::python {
namespace {

using namespace std::chrono_literals;
constexpr Duration kLongestPoll = 100ms;

}  // namespace

SensorProgram sensor_program_of_now() {
  SensorProgram program;
  program.path = py::module_::import("lull._program").attr("find")().cast<std::string>();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) program.environment.emplace_back(*entry);
  return program;
}

std::string driver_by_environment() {
  std::string all;
  for (const char* name : {"LULL_SIM", "LULL_NVML", "LULL_DEV", "LD_LIBRARY_PATH", "LULL_PROGRAM"}) {
    const char* value = std::getenv(name);
    all += value == nullptr ? std::string("\n") : std::string(value) + "\n";
  }
  return all;
}

SharedSampler::SharedSampler(SamplerOptions options) : owner_(::getpid()) {
  if (options.program.path.empty()) options.program = sensor_program_of_now();
  sampler_ = Sampler::start(std::move(options));
}

SharedSampler::~SharedSampler() { close(); }

bool SharedSampler::ours() const { return owner_ == ::getpid(); }

// In a forked child the sampler is left as it is: ending it would end the parent's sensor.
void SharedSampler::close() {
  if (ours())
    sampler_.reset();
  else
    (void)sampler_.release();
}

void SharedSampler::sample(Snapshot& into) {
  bool taken = false;
  {
    const py::gil_scoped_release release;
    sampler_->request();
  }
  while (true) {
    {
      const py::gil_scoped_release release;
      taken = sampler_->take(into);
      if (!taken) {
        const Duration left = std::clamp<Duration>(sampler_->look_by() - SystemClock().now(), 0ns, kLongestPoll);
        const timespec pause{.tv_sec = 0, .tv_nsec = left.count()};
        pollfd wakeup{sampler_->event_fd(), POLLIN, 0};
        (void)::ppoll(&wakeup, 1, &pause, nullptr);  // a signal ends it, which is what we want
      }
    }
    if (taken) return;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

}  // namespace lull::python
