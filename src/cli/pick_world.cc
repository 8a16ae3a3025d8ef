// The world of a picker at the command line: readings from the sensor, and one line for who waits.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "cli/command.h"
#include "cli/pick.h"
#include "cli/screen.h"
#include "sense/processes.h"
#include "sense/sampler.h"
#include "sense/select.h"
#include "sense/visible.h"
#include "view/columns.h"

namespace lull {

namespace {

std::string ordinal(std::size_t number) {
  const bool teen = number % 100 / 10 == 1;
  const std::size_t last = number % 10;
  return fmt::format("{}{}", number, teen || last == 0 || last > 3 ? "th" : last == 1 ? "st" : last == 2 ? "nd" : "rd");
}

class CommandLineWorld : public PickWorld {
 public:
  explicit CommandLineWorld(bool quiet) : quiet_(quiet) {}

  void open(const PickNeeds& needs) override {
    SamplerOptions options;
    options.power = needs.power;
    options.details = needs.details;
    options.openers = needs.openers;
    options.pcie = needs.pcie;
    options.once = needs.once;
    options.processes = needs.processes;
    options.topology = needs.topology;
    options.apart = true;
    options.lists_every = {};  // whoever came a moment ago counts
    sampler_ = Sampler::start(options);
    sampler_->request();
  }
  void first(Snapshot& into) override { sampler_->wait(into); }
  void sample(Snapshot& into) override { sampler_->sample(into); }
  void close() override { sampler_.reset(); }

  Result<std::vector<std::size_t>> scope(const Inventory& inventory, const PickSettings& settings) override {
    if (!settings.gpus.empty()) return select_devices(settings.gpus, inventory);
    const char* job = std::getenv("SLURM_JOB_ID");
    if (settings.keep_to_visible && job != nullptr && *job != '\0' && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr)
      return visible_devices(inventory).devices;
    std::vector<std::size_t> all(inventory.devices.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  std::string user_name(uid_t user) override { return lull::user_name(user); }

  std::string command_of(pid_t pid) override {
    const auto process = read_process(Root::machine(), pid);
    return process ? printable(process->command_line()) : "";
  }

  void warn(const std::string& text) override {
    if (!quiet_) complain(text);
  }

  // On a terminal one line that is kept up to date; elsewhere one line, once.
  void waits(const Waiting& waiting) override {
    if (quiet_) return;
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    if (!terminal && !shown_.empty()) return;
    std::string text = fmt::format("lull: waiting for {} GPU{}", waiting.count, waiting.count == 1 ? "" : "s");
    text += waiting.ahead == 0 ? ", next in turn" : fmt::format(", {} in turn", ordinal(waiting.ahead + 1));
    if (waiting.collected > 0) text += fmt::format(", {} collected", waiting.collected);
    for (std::size_t i = 0; i < waiting.reasons.size(); ++i) text += (i == 0 ? ": " : "; ") + waiting.reasons[i];
    if (text == shown_) return;
    shown_ = text;
    if (terminal) {
      const Screen screen = screen_of(STDERR_FILENO);
      fmt::print(stderr, "\r{}\x1b[K", fit(for_screen(text, screen), screen.width - 1, screen.utf8));
    } else {
      fmt::print(stderr, "{}\n", text);
    }
    std::fflush(stderr);
  }

  void waits_no_more() override {
    if (shown_.empty() || ::isatty(STDERR_FILENO) == 0) return;
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
  }

 private:
  bool quiet_;
  std::unique_ptr<Sampler> sampler_;
  std::string shown_;
};

}  // namespace

std::unique_ptr<PickWorld> pick_world(bool quiet) { return std::make_unique<CommandLineWorld>(quiet); }

}  // namespace lull
