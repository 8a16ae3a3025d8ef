#include "session/live_view.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "act/spawn.h"
#include "base/fd.h"
#include "base/try.h"
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
  const Duration interval = TRY(duration_option("--watch", text));
  if (interval < std::chrono::milliseconds(10)) return fail("--watch: at least 10ms would be right");
  return interval;
}

std::optional<SessionEnd> LiveView::draw(const LiveRows& rows, const std::string& heading) {
  const Screen screen = screen_of(output_);
  return after(terminal_->draw(screen_.draw(rows, for_screen(heading, screen), screen)));
}

std::optional<SessionEnd> LiveView::append(const std::string& text) { return after(write_all(output_, text)); }

SessionEnd LiveView::watch(World& world, SamplingSettings settings, bool table, SamplingSession::OnSample show,
                           Redraw redraw) {
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

namespace {

using namespace std::chrono_literals;

constexpr Duration kSequenceTime = 50ms;  // an escape that nothing follows for so long was the key

// The other buffer, no cursor, no wrapping of long lines; and back.
constexpr std::string_view kTake = "\033[?1049h\033[?25l\033[?7l\033[H\033[2J";
constexpr std::string_view kGiveBack = "\033[?7h\033[?25h\033[?1049l";

}  // namespace

LiveTerminal::LiveTerminal(Loop& loop, int keys, int screen, std::function<void(const Key&)> on_key)
    : loop_(loop), keys_(keys), screen_(screen), on_key_(std::move(on_key)) {
  take();
}

LiveTerminal::~LiveTerminal() { give_back(); }

void LiveTerminal::take() {
  termios modes{};
  // In the background, or with its input from elsewhere, there are no keys for us.
  if (::isatty(keys_) == 1 && ::tcgetpgrp(keys_) == ::getpgrp() && ::tcgetattr(keys_, &modes) == 0) {
    modes_ = modes;
    modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z stay signals
    modes.c_cc[VMIN] = 0;                                    // a read never waits
    modes.c_cc[VTIME] = 0;
    ::tcsetattr(keys_, TCSADRAIN, &modes);
    if (!loop_.on_ready(keys_, [this] { read_keys(); })) give_back();
  }
  (void)write_all(screen_, kTake);
}

void LiveTerminal::give_back() {
  lone_escape_.cancel();
  if (modes_) {
    loop_.forget(keys_);
    ::tcsetattr(keys_, TCSADRAIN, &*modes_);
    modes_.reset();
  }
  (void)write_all(screen_, kGiveBack);
}

void LiveTerminal::suspend() {
  give_back();
  stop_ourselves();
  take();
}

void LiveTerminal::read_keys() {
  std::array<char, 256> buffer;
  const ssize_t got = ::read(keys_, buffer.data(), buffer.size());
  if (got <= 0) {  // the terminal has gone: SIGHUP says the rest
    loop_.forget(keys_);
    return;
  }
  lone_escape_.cancel();
  for (const Key& key : reader_.feed({buffer.data(), static_cast<std::size_t>(got)})) on_key_(key);
  if (reader_.pending())
    lone_escape_.in(kSequenceTime, [this] {
      for (const Key& key : reader_.flush()) on_key_(key);
    });
}

Result<> LiveTerminal::draw(const std::vector<std::string>& lines) {
  // Each line is cleared before it is written: cleared behind it, a line that is as wide as the screen would lose its
  // last letter. Terminals that know ?2026 show all of it at once.
  std::string text = "\033[?2026h\033[H";
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i > 0 ? "\n\033[2K" : "\033[2K") + lines[i];
  return write_all(screen_, text + (lines.empty() ? "\033[2J\033[?2026l" : "\033[?2026l"));
}

}  // namespace lull
