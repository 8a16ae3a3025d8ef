// The GPUs of all vendors as one Source: NVIDIA's first, then AMD's, Intel's and a Jetson's. The number of a GPU here
// is its place in that order.
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "sense/file_source.h"
#include "sense/files.h"
#include "sense/source.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookForMore = 10s;   // for GPUs that came, and for a driver that did
constexpr Duration kFirstTryAgain = 5s;  // a driver that could not be opened
constexpr Duration kLongestTryAgain = 60s;
constexpr Duration kOpenLimit = 3s;  // for one driver, where there are GPUs of another

// NVIDIA's GPUs while its driver cannot be opened: they exist, may be in use, and nothing is known.
class ClosedSource final : public Source {
 public:
  ClosedSource(DriverState state, unsigned count, std::function<bool()> opens_now)
      : state_(std::move(state)), opens_now_(std::move(opens_now)), identities_(count) {
    for (unsigned i = 0; i < count; ++i) {
      identities_[i].version = 1;
      identities_[i].device.vendor_index = i;
      identities_[i].device.name = "NVIDIA GPU";
      identities_[i].device.absence = state_.absence;
    }
  }

  DriverState open() override { return {}; }
  unsigned count() const override { return static_cast<unsigned>(identities_.size()); }
  std::string driver_version() const override { return {}; }
  std::string library() const override { return {}; }
  bool attach(unsigned, Instant) override { return true; }
  const Identity& identity(unsigned gpu) override { return identities_[gpu]; }
  void sample(unsigned gpu, const Needs&, Instant now, Answer& answer) override {
    answer.gpu = Reading();
    answer.gpu.miss_all(state_.absence);
    answer.parts.clear();
    answer.driver_gone = gpu == 0 && try_again(now);
  }
  void look(unsigned, Instant) override {}
  Duration look_within(unsigned) const override { return Duration::zero(); }
  Topology topology() override { return Topology(identities_.size()); }

 private:
  // Seldom: each try may cost the kernel a modprobe.
  bool try_again(Instant now) {
    if (!next_) next_ = now + pause_;
    if (now < *next_) return false;
    pause_ = std::min<Duration>(kLongestTryAgain, 2 * pause_);
    next_ = now + pause_;
    return opens_now_();
  }

  DriverState state_;
  std::function<bool()> opens_now_;
  std::vector<Identity> identities_;
  std::optional<Instant> next_;
  Duration pause_ = kFirstTryAgain;
};

// NVIDIA's kernel driver lists its cards itself.
unsigned nvidia_cards(const Root& root) {
  unsigned count = 0;
  Directory cards(root.driver + "/gpus");
  while (cards.next() != nullptr) ++count;
  return count;
}

class AllSources final : public Source {
 public:
  AllSources(std::string library, const Root& root, const Clock& clock)
      : library_(std::move(library)), root_(root), clock_(clock) {}

  // Fails only where no GPU of any vendor can be read: an error of one driver does not concern the others' GPUs.
  DriverState open() override {
    sources_.clear();
    files_ = file_sources(root_, clock_);
    unsigned others = 0;
    for (const auto& source : files_) others += source->count();
    DriverState state = open_nvml(others > 0);
    for (auto& source : files_) sources_.push_back(std::move(source));
    number();
    return state;
  }

  unsigned count() const override { return static_cast<unsigned>(places_.size()); }
  std::string driver_version() const override { return first(&Source::driver_version); }
  std::string library() const override { return first(&Source::library); }

  bool attach(unsigned gpu, Instant now) override {
    const auto& [source, number] = places_[gpu];
    return source->attach(number, now);
  }
  const Identity& identity(unsigned gpu) override {
    const auto& [source, number] = places_[gpu];
    return source->identity(number);
  }

  void sample(unsigned gpu, const Needs& needs, Instant now, Answer& answer) override {
    const auto& [source, number] = places_[gpu];
    source->sample(number, needs, now, answer);
    if (answers_zeros(identity(gpu).device)) {
      answer.parts.clear();
      answer.gpu.miss_all(Absence::not_supported);
    }
    if (gpu == 0 && !answer.driver_gone) answer.driver_gone = others_came(now);
  }

  void look(unsigned gpu, Instant now) override {
    const auto& [source, number] = places_[gpu];
    source->look(number, now);
  }
  Duration look_within(unsigned gpu) const override {
    const auto& [source, number] = places_[gpu];
    return source->look_within(number);
  }
  bool wants_release() const override {
    return std::ranges::any_of(sources_, [](const auto& one) { return one->wants_release(); });
  }

  Topology topology() override {
    Topology all(places_.size());
    std::size_t begin = 0;
    for (const auto& source : sources_) {
      const Topology part = source->topology();
      for (std::size_t a = 0; a < part.devices(); ++a)
        for (std::size_t b = a + 1; b < part.devices(); ++b) all.set(begin + a, begin + b, part.between(a, b));
      begin += source->count();
    }
    return all;
  }

 private:
  using Sources = std::vector<std::unique_ptr<Source>>;

  static Sources file_sources(const Root& root, const Clock& clock) {
    Sources sources;
    const DrmMachine drm = look_at_drm(root, clock);
    sources.push_back(make_amd_source(root, clock, drm));
    sources.push_back(make_intel_source(root, clock, drm));
    sources.push_back(make_tegra_source(root, clock));
    for (const auto& source : sources) (void)source->open();
    return sources;
  }

  // Opened by a thread of its own where there are other GPUs: a driver may hang for ever.
  struct Opening {
    std::unique_ptr<Source> source;
    std::promise<DriverState> state;
  };
  struct Opened {
    std::unique_ptr<Source> source;  // null: it could not be opened
    DriverState state;
    std::function<bool()> opens_now;  // whether a fresh start would do
  };

  std::unique_ptr<Source> nvml() const { return make_nvml_source(library_, root_, clock_); }

  Opened open_apart() const {
    const auto opening = std::make_shared<Opening>();
    opening->source = nvml();
    const std::shared_future<DriverState> done(opening->state.get_future());
    std::thread([opening] { opening->state.set_value(opening->source->open()); }).detach();
    if (done.wait_for(kOpenLimit) != std::future_status::ready)
      return {nullptr, {Absence::no_answer, "", {}}, [done] { return done.wait_for(0s) == std::future_status::ready; }};
    if (done.get().absence == Absence::none) return {std::move(opening->source), {}, {}};
    const auto tried = [this] { return nvml()->open().absence == Absence::none; };
    return {nullptr, done.get(), tried};
  }

  // A Jetson's own GPU is read from files, and shown once: its NVML says nothing, or zeros.
  DriverState open_nvml(bool others) {
    jetson_ = files_.back()->count() > 0;
    tried_nvml_ = !jetson_ && (!others || nvml_may_be_there(library_, root_));
    if (!tried_nvml_) return {};
    Opened nvidia;
    if (others) {
      nvidia = open_apart();
    } else {
      nvidia.source = nvml();
      nvidia.state = nvidia.source->open();
      if (nvidia.state.absence != Absence::none) return nvidia.state;
    }
    const unsigned cards = nvidia_cards(root_);
    if (nvidia.source == nullptr && (cards > 0 || nvidia.state.absence != Absence::no_driver))
      nvidia.source = std::make_unique<ClosedSource>(nvidia.state, std::max(cards, 1U), nvidia.opens_now);
    if (nvidia.source != nullptr) sources_.push_back(std::move(nvidia.source));
    return {};
  }

  void number() {
    places_.clear();
    for (const auto& source : sources_)
      for (unsigned i = 0; i < source->count(); ++i) places_.emplace_back(source.get(), i);
  }

  std::string first(std::string (Source::*get)() const) const {
    for (const auto& source : sources_)
      if (std::string text = ((*source).*get)(); !text.empty()) return text;
    return {};
  }

  // What Orin's NVML calls itself, where a container hides the files: it answers "success" and zeros.
  static bool answers_zeros(const Device& device) {
    return device.vendor == Vendor::nvidia && device.name.contains("(nvgpu)") && !device.name.contains("Thor");
  }

  // A fresh start reads them: by the worker that has GPU 0.
  bool others_came(Instant now) {
    if (!looked_) looked_ = now;
    if (now - *looked_ < kLookForMore && now >= *looked_) return false;
    looked_ = now;
    unsigned count = 0;
    for (const auto& source : file_sources(root_, clock_)) count += source->count();
    unsigned had = 0;
    for (const auto& [source, number] : places_) had += dynamic_cast<FileSource*>(source) != nullptr ? 1 : 0;
    return count > had || (!tried_nvml_ && !jetson_ && nvml_may_be_there(library_, root_));
  }

  std::string library_;
  Root root_;
  const Clock& clock_;
  Sources files_;
  Sources sources_;                                   // in the order of the inventory
  std::vector<std::pair<Source*, unsigned>> places_;  // of each GPU: its source, and its number there
  bool jetson_ = false;
  bool tried_nvml_ = false;
  std::optional<Instant> looked_;
};

}  // namespace

std::unique_ptr<Source> make_all_sources(std::string library, const Root& root, const Clock& clock) {
  return std::make_unique<AllSources>(std::move(library), root, clock);
}

bool any_gpu_may_be_there(const std::string& library, const Root& root) {
  if (nvml_may_be_there(library, root) || is_any_drm_card(root)) return true;
  const SystemClock clock;
  const auto tegra = make_tegra_source(root, clock);
  (void)tegra->open();
  return tegra->count() > 0;
}

std::string no_gpu_text(const Root& root, bool nvidia_only) {
  std::string text = fmt::format("the NVIDIA driver is not loaded (there is no {}/version)", root.driver);
  if (!nvidia_only) text += fmt::format(", and there is no GPU of AMD, Intel or a Jetson in {}", root.sys);
  return text;
}

}  // namespace lull
