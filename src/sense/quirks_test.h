#pragma once
// Random cases of cards with the faults that drivers have: files that are empty, gone, full of nonsense or cannot be
// read, counters that wrap, stand still, leap or run backwards, cards that fall asleep or show work that there is not.
// What the card really does is known, so that a reading that calls it idle, empty or unused while it is not can be
// counted: there must be none.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <random>
#include <string>

#include "sense/card_tree_test.h"

namespace lull {

struct QuirkCounts {
  unsigned cases = 0;
  unsigned known_idle = 0;  // readings that say so, and are right
  unsigned known_busy = 0;
  unsigned unknown = 0;
  unsigned false_idle = 0;
  unsigned false_unused = 0;
  unsigned known_used = 0;  // memory and processes that were seen
};

// Of a reading that says so much, and a card that did so much (%): as a mean, and at least at any moment. Firmware that
// tells of a second late, and reads that fail, may hide what had just begun.
inline bool is_false_idle(double util, double mean, double least) {
  constexpr double kIdle = 5;     // below is idle
  constexpr double kWorks = 25;   // that is work
  constexpr double kSteady = 15;  // and that is if it never was less
  return util < kIdle && (mean >= kWorks || least >= kSteady);
}

class QuirkCases {
 public:
  explicit QuirkCases(std::uint64_t seed) : random_(seed) {
    navi_ = amd_.add_navi();
    amd_.tree.write("sys/class/kfd/kfd/topology/generation_id", "1\n");
    amd_.tree.write("sys/class/kfd/kfd/topology/nodes/0/gpu_id", "4242\n");
    amd_.tree.write("sys/class/kfd/kfd/topology/nodes/0/properties",
                    "simd_count 192\nlocation_id 768\ndomain 0\ndrm_render_minor 128\nunique_id 1\n");
    amd_.tree.write("dev/dri/renderD128", "");
    amd_.tree.write(
        "proc/10/stat",
        "10 (x) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 100 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n");
    amd_.tree.link("proc/self/ns/pid", "pid:[4026531836]");
    xe_ = intel_.add_card(1, 129, "0000:04:00.0", "0x8086", "xe");
    intel_.tree.write(xe_ + "/hwmon/hwmon1/name", "xe\n");
    intel_.write(xe_ + "/hwmon/hwmon1", "power1_max", 190'000'000);
    for (const char* gt : {"gt0", "gt1"}) intel_.write(xe_ + "/tile0/" + gt + "/gtidle", "name", 0);  // from the first
    orin_ = "sys/devices/platform/17000000.ga10b";
    tegra_.tree.link(orin_ + "/devfreq/17000000.ga10b/device", "../../../17000000.ga10b");
    tegra_.tree.link("sys/class/devfreq/17000000.ga10b",
                     "../../devices/platform/17000000.ga10b/devfreq/17000000.ga10b");
    tegra_.tree.write("sys/class/hwmon/hwmon0/name", "ina3221\n");
    tegra_.tree.write("sys/class/hwmon/hwmon0/in1_label", "VDD_GPU_SOC\n");
  }

  QuirkCounts run(unsigned cases) {
    for (unsigned i = 0; i < cases; ++i) {
      ++counts_.cases;
      switch (below(3)) {
        case 0: amd(); break;
        case 1: intel(); break;
        default: tegra(); break;
      }
    }
    return counts_;
  }

 private:
  static constexpr double kIdle = 5;         // % of util: below is idle
  static constexpr double kIdlePower = 35;   // % of the limit
  static constexpr double kWorksPower = 60;  // likewise
  static constexpr unsigned kStepsOfASecond = 5;
  static constexpr double kJobMemory = 4.0 * (1 << 30);

  unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }
  bool once_in(unsigned times) { return below(times) == 0; }

  // What the card does, in steps of 200 ms: stretches of work and of rest.
  void next_step() {
    if (left_ == 0) {
      left_ = 1 + below(30);
      busy_ = once_in(2) ? 0 : 20 + below(81);
    }
    --left_;
    last_second_.push_back(busy_);
    if (last_second_.size() > kStepsOfASecond) last_second_.pop_front();
    sum_ += busy_;
    told_sum_ += told();
    least_ = std::min({least_, busy_, told()});
    ++steps_;
  }
  // As firmware tells it: the mean of the last second.
  double told() const {
    double sum = 0;
    for (const double one : last_second_) sum += one;
    return sum / static_cast<double>(last_second_.size());
  }
  void forget_means() {
    sum_ = told_sum_ = steps_ = 0;
    least_ = last_second_.empty() ? 100 : std::min(busy_, told());  // a mean begins with what was read last
  }
  void begin() {
    left_ = 0;
    last_second_.clear();
    forget_means();
  }

  // A number, or what a driver may give instead.
  void write(const CardTree& cards, const std::string& path, double number, unsigned seldom = 8) {
    static constexpr const char* kNonsense[] = {"", "\n", "unknown\n", "-1\n", "18446744073709551615\n", "65535 %\n"};
    cards.remove(path);
    if (!once_in(seldom))
      cards.tree.write(path, std::to_string(static_cast<std::int64_t>(std::llround(number))) + "\n");
    else if (once_in(3))
      fail(cards, path);
    else if (!once_in(3))
      cards.tree.write(path, kNonsense[below(6)]);
  }
  // What cannot be read stands there: EACCES as EPERM, EINVAL, ELOOP. (EBUSY: tests/e2e/test_vendors_live.py)
  void fail(const CardTree& cards, const std::string& path) {
    static constexpr const char* kFailing[] = {"/proc/sys/vm/drop_caches", "/proc/self/clear_refs", nullptr};
    const char* target = kFailing[below(3)];
    cards.tree.link(path, target != nullptr ? target : cards.tree.at(path));
  }

  // KFD and the memory of a job that comes and goes.
  void use() {
    if (once_in(10)) is_used_ = !is_used_.value_or(false);
    write(amd_, navi_ + "/mem_info_vram_used", (60 << 20) + (*is_used_ ? kJobMemory : 0));
    const std::string process = "sys/class/kfd/kfd/proc/10";
    amd_.remove(process);
    if (!*is_used_) return;
    std::filesystem::create_directories(amd_.tree.at(process + "/queues"));
    const bool queue = once_in(2);
    write_there(process + "/vram_4242", queue && once_in(2) ? 0 : kJobMemory);
    if (queue) write_there(process + "/queues/0/gpuid", 4242);
  }
  // A file that is gone would say that the job does not use the card.
  void write_there(const std::string& path, double number) {
    do write(amd_, path, number);
    while (!std::filesystem::is_symlink(amd_.tree.at(path)) && !std::filesystem::exists(amd_.tree.at(path)));
  }

  void judge(const Reading& reading, double limit_watts, double idle_watts, double busy_watts) {
    // Firmware tells the mean of a second: nobody can know more than the mean of what it told. A counter tells all.
    const double whole = sum_ / steps_;
    const double truth = counted_ ? whole : std::min(whole, told_sum_ / steps_);
    const double watts = idle_watts + (busy_watts - idle_watts) * truth / 100;
    const double util = reading[Metric::util];
    const double share = 100 * reading[Metric::power] / reading[Metric::power_limit];
    if (std::isnan(util))
      ++counts_.unknown;
    else if (util >= kIdle)
      ++counts_.known_busy;
    else if (is_false_idle(util, truth, least_))
      ++counts_.false_idle;
    else
      ++counts_.known_idle;
    if (share < kIdlePower && watts >= kWorksPower / 100 * limit_watts) ++counts_.false_idle;
    const Band newest = reading.newest(Metric::util);
    if (is_false_idle(newest.high, told(), least_) && !reading.asleep) ++counts_.false_idle;
    if (is_used_.value_or(false) && !reading.asleep) {
      counts_.known_used += reading[Metric::mem_used] >= kJobMemory && reading[Metric::procs] >= 1 ? 1 : 0;
      if (reading[Metric::mem_used] < kJobMemory || reading[Metric::procs] < 1) ++counts_.false_unused;
    }
    forget_means();
  }

  // Samples some intervals, with a look at each step where the source wants to look.
  template <class Step>
  void sample(const CardTree& cards, SampledCards::Make make, const std::string& status, double limit, double idle,
              double busy, const Step& step) {
    begin();
    next_step();
    step();
    SampledCards gpus(cards, make);
    gpus.needs.processes = is_used_.has_value();
    gpus.needs.lists_every = Duration::zero();
    (void)gpus.sample();
    forget_means();
    for (unsigned intervals = 2 + below(3); intervals > 0; --intervals) {
      const unsigned steps = 1 + below(12);
      for (unsigned i = 0; i < steps; ++i) {
        next_step();
        gpus.clock.advance(std::chrono::milliseconds(200));
        step();
        if (i + 1 < steps && gpus.source->look_within(0) > Duration::zero()) gpus.source->look(0, gpus.clock.now());
      }
      // Only what rests falls asleep.
      const bool asleep = sum_ == 0 && once_in(8);
      cards.tree.write(status, asleep ? "suspended\n" : once_in(8) ? "resuming\n" : "active\n");
      judge(gpus.sample(), limit, idle, busy);
    }
    cards.tree.write(status, "active\n");
  }

  void amd() {
    MetricsBlob blob;
    blob.energy = random_() % 1'000'000'000;
    blob.activity = static_cast<std::uint32_t>(random_());
    const unsigned layout = below(4);  // 0: another version
    const unsigned energy = below(4);  // 0: stands still now and then, 1: runs backwards
    const bool counts = once_in(2);    // its activity
    is_used_ = once_in(2);
    bool phantom = false;  // an idle context reads 100 %
    sample(amd_, make_amd_source, navi_ + "/power/runtime_status", 327, 17, 327, [&] {
      use();
      if (once_in(20)) phantom = !phantom;
      write(amd_, navi_ + "/gpu_busy_percent", phantom ? 100 : told());
      write(amd_, navi_ + "/hwmon/hwmon0/power1_average", (17 + 310 * told() / 100) * 1e6);
      write(amd_, navi_ + "/hwmon/hwmon0/power1_cap", once_in(20) ? 0 : 327e6, 20);
      blob.firmware_time += 20'000'000;
      if (counts) blob.activity += static_cast<std::uint32_t>(busy_ * 200);
      if (energy != 0 || once_in(3)) blob.energy += static_cast<std::uint64_t>((17 + 3.1 * busy_) * 0.2 / 15.259e-6);
      if (energy == 1 && once_in(4)) blob.energy -= std::min<std::uint64_t>(blob.energy, random_() % 10'000'000);
      MetricsBlob shown = blob;
      shown.gfx = static_cast<std::uint16_t>(told());
      shown.watts = static_cast<std::uint16_t>(17 + 3.1 * told());
      if (once_in(6)) shown.energy = ~0ULL;
      if (once_in(6)) shown.activity = ~0U;
      std::string bytes = shown.bytes();
      if (layout == 0) bytes[3] = 4;
      if (once_in(8)) bytes.resize(below(120));
      amd_.tree.write(navi_ + "/gpu_metrics", bytes);
    });
    is_used_.reset();
  }

  void intel() {
    constexpr double kWrap = 5'497'558;  // ms
    double idle[2] = {static_cast<double>(random_() % 5'497'558), static_cast<double>(random_() % 5'497'558)};
    double energy = static_cast<double>(random_() % 1'000'000'000'000);
    const unsigned works = below(2);
    const bool dead = once_in(6);  // a card that does not count
    counted_ = true;
    bool reset = false;  // its energy
    sample(intel_, make_intel_source, xe_ + "/power/runtime_status", 190, 10, 190, [&] {
      for (unsigned gt = 0; gt < 2; ++gt) {
        if (!dead) idle[gt] = std::fmod(idle[gt] + 200 * (1 - (gt == works ? busy_ / 100 : 0)), kWrap);
        const double leap = once_in(40) ? 100'000 : 0;
        write(intel_, xe_ + "/tile0/gt" + std::to_string(gt) + "/gtidle/idle_residency_ms", std::floor(idle[gt] + leap),
              12);
      }
      energy += (10 + 1.8 * busy_) * 0.2 * 1e6;
      if (once_in(20)) energy += 1e12;
      if (!reset && once_in(20)) energy = static_cast<double>(random_() % 1'000'000), reset = true;
      write(intel_, xe_ + "/hwmon/hwmon1/energy1_input", energy, 12);
    });
    counted_ = false;
  }

  void tegra() {
    sample(tegra_, make_tegra_source, orin_ + "/power/runtime_status", 30, 2, 30, [&] {
      write(tegra_, orin_ + "/load", told() * 10);
      write(tegra_, "sys/class/hwmon/hwmon0/in1_input", 19'300);
      write(tegra_, "sys/class/hwmon/hwmon0/curr1_input", (2 + 0.28 * told()) / 19.3 * 1000);
    });
  }

  std::mt19937_64 random_;
  QuirkCounts counts_;
  CardTree amd_;
  CardTree intel_;
  CardTree tegra_;
  std::string navi_;
  std::string xe_;
  std::string orin_;
  unsigned left_ = 0;
  double busy_ = 0;
  std::deque<double> last_second_;
  std::optional<bool> is_used_;  // by a job; nothing: there is none to be seen
  bool counted_ = false;         // what it does, by counters that miss nothing
  double sum_ = 0;
  double told_sum_ = 0;
  double least_ = 100;
  double steps_ = 0;
};

}  // namespace lull
