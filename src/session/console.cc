#include "session/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "view/events.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostTreeLines = 24;

// What both say in the same way.
class LullConsole : public Sink {
 public:
  void started() override { logger_.say(Level::note, "start", start_); }
  void did(const ActionEvent& action_event) override {
    logger_.say(level_of(action_event), event_name(action_event), to_string(action_event));
  }
  void note(Level level, std::string_view event, const std::string& text) override { logger_.say(level, event, text); }

 protected:
  LullConsole(const Logger& logger, std::string start) : logger_(logger), start_(std::move(start)) {}

  // The reasons, then what the console output adds, then what will be done.
  void log_firing(const FiringFacts& facts, bool dry_run, std::string_view word, std::string text,
                  std::string_view next, const LogSubject* about = nullptr) {
    text += fmt::format("\n{} {}", dry_run ? "dry run: would" : next, dry_run ? facts.would : facts.action);
    logger_.say(Level::important, word, text, logger_.format() == LogFormat::json ? facts_json(facts) : "", about);
  }
  static std::string reasons(const FiringFacts& facts, bool utf8) {
    std::string text;
    for (const std::string& line : to_string(facts.why, utf8)) text += (text.empty() ? "" : "\n") + line;
    return text;
  }

  const Logger& logger_;
  std::string start_;
};

class RunConsole final : public LullConsole {
 public:
  RunConsole(const Logger& logger, std::string start)
      : LullConsole(logger, std::move(start)), utf8_(screen_of(STDERR_FILENO).utf8) {}

  void sampled(const Sampled& sampled, std::optional<Instant>) override {
    if (logger_.wants(Level::debug)) logger_.say(Level::debug, "sample", sample_text(sampled));
  }
  void happened(const Event& event) override {
    const bool detail = std::holds_alternative<ScopeChanged>(event.what);
    logger_.say(is_trouble(event) ? Level::warning
                : detail          ? Level::debug
                                  : Level::note,
                event_name(event), to_string(event));
  }
  void firing(const FiringFacts& facts, bool dry_run) override {
    std::string text = reasons(facts, utf8_) + "\nthe job's processes:";
    for (const std::string& line : tree_lines(facts.members, kMostTreeLines)) text += "\n  " + line;
    log_firing(facts, dry_run, dry_run ? "would-end" : "end", std::move(text), "now:");
  }

 private:
  bool utf8_;
};

class WatchConsole final : public LullConsole {
 public:
  WatchConsole(Logger& logger, const Clock& clock, bool live, const WatchSettings& settings, const std::string& rule)
      : WatchConsole(logger, clock, live, "") {
    dry_run_ = settings.common.dry_run;
    actions_ = dry_run_ ? would_text(settings.actions) : to_text(settings.actions);
    const Policy& policy = settings.common.policy;
    start_ = fmt::format("watching: {}{}; {}", rule, policy.arm ? ", armed by " + to_text(*policy.arm) : "",
                         dry_run_ ? "dry run, would then " + actions_ : "then: " + actions_);
    if (settings.how.warn && warns_of_any(settings.actions))
      start_ += fmt::format("; all logged-in users are warned {} before", format_duration(*settings.how.warn));
  }
  WatchConsole(Logger& logger, const Clock& clock, bool live, std::string start)
      : LullConsole(logger, std::move(start)), clock_(clock), screen_(screen_of(STDERR_FILENO)), live_(live) {
    logger.set_live(live);
  }
  ~WatchConsole() override {
    if (live_) (void)write_all(STDERR_FILENO, "\r\x1b[K");
  }

  void sampled(const Sampled& sampled, std::optional<Instant> powers_at) override {
    if (logger_.wants(Level::debug)) logger_.say(Level::debug, "sample", sample_text(sampled));
    log_change(sampled);
    if (live_) draw(sampled, powers_at);
  }
  void happened(const Event& event) override {
    logger_.say(is_trouble(event) ? Level::warning : Level::note, event_name(event), to_string(event));
  }
  void firing(const FiringFacts& facts, bool dry_run) override {
    std::string text = reasons(facts, screen_.utf8);
    if (!facts.subject.empty()) text = facts.subject + ": " + text;
    for (const GpuProcess& one : facts.holders)
      text += fmt::format("\nheld by {} {} of {}", printable(one.name()), one.pid, printable(one.user()));
    const LogSubject about{facts.subject, facts.job_name, facts.why.gpus};
    log_firing(facts, dry_run, dry_run ? "would-act" : "fire", std::move(text),
               "next:", facts.subject.empty() ? nullptr : &about);
  }
  void note_of(const LogSubject& about, Level level, std::string_view event, const std::string& text) override {
    logger_.say(level, event, text, "", &about);
  }
  void sampled_each(const EachSampled& sampled) override {
    if (live_) show(each_progress_text(sampled));
  }

 private:
  void show(const std::string& line) {
    (void)write_all(STDERR_FILENO, "\r\x1b[K" + fit(line, screen_.width > 1 ? screen_.width - 1 : 1, screen_.utf8));
  }
  // In a log one line per change, not per sample.
  void log_change(const Sampled& sampled) {
    const SubjectState& judged = sampled.judged;
    if (judged.delayed(sampled.snapshot.at) || !judged.judging()) return;
    const Truth now = judged.verdict().condition;
    const Duration held = std::exchange(held_, judged.verdict().held);
    if (now == Truth::unknown) return;  // said elsewhere
    const Truth before = std::exchange(known_, now);
    if (now == before || before == Truth::unknown || live_) return;
    const std::string sample = sample_text(sampled);
    logger_.say(Level::note, now == Truth::yes ? "idle" : "busy",
                now == Truth::yes
                    ? "idle: " + sample
                    : fmt::format("busy again after {}: {}",
                                  format_duration(std::chrono::floor<std::chrono::milliseconds>(held)), sample));
  }
  void draw(const Sampled& sampled, std::optional<Instant> powers_at) {
    const SubjectState& judged = sampled.judged;
    std::string line = judged.delayed(sampled.snapshot.at) ? std::string("waiting") : progress_text(judged);
    const Verdict& verdict = judged.verdict();
    std::optional<Duration> left;
    if (powers_at)
      left = *powers_at - clock_.now();
    else if (verdict.armed && verdict.condition == Truth::yes && verdict.needed.samples == 0 &&
             verdict.held < verdict.needed.time)
      left = verdict.needed.time - verdict.held;
    if (left)
      line +=
          fmt::format(", {}{} in {} (lull watch --cancel)", dry_run_ ? "would " : "", actions_, countdown_text(*left));
    else
      line += fmt::format(", then{} {}", dry_run_ ? " would" : "", actions_);
    const std::string readings = extremes_text(sampled);
    line += " | " + (readings.empty() ? std::string("no GPU can be read") : readings);
    show(line);
  }

  const Clock& clock_;
  Screen screen_;
  bool live_;
  bool dry_run_ = false;
  std::string actions_;
  Truth known_ = Truth::unknown;  // the last that was not unknown
  Duration held_{};
};

}  // namespace

bool warns_of_any(const std::vector<ActionOption>& actions) {
  return std::ranges::any_of(actions, [](const ActionOption& one) { return one.kind == ActionOption::Kind::power; });
}

std::unique_ptr<Sink> run_console(const Logger& logger, std::string start) {
  return std::make_unique<RunConsole>(logger, std::move(start));
}

std::unique_ptr<Sink> watch_console(Logger& logger, const Clock& clock, bool live, std::string start) {
  return std::make_unique<WatchConsole>(logger, clock, live, std::move(start));
}

std::unique_ptr<Sink> watch_console(Logger& logger, const Clock& clock, bool live, const WatchSettings& settings,
                                    const std::string& rule) {
  return std::make_unique<WatchConsole>(logger, clock, live, settings, rule);
}

}  // namespace lull
