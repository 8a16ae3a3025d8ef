#include "session/file_watch.h"

#include <utility>

#include "base/inotify.h"

namespace lull {
namespace {

constexpr Duration kSettles = std::chrono::milliseconds(200);

}  // namespace

FileWatch::FileWatch(Loop& loop, const std::string& path, std::function<void()> changed, std::function<void()> lost)
    : loop_(loop),
      name_(path.substr(path.rfind('/') + 1)),
      changed_(std::move(changed)),
      lost_(std::move(lost)),
      events_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
  const std::string folder = folder_of(path);
  if (!events_ || ::inotify_add_watch(events_.get(), folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO | IN_ONLYDIR) < 0 ||
      !loop_.on_ready(events_.get(), [this] { read_events(); })) {
    events_.reset();
    lost_();
  }
}

void FileWatch::stop() {
  if (!events_) return;
  loop_.forget(events_.get());
  events_.reset();
}

void FileWatch::read_events() {
  bool changed = false;
  bool gone = false;
  each_inotify_event(events_.get(), [&](const inotify_event& event, std::string_view file) {
    changed = changed || (event.mask & IN_Q_OVERFLOW) != 0 || file == name_;
    gone = gone || (event.mask & IN_IGNORED) != 0;
    return true;
  });
  if (gone) {
    stop();
    lost_();
  }
  if (!changed || timer_) return;
  timer_.in(kSettles, [this] { changed_(); });
}

}  // namespace lull
