#pragma once
// Where samples come from: the sensor process through a loop (machine.h), or a test's script; and Senses, the time
// and the samples of a session: all that one needs that changes nothing.

#include <functional>
#include <memory>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "loop/loop.h"
#include "sense/sampler.h"

namespace lull {

class SampleSource {
 public:
  using OnSample = std::function<void(const Snapshot&)>;

  SampleSource() = default;
  SampleSource(const SampleSource&) = delete;
  SampleSource& operator=(const SampleSource&) = delete;
  virtual ~SampleSource() = default;

  // One more sample; ignored while one is under way. `fresh_lists`: with lists of processes that are of now.
  virtual void request(bool fresh_lists) = 0;
  // Waits for one, for no longer than this; the handler does not get it. False: it did not come in time, and the
  // handler will get it.
  virtual bool sample_here(Duration limit) = 0;
  virtual void release_driver() = 0;  // of the driver, for a minute
  virtual const Snapshot& newest() const = 0;
};

class Senses {
 public:
  Senses() = default;
  Senses(const Senses&) = delete;
  Senses& operator=(const Senses&) = delete;
  virtual ~Senses() = default;

  virtual Loop& loop() = 0;
  const Clock& clock() { return loop().clock(); }
  virtual std::unique_ptr<SampleSource> sampler(SamplerOptions options, SampleSource::OnSample on_sample) = 0;
};

}  // namespace lull
