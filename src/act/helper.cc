#include "act/helper.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/fd.h"
#include "base/units.h"

namespace lull {

struct Helpers::Running {
  Process process;
  Cgroup cgroup;
  std::string mark;
  Fd input;
  Fd output;
  bool capture = false;
  std::optional<Loop::TimerId> limit;
  Done done;
};

namespace {

constexpr std::size_t kMostOutput = 64 << 10;

std::string text_of(const Fd& file) {
  std::string text(kMostOutput, '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

std::string in_words(const ExitStatus& status) {
  if (status.signal != 0) return "ended by " + signal_name(status.signal);
  return status.code == 0 ? "" : "exit status " + std::to_string(status.code);
}

}  // namespace

// With all that came of it, daemons included. A few passes for those born meanwhile, where there is no cgroup.
void Helpers::end(Running& one) {
  constexpr int kPasses = 4;
  const Tree tree = Tree::of_helper(one.process, one.cgroup ? &one.cgroup : nullptr, one.mark);
  for (int i = 0; i < kPasses; ++i) {
    tree.kill_pass();
    if (tree.members().empty()) break;
  }
  (void)one.process.signal(SIGKILL);  // where no listing shows it
}

Helpers::~Helpers() {
  for (const auto& one : running_) {
    end(*one);
    children_.forget(one->process);
    one->cgroup.remove();
  }
}

void Helpers::run(const HelperOptions& options, Done done, const std::function<void(const Process&)>& on_start) {
  auto one = std::make_shared<Running>();
  one->done = std::move(done);
  one->capture = options.capture;
  const auto fail_soon = [&](std::string trouble) {
    loop_.in(Duration::zero(), [one, trouble = std::move(trouble)] {
      HelperResult result;
      result.trouble = trouble;
      one->done(result);
    });
  };
  auto input = memory_file(options.input);
  if (!input) return fail_soon(input.error().message());
  one->input = *std::move(input);
  if (options.capture) {
    one->output = Fd(::memfd_create("lull", MFD_CLOEXEC));
  } else if (!options.output_file.empty()) {
    auto file = open_file(options.output_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (!file) return fail_soon(file.error().message());
    one->output = *std::move(file);
  }
  auto environment = options.environment;
  environment.emplace_back(kHelperMark, std::to_string(::getpid()));
  const std::string number = std::to_string(::getpid()) + "." + std::to_string(++number_);
  environment.emplace_back(kHelperNumber, number);
  one->mark = std::string(kHelperNumber) + "=" + number;
  if (use_cgroup_)
    if (auto made = Cgroup::create()) one->cgroup = *std::move(made);
  auto spawned = spawn({.arguments = options.arguments,
                        .environment = std::move(environment),
                        .cgroup = one->cgroup ? one->cgroup.fd() : -1,
                        .standard_input = one->input.get(),
                        .standard_output = one->output ? one->output.get() : STDERR_FILENO,
                        .standard_error = options.quiet && one->output ? one->output.get() : -1,
                        .own_session = true,
                        .signals = options.signals});
  if (!spawned || !spawned->in_cgroup) one->cgroup.remove();
  if (!spawned) return fail_soon("cannot run " + spawned.error().message());
  one->process = std::move(spawned->process);
  if (on_start) on_start(one->process);
  running_.push_back(one);
  children_.expect(one->process, [this, one](const ExitStatus& status) {
    HelperResult result;
    result.status = status;
    result.trouble = in_words(status);
    finish(one, std::move(result));
  });
  one->limit = loop_.in(options.limit, [this, one, limit = options.limit] {
    one->limit.reset();
    children_.forget(one->process);  // its status goes to nobody
    end(*one);
    HelperResult result;
    result.timed_out = true;
    result.trouble = "not done after " + format_duration(limit);
    finish(one, std::move(result));
  });
}

void Helpers::finish(const std::shared_ptr<Running>& one, HelperResult result) {
  if (one->limit) loop_.cancel(*one->limit);
  std::erase(running_, one);
  one->cgroup.remove();  // what it left behind on purpose lives on in ours
  if (one->capture) result.output = text_of(one->output);
  const Done done = std::move(one->done);
  done(result);
}

}  // namespace lull
