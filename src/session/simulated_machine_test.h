#pragma once
// The simulated machine on a test's clock, as a session sees it: the simulated driver's library, loaded and read by the
// real NVML source, sampled and looked at between the samples as the sensor's workers do (sense/sensor.cc),
// through the same bytes (sense/wire.h) and into the same inventory (sense/arrange.h). What is left out is the process
// in between, whose time is the real one. An hour takes milliseconds.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sense/arrange.h"
#include "sense/sampler.h"
#include "sense/sim_machine_test.h"
#include "sense/source.h"
#include "sense/wire.h"
#include "session/fake_world_test.h"

namespace lull {

inline constexpr Instant kTestBegins{std::chrono::hours(24 * 365 * 50)};  // as the wall clock has it, after 1970

// A stretch of time in which the sensor gets no turn.
struct Starved {
  Instant from{};
  Instant to{};
};

class SimulatedMachine {
 public:
  using OnRead = std::function<void(const Snapshot&)>;

  explicit SimulatedMachine(sim::Plan plan) : machine_({}), world(Script()) {
    plan.manual_boot_ns = kTestBegins.time_since_epoch().count();
    machine_.plan = std::move(plan);
    machine_.begin();
    writer_.emplace(machine_.writer());
    machine_.tree.link("proc/self/ns/pid", "pid:[4026531836]");  // who lists processes sees all of them
    world.clock.advance(kTestBegins - world.clock.now());
    world.make_sampler = [this](SamplerOptions options, SampleSource::OnSample on_sample) {
      return std::make_unique<Sampler>(*this, std::move(options), std::move(on_sample));
    };
  }

  Root root() const {
    Root root = machine_.tree.root();
    root.driver = machine_.tree.at("proc/driver/nvidia");
    return root;
  }
  sim::Writer& writer() {
    writer_->set_time(world.clock.now().time_since_epoch().count());
    return *writer_;
  }
  // When somebody who is to have a turn at `when` gets it.
  Instant turn(Instant when) const {
    for (const Starved& one : starved)
      if (one.from <= when && when < one.to) when = one.to;
    return when;
  }

 private:
  SimMachine machine_;
  std::optional<sim::Writer> writer_;

 public:
  FakeWorld world;
  std::function<Duration(Instant)> latency = [](Instant) { return Duration::zero(); };
  std::vector<Starved> starved;  // by time; who asks in one is answered at its end
  bool drops = false;            // instead, who asks in one is not answered at all
  OnRead on_read = nullptr;      // each sample, before the session has it

 private:
  class Sampler final : public SampleSource {
   public:
    Sampler(SimulatedMachine& machine, SamplerOptions options, OnSample on_sample)
        : machine_(machine), needs_(options.needs()), on_sample_(std::move(on_sample)) {
      newest_.inventory = std::make_shared<Inventory>();
    }
    ~Sampler() override {
      for (auto* timer : {&timer_, &look_})
        if (*timer) loop().cancel(**timer);
    }
    void request(bool fresh_lists) override {
      if (timer_) return;
      asked_ = loop().now();
      fresh_lists_ = fresh_lists;
      const Instant when = asked_ + machine_.latency(asked_);
      if (machine_.drops && machine_.turn(when) != when) return;
      timer_ = loop().at(machine_.turn(when), [this] {
        timer_.reset();
        read();
        if (machine_.on_read) machine_.on_read(newest_);
        on_sample_(newest_);
      });
    }
    bool sample_here(Duration) override {
      asked_ = loop().now();
      read();
      return true;
    }
    void release_driver() override {}
    const Snapshot& newest() const override { return newest_; }

   private:
    struct Gpu {
      bool attached = false;
      bool fresh = true;            // its meters are
      std::optional<Instant> read;  // by this source or one before
      Identity identity;
      Answer answer;
      Instant look_by = Instant::max();
    };
    Loop& loop() { return machine_.world.loop(); }

    void read() {
      const Instant now = loop().now();
      machine_.writer();
      // A driver that went away may be back by now: it is opened anew, once.
      for (int tries = 0; tries < 2; ++tries) {
        if (!source_) open();
        if (!source_ || sample_all(now)) break;
        source_.reset();
        opened_ = {Absence::no_driver, "it went away", {}};
      }
      publish(now);
      plan_look();
    }

    bool sample_all(Instant now) {
      bool all = true;
      for (unsigned i = 0; i < gpus_.size(); ++i) all = sample(i, now) && all;
      return all;
    }

    void open() {
      source_ = make_nvml_source(SimMachine::library(), machine_.root(), machine_.world.clock);
      opened_ = source_->open();
      if (opened_.absence != Absence::none) return source_.reset();
      gpus_.resize(source_->count());
      for (Gpu& gpu : gpus_) {
        gpu.attached = false;
        gpu.fresh = true;
      }
    }

    // False: the whole driver is gone.
    bool sample(unsigned i, Instant now) {
      Gpu& gpu = gpus_[i];
      if (!gpu.attached) gpu.attached = source_->attach(i, now);
      Needs needs = needs_;
      if (fresh_lists_) needs.lists_every = Duration::zero();
      Answer said;
      source_->sample(i, needs, now, said);
      through_shared_memory(source_->identity(i), gpu.identity);
      gpu.identity.device.index = i;
      through_shared_memory(said, gpu.answer);
      if (std::exchange(gpu.fresh, false) && gpu.read && now - *gpu.read > kMomentStands)
        forget_moments(gpu.answer.gpu);
      gpu.read = now;
      const Duration within = source_->look_within(i);
      gpu.look_by = within > Duration::zero() ? now + within : Instant::max();
      return !said.driver_gone;
    }

    template <class Message>
    void through_shared_memory(const Message& said, Message& heard) {
      Encoder out(bytes_);
      encode(out, said);
      if (out.full() || !decode(std::span(bytes_).first(out.size()), heard)) std::abort();
    }

    void publish(Instant now) {
      std::vector<FoundGpu> found;
      for (const Gpu& gpu : gpus_) found.push_back({.gpu = &gpu.identity.device, .parts = {}});
      Arrangement arrangement = arrange(newest_.inventory->devices, found);
      if (arrangement.devices != newest_.inventory->devices)
        newest_.inventory = std::make_shared<Inventory>(Inventory{std::move(arrangement.devices), "", ""});
      newest_.at = now;
      newest_.asked = asked_;
      newest_.wall = machine_.world.clock.wall();
      newest_.driver = opened_;
      newest_.readings.assign(newest_.inventory->devices.size(), Reading());
      for (std::size_t i = 0; i < newest_.readings.size(); ++i) {
        const std::size_t gpu = arrangement.rows[i].gpu;
        if (opened_.absence != Absence::none)
          newest_.readings[i].miss_all(opened_.absence);
        else if (gpu == Row::kNobody)
          newest_.readings[i].miss_all(Absence::lost);
        else
          newest_.readings[i] = gpus_[gpu].answer.gpu;
      }
    }

    // ---- looks between the samples

    void plan_look() {
      if (look_) loop().cancel(*look_);
      look_.reset();
      Instant next = Instant::max();
      for (const Gpu& gpu : gpus_) next = std::min(next, source_ ? gpu.look_by : Instant::max());
      if (next != Instant::max()) look_ = loop().at(machine_.turn(next), [this] { look_around(); });
    }

    void look_around() {
      constexpr Duration kSoonEnough = std::chrono::milliseconds(60);
      look_.reset();
      const Instant now = loop().now();
      machine_.writer();
      for (unsigned i = 0; i < gpus_.size(); ++i) {
        if (gpus_[i].look_by > now + kSoonEnough) continue;
        source_->look(i, now);
        const Duration within = source_->look_within(i);
        gpus_[i].look_by = within > Duration::zero() ? now + within : Instant::max();
      }
      plan_look();
    }

    SimulatedMachine& machine_;
    const Needs needs_;
    OnSample on_sample_;
    std::unique_ptr<Source> source_;
    DriverState opened_;
    std::vector<Gpu> gpus_;
    std::vector<std::byte> bytes_ = std::vector<std::byte>(1 << 20);
    Snapshot newest_;
    Instant asked_{};
    bool fresh_lists_ = false;
    std::optional<Loop::TimerId> timer_;
    std::optional<Loop::TimerId> look_;
  };
};

}  // namespace lull
