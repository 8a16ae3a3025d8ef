#include "session/end_program.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>

#include "base/text.h"
#include "base/units.h"
#include "rule/reason.h"
#include "session/machine.h"
#include "session/session.h"
#include "view/events.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr int kHandle = 3;
constexpr int kLine = 4;   // to who started us, where it confirms
constexpr int kOffer = 5;  // and what it offers: to act
constexpr Duration kNever = std::chrono::hours(24 * 365);

using Tell = std::function<void(const std::string&)>;

struct Task {
  Process target;
  Duration wait{};
  Duration grace{};
  SessionSettings judged;  // by which it is seen to work
  bool looks = false;      // at that; else it is ended whatever it does
  bool asks = false;       // who started us, before the first signal
};

Result<Task> read_task(int argc, char** argv) {
  const auto pid = argc == 4 || argc >= 8 ? to_pid(argv[1]) : std::nullopt;
  if (!pid) return fail("is started by Python's lull.watch(), not by hand");
  Task task;
  task.judged.every = 1s;
  task.wait = TRY(parse_duration(argv[2]));
  task.grace = TRY(parse_duration(argv[3]));
  task.target = TRY(Process::open(*pid));
  // By the pidfd, not by the pid alone: our parent may have ended, and another process have its pid.
  const std::string handle = TRY(read_file(fmt::format("/proc/self/fdinfo/{}", kHandle)));
  if (handle.find(fmt::format("\nPid:\t{}\n", *pid)) == std::string::npos)
    return fail(fmt::format("process {} is not the one that started us", *pid));
  task.looks = argc > 4;
  task.asks = task.looks && std::string_view(argv[7]) == "ask";
  for (int i = 8; i < argc; ++i) task.judged.signals.push_back(TRY(parse_signal_from(argv[i])));
  // We ask what it shows; by itself it never fires.
  task.judged.policy.idle =
      with_span(at_one_moment(TRY(parse_rule(task.looks ? argv[4] : "util < 1"))), {.time = kNever});
  if (!task.looks) return task;
  task.judged.gpus = argv[5];
  task.judged.missing = std::string_view(argv[6]) == "ignore" ? WhenMissing::ignore : WhenMissing::unknown;
  return task;
}

// Who was to be ended has ended by itself meanwhile: that is not a problem.
bool gone(const Error& error) { return error.errno_value == ESRCH; }

class OutputStyle final : public Sink {
 public:
  explicit OutputStyle(const Tell& tell) : tell_(tell) {}
  void happened(const Event&) override {}
  void firing(const FiringFacts&, bool) override {}
  void did(const ActionEvent& action_event) override {
    if (!std::holds_alternative<Attempted>(action_event)) tell_(to_string(action_event));
  }
  void note(Level, std::string_view, const std::string&) override {}

 private:
  const Tell& tell_;
};

class EndSession final : public Session {
 public:
  EndSession(Task& task, World& world, Sink& sink, Action& ending, const Tell& tell)
      : Session(std::move(task.judged), {"process"}, world, sink),
        task_(task),
        ending_(ending),
        tell_(tell),
        tree_(task.target.pid()) {}
  ~EndSession() override {
    loop_.forget(kHandle);
    if (task_.asks) loop_.forget(kLine);
  }

  SessionEnd run() {
    if (const auto heard = loop_.on_ready(kHandle, [this] { on_ended(); }); !heard)
      return {kExitFailure, heard.error().message()};
    if (task_.asks) {
      auto offer = SharedOffer::open(kOffer);
      if (!offer) return {kExitFailure, offer.error().message()};
      offer_.emplace(*std::move(offer));
      if (const auto heard = loop_.on_ready(kLine, [this] { hear(); }); !heard)
        return {kExitFailure, heard.error().message()};
    }
    begin_subject();
    if (task_.looks) {
      make_feed(true, false, [this](pid_t pid) { return tree_.contains(pid); });
      feed_->begin();
    }
    if (task_.wait > Duration::zero())
      loop_.in(task_.wait, [this] { waited(); });
    else
      begin();
    const auto ran = loop_.run();
    acting_.reset();
    return ran ? end_ : SessionEnd{kExitFailure, ran.error().message()};
  }

 private:
  void on_ended() {
    loop_.forget(kHandle);
    if (!acts_) end({});
  }

  // ---- who started us knows all that the rule asks for, and confirms it: 'c' asks for that, the answer is the time
  // until which we may act by it, unless its offer is withdrawn. 's' says that we do. It hangs up: we may not.
  bool asks() const { return task_.asks && !acts_; }
  bool is_confirmed() const { return task_.asks && loop_.now() <= may_until_; }
  void say(char word) { (void)::send(kLine, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT); }
  void hear() {
    std::int64_t until = 0;
    const ssize_t got = ::recv(kLine, &until, sizeof until, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != sizeof until) {
      loop_.forget(kLine);
      if (asks()) end({});
      return;
    }
    may_until_ = Instant(Duration(until));
    if (const auto then = std::exchange(asked_, nullptr)) then();
  }
  Executor::Calls calls(bool in_any_case) override {
    Executor::Calls calls = Session::calls(in_any_case);
    if (in_any_case) return calls;
    // One confirmation is for the whole tree.
    calls.still_wanted = [this] { return asks() || is_confirmed() || works_again() == Truth::no; };
    calls.age = [this] {
      if (is_confirmed()) return Duration::zero();
      return asks() ? Duration::max() : feed_->age();
    };
    calls.acting = [this] {
      if (asks()) {
        if (!offer_->take()) return may_until_ = {}, false;
        say('s');
      }
      return acts_ = true;
    };
    calls.look = calls.confirm;
    calls.confirm = [this, look = calls.look](std::function<void()> then) {
      if (!asks()) return look(std::move(then));
      asked_ = std::move(then);
      say('c');
    };
    return calls;
  }

  // What its GPUs show by now. While that cannot be seen, it is not ended.
  void waited() {
    if (!task_.looks) return late();
    feed_->confirm([this] {
      const Truth works = works_again();
      if (works == Truth::no) return late();
      if (works == Truth::unknown) {
        if (!std::exchange(unseen_said_, true))
          tell_(
              fmt::format("process {} has not ended within {}, and it is unknown whether it works: lull waits for the "
                          "driver",
                          task_.target.pid(), format_duration(task_.wait)));
        return waited();
      }
      tell_(fmt::format("process {} has not ended within {}, but works on its GPUs: it is not ended",
                        task_.target.pid(), format_duration(task_.wait)));
      end({});
    });
  }
  void late() {
    tell_(fmt::format("process {} has not ended within {}: ending it and its children", task_.target.pid(),
                      format_duration(task_.wait)));
    begin();
  }
  void begin() {
    if (const auto ready = ending_.prepare(); !ready)
      return end(gone(ready.error()) ? SessionEnd{} : SessionEnd{kExitFailure, ready.error().message()});
    acts_ = !task_.looks;
    act({&ending_}, {.most = 0}, {}, !task_.looks);
  }

  void sense(const Snapshot&) override {}
  void fired(const Fired&) override { engine_->outcome(subject_.id); }
  void acted(bool all, bool) override { end({all ? 0 : kExitFailure}); }

  const Task& task_;
  Action& ending_;
  const Tell& tell_;
  ProcessTree tree_;
  bool unseen_said_ = false;
  bool acts_ = false;  // the first signal is on its way
  std::optional<SharedOffer> offer_;
  Instant may_until_{};
  std::function<void()> asked_;
};

Result<SessionEnd> end_it(Task& task, const Tell& tell) {
  const SystemClock clock;
  const std::unique_ptr<Machine> machine = TRY(Machine::open(clock));
  const ActionOption word = TRY(parse_action(fmt::format("kill={}", task.target.pid())));
  ActionOptions how;
  how.ending.grace = task.grace;
  const auto actions = machine->actions_of(word, how);
  OutputStyle console(tell);
  return EndSession(task, *machine, console, *actions.front(), tell).run();
}

}  // namespace

SessionEnd end_program(int argc, char** argv, const Tell& tell) {
  ::setsid();  // what ends the group that we came from does not end us
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // who started us let none through meanwhile
  auto task = read_task(argc, argv);
  if (!task && gone(task.error())) return {};
  if (!task) return {kExitUsage, task.error().message()};
  auto ended = end_it(*task, tell);
  if (!ended && gone(ended.error())) return {};
  return ended ? *std::move(ended) : SessionEnd{kExitFailure, ended.error().message()};
}

SharedOffer::SharedOffer(SharedOffer&& other) noexcept
    : fd_(std::move(other.fd_)), word_(std::exchange(other.word_, nullptr)) {}

SharedOffer::~SharedOffer() {
  if (word_ != nullptr) ::munmap(word_, sizeof *word_);
}

Result<SharedOffer::Word*> SharedOffer::map(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail(errno, "an offer");
  if (status.st_size < static_cast<off_t>(sizeof(Word))) return fail("this is not an offer");
  void* at = ::mmap(nullptr, sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return fail(errno, "shared memory for an offer");
  return static_cast<Word*>(at);  // zeros are an empty Word
}

Result<SharedOffer> SharedOffer::make() {
  Fd fd(::memfd_create("lull-offer", MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), sizeof(Word)) != 0) return fail(errno, "shared memory for an offer");
  Word* word = TRY(map(fd.get()));
  return SharedOffer(std::move(fd), word);
}

Result<SharedOffer> SharedOffer::open(int fd) { return SharedOffer(Fd(), TRY(map(fd))); }

namespace {

constexpr std::size_t kMostDescendants = 4096;

}  // namespace

bool ProcessTree::contains(pid_t pid) {
  std::vector<ProcessId> chain;
  const bool inside = pid == root_ || climb(pid, [&](const ProcessEntry& one) {
                        if (known_.contains(one.id())) return true;
                        chain.push_back(one.id());
                        return one.parent == root_;
                      });
  if (inside) known_.insert(chain.begin(), chain.end());
  return inside;
}

std::vector<ProcessEntry> ProcessTree::members() const {
  const std::array from = {root_};
  if (auto descendants = read_descendants(from, kMostDescendants, nullptr)) return *std::move(descendants);
  return descendants(read_all_processes(), root_);
}

}  // namespace lull
