// Scenarios as text: what is understood, and that each mistake is refused with its place and what would be right.

#include "sim/scenario.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <filesystem>

#include "base/fd.h"
#include "sim/plan.h"
#include "tests/places.h"

namespace lull::sim {
namespace {

using namespace std::chrono_literals;

Result<Scenario> parse(std::string_view text) {
  return parse_scenario(text, "test.toml", [](const std::string& path) -> Result<std::string> {
    if (path != "trace.csv") return fail("open " + path);
    return std::string("time_seconds,gpu,util_percent\n0,0,10\n0,1,70\n5,0,20\n");
  });
}

std::string complaint(std::string_view text) {
  const auto parsed = parse(text);
  return parsed ? "accepted" : parsed.error().message();
}

TEST(Scenario, ReadsEverything) {
  const auto parsed = parse(R"(
speed = 60
driver = "550.54.15"
[[gpu]]
model = "H100"
count = 2
mem_used = "8GiB"
repeat = "1m"
[[gpu.timeline]]
at = "10s"
util = 90
over = "5s"
[[gpu]]
model = "rtx 3090"
name = "A card"
memory = "12GiB"
uuid = "GPU-5c6a4ad0-9d8a-4d17-8f0e-1d0b6a3f2b11"
pci = "0000:17:00.0"
[[gpu]]
model = "a100"
mig = ["3g.40gb", "1g.10gb"]
[[fault]]
gpu = [0, 2]
kind = "hang=8s"
function = "DeviceGetPowerUsage"
at = "20s"
for = "10s"
[[process]]
gpu = "0-1"
name = "python train.py"
util = 80
mem = "2GiB"
for = "30s"
then = [{ util = 0, for = "1m" }]
)");
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->speed, 60);
  EXPECT_EQ(parsed->driver, "550.54.15");
  ASSERT_EQ(parsed->gpus.size(), 4U);
  EXPECT_STREQ(parsed->gpus[0].gpu.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(parsed->gpus[1].repeat, 1min);
  ASSERT_EQ(parsed->gpus[1].timeline.size(), 2U);
  EXPECT_EQ(parsed->gpus[1].timeline[0].to, 8.0 * (1U << 30));
  EXPECT_EQ(parsed->gpus[1].timeline[1].at, 10s);
  EXPECT_EQ(parsed->gpus[1].timeline[1].over, 5s);
  EXPECT_STREQ(parsed->gpus[2].gpu.name, "A card");
  EXPECT_EQ(parsed->gpus[2].gpu.memory_total, std::uint64_t{12} << 30);
  EXPECT_EQ(parsed->gpus[3].mig.size(), 2U);
  ASSERT_EQ(parsed->faults.size(), 1U);
  EXPECT_EQ(parsed->faults[0].hang, 8s);
  EXPECT_EQ(parsed->faults[0].at, 20s);
  EXPECT_EQ(parsed->faults[0].gpus, (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(parsed->faults[0].function, "nvmlDeviceGetPowerUsage");
  ASSERT_EQ(parsed->processes.size(), 1U);
  EXPECT_EQ(parsed->processes[0].gpus, (std::vector<std::size_t>{0, 1}));
  ASSERT_EQ(parsed->processes[0].phases.size(), 2U);
  EXPECT_EQ(parsed->processes[0].phases[1].util, 0);
  const auto plan = make_plan(*parsed);
  ASSERT_TRUE(plan);
  EXPECT_STREQ(plan->gpus[2].gpu.uuid, "GPU-5c6a4ad0-9d8a-4d17-8f0e-1d0b6a3f2b11");
  EXPECT_EQ(plan->gpus[2].gpu.pci_bus, 0x17U);
  EXPECT_EQ(plan->gpus[3].gpu.mig_count, 2U);
  EXPECT_EQ(plan->faults.size(), 2U);
}

TEST(Scenario, ATraceIsATimelineOfItsOwnGpu) {
  const auto parsed = parse("[[gpu]]\nmodel = \"T4\"\ncount = 2\ntrace = \"trace.csv\"\n");
  ASSERT_TRUE(parsed) << parsed.error().message();
  ASSERT_EQ(parsed->gpus[0].timeline.size(), 2U);
  EXPECT_EQ(parsed->gpus[0].timeline[1].to, 20);
  ASSERT_EQ(parsed->gpus[1].timeline.size(), 1U);
  EXPECT_EQ(parsed->gpus[1].timeline[0].to, 70);
}

struct Mistake {
  std::string_view text;
  std::string_view wanted;  // of the complaint
};

class Mistakes : public testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreRefusedWithPlaceAndRemedy) {
  const std::string said = complaint(GetParam().text);
  EXPECT_NE(said.find(GetParam().wanted), std::string::npos) << said;
  EXPECT_TRUE(said.starts_with("test.toml:")) << said;
  EXPECT_EQ(said.find('\n'), std::string::npos) << said;
}

INSTANTIATE_TEST_SUITE_P(
    All, Mistakes,
    testing::Values(
        Mistake{"speed = \n", "test.toml:1:"}, Mistake{"[[>gpu]]\n", "test.toml:1:3: not TOML"},
        Mistake{"K\u031a", "test.toml:1:"},
        Mistake{"[[gpu]]\nname = \"a\x01\"\n", "test.toml:2:10: not TOML: a control"}, Mistake{"", "needs a [[gpu]]"},
        Mistake{"[[gpu]]\ncount = 2\n", "needs a model"},
        Mistake{"[[gpu]]\nmodel = \"H1000\"\n", "test.toml:2:9: there is no model 'H1000'; did you mean 'H100'?"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\ncount = 0\n", "test.toml:3:9: count is 0: 1 to"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\nutl = 4\n", "'utl' means nothing in [[gpu]]; did you mean 'util'?"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\nutil = 400\n", "0 to 100"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\nmem_used = \"8 gigs\"\n", "mem_used=8GiB"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\nmem_used = true\n", "true or false"},
        Mistake{"[gpu]\nmodel = \"H100\"\n", "double brackets, [[gpu]]"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[gpu.timeline]]\nutil = 4\n", "needs a time"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[gpu.timeline]]\nat = \"5s\"\n", "changes nothing"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[gpu.timeline]]\nat = \"5 parsecs\"\nutil = 3\n", "is not a duration"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[gpu.timeline]]\nat = \"5s\"\nutil = 3\n[[gpu.timeline]]\nat = "
                "\"4s\"\nutil = 3\n",
                "goes forward"},
        Mistake{"[[gpu]]\nmodel = \"T4\"\nmig = [\"1g.10gb\"]\n", "has no MIG"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\nmig = [\"3g.41gb\"]\n", "3g.40gb"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\nmig = [\"7g.80gb\", \"1g.10gb\"]\n", "cannot be cut so"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\nuuid = \"5\"\n", "a uuid looks like"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\npci = \"17\"\n", "a pci address looks like"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\ncount = 2\npci = \"0000:17:00.0\"\n", "own [[gpu]]"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\ntrace = \"no.csv\"\n", "the trace cannot be read"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\nrepeat = \"5s\"\n", "later than the end"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[fault]]\ngpu = 1\nkind = \"lost\"\n",
                "there is no GPU 1: 0 is the only one"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[fault]]\nkind = \"los\"\n", "did you mean 'lost'?"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[fault]]\nkind = \"hang\"\n", "hang=8s"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[fault]]\nkind = \"lost\"\nfunction = \"a b\"\n",
                "is not an NVML function"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[fault]]\nkind = \"no-driver\"\ngpu = 0\n", "whole driver"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[process]]\nutil = 3\n", "needs a GPU"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[[process]]\ngpu = 0\nthen = [{ util = 3 }]\n", "never ends"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\n[topology]\npreset = \"ring\"\n", "dgx, bridges, pcie"},
        Mistake{"[[gpu]]\nmodel = \"T4\"\ncount = 2\n[topology]\nnvlink = [[0, 1]]\n", "has no NVLink"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\ncount = 2\n[topology]\nnvlink = [[0, 0]]\n", "two different GPUs"},
        Mistake{"[[gpu]]\nmodel = \"RTX3090\"\ncount = 3\n[topology]\nnvlink = [[0, 1], [1, 2]]\n",
                "would have 8 NVLinks"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\ncount = 2\n[topology]\nswitch = [[0, 1], [1]]\n", "in two lists"},
        Mistake{"[[gpu]]\nmodel = \"H100\"\ncount = 400\n[[gpu]]\nmodel = \"T4\"\ncount = 400\n", "more than 640 GPUs"},
        Mistake{"speed = -1\n[[gpu]]\nmodel = \"H100\"\n", "test.toml:1:9: speed is -1"}));

TEST(Scenario, GpuLists) {
  EXPECT_EQ(parse_gpu_list("all", 3), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(parse_gpu_list("2,0-1,1", 3), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_FALSE(parse_gpu_list("3", 3));
  EXPECT_FALSE(parse_gpu_list("2-1", 3));
  EXPECT_FALSE(parse_gpu_list("", 3));
  EXPECT_FALSE(parse_gpu_list("-1", 3));
}

TEST(Scenario, EveryModelIsFoundByItsNames) {
  for (const std::string_view key : model_names()) {
    const auto card = model(key);
    ASSERT_TRUE(card) << key;
    EXPECT_STREQ(model(card->name)->name, card->name);
    EXPECT_LT(card->power_idle, card->power_context) << key;
    EXPECT_LT(card->power_context, card->power_limit) << key;
  }
  EXPECT_STREQ(model("2080 ti")->name, "NVIDIA GeForce RTX 2080 Ti");
  EXPECT_STREQ(model("a100-40gb")->name, "NVIDIA A100-SXM4-40GB");
  EXPECT_TRUE(check_mig("1g.5gb", *model("A100-40GB")));
  EXPECT_TRUE(check_mig("3g.71gb", *model("H200")));
}

TEST(Scenario, GpusOfTheCommandLine) {
  EXPECT_EQ(parse_gpus("4")->size(), 4U);
  EXPECT_EQ(parse_gpus("2xH100,1xT4")->size(), 3U);
  EXPECT_STREQ((*parse_gpus("2xH100,1xT4"))[2].gpu.name, "Tesla T4");
  EXPECT_EQ(parse_gpus("RTX 4090")->size(), 1U);
  EXPECT_EQ(parse_gpus("640")->size(), 640U);
  for (const char* wrong :
       {"", "0", "641", "2xK80", "x", "2x", "H100,,T4", "400xH100,400xT4", "18446744073709551615xT4"})
    EXPECT_FALSE(parse_gpus(wrong)) << wrong;
}

TEST(Scenario, ShippedExamplesAreRight) {
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/docs/scenarios")) {
    if (entry.path().extension() != ".toml") continue;
    const auto loaded = load_scenario(entry.path().string());
    ASSERT_TRUE(loaded) << loaded.error().message();
    EXPECT_TRUE(make_plan(*loaded));
    ++seen;
  }
  EXPECT_GE(seen, 3U);
}

// What the fuzzer once found, or might: nothing that is fed to the parser does more than be refused.
TEST(Scenario, CorpusOfTheFuzzerIsSurvived) {
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/fuzz/corpus/scenario")) {
    const auto text = read_file(entry.path().string());
    ASSERT_TRUE(text);
    if (const auto parsed = parse(*text)) (void)make_plan(*parsed);
    ++seen;
  }
  EXPECT_GE(seen, 5U);
}

// The value that a list of points gives a moment, the slow and obvious way.
double oracle(const std::vector<Point>& points, double resting, double at_ns) {
  double value = resting;
  double ramp_from = 0, ramp_to = 0, ramp_begin = 0, ramp_end = 0;
  bool ramping = false;
  const auto now = [&](double t) {
    if (!ramping) return value;
    if (t >= ramp_end) return ramp_to;
    return ramp_from + (ramp_to - ramp_from) * (t - ramp_begin) / (ramp_end - ramp_begin);
  };
  for (const Point& point : points) {
    const auto at = static_cast<double>(point.at.count());
    if (at > at_ns) break;
    const double before = now(at);
    ramping = point.over > Duration::zero();
    value = point.to;
    ramp_from = before;
    ramp_to = point.to;
    ramp_begin = at;
    ramp_end = at + static_cast<double>(point.over.count());
  }
  return now(at_ns);
}

double play(const std::vector<Keyframe>& frames, double resting, double at_ns) {
  const Keyframe* last = nullptr;
  for (const Keyframe& frame : frames) {
    if (static_cast<double>(frame.at_ns) > at_ns) {
      if (last != nullptr && last->ramp != 0) {
        const double share =
            (at_ns - static_cast<double>(last->at_ns)) / static_cast<double>(frame.at_ns - last->at_ns);
        return last->value + (frame.value - last->value) * share;
      }
      break;
    }
    last = &frame;
  }
  return last == nullptr || std::isnan(last->value) ? resting : last->value;
}

TEST(Plan, KeyframesSayWhatThePointsSay) {
  EXPECT_TRUE(rc::check([] {
    std::vector<Point> points;
    Duration at{};
    const auto count = *rc::gen::inRange(0, 8);
    for (int i = 0; i < count; ++i) {
      at += std::chrono::seconds(*rc::gen::inRange(0, 10));
      points.push_back({at, std::chrono::seconds(*rc::gen::inRange(0, 6)), Metric::power,
                        static_cast<double>(*rc::gen::inRange(0, 400))});
    }
    const auto frames = make_keyframes(points, 50);
    for (std::size_t i = 1; i < frames.size(); ++i) RC_ASSERT(frames[i - 1].at_ns < frames[i].at_ns);
    for (int half = 1; half < 200; half += 2) {
      const double t = half * 0.5e9;
      RC_ASSERT(std::abs(oracle(points, 50, t) - play(frames, 50, t)) < 1e-3);
    }
  }));
}

TEST(Plan, StepsOfALoad) {
  const auto made = make_steps({{90, 1U << 30, 30s}, {0, {}, 60s}}, 5);
  ASSERT_EQ(made.steps.size(), 2U);
  EXPECT_EQ(made.steps[1].at_ns, 30'000'000'000);
  EXPECT_EQ(made.steps[1].memory, 1U << 30);  // kept until said otherwise
  EXPECT_EQ(made.end_ns, 90'000'000'000);
  EXPECT_EQ(make_steps({{}}, 5).end_ns, kForever);
  EXPECT_EQ(make_steps({{}}, 5).steps[0].memory, 5U);
}

TEST(Plan, TopologyPresets) {
  const auto dgx = parse("[[gpu]]\nmodel = \"A100\"\ncount = 8\n[topology]\npreset = \"dgx\"\n");
  ASSERT_TRUE(dgx) << dgx.error().message();
  const auto plan = make_plan(*dgx);
  EXPECT_EQ(plan->gpus[0].gpu.link[0], kLinkSwitch);
  EXPECT_EQ(plan->topology[0][1], 10);  // one PCIe switch
  EXPECT_EQ(plan->topology[0][2], 40);  // one NUMA node
  EXPECT_EQ(plan->topology[0][4], 50);  // across sockets
  const auto bridges = parse("[[gpu]]\nmodel = \"RTX3090\"\ncount = 4\n[topology]\npreset = \"bridges\"\n");
  ASSERT_TRUE(bridges) << bridges.error().message();
  const auto pairs = make_plan(*bridges);
  EXPECT_EQ(pairs->gpus[2].gpu.link[0], 4);
  EXPECT_EQ(pairs->gpus[3].gpu.link[3], 3);
  const auto none = parse("[[gpu]]\nmodel = \"A100\"\ncount = 2\n[topology]\npreset = \"pcie\"\n");
  EXPECT_EQ(make_plan(*none)->gpus[0].gpu.link[0], 0);
}

// Tables in tables in tables: the parser and whoever walks the result go as deep as the text says.
TEST(Scenario, DeepKeysAreRefused) {
  const auto repeated = [](std::string_view text, std::size_t count) {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) all += text;
    return all;
  };
  constexpr std::size_t kDeep = 50'000;
  for (const std::string& text : {
           repeated("a.", kDeep) + "a = 1",
           "[" + repeated("a.", kDeep) + "a]",
           "[[" + repeated("a . ", kDeep) + "a]]",
           repeated("\"a\".", kDeep) + "a = 1",
           repeated("'a'.", kDeep) + "a = 1",
           "x = \"\"\"y\"\"\"\"\"\n" + repeated("a.", kDeep) + "a = 1",
           "# \"\"\"\n" + repeated("a.", kDeep) + "a = 1",
           "x = { " + repeated("a.", kDeep) + "a = 1 }",
           "x = " + repeated("{ a.a.a.a.a.a.a.a = ", 200) + "1" + repeated(" }", 200),
           "x = " + repeated("[", kDeep) + repeated("]", kDeep),
       }) {
    const std::string said = complaint(text);
    EXPECT_TRUE(said.starts_with("test.toml:")) << said.substr(0, 200) << " for " << text.substr(0, 40);
    EXPECT_LT(said.size(), 500U);
    EXPECT_NE(said, "accepted");
  }
  EXPECT_EQ(
      complaint("[[gpu]]\nmodel = \"H100\"\nname = \"" + repeated(".", 60) + "\"  # " + repeated("a.", 100) + "\n"),
      "accepted");
}

}  // namespace
}  // namespace lull::sim
