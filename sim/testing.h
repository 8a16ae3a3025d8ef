#pragma once
// For tests: a simulation in a folder of its own, gone at the end.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/evaluate.h"
#include "sim/models.h"
#include "sim/writer.h"

namespace lull::sim {

inline Plan plan_of(const std::vector<std::string>& models) {
  Plan plan;
  plan.gpus.resize(models.size());
  std::vector<Gpu*> gpus;
  for (unsigned i = 0; i < models.size(); ++i) {
    plan.gpus[i].gpu = model(models[i]).value();
    place(plan.gpus[i].gpu, i, static_cast<unsigned>(models.size()));
    gpus.push_back(&plan.gpus[i].gpu);
  }
  wire(gpus);
  number_cards(gpus);
  return plan;
}

class TestSim {
 public:
  explicit TestSim(const Plan& plan) : folder_(fresh_folder()) {
    const auto made = create_state(folder_, plan);
    if (!made) throw std::runtime_error(made.error().message());
  }
  explicit TestSim(const std::vector<std::string>& models) : TestSim(plan_of(models)) {}
  TestSim(const TestSim&) = delete;
  TestSim& operator=(const TestSim&) = delete;
  ~TestSim() { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }
  Writer writer() const { return Writer::open(folder_).value(); }

 private:
  static std::string fresh_folder() {
    std::string name = std::filesystem::temp_directory_path() / "lull-sim-test-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
    return name;
  }
  std::string folder_;
};

// A load with one step; where, what and how much.
inline Load load_on(unsigned gpu, double util, std::uint64_t memory = 0, std::uint32_t kind = kCompute) {
  Load load;
  load.gpu = gpu;
  load.kind = kind;
  load.step_count = 1;
  load.steps[0].util = util;
  load.steps[0].memory = memory;
  return load;
}

}  // namespace lull::sim
