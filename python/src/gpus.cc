// lull.status() and lull.Sampler: what the GPUs show, as records.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <cmath>
#include <mutex>

#include "base/text.h"
#include "base/units.h"
#include "errors.h"
#include "gpu/snapshot.h"
#include "jobs/gpu_users.h"
#include "module.h"
#include "sense/select.h"
#include "session/status_extras.h"
#include "shared_sampler.h"
#include "view/status.h"

namespace py = pybind11;

namespace lull::python {
namespace {

using namespace std::chrono_literals;

// As `lull status` does.
constexpr Duration kPatience = 1500ms;
constexpr Duration kLongestWaking = 11s;
// A second call soon after reads the same sensor; after this long the driver is released. Not longer: `util` is the
// mean since the previous call, and a call is meant for about now.
constexpr Duration kLetsGo = 10s;

std::optional<std::string> known(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

// Bytes and counts are whole numbers.
py::object number_of(const MetricInfo& row, double value) {
  if (std::isnan(value)) return py::none();
  const bool whole = row.unit == Unit::bytes || row.unit == Unit::count || row.unit == Unit::none;
  if (whole) return py::int_(static_cast<long long>(value));
  return py::float_(rounded(value));
}

// One sample, which its records share.
struct Shot {
  Snapshot snapshot;
  std::vector<std::size_t> rows;
  std::vector<StatusExtra> extras;
};

Metric metric_of(const std::string& name) {
  if (const auto metric = metric_by_name(name)) return *metric;
  if (const auto metric = metric_by_field(name)) return *metric;
  std::vector<std::string_view> names;
  for (const MetricInfo& row : kMetricTable) names.push_back(row.name);
  throw Complaint(Kind::usage, "there is no signal '" + printable(name) + "'" + did_you_mean(name, names));
}

struct Gpu {
  std::shared_ptr<const Shot> shot;
  std::size_t row = 0;  // of shot->rows

  const Device& device() const { return shot->snapshot.inventory->devices[shot->rows[row]]; }
  const Reading& reading() const { return shot->snapshot.readings[shot->rows[row]]; }
  const StatusExtra& extra() const { return shot->extras[row]; }

  std::optional<std::string> why(const std::string& signal) const {
    const Metric metric = metric_of(signal);
    const Absence absence = reading().why_missing(metric);
    if (info(metric).of != Of::gpu) return std::string("is a signal of a job or of the machine, not of a GPU");
    return absence == Absence::none ? std::nullopt : std::optional(std::string(to_string(absence)));
  }
  py::object as_dict() const {
    const StatusView view{shot->snapshot, {shot->rows[row]}, {extra()}};
    const py::object all = py::module_::import("json").attr("loads")(status_json(view, -1));
    return all["gpus"][py::int_(0)];
  }
  std::string repr() const {
    const auto text = [&](Metric metric) {
      return py::str(number_of(info(metric), reading()[metric])).cast<std::string>();
    };
    std::string out = "<lull.Gpu " + device().label() + " " + printable(device().name);
    const std::string trouble = device_trouble(device(), reading());
    if (!trouble.empty()) return out + ": " + trouble + ">";
    return out + " util=" + text(Metric::util) + " mem_used=" + text(Metric::mem_used) +
           " power=" + text(Metric::power) + ">";
  }
};

std::string trouble_of(const DriverState& driver) {
  if (driver.absence == Absence::none) return "";
  return driver.detail.empty() ? std::string(to_string(driver.absence)) : driver.detail;
}

std::vector<std::size_t> rows_of(const Inventory& inventory, const std::string& gpus, bool visible) {
  if (!gpus.empty()) return must(select_devices(gpus, inventory));
  if (visible) return visible_here(RuntimeVariables::of_this_process(), inventory).devices;
  std::vector<std::size_t> rows(inventory.devices.size());
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i;
  return rows;
}

// A list that a notebook shows as a table.
py::object records_of(std::shared_ptr<const Shot> shot) {
  py::list list(shot->rows.size());
  for (std::size_t i = 0; i < shot->rows.size(); ++i) list[i] = Gpu{shot, i};
  return py::module_::import("lull._table").attr("Gpus")(list);
}

// Leases that cannot be read are not known: Python's own way to say so, once for each place that asks.
void add_extras(Shot& shot, const IdleTimes& idle) {
  std::string unread;
  shot.extras = status_extras(shot.snapshot, shot.rows, idle, unread);
  if (!unread.empty() && PyErr_WarnEx(PyExc_RuntimeWarning, unread.c_str(), 1) != 0) throw py::error_already_set();
}

SamplerOptions status_options() {
  SamplerOptions options;
  options.process_info = true;
  options.deadline = kPatience;
  options.wait_for_waking = true;
  options.attach_deadline = kLongestWaking;
  options.idle_before = true;
  return options;
}

// What status() keeps from call to call: starting a sensor takes a hundred times as long as asking one.
class Kept {
 public:
  Kept() : owner_(::getpid()) {}

  std::shared_ptr<const Shot> look(const std::string& gpus, bool visible) {
    const std::string driver = driver_by_environment();
    const std::unique_lock lock = locked();
    if (!sampler_ || driver != driver_) {
      sampler_.reset();
      SamplerOptions options = status_options();
      options.release_after = kLetsGo;
      sampler_ = std::make_unique<SharedSampler>(std::move(options));
      idle_ = IdleTimes(kLetsGo);
      driver_ = driver;
    }
    auto shot = std::make_shared<Shot>();
    sampler_->sample(shot->snapshot);
    users_.identify_in(shot->snapshot);
    if (const std::string trouble = trouble_of(shot->snapshot.driver); !trouble.empty())
      throw Complaint(Kind::driver, trouble);
    idle_.see(shot->snapshot);
    shot->rows = rows_of(*shot->snapshot.inventory, gpus, visible);
    add_extras(*shot, idle_);
    return shot;
  }
  void close() {
    const std::unique_lock lock = locked();
    sampler_.reset();
  }
  bool ours() const { return owner_ == ::getpid(); }

 private:
  // Whoever waits for another thread lets it have the GIL.
  std::unique_lock<std::mutex> locked() {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) return lock;
    const py::gil_scoped_release release;
    lock.lock();
    return lock;
  }

  const pid_t owner_;
  std::mutex mutex_;
  std::unique_ptr<SharedSampler> sampler_;
  std::string driver_;
  GpuUsers users_{Root{.dev = Root::machine().dev}};
  IdleTimes idle_{kLetsGo};
};

// A forked child has one of its own, and leaves alone what it inherited: a lock may be taken in it for ever. Called
// with the GIL. Never destroyed: threads of Python may still be here when the program ends.
Kept& kept() {
  static Kept* now = new Kept;
  if (!now->ours()) now = new Kept;
  return *now;
}

class PythonSampler {
 public:
  PythonSampler(double every, std::string gpus, bool visible)
      : every_(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(every))),
        gpus_(std::move(gpus)),
        visible_(visible),
        idle_(every_) {
    if (!(every >= 0.01 && every <= 1e6))
      throw Complaint(Kind::usage, "every: a number of seconds from 0.01 to 1000000 would be right");
    SamplerOptions options = status_options();
    options.learned = true;
    sampler_ = std::make_unique<SharedSampler>(std::move(options));
  }

  py::object next() {
    if (!sampler_) throw py::stop_iteration();
    if (!sampler_->ours())
      throw Complaint(Kind::error, "this Sampler belongs to the process that this one was forked from");
    if (busy_) throw Complaint(Kind::error, "this Sampler is in use by another thread");
    busy_ = true;
    struct Free {
      bool& busy;
      ~Free() { busy = false; }
    } free{busy_};
    wait_for_grid();
    auto shot = std::make_shared<Shot>();
    sampler_->sample(shot->snapshot);
    users_.identify_in(shot->snapshot);
    error_ = trouble_of(shot->snapshot.driver);
    if (!error_.empty() && shot->snapshot.readings.empty()) return py::list();
    idle_.see(shot->snapshot);
    shot->rows = rows_of(*shot->snapshot.inventory, gpus_, visible_);
    add_extras(*shot, idle_);
    return records_of(std::move(shot));
  }
  void close() {
    if (busy_) throw Complaint(Kind::error, "this Sampler is in use by another thread");
    sampler_.reset();
  }
  std::optional<std::string> error() const { return known(error_); }
  double every() const { return to_seconds(every_); }

 private:
  // On a grid of time: being late once does not shift the others.
  void wait_for_grid() {
    const SystemClock clock;
    if (!start_) {
      start_ = clock.now();
      return;
    }
    const Instant next = *start_ + ((clock.now() - *start_) / every_ + 1) * every_;
    while (clock.now() < next) {
      {
        const py::gil_scoped_release release;
        const Duration left = next - clock.now();
        if (left <= Duration::zero()) break;
        const timespec pause{.tv_sec = left / 1s, .tv_nsec = (left % 1s).count()};
        ::nanosleep(&pause, nullptr);  // a signal ends it
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
  }

  Duration every_;
  std::string gpus_;
  bool visible_;
  std::unique_ptr<SharedSampler> sampler_;
  GpuUsers users_{Root{.dev = Root::machine().dev}};
  IdleTimes idle_;
  std::optional<Instant> start_;
  std::string error_;
  bool busy_ = false;
};

std::string list_text(const py::object& gpus) {
  if (gpus.is_none()) return "";
  if (py::isinstance<py::str>(gpus)) {
    auto text = gpus.cast<std::string>();
    return text.empty() ? throw Complaint(Kind::usage, "gpus: a list of GPUs would be right, such as '0,2'") : text;
  }
  if (py::isinstance<py::int_>(gpus)) return py::str(gpus).cast<std::string>();
  std::string text;
  for (const py::handle one : gpus) text += (text.empty() ? "" : ",") + py::str(one).cast<std::string>();
  if (text.empty()) throw Complaint(Kind::usage, "gpus: a list of GPUs would be right, such as '0,2'");
  return text;
}

void add_records(py::module_& module) {
  py::class_<GpuProcess>(module, "Process", "A process that has a context on a GPU.")
      .def_property_readonly("pid", [](const GpuProcess& it) { return it.pid; })
      .def_property_readonly("type",
                             [](const GpuProcess& it) {
                               return it.compute && it.graphics ? "C+G" : it.graphics ? "G" : "C";
                             })
      .def_property_readonly("mem_used", [](const GpuProcess& it) { return it.memory_bytes; })
      .def_property_readonly("mps_server", [](const GpuProcess& it) { return it.mps_server; })
      .def_property_readonly("proof", [](const GpuProcess& it) { return std::string(to_string(it.proof)); })
      .def_property_readonly("user", [](const GpuProcess& it) { return it.info ? known(it.info->user) : std::nullopt; })
      .def_property_readonly(
          "name", [](const GpuProcess& it) { return it.info ? known(printable(it.info->name)) : std::nullopt; })
      .def_property_readonly(
          "command",
          [](const GpuProcess& it) { return it.info ? known(printable(it.info->command_line())) : std::nullopt; })
      .def_property_readonly("container",
                             [](const GpuProcess& it) { return it.info ? known(it.info->container) : std::nullopt; })
      .def("__repr__", [](const GpuProcess& it) {
        return "<lull.Process " + std::to_string(it.pid) +
               (it.info ? " " + printable(it.info->user) + ": " + printable(it.info->command_line()) : "") + ">";
      });
  py::class_<LeaseView>(module, "Lease", "Who holds a GPU through `lull pick` or lull.pick().")
      .def_readonly("user", &LeaseView::user)
      .def_readonly("pid", &LeaseView::pid)
      .def_property_readonly("command", [](const LeaseView& it) { return printable(it.command); })
      .def_property_readonly(
          "since",
          [](const LeaseView& it) { return it.since ? std::optional(rounded(to_seconds(*it.since))) : std::nullopt; })
      .def("__repr__", [](const LeaseView& it) {
        return "<lull.Lease " + printable(it.user) + " pid " + std::to_string(it.pid) + ": " + printable(it.command) +
               ">";
      });
}

void add_gpu(py::module_& module) {
  py::class_<Gpu> gpu(module, "Gpu", "What one GPU showed at one moment. A value that could not be read is None.");
  for (const MetricInfo& row : kMetricTable) {
    if (row.of != Of::gpu) continue;
    gpu.def_property_readonly(std::string(row.name).c_str(),
                              [&row](const Gpu& it) { return number_of(row, it.reading()[row.metric]); });
  }
  const auto property = [&](const char* name, auto read) { gpu.def_property_readonly(name, read); };
  property("time", [](const Gpu& it) { return rounded(to_seconds(it.shot->snapshot.wall)); });
  property("label", [](const Gpu& it) { return it.device().label(); });
  property("index", [](const Gpu& it) { return it.device().index; });
  property("kind", [](const Gpu& it) { return it.device().kind == DeviceKind::mig ? "mig" : "gpu"; });
  property("mig_index", [](const Gpu& it) {
    return it.device().kind == DeviceKind::mig ? std::optional(it.device().mig_index) : std::nullopt;
  });
  property("uuid", [](const Gpu& it) { return known(printable(it.device().uuid)); });
  property("name", [](const Gpu& it) { return known(printable(it.device().name)); });
  property("pci", [](const Gpu& it) { return known(printable(it.device().pci)); });
  property("error", [](const Gpu& it) { return known(device_trouble(it.device(), it.reading())); });
  property("energy", [](const Gpu& it) { return it.reading().energy_joules; });
  property("mem_clock", [](const Gpu& it) { return it.reading().mem_clock_mhz; });
  property("mig_mode", [](const Gpu& it) { return it.reading().mig_mode; });
  property("asleep", [](const Gpu& it) { return it.reading().asleep; });
  property("display_active", [](const Gpu& it) { return it.reading().display_active; });
  property("throttle_reasons", [](const Gpu& it) -> std::optional<std::vector<std::string>> {
    if (!it.reading().throttle_reasons) return std::nullopt;
    const auto all = throttle_text(*it.reading().throttle_reasons);
    return std::vector<std::string>(all.begin(), all.end());
  });
  property("processes", [](const Gpu& it) { return it.reading().processes; });
  property("idle_for", [](const Gpu& it) {
    return it.extra().idle_for ? std::optional(rounded(to_seconds(*it.extra().idle_for))) : std::nullopt;
  });
  property("lease", [](const Gpu& it) {
    return it.extra().leases.empty() ? std::nullopt : std::optional(it.extra().leases.front());
  });
  property("leases", [](const Gpu& it) { return it.extra().leases; });
  property("fillers",
           [](const Gpu& it) { return std::vector<pid_t>(it.extra().fillers.begin(), it.extra().fillers.end()); });
  gpu.def("why", &Gpu::why, py::arg("signal"),
          "Why a value is None, in the words of `lull status`; None where it is known.\n\n"
          ">>> import lull\n"
          ">>> with lull.simulate(gpus='T4'):\n"
          "...     gpu = lull.status()[0]\n"
          ">>> gpu.fan, gpu.why('fan'), gpu.why('util')\n"
          "(None, 'not supported', None)\n");
  gpu.def("as_dict", &Gpu::as_dict, "The same as an object of `lull status --json`.");
  gpu.def("__repr__", &Gpu::repr);
  gpu.def("_repr_html_", [](const py::object& self) {
    py::list one;
    one.append(self);
    return py::module_::import("lull._table").attr("Gpus")(one).attr("_repr_html_")();
  });
}

}  // namespace

void add_gpus(py::module_& module) {
  add_records(module);
  add_gpu(module);
  module.def(
      "status", [](const py::object& gpus, bool visible) { return records_of(kept().look(list_text(gpus), visible)); },
      py::arg("gpus") = py::none(), py::kw_only(), py::arg("visible") = false,
      "The GPUs now: a list of Gpu records.\n\n"
      ">>> import lull\n"
      ">>> with lull.simulate(gpus='2xA100') as sim:\n"
      "...     sim.set(0, mem_used='8GiB')\n"
      "...     [(gpu.index, gpu.name, gpu.mem_used) for gpu in lull.status()]\n"
      "[(0, 'NVIDIA A100-SXM4-80GB', 8589934592), (1, 'NVIDIA A100-SXM4-80GB', 0)]\n");
  py::class_<PythonSampler>(
      module, "Sampler",
      "Samples the GPUs again and again: iterating gives a list of Gpu records every `every` seconds.\n"
      "While no driver can be found the list is empty, `error` says why, and it keeps looking.\n\n"
      ">>> import lull\n"
      ">>> with lull.simulate(gpus=2), lull.Sampler(every=0.05) as sampler:\n"
      "...     for number, gpus in zip(range(3), sampler):\n"
      "...         print(number, len(gpus))\n"
      "0 2\n1 2\n2 2\n")
      .def(py::init([](double every, const py::object& gpus, bool visible) {
             return std::make_unique<PythonSampler>(every, list_text(gpus), visible);
           }),
           py::arg("every") = 1.0, py::arg("gpus") = py::none(), py::kw_only(), py::arg("visible") = false)
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &PythonSampler::next)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](PythonSampler& it, const py::args&) { it.close(); })
      .def("close", &PythonSampler::close, "Lets go of the driver; iterating ends.")
      .def_property_readonly("every", &PythonSampler::every)
      .def_property_readonly("error", &PythonSampler::error, "Why there is no GPU to show; None where there is.");
  module.def("_let_go", [] { kept().close(); }, "Ends what status() keeps for the next call.");
}

}  // namespace lull::python
