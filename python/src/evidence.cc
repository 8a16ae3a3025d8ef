#include "evidence.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <string>
#include <vector>

#include "module.h"
#include "rule/reason.h"

namespace py = pybind11;

namespace lull::python {
namespace {

std::optional<double> known(double value) { return std::isnan(value) ? std::nullopt : std::optional(rounded(value)); }

struct SignalStory {
  std::shared_ptr<const FiringFacts> facts;
  std::size_t number = 0;
  const Story& story() const { return facts->why.stories[number]; }
};

std::string text_of(const Explanation& why) {
  std::string text;
  for (const std::string& line : to_string(why, true)) text += (text.empty() ? "" : "\n") + line;
  return text;
}

}  // namespace

void add_evidence(py::module_& module) {
  py::class_<SignalStory>(module, "Signal", "One signal of one GPU over the time that a firing rests on.")
      .def_property_readonly(
          "gpu",
          [](const SignalStory& it) { return it.story().gpu.empty() ? std::nullopt : std::optional(it.story().gpu); })
      .def_property_readonly("name", [](const SignalStory& it) { return std::string(info(it.story().metric).name); })
      .def_property_readonly("first", [](const SignalStory& it) { return known(it.story().first); })
      .def_property_readonly("last", [](const SignalStory& it) { return known(it.story().last); })
      .def_property_readonly("worst", [](const SignalStory& it) { return known(it.story().worst); })
      .def_property_readonly("worst_ago",
                             [](const SignalStory& it) { return rounded(to_seconds(it.story().worst_ago)); })
      .def_property_readonly("trace",
                             [](const SignalStory& it) {
                               std::vector<std::optional<double>> values;
                               for (const float value : it.story().trace)
                                 values.push_back(known(static_cast<double>(value)));
                               return values;
                             })
      .def("__repr__", [](const SignalStory& it) {
        return "<lull.Signal " + std::string(info(it.story().metric).name) +
               (it.story().gpu.empty() ? "" : " of GPU " + it.story().gpu) + ">";
      });
  py::class_<Firing> firing(module, "Firing",
                            "Why a watch fired: the rule, the GPUs, since when, and what they showed.");
  const auto property = [&](const char* name, auto read, const char* words) {
    firing.def_property_readonly(name, [read](const Firing& it) { return read(*it.facts); }, words);
  };
  property("rule", [](const FiringFacts& it) { return it.why.rule; }, "The rule as it was written.");
  property(
      "arm", [](const FiringFacts& it) { return it.why.arm.empty() ? std::nullopt : std::optional(it.why.arm); },
      "The arming rule, or None.");
  property("gpus", [](const FiringFacts& it) { return it.why.gpus; }, "Labels of the GPUs for which it holds.");
  property(
      "uuids",
      [](const FiringFacts& it) {
        std::vector<std::string> ids;
        for (const DeviceId& id : it.why.ids) ids.push_back(id.value);
        return ids;
      },
      "What names these GPUs for good.");
  property(
      "time", [](const FiringFacts& it) { return rounded(to_seconds(it.at)); },
      "When it fired, in seconds since 1970.");
  property(
      "since", [](const FiringFacts& it) { return rounded(to_seconds(it.why.since)); },
      "Since when it held, likewise.");
  property(
      "held", [](const FiringFacts& it) { return rounded(to_seconds(it.why.held)); },
      "For how many seconds it had held.");
  property("samples", [](const FiringFacts& it) { return it.why.samples; }, "In how many samples.");
  property("action", [](const FiringFacts& it) { return it.action; }, "What is done about it.");
  property("text", [](const FiringFacts& it) { return text_of(it.why); }, "All of it in words, as `lull run` says it.");
  firing.def_property_readonly(
      "signals",
      [](const Firing& it) {
        std::vector<SignalStory> all;
        for (std::size_t i = 0; i < it.facts->why.stories.size(); ++i) all.push_back({it.facts, i});
        return all;
      },
      "What each signal of each GPU showed.");
  firing.def(
      "as_dict", [](const Firing& it) { return py::module_::import("json").attr("loads")(facts_json(*it.facts)); },
      "All of it, as a hook of `lull run` gets it on its standard input.");
  firing.def("__str__", [](const Firing& it) { return headline(it.facts->why); });
  firing.def("__repr__", [](const Firing& it) { return "<lull.Firing: " + headline(it.facts->why) + ">"; });
}

}  // namespace lull::python
