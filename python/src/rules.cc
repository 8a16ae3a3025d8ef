// lull.Rule: judging numbers that are there already, by the code that judges live.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "base/text.h"
#include "base/units.h"
#include "columns.h"
#include "errors.h"
#include "gpu/power_learner.h"
#include "module.h"
#include "rule/policy.h"
#include "rule/stretch.h"

namespace py = pybind11;

namespace lull::python {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kBlocksBetweenSignals = 4096;
constexpr std::size_t kIntervalsLookedAt = 1024;

std::optional<bool> answer(Truth truth) {
  return truth == Truth::unknown ? std::nullopt : std::optional(truth == Truth::yes);
}

struct RuleVerdict {
  Truth rule = Truth::unknown;
  Truth condition = Truth::unknown;
  bool armed = true;
  bool fires = false;
  Duration held{};
};

struct RuleFiring {
  std::size_t index = 0;
  double time = 0;
  double since = 0;
  double held = 0;
};

Metric signal_of(const std::string& name) {
  if (const auto metric = metric_by_name(name)) return *metric;
  if (const auto metric = metric_by_field(name)) return *metric;
  std::vector<std::string_view> names;
  for (const MetricInfo& row : kMetricTable) names.push_back(row.name);
  throw Complaint(Kind::usage, "there is no signal '" + printable(name) + "'" + did_you_mean(name, names));
}

// The signals that are given, each with a column for every GPU, or one for all of them.
struct Table {
  std::map<Metric, std::vector<Column>> columns;
  std::size_t gpus = 1;
  std::size_t samples = 0;

  Table(const py::dict& values, std::optional<std::size_t> size) {
    for (const auto& [key, value] : values) {
      const auto name = key.cast<std::string>();
      std::vector<Column> all;
      const py::object object = py::reinterpret_borrow<py::object>(value);
      // A list of arrays is one for each GPU; a list of numbers is one GPU's samples, or of one sample the GPUs.
      if (py::isinstance<py::list>(object) && !object.cast<py::list>().empty() &&
          is_array(object.cast<py::list>()[0])) {
        for (const py::handle one : object) {
          auto more = Column::of(name, py::reinterpret_borrow<py::object>(one));
          all.insert(all.end(), more.begin(), more.end());
        }
      } else {
        all = Column::of(name, object);
      }
      for (const Column& column : all)
        if (size && !column.constant() && column.size() != *size)
          throw Complaint(Kind::usage, name + ": has " + std::to_string(column.size()) + " samples, there are " +
                                           std::to_string(*size) + " times");
      if (all.size() > 1) {
        if (gpus > 1 && all.size() != gpus)
          throw Complaint(Kind::usage, name + ": is of " + std::to_string(all.size()) + " GPUs, another signal of " +
                                           std::to_string(gpus));
        gpus = all.size();
      }
      columns[signal_of(name)] = std::move(all);
    }
    samples = size.value_or(1);
  }

 private:
  static bool is_array(const py::handle& value) {
    return PyObject_CheckBuffer(value.ptr()) != 0 || py::hasattr(value, "to_numpy") ||
           (py::isinstance<py::sequence>(value) && !py::isinstance<py::str>(value));
  }
};

class PythonRule {
 public:
  PythonRule(const std::string& text, const std::optional<std::string>& arm, std::optional<double> every,
             const std::string& missing, bool rearm) {
    auto rule = parse_rule(text);
    if (!rule) throw Complaint(Kind::rule, rule.error().message());
    policy_.idle = *std::move(rule);
    if (arm) {
      auto arming = parse_rule(*arm);
      if (!arming) throw Complaint(Kind::rule, "arm: " + arming.error().message());
      policy_.arm = *std::move(arming);
    }
    policy_.rearm = rearm;
    const auto when_missing = missing_option(missing, "missing");
    if (!when_missing) throw Complaint(Kind::usage, when_missing.error().message());
    options_.missing = *when_missing;
    if (every && !(*every > 0 && *every < 1e9))
      throw Complaint(Kind::usage, "every: a number of seconds above 0 would be right");
    if (every) every_ = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*every));
  }

  const Rule& rule() const { return policy_.idle; }
  std::string explain() const {
    std::string text = describe(policy_.idle);
    if (policy_.arm) text += "\nArmed by: " + describe(*policy_.arm);
    for (const std::string& remark : remarks(policy_.idle)) text += "\nNote: " + remark;
    return text;
  }

  // ---- one sample after the other

  RuleVerdict feed(double time, const py::dict& values) {
    if (!(std::fabs(time) < 9e9)) throw Complaint(Kind::usage, "time: a number of seconds would be right");
    std::map<Metric, std::vector<double>> given;
    std::size_t gpus = 1;
    for (const auto& [key, value] : values) {
      const auto name = key.cast<std::string>();
      std::vector<double>& all = given[signal_of(name)];
      for (const Column& column : Column::of(name, py::reinterpret_borrow<py::object>(value)))
        for (std::size_t i = 0; i < (column.constant() ? 1 : column.size()); ++i) all.push_back(column.at(i));
      if (all.size() > 1) gpus = std::max(gpus, all.size());
    }
    if (!live_ || live_gpus_ != gpus) {
      live_.emplace(compile(every_.value_or(1s), gpus));
      live_gpus_ = gpus;
      live_learners_.clear();
    }
    const std::array at = {Instant(Duration(static_cast<std::int64_t>(time * 1e9)))};
    std::vector<Block> blocks(gpus);
    std::vector<float> buffer(gpus * kMetrics, kUnknownSample);
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      blocks[gpu].at = at;
      for (const auto& [metric, all] : given) {
        if (all.size() > 1 && all.size() != gpus)
          throw Complaint(Kind::usage,
                          std::string(info(metric).name) + ": one value, or one for each GPU, would be right");
        const double value = all.empty() ? kUnknown : all[all.size() > 1 ? gpu : 0];
        float& place = buffer[gpu * kMetrics + index_of(metric)];
        if (plausible(metric, value)) place = static_cast<float>(value);
        blocks[gpu].value[index_of(metric)] = {&place, 1};
      }
    }
    if (learns(given)) {
      live_learners_.resize(gpus);
      live_columns_.resize(gpus);
      for (std::size_t gpu = 0; gpu < gpus; ++gpu)
        blocks[gpu] = live_columns_[gpu].add(live_learners_[gpu], blocks[gpu]);
    }
    PolicyAnswers answers{};
    must(live_->feed(blocks, answers));
    return {answers.rule[0], answers.condition[0], bit(answers.armed, 0), bit(answers.fires, 0),
            live_->progress().held};
  }
  void reset() {
    live_.reset();
    live_learners_.clear();
  }

  // ---- whole series

  py::object evaluate(const py::object& times, const py::dict& values) {
    const Column at = times_of(times);
    const Table table(values, at.size());
    py::object out = make_answers(at.size());
    Py_buffer buffer;
    if (PyObject_GetBuffer(out.ptr(), &buffer, PyBUF_WRITABLE) != 0) throw py::error_already_set();
    const std::shared_ptr<Py_buffer> held(&buffer, PyBuffer_Release);
    auto* bytes = static_cast<std::int8_t*>(buffer.buf);
    run(at, table, [bytes](std::size_t from, std::span<const Instant> block, const PolicyAnswers& answers) {
      for (std::size_t i = 0; i < block.size(); i += kWordSamples) {
        const Word yes = answers.rule.yes[i / kWordSamples];
        const Word no = answers.rule.no[i / kWordSamples];
        std::int8_t* to = bytes + from + i;
        const std::size_t count = std::min(kWordSamples, block.size() - i);
        if (yes == 0 && no == low_bits(count)) {
          std::fill_n(to, count, std::int8_t{0});
          continue;
        }
        for (std::size_t k = 0; k < count; ++k)
          to[k] = static_cast<std::int8_t>(static_cast<int>(yes >> k & 1) * 2 + static_cast<int>(no >> k & 1) - 1);
      }
    });
    return out;
  }

  std::vector<RuleFiring> fires(const py::object& times, const py::dict& values) {
    const Column at = times_of(times);
    must_have_signals(values);
    const Table table(values, at.size());
    std::vector<RuleFiring> found;
    std::vector<Stretch> stretches;
    StretchFinder finder;
    run(at, table, [&](std::size_t from, std::span<const Instant> block, const PolicyAnswers& answers) {
      for (std::size_t word = 0; word < words_for(block.size()); ++word)
        for (Word left = answers.fires[word]; left != 0; left &= left - 1) {
          const std::size_t i = word * kWordSamples + static_cast<std::size_t>(std::countr_zero(left));
          found.push_back({from + i, to_seconds(block[i].time_since_epoch()), 0, 0});
        }
      finder.feed(block, answers, stretches);
    });
    finder.finish(stretches);
    std::size_t next = 0;
    for (const Stretch& stretch : stretches) {
      const double begin = to_seconds(stretch.begin.time_since_epoch());
      for (; next < found.size() && found[next].time <= to_seconds(stretch.last.time_since_epoch()); ++next) {
        found[next].since = begin;
        found[next].held = found[next].time - begin;
      }
    }
    return found;
  }

 private:
  // Without a signal the rule is unknown all the time: an empty answer would look like a rule that never fired.
  void must_have_signals(const py::dict& values) const {
    std::set<Metric> given;
    for (const auto& [key, value] : values) given.insert(signal_of(key.cast<std::string>()));
    const bool learned = learns(given);
    const auto check = [&](const Rule& rule) {
      for (const Metric metric : learned ? made_of(rule.signals()) : rule.signals())
        if (!given.contains(metric) && !(learned && metric == Metric::power_limit))
          throw Complaint(Kind::usage, "values: the rule needs '" + std::string(info(metric).name) + "'");
    };
    check(policy_.idle);
    if (policy_.arm) check(*policy_.arm);
  }

  // The rule looks at signals that are learned, and none of them is given: they are learned from these.
  template <class Given>
  bool learns(const Given& given) const {
    std::vector<Metric> signals = policy_.idle.signals();
    if (policy_.arm) std::ranges::copy(policy_.arm->signals(), std::back_inserter(signals));
    return any_learned(signals) && !given.contains(Metric::effort) && !given.contains(Metric::learned) &&
           !given.contains(Metric::idle_power);
  }

  PolicyEvaluator compile(Duration interval, std::size_t gpus) const {
    EvaluatorOptions options = options_;
    options.interval = interval;
    options.gpus = gpus;
    return PolicyEvaluator::compile(policy_, options);
  }

  static Column times_of(const py::object& times) {
    auto columns = Column::of("times", times);
    if (columns.size() != 1 || columns[0].constant())
      throw Complaint(Kind::usage, "times: one row of them would be right");
    return columns[0];
  }

  // NumPy's where there is NumPy.
  static py::object make_answers(std::size_t count) {
    try {
      return py::module_::import("numpy").attr("empty")(count, "int8");
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_ImportError)) throw;
    }
    return py::module_::import("array").attr("array")("b", py::bytes(std::string(count, '\0')));
  }

  // How far apart the samples are meant to be: as replay finds it, from the first of them.
  Duration interval_of(const Column& at) const {
    if (every_) return *every_;
    const std::size_t count = std::min(at.size(), kIntervalsLookedAt + 1);
    std::vector<Instant> buffer(count);
    const auto first = at.instants(0, count, buffer);
    std::vector<Duration> steps;
    for (std::size_t i = 1; i < first.size(); ++i) steps.push_back(first[i] - first[i - 1]);
    if (steps.empty()) return 1s;
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::nth_element(steps.begin(), middle, steps.end());
    return std::max<Duration>(*middle, 1ms);
  }

  template <class Use>
  void run(const Column& at, const Table& table, const Use& use) const {
    PolicyEvaluator evaluator = compile(interval_of(at), table.gpus);
    std::vector<Block> blocks(table.gpus);
    std::vector<Instant> time_space(kBlockSamples);
    std::vector<std::vector<float>> buffer(table.gpus * table.columns.size(), std::vector<float>(kBlockSamples));
    const bool learned = learns(table.columns);
    std::vector<PowerLearner> learners(learned ? table.gpus : 0);
    std::vector<LearnedColumns> columns(learners.size());
    PolicyAnswers answers{};
    std::size_t from = 0;
    while (from < at.size()) {
      {
        const py::gil_scoped_release release;
        for (std::size_t turn = 0; turn < kBlocksBetweenSignals && from < at.size(); ++turn) {
          const std::size_t count = std::min(kBlockSamples, at.size() - from);
          const auto times = at.instants(from, count, time_space);
          std::size_t next = 0;
          for (std::size_t gpu = 0; gpu < table.gpus; ++gpu) {
            blocks[gpu].at = times;
            for (const auto& [metric, all] : table.columns)
              blocks[gpu].value[index_of(metric)] =
                  all[all.size() > 1 ? gpu : 0].floats(from, count, metric, buffer[next++]);
          }
          for (std::size_t gpu = 0; gpu < learners.size(); ++gpu)
            blocks[gpu] = columns[gpu].add(learners[gpu], blocks[gpu]);
          must(evaluator.feed(blocks, answers));
          use(from, times, answers);
          from += count;
        }
      }
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
  }

  Policy policy_;
  EvaluatorOptions options_;
  std::optional<Duration> every_;
  std::optional<PolicyEvaluator> live_;
  std::size_t live_gpus_ = 0;
  std::vector<PowerLearner> live_learners_;
  std::vector<LearnedColumns> live_columns_;
};

}  // namespace

void add_rules(py::module_& module) {
  py::class_<RuleVerdict>(module, "Verdict", "What a rule says of the newest sample. None is unknown, and never idle.")
      .def_property_readonly("holds", [](const RuleVerdict& it) { return answer(it.rule); })
      .def_property_readonly(
          "condition", [](const RuleVerdict& it) { return answer(it.condition); },
          "The same without the outermost `for`.")
      .def_readonly("armed", &RuleVerdict::armed)
      .def_readonly("fires", &RuleVerdict::fires, "Act now; once a stretch.")
      .def_property_readonly("held", [](const RuleVerdict& it) { return to_seconds(it.held); })
      .def("__repr__", [](const RuleVerdict& it) {
        return "<lull.Verdict " + std::string(to_string(it.rule)) + (it.fires ? ", fires" : "") + ">";
      });
  py::class_<RuleFiring>(module, "RuleFiring", "Where a rule fired in a series.")
      .def_readonly("index", &RuleFiring::index)
      .def_readonly("time", &RuleFiring::time)
      .def_readonly("since", &RuleFiring::since)
      .def_readonly("held", &RuleFiring::held)
      .def("__repr__", [](const RuleFiring& it) {
        return "<lull.RuleFiring index=" + std::to_string(it.index) +
               " held=" + py::str(py::float_(it.held)).cast<std::string>() + ">";
      });
  py::class_<PythonRule>(
      module, "Rule",
      "A rule, as it is written on the command line, for numbers that are there already.\n\n"
      "`arm`: nothing fires before this rule has held once (with `rearm`, again after each firing).\n"
      "`every`: how many seconds apart samples are meant to be; three times that is a gap, which breaks\n"
      "a streak. By default the median of the series; 1 for feed().\n\n"
      ">>> import lull\n"
      ">>> print(lull.Rule('util < 5 and mem_used > 1GiB for 30m').text)\n"
      "util < 5 and mem_used > 1GiB for 30m\n"
      ">>> lull.Rule('utl < 5')\n"
      "Traceback (most recent call last):\n"
      "...\n"
      "lull.RuleError: ...\n")
      .def(py::init<const std::string&, const std::optional<std::string>&, std::optional<double>, const std::string&,
                    bool>(),
           py::arg("text"), py::arg("arm") = py::none(), py::kw_only(), py::arg("every") = py::none(),
           py::arg("missing") = "unknown", py::arg("rearm") = false)
      .def_property_readonly(
          "text", [](const PythonRule& it) { return it.rule().text; }, "As it was written.")
      .def_property_readonly(
          "signals",
          [](const PythonRule& it) {
            std::vector<std::string> names;
            for (const Metric metric : it.rule().signals()) names.emplace_back(info(metric).name);
            return names;
          },
          "The signals that it looks at.")
      .def("explain", &PythonRule::explain, "What it means, in words, as `lull check` says it.")
      .def("feed", &PythonRule::feed, py::arg("time"), py::arg("values"),
           "The next sample: its time in seconds, and its signals, each a number, None, or a list with one for each "
           "GPU.\n\n"
           ">>> import lull\n"
           ">>> rule = lull.Rule('util < 5 for 2s')\n"
           ">>> [rule.feed(t, {'util': 0}).fires for t in range(4)]\n"
           "[False, False, True, False]\n")
      .def("reset", &PythonRule::reset, "Forgets what feed() was given.")
      .def(
          "evaluate", &PythonRule::evaluate, py::arg("times"), py::arg("values"),
          "The answer for every sample of a series: 1 yes, 0 no, -1 unknown, as an int8 array (NumPy's where there is\n"
          "NumPy). Times are seconds or datetime64; a signal is an array, a table with a column for each GPU, a list "
          "of\n"
          "arrays, or one number. float32 and datetime64[ns] are not copied.\n\n"
          ">>> import lull\n"
          ">>> list(lull.Rule('util < 5 for 2s').evaluate([0, 1, 2, 3, 4], {'util': [9, 0, 0, 0, None]}))\n"
          "[0, 0, 0, 1, -1]\n")
      .def("fires", &PythonRule::fires, py::arg("times"), py::arg("values"),
           "Where it would have fired in a series: a list of RuleFiring.\n\n"
           ">>> import lull\n"
           ">>> lull.Rule('util < 5 for 2s').fires([0, 1, 2, 3, 4], {'util': [9, 0, 0, 0, 0]})\n"
           "[<lull.RuleFiring index=3 held=2.0>]\n")
      .def("__repr__", [](const PythonRule& it) { return "lull.Rule('" + it.rule().text + "')"; })
      .def("__str__", [](const PythonRule& it) { return it.rule().text; });
}

}  // namespace lull::python
