#include "act/evidence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <deque>
#include <filesystem>
#include <new>
#include <set>
#include <utility>

#include "act/picture.h"
#include "act/python_report.h"
#include "act/python_stack.h"
#include "base/calendar.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/process_start.h"
#include "base/random.h"
#include "base/text.h"
#include "base/try.h"
#include "base/units.h"
#include "gpu/own_signal.h"

namespace lull {
namespace {

constexpr std::size_t kMostShown = std::size_t{4} << 20;  // of all files together; the others are links
constexpr std::size_t kMostWho = 400;                     // letters of a list of processes

constexpr std::string_view kPageHead =
    R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
)";

constexpr std::string_view kPageStyle =
    R"(<style>
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1a1f2b; --dim: #667085; --line: #e3e7ee; --mark: #b42318; --code: #f0f2f6; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12151c; --card: #1a1f29; --ink: #e6e9ef; --dim: #94a0b4; --line: #2b3240; --mark: #f78d84; --code: #12151c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 24px 28px 60px; }
h1 { font-size: 22px; line-height: 1.3; margin: 0 0 6px; font-weight: 650; overflow-wrap: anywhere; }
h2 { font-size: 15px; margin: 0 0 10px; font-weight: 650; }
h3 { font-size: 13px; margin: 14px 0 4px; font-weight: 650; overflow-wrap: anywhere; }
p { margin: 0 0 8px; overflow-wrap: anywhere; }
a { color: inherit; }
.where { font-size: 16px; }
.differs, .trouble { color: var(--mark); }
.trouble { white-space: pre-line; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; margin: 16px 0 0; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 16px; margin: 0; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
pre { font: 12px/1.5 ui-monospace, "Cascadia Code", "DejaVu Sans Mono", monospace; background: var(--code); margin: 0;
  padding: 10px 12px; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
details { border-top: 1px solid var(--line); padding: 6px 0; }
details > pre { margin-top: 6px; }
summary { cursor: pointer; overflow-wrap: anywhere; }
svg { display: block; max-width: 100%; height: auto; }
.narrow { display: none; }
@media (max-width: 700px) { main { padding: 16px 10px 40px; } .card { padding: 12px; } .wide { display: none; }
  .narrow { display: block; } dl { grid-template-columns: minmax(0, 1fr); gap: 0; } dd { margin-bottom: 6px; } }
@media print { details:not([open]) > pre { display: block; } }
</style>
)";

std::string table_row(std::string_view name, std::string_view value) {
  if (value.empty()) return "";
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, for_markup(printable(value)));
}

std::string local_time(WallTime at) { return format_local(at, "%F %H:%M:%S %z"); }

std::string facts_table(const FiringFacts& facts, std::string_view host) {
  std::string job = facts.subject;
  if (facts.job) {
    for (const std::string& word : facts.command) job += (job.empty() ? "" : " ") + word;
    job += fmt::format(" (process {})", *facts.job);
  }
  std::string holders;
  for (const GpuProcess& one : facts.holders)
    if (holders.size() < kMostWho)
      holders += fmt::format("{}{} {} of {}", holders.empty() ? "" : ", ", one.name(), one.pid, one.user());
  std::string table = table_row("Job", job);
  table += table_row("Host", host);
  table += table_row("Users", fmt::format("{}", fmt::join(facts.users, ", ")));
  table += table_row("Held by", holders);
  table += table_row("Rule", facts.why.rule);
  table += table_row("After", facts.why.arm);
  table += table_row("GPUs", fmt::format("{}", fmt::join(facts.why.gpus, ", ")));
  table += table_row("Since", local_time(facts.why.since));
  table +=
      table_row("Held for", fmt::format("{}, {} samples",
                                        format_duration(std::chrono::floor<std::chrono::milliseconds>(facts.why.held)),
                                        facts.why.samples));
  table += table_row("Decided", local_time(facts.at));
  table += table_row("Next", next_of(facts));
  table += table_row("More time", more_time_of(facts));
  return "<section class=\"card\">\n<dl>\n" + table + "</dl>\n</section>\n";
}

std::string preformatted(std::string_view text) {
  // A reader of HTML drops a line break at the beginning.
  return "<pre>\n" + for_markup(text) + "</pre>\n";
}

class FileViews {
 public:
  // As text, folded or not; what is too long for the page is a link.
  std::string show(const EvidenceFile& file, bool open) {
    const std::string name = for_markup(printable(file.name));
    std::string html =
        fmt::format("<details{}><summary><a href=\"{}\">{}</a></summary>\n", open ? " open" : "", name, name);
    const std::size_t most = std::min(kMostFileShown, left_);
    const std::string_view shown = std::string_view(file.text).substr(0, most);
    left_ -= shown.size();
    html += preformatted(shown);
    if (shown.size() < file.text.size()) html += "<p>The rest of it is in the file.</p>\n";
    return html + "</details>\n";
  }

 private:
  std::size_t left_ = kMostShown;
};

std::string stacks_section(const EvidencePage& page, FileViews& files) {
  if (page.python.empty() && page.python_trouble.empty() && page.stacks.empty()) return "";
  std::string html = "<section class=\"card\">\n<h2>Where its processes are</h2>\n";
  if (!page.python_trouble.empty()) html += "<p class=\"trouble\">" + for_markup(page.python_trouble) + "</p>\n";
  std::size_t all = 0;
  for (const PythonGroup& group : page.python) all += group.processes;
  for (const PythonGroup& group : page.python) {
    std::string who = group.who.substr(0, kMostWho);
    if (who.size() < group.who.size()) who += " …";
    html += fmt::format("<h3{}>{} of {} Python processes{}: {}</h3>\n", group.differs ? " class=\"differs\"" : "",
                        group.processes, all,
                        !group.differs         ? ""
                        : group.processes == 1 ? ", which differs from the rest"
                                               : ", which differ from the rest",
                        for_markup(printable(who)));
    html += preformatted(std::string_view(group.stacks).substr(0, kMostFileShown));
    if (group.stacks.size() > kMostFileShown) html += "<p>The rest of it is in python.txt.</p>\n";
  }
  for (const EvidenceFile& file : page.stacks) html += files.show(file, page.stacks.size() == 1);
  return html + "</section>\n";
}

}  // namespace

std::string evidence_page(const EvidencePage& page, const FiringFacts& facts, std::string_view host, const Past& past) {
  const std::string title = for_markup(printable(headline(facts.why)));
  std::string html = std::string(kPageHead) + "<title>lull: " + title + "</title>\n" + std::string(kPageStyle);
  html += "</head>\n<body>\n<main>\n<h1>" + title + "</h1>\n";
  if (!page.where.empty()) html += "<p class=\"where\">" + for_markup(printable(job_is(page.where))) + ".</p>\n";
  if (!page.trouble.empty())
    html += "<p class=\"trouble\">Not complete: " + for_markup(printable_lines(page.trouble)) + "</p>\n";
  html += facts_table(facts, host);
  if (const std::string wide = picture_of(facts, host, past); !wide.empty())
    html += "<section class=\"card\">\n<h2>Readings</h2>\n<div class=\"wide\">\n" + wide +
            "</div>\n<div class=\"narrow\">\n" + picture_of(facts, host, past, kNarrowPicture) + "</div>\n</section>\n";
  FileViews files;
  html += stacks_section(page, files);
  html += "<section class=\"card\">\n<h2>Files</h2>\n";
  for (const EvidenceFile& file : page.files)
    html += files.show(file, file.name == "tree.txt" || file.name == "kernel.txt");
  return html + "</section>\n</main>\n</body>\n</html>\n";
}

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostStacks = 16;
constexpr Duration kStackLimit = 5s;
constexpr std::size_t kMostStackBytes = 1U << 20;
constexpr std::size_t kMostKernelLines = 200;
constexpr Duration kKernelLimit = 1s;
constexpr Duration kProcLimit = 500ms;
constexpr Duration kProcsLimit = 2s;
constexpr std::size_t kMostPython = 256;
constexpr std::size_t kPythonMemory = std::size_t{1} << 30;
constexpr Duration kPythonLimit = 1s;
constexpr Duration kPythonsLimit = 5s;
constexpr std::string_view kNotRead = "not read in time\n";
constexpr const char* kPage = "index.html";

// A new file in a folder of ours: nothing that is there already is opened, whoever put it there.
Result<Fd> new_file(int folder, const std::string& name) {
  return open_at(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
}

Result<> write_new(int folder, const std::string& name, std::string_view content) {
  const Fd file = TRY(new_file(folder, name));
  return write_all(file.get(), content);
}

struct NewFolder {
  std::string path;
  Fd fd;
};

// All users may be able to write to the folder around it: a name that exists is left alone, and the next one cannot be
// guessed.
Result<NewFolder> new_folder(const std::string& given, const std::string& name) {
  constexpr int kAttempts = 10;
  std::error_code why;
  const std::filesystem::path whole = std::filesystem::absolute(given, why);  // who is told of it may be elsewhere
  const std::string around = why ? given : (whole / "").lexically_normal().parent_path().string();
  const Fd parent = TRY(open_file(around, O_RDONLY | O_DIRECTORY));
  std::string attempt = name;
  for (int i = 0; i < kAttempts; ++i, attempt = fmt::format("{}-{:016x}", name, random_bits())) {
    const std::string path = around + "/" + attempt;
    if (::mkdirat(parent.get(), attempt.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;
      return fail(errno, path);
    }
    Fd folder = TRY(open_at(parent.get(), attempt, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    struct stat status{};
    if (::fstat(folder.get(), &status) != 0) return fail(errno, path);
    if (status.st_uid != ::geteuid()) return fail(path + " was replaced by another user");
    return NewFolder{path, std::move(folder)};
  }
  return fail(EEXIST, around + "/" + name);
}

// Everything that /proc tells in text about one process.
std::string proc_text(pid_t pid) {
  std::string text;
  for (const std::string_view name : {"status", "wchan", "syscall", "stack", "io", "limits", "cgroup"}) {
    const auto content = read_file(fmt::format("/proc/{}/{}", pid, name));
    text += fmt::format("==> {} <==\n{}\n", name, content ? *content : content.error().message());
  }
  return text;
}

// Why there are no stacks of programs that are not Python; empty: there are.
std::string_view stacks_missing(Evidence::Debugger debugger) {
  static const bool has_gdb = is_executable("gdb");
  if (debugger == Evidence::Debugger::none)
    return "only Python processes have stacks here (python.txt): a debugger would stop the others\n";
  return has_gdb ? "" : "gdb is not installed: only Python processes have stacks here (python.txt)\n";
}

std::vector<std::string> stack_command(const MemberView& member) {
  return {"gdb", "-nx", "-batch", "-p", std::to_string(member.entry.pid), "-ex", "thread apply all bt"};
}

// Frames without names are useless: they are left out, and what is missing is said first.
void tidy_stack(int folder, const std::string& name) {
  const auto file = open_at(folder, name, O_RDWR | O_NOFOLLOW);
  const auto text = file ? read_file(folder, name, kMostStackBytes) : Result<std::string>(fail("not written"));
  if (!text) return;
  const std::string tidy = tidied_stack(*text);
  if (tidy == *text || ::ftruncate(file->get(), 0) != 0) return;
  (void)write_all(file->get(), tidy);
}

bool is_in_kernel(pid_t pid) {
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ignored)) {
    const auto stat = read_file(task.path().string() + "/stat");
    const std::size_t end = stat ? stat->rfind(')') : std::string::npos;
    if (end == std::string::npos || stat->substr(end, 4).contains(" D")) return true;
  }
  return false;
}

// One stack after the other; a job with hundreds of processes shows its first few.
struct Stacks {
  Fd folder;
  std::vector<MemberView> members;
  std::size_t next = 0;
  std::set<pid_t> known;  // whose stack is told already
  Helpers& helpers;
  const InheritedSignals& signals;
  std::function<void(const Process&)> on_start;
  Evidence::Debugger debugger;
  std::string trouble;  // the first there was
  std::vector<EvidenceFile> files = {};
  std::function<void(Stacks&)> done = nullptr;

  static void go_on(const std::shared_ptr<Stacks>& self) {
    while (self->next < std::min(self->members.size(), kMostStacks)) {
      const MemberView& member = self->members[self->next++];
      if (self->known.contains(member.entry.pid)) continue;
      if (const std::string_view why = stacks_missing(self->debugger); !why.empty()) {
        (void)write_new(self->folder.get(), "stacks-missing.txt", why);
        self->files.push_back({"stacks-missing.txt", std::string(why)});
        break;
      }
      const std::string name = fmt::format("stack-{}.txt", member.entry.pid);
      const auto file = new_file(self->folder.get(), name);
      if (!file && self->trouble.empty()) self->trouble = file.error().message();
      if (!file) continue;
      self->helpers.run(
          {.arguments = stack_command(member),
           .limit = kStackLimit,
           .output_file = fmt::format("/proc/self/fd/{}", file->get()),  // this very file, whatever its name is by now
           .quiet = true,
           .signals = &self->signals},
          [self, name](const HelperResult&) {
            tidy_stack(self->folder.get(), name);
            self->files.push_back({name, read_file(self->folder.get(), name, kMostFileShown + 1).value_or("")});
            go_on(self);
          },
          self->on_start);
      return;
    }
    self->done(*self);
  }
};

std::string folder_name(const FiringFacts& facts) {
  return fmt::format("{}-{}", format_local(facts.at, "%Y%m%d-%H%M%S"), facts.job.value_or(::getpid()));
}

}  // namespace

PythonEvidence read_python(const std::vector<pid_t>& members) {
  PythonEvidence found;
  const std::size_t count = std::min(members.size(), kMostPython);
  // The kernel lets ancestors read that it forbids others to (kernel.yama.ptrace_scope = 1), and who asks aside is
  // none. Then we ask ourselves, unless a thread is where it could hold us up.
  const auto answer_of = [](pid_t pid) -> std::string {
    const auto read = read_python_stacks(pid);
    if (read) return encode(*read);
    const Error& why = read.error();
    return why.errno_value == ENOEXEC ? "" : why.errno_value == EPERM ? why.what : why.message();
  };
  // Aside, whatever tables the job's files have cannot take the machine's memory.
  const auto aside = [&](std::size_t i) -> std::string {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve far more for themselves
    const rlimit most{kPythonMemory, kPythonMemory};
    (void)::setrlimit(RLIMIT_AS, &most);
#endif
    try {
      return answer_of(members[i]);
    } catch (const std::bad_alloc&) {
      return fmt::format("process {} has more symbols than there is memory for", members[i]);
    }
  };
  const auto answers = run_each_with_timeout(count, aside, kPythonLimit, kPythonsLimit);
  for (std::size_t i = 0; i < count; ++i) {
    const pid_t pid = members[i];
    std::string answer = answers[i].value_or(fmt::format("process {} was not read in time", pid));
    if (answer.starts_with("kernel.yama.ptrace_scope is 1") && !is_in_kernel(pid)) answer = answer_of(pid);
    if (auto process = decode_python_process(answer))
      found.processes.push_back(*std::move(process));
    else if (!answer.empty())
      found.trouble += answer + "\n";
  }
  if (members.size() > count)
    found.trouble += fmt::format("the other {} processes were not read\n", members.size() - count);
  return found;
}

std::string where_it_hangs(const std::vector<pid_t>& members) {
  const PythonEvidence python = read_python(members);
  const std::string where = where_text(python.processes);
  return where.empty() ? std::string(trim(python.trouble.substr(0, python.trouble.find('\n')))) : job_is(where);
}

std::string tidied_stack(std::string_view stack) {
  std::size_t frames = 0;
  std::size_t unnamed = 0;
  std::string kept;
  for (std::string_view rest = stack; !rest.empty();) {
    const std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size() - 1) + 1);
    rest.remove_prefix(line.size());
    const bool frame = line.starts_with('#');
    const bool nameless = frame && (line.contains(" in ?? (") || line.contains("  ?? ("));
    frames += frame ? 1 : 0;
    unnamed += nameless ? 1 : 0;
    if (!nameless) kept += line;
  }
  if (unnamed == 0) return std::string(stack);
  return fmt::format("{} of {} frames are left out, since gdb finds no symbols for them\n\n{}", unnamed, frames, kept);
}

void Recorder::add(const Snapshot& snapshot, const Facts& job, const Facts& machine) {
  if (ring_.size() < kSamples) ring_.resize(kSamples);
  past_.add(snapshot);
  Sample& sample = ring_[next_++ % kSamples];
  sample.wall = snapshot.wall;
  sample.inventory = snapshot.inventory;
  sample.values.clear();
  for (const Reading& reading : snapshot.readings)
    for (std::size_t m = 0; m < kMetrics; ++m) {
      const auto metric = static_cast<Metric>(m);
      const bool named = !is_own(metric) || !info(metric).name.empty();
      sample.values.push_back(named ? facts_with(metric, reading, job, machine)[metric] : kUnknown);
    }
}

std::string Recorder::csv() const {
  std::string text = "time,gpu,uuid";
  for (const MetricInfo& row : kMetricTable) text += fmt::format(",{}", row.field);
  const std::size_t own = own_signals().size();
  for (const MetricInfo& row : own_signals()) text += fmt::format(",{}", row.field);
  text += '\n';
  for (std::size_t i = next_ > kSamples ? next_ - kSamples : 0; i < next_; ++i) {
    const Sample& sample = ring_[i % kSamples];
    const auto& devices = sample.inventory->devices;
    for (std::size_t d = 0; d < devices.size() && (d + 1) * kMetrics <= sample.values.size(); ++d) {
      text += fmt::format("{},{},{}", format_rfc3339(sample.wall), devices[d].label(), devices[d].uuid);
      for (std::size_t m = 0; m < kBuiltInMetrics + own; ++m) {
        const double value = sample.values[d * kMetrics + m];
        text += std::isnan(value) ? std::string(",") : fmt::format(",{:.15g}", value);
      }
      text += '\n';
    }
  }
  return text;
}

Result<> Evidence::prepare(const std::string& folder) {
  std::error_code why;
  std::filesystem::create_directories(folder, why);
  if (why) return fail(why.value(), folder);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return fail(errno, folder);
  return {};
}

void Evidence::collect(const std::string& folder, const FiringFacts& facts, const Recorder& recorder, Helpers& helpers,
                       const InheritedSignals& signals, const std::function<void(const Process&)>& on_start,
                       Debugger debugger, Done done) {
  auto made = new_folder(folder, folder_name(facts));
  if (!made) return done({.folder = "", .trouble = made.error().message(), .where = "", .page = ""});
  const std::string where = made->path;
  std::string trouble;
  auto page = std::make_shared<EvidencePage>();
  const auto write = [&](const std::string& name, std::string_view content) {
    if (const auto written = write_new(made->fd.get(), name, content); !written && trouble.empty())
      trouble = where + "/" + name + ": " + written.error().message();
    page->files.push_back({name, std::string(content.substr(0, kMostFileShown + 1))});
  };
  if (const std::string picture = picture_of(facts, host_name(), recorder.past()); !picture.empty())
    if (const auto written = write_new(made->fd.get(), "utilisation.svg", picture); !written)
      trouble = where + "/utilisation.svg: " + written.error().message();
  std::string tree;
  for (const std::string& line : tree_lines(facts.members, 10'000)) tree += line + "\n";
  write("tree.txt", tree);
  // What may hang is asked aside: a job that is stuck in the driver is what this is for.
  write("kernel.txt", run_with_timeout(kernel_messages_about_gpus, kKernelLimit).value_or(std::string(kNotRead)));
  std::vector<pid_t> pids;
  for (const MemberView& one : facts.members) pids.push_back(one.entry.pid);
  const PythonEvidence python = read_python(pids);
  if (!python.processes.empty() || !python.trouble.empty())
    write("python.txt", python.trouble + (python.trouble.empty() ? "" : "\n") + python_report(python.processes));
  write("facts.json", facts_json(facts, 2) + "\n");
  write("readings.csv", recorder.csv());
  const auto texts = run_each_with_timeout(
      facts.members.size(), [&](std::size_t i) { return proc_text(facts.members[i].entry.pid); }, kProcLimit,
      kProcsLimit);
  for (std::size_t i = 0; i < texts.size(); ++i)
    write(fmt::format("proc-{}.txt", facts.members[i].entry.pid), texts[i].value_or(std::string(kNotRead)));
  std::set<pid_t> known;
  for (const PythonProcess& one : python.processes) known.insert(one.pid);
  page->where = where_text(python.processes);
  page->python = python_groups(python.processes);
  page->python_trouble = python.trouble;
  auto stacks = std::make_shared<Stacks>(Stacks{std::move(made->fd), facts.members, 0, std::move(known), helpers,
                                                signals, on_start, debugger, std::move(trouble)});
  stacks->done = [where, page, facts, past = recorder.past(), done = std::move(done)](Stacks& all) {
    page->trouble = all.trouble;
    page->stacks = std::move(all.files);
    const auto written = write_new(all.folder.get(), kPage, evidence_page(*page, facts, host_name(), past));
    if (!written) (void)::unlinkat(all.folder.get(), kPage, 0);  // half a page
    if (!written && all.trouble.empty()) all.trouble = where + "/" + kPage + ": " + written.error().message();
    done({.folder = where, .trouble = all.trouble, .where = page->where, .page = written ? where + "/" + kPage : ""});
  };
  Stacks::go_on(stacks);
}

std::string kernel_messages_about_gpus() {
  const auto log = open_file("/dev/kmsg", O_RDONLY | O_NONBLOCK);
  if (!log) return "the kernel's log cannot be read: " + log.error().message() + "\n";
  std::deque<std::string> lines;
  std::string record(8192, '\0');
  for (;;) {
    const ssize_t got = ::read(log->get(), record.data(), record.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // overwritten meanwhile: the next one
    if (got <= 0) break;
    const std::string_view text(record.data(), static_cast<std::size_t>(got));
    if (text.find("NVRM") == std::string_view::npos && text.find("Xid") == std::string_view::npos &&
        text.find("nvidia") == std::string_view::npos)
      continue;
    lines.push_back(printable(text.substr(0, text.find('\n'))));
    if (lines.size() > kMostKernelLines) lines.pop_front();
  }
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all.empty() ? "nothing about GPUs in the kernel's log\n" : all;
}

}  // namespace lull
