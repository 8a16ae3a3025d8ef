#pragma once
// A sampler as Python may use it: from any thread, beside others, in a process that forks. Its sensor is the program
// `lull`, since a process with threads must not clone itself. While it waits others have the GIL, and Ctrl-C is heard.

#include <sys/types.h>

#include <memory>
#include <string>

#include "gpu/snapshot.h"
#include "sense/sampler.h"

namespace lull::python {

// The program that is the sensor, with the environment of now. The GIL must be held: os.environ must not change
// meanwhile.
SensorProgram sensor_program_of_now();
// What decides which driver is asked: it is another one inside lull.simulate().
std::string driver_by_environment();

class SharedSampler {
 public:
  explicit SharedSampler(SamplerOptions options);
  SharedSampler(const SharedSampler&) = delete;
  SharedSampler& operator=(const SharedSampler&) = delete;
  ~SharedSampler();

  // One sample; called with the GIL, waits without it. Throws what a signal handler raised.
  void sample(Snapshot& into);
  // False: a child that was forked. What it inherited is its parent's.
  bool ours() const;
  void close();

 private:
  pid_t owner_;
  std::unique_ptr<Sampler> sampler_;
};

}  // namespace lull::python
