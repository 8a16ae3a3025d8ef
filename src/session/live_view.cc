#include "session/live_view.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "base/fd.h"
#include "base/units.h"
#include "view/screen.h"

namespace lull {
namespace {

std::optional<SessionEnd> after(const Result<>& written) {
  if (written) return std::nullopt;
  if (written.error().errno_value == EPIPE) return SessionEnd{};  // the reader has seen enough
  return SessionEnd{kExitFailure, written.error().message()};
}

}  // namespace

Result<Duration> live_interval(const std::string& text) {
  if (text.empty()) return std::chrono::seconds(1);
  auto parsed = parse_duration(text);
  if (!parsed) return std::unexpected(std::move(parsed.error()).during("--watch"));
  if (*parsed < std::chrono::milliseconds(10)) return fail("--watch: at least 10ms would be right");
  return *parsed;
}

std::optional<SessionEnd> LiveView::draw(const LiveRows& rows, const std::string& heading) {
  const Screen screen = screen_of(output_);
  return after(terminal_->draw(screen_.draw(rows, for_screen(heading, screen), screen)));
}

std::optional<SessionEnd> LiveView::append(const std::string& text) { return after(write_all(output_, text)); }

SessionEnd LiveView::watch(World& world, SamplingSettings settings, bool table, SamplingSession::OnSample show,
                           Redraw redraw) {
  settings.a_signal_is_no_failure = false;
  if (table && ::isatty(output_) == 1)
    return watch_on_screen(world, std::move(settings), std::move(show), std::move(redraw));
  struct stat status{};
  if (::fstat(output_, &status) == 0 && S_ISFIFO(status.st_mode)) settings.reader = output_;
  return SamplingSession(std::move(settings), world, std::move(show)).run();
}

SessionEnd LiveView::watch_on_screen(World& world, SamplingSettings settings, SamplingSession::OnSample show,
                                     Redraw redraw) {
  std::optional<SamplingSession> session;
  const auto again = [&] {
    if (auto end = redraw()) session->end(*std::move(end));
  };
  settings.more_signals = {SIGWINCH, SIGTSTP};
  settings.on_signal = [&](int signal) {
    if (signal == SIGTSTP) terminal_->suspend();
    again();
  };
  session.emplace(std::move(settings), world, std::move(show));
  terminal_ = std::make_unique<LiveTerminal>(world.loop(), input_, output_, [&](const Key& key) {
    if (!screen_.press(key)) return session->end({});
    again();
  });
  SessionEnd end = session->run();
  terminal_.reset();  // as it was before, whatever is said then
  return end;
}

}  // namespace lull
