#pragma once
// How `lull watch --cancel` reaches a running `lull watch`, `lull fill --status` a running `lull fill`, and `lull keep`
// a `lull watch --per`: a socket in a folder that belongs to the watcher's user and that no other user may enter; that
// of `keep` all users may enter, since a job's owner asks, not the watcher's. Both sides ask the kernel for the other's
// user: a watcher listens to its own user and to root only (for `keep` it decides itself), and an answer counts only if
// it comes from the user whose folder it is, or from root. A watcher that was killed leaves its socket behind, which
// the next one takes away.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "loop/loop.h"

namespace lull {

// The first two have one question each, so that connecting is asking.
enum class ControlOf : std::uint8_t {
  watch,  // "cancel": answered in one line
  fill,   // "how are you?": a text of some lines, and behind a 0 the same as JSON
  keep,   // "so much more time for this": a question of one packet, answered in a line, or in one for each job
};

class Control {
 public:
  // `on_asked` gets who asks ("ada (uid 1000)") and answers.
  static Result<Control> listen(Loop& loop, ControlOf what,
                                std::function<std::string(const std::string& who)> on_asked);
  // All users may ask; `on_asked` gets the user from the kernel, and the question. It answers now or later,
  // within kLongestAnswerTime.
  using Answered = std::function<void(const std::string& answer)>;
  using OnQuestion =
      std::function<void(uid_t user, const std::string& who, const std::string& question, Answered answered)>;
  static Result<Control> listen_to_all(Loop& loop, OnQuestion on_asked);
  Control(Control&&) noexcept;
  Control& operator=(Control&&) noexcept;
  ~Control();

 private:
  struct Listening;
  explicit Control(std::unique_ptr<Listening> listening);
  std::unique_ptr<Listening> listening_;
};

inline constexpr std::size_t kLongestStatus = 128 * 1024;  // an answer of `fill` or `keep`
// How long an answer may take: one by a new sample waits for the driver, and srun ends within five seconds.
inline constexpr Duration kLongestAnswerTime = std::chrono::milliseconds(4500);

// Asks all our watchers, as root all on this machine; their answers. All at once, and for
// two seconds at most: a silent one must not delay the others.
struct Reply {
  std::string watcher;  // its pid
  std::string line;     // fit for a screen; of `fill` several
  std::string json = {};
  std::string lines = {};  // of `keep`: all that was answered, fit for a screen
  uid_t owner = 0;         // whose it is: root's, or the asker's own
};
std::vector<Reply> ask_all(ControlOf what, const std::string& question = {}, Duration limit = std::chrono::seconds(2));

// The same on a loop that has other things to do. `done` is called once, from the loop, unless this goes before.
class Asking {
 public:
  using Done = std::function<void(const std::vector<Reply>&)>;
  Asking(Loop& loop, ControlOf what, std::string question, Done done, Duration limit = std::chrono::seconds(2));
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
  ~Asking();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a watcher answered, made fit for a screen: one line of limited length.
std::string answer_line(std::string_view received);
// The pid in the name of a watcher's socket; empty: no name that a watcher gives.
std::string_view watcher_in(std::string_view name, ControlOf what = ControlOf::watch);

}  // namespace lull
