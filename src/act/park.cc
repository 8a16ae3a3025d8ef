#include "act/park.h"

#include <fmt/format.h>

#include <utility>

namespace lull {
namespace {

// `lull park` has limits of its own for each step; were it killed, its guard would go with it.
constexpr Duration kLongestParking = std::chrono::hours(2);

}  // namespace

std::string park_argument(pid_t pid, std::uint64_t start_ticks, bool with_children) {
  return fmt::format("{}@{}{}", pid, start_ticks, with_children ? "+" : "");
}

ParkJob::Who park_named(pid_t pid) {
  const auto entry = read_process_entry(pid);
  if (!entry) return [error = entry.error()]() -> Result<std::vector<std::string>> { return std::unexpected(error); };
  return [argument = park_argument(pid, entry->start_ticks, true)]() -> Result<std::vector<std::string>> {
    return std::vector{argument};
  };
}

Result<> ParkJob::prepare() {
  if (otherwise_) TRY(otherwise_->prepare());
  return {};
}

void ParkJob::ask_before_kill(PreKillCheck look) {
  if (otherwise_) otherwise_->ask_before_kill(std::move(look));
}

void ParkJob::ask_before_acting(Leave leave) {
  if (otherwise_) otherwise_->ask_before_acting(leave);
  leave_ = std::move(leave);
}

void ParkJob::look() {
  if (otherwise_) otherwise_->look();
}

void ParkJob::start(const FiringFacts& facts, Done done, Tell tell) {
  ends_ = false;
  auto who = who_();
  if (!who) return failed(who.error().message(), facts, done, tell);
  if (who->empty()) return failed("nobody is left who could be parked", facts, done, tell);
  std::vector<std::string> command = {"/proc/self/exe", "park"};  // this very program, whatever was installed since
  if (!options_.tool.empty()) command.insert(command.end(), {"--cuda-checkpoint", options_.tool});
  command.insert(command.end(), who->begin(), who->end());
  tools_.helpers.run(
      {.arguments = command, .limit = kLongestParking, .signals = &tools_.signals, .may_start = leave_.holds},
      [this, leave = leave_, facts, done, tell](const HelperResult& result) {
        if (result.not_allowed) return leave.again([this, facts, done, tell] { start(facts, done, tell); });
        if (result.ok()) return done({});
        failed(result.trouble, facts, done, tell);
      },
      on_start_);
}

void ParkJob::failed(const std::string& trouble, const FiringFacts& facts, const Done& done, const Tell& tell) {
  if (!otherwise_) return done({.ok = false, .trouble = trouble});
  tell(Failed{.action = text_, .trouble = trouble, .goes_on = true});
  tell(Attempted{.action = otherwise_->text()});
  ends_ = true;
  otherwise_->start(facts, done, tell);
}

}  // namespace lull
