#include "slurm/check.h"

#include <fmt/format.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/exit_status.h"
#include "base/fd.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "slurm/node_list.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;
using State = CheckItem::State;

constexpr Duration kClocksApart = 10s;        // more is said; munge refuses five minutes
constexpr std::size_t kMostScript = 1 << 20;  // of a Prolog
constexpr std::size_t kMostUsers = 32;
constexpr const char* kReconfigure = "then run `scontrol reconfigure`";

// "Prolog                  = /etc/slurm/prolog"; newer releases number them, "Prolog[0] = …". (null): not set.
std::vector<std::string> values_of(std::string_view output, std::string_view key) {
  std::vector<std::string> values;
  for (const std::string_view line : split(output, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view name = trim(line.substr(0, equals));
    name = name.substr(0, name.find('['));
    const std::string_view value = trim(line.substr(equals + 1));
    if (name == key && !value.empty() && value != "(null)") values.emplace_back(value);
  }
  return values;
}

std::vector<std::string> files_of(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> files;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return files;
}

// One of the scripts runs `lull slurm prolog` (epilog).
CheckItem check_script(std::string_view output, const std::string& key, const std::string& word) {
  CheckItem item{.name = word};
  const auto missing = [&](std::string text, std::string fix) {
    item.state = State::missing;
    item.text = std::move(text);
    item.fix = std::move(fix);
    return item;
  };
  const std::vector<std::string> values = values_of(output, key);
  if (values.empty())
    return missing(fmt::format("slurm.conf has no {}", key),
                   fmt::format("add {}=FILE to slurm.conf, where FILE is a script that runs `lull slurm {}`; {}", key,
                               word, kReconfigure));
  const std::string all = fmt::format("{}", fmt::join(values, ", "));
  std::vector<std::string> files;
  for (const std::string& value : values)
    for (std::string& file : files_of(value)) files.push_back(std::move(file));
  if (files.empty())
    return missing(fmt::format("{}={}: there is no such file on this node", key, printable(all)),
                   "copy it to this node");
  std::string unreadable;
  for (const std::string& file : files) {
    const auto text = read_file(AT_FDCWD, file, kMostScript);
    if (!text) unreadable = printable(text.error().message());
    if (!text || text->find("lull slurm " + word) == std::string::npos) continue;
    if (::access(file.c_str(), X_OK) != 0)
      return missing(fmt::format("{} cannot be run", printable(file)), fmt::format("chmod 755 {}", printable(file)));
    item.state = State::ok;
    item.text = fmt::format("{}={}", key, printable(all));
    return item;
  }
  if (!unreadable.empty()) {
    item.text = unreadable;
    item.fix = "run it as root";
    return item;
  }
  return missing(fmt::format("{}={} does not mention `lull slurm {}`", key, printable(all), word),
                 fmt::format("add the line `lull slurm {}` to it", word));
}

CheckItem check_flags(std::string_view output) {
  const std::string flags = fmt::format("{}", fmt::join(values_of(output, "PrologFlags"), ","));
  CheckItem item{.name = "prolog-flags", .state = State::ok, .text = "PrologFlags=" + printable(flags)};
  for (const std::string_view flag : split(flags, ','))
    if (flag == "Alloc" || flag == "Contain") return item;
  item.state = State::missing;
  item.text = flags.empty() ? "slurm.conf has no PrologFlags" : item.text + " has no Alloc";
  item.text += ": an allocation without a process is not seen";
  item.fix = fmt::format("set PrologFlags={}Alloc in slurm.conf, {}", flags.empty() ? "" : printable(flags) + ",",
                         kReconfigure);
  return item;
}

// "Configuration data as of 2026-11-18T07:10:12": the controller's clock as it answers, in the time zone of this node.
CheckItem check_clock(std::string_view output, WallTime now) {
  constexpr std::string_view kWords = "Configuration data as of ";
  CheckItem item{.name = "clock", .text = "scontrol does not say the time of the controller"};
  const std::size_t at = output.find(kWords);
  if (at == std::string_view::npos) return item;
  const std::string text(output.substr(at + kWords.size(), 19));
  std::tm parts{};
  parts.tm_isdst = -1;
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return item;
  const std::time_t seconds = std::mktime(&parts);
  if (seconds == -1) return item;
  const double apart = to_seconds(now) - static_cast<double>(seconds);
  item.state = std::abs(apart) > to_seconds(kClocksApart) ? State::missing : State::ok;
  item.text = item.state == State::ok ? "the clocks of this node and of the controller agree"
                                      : fmt::format("the clock of this node is {:.0f} s {} that of the controller",
                                                    std::abs(apart), apart > 0 ? "ahead of" : "behind");
  if (item.state == State::missing) item.fix = "synchronize both, with chrony or systemd-timesyncd";
  return item;
}

// What a command said, in one line.
std::string said(const HelperResult& result) {
  std::string_view line = trim(result.output);
  line = line.substr(0, std::min<std::size_t>(line.find('\n'), 300));
  return fmt::format("{}{}{}", result.trouble, line.empty() ? "" : ": ", printable(line));
}

// The one that asks most of srun.
const Allocation* widest(const std::vector<Allocation>& jobs, std::size_t& nodes) {
  const Allocation* found = nullptr;
  for (const Allocation& job : jobs) {
    const auto list = parse_node_list(job.nodes);
    if (!list || job.user.empty() || list->size() <= nodes) continue;
    nodes = list->size();
    found = &job;
  }
  return found;
}

}  // namespace

std::string_view to_text(State state) {
  switch (state) {
    case State::ok: return "ok";
    case State::missing: return "missing";
    case State::unknown: return "unknown";
    case State::untried: return "untried";
    case State::differs: return "differs";
  }
  return "unknown";
}

std::vector<CheckItem> check_configuration(std::string_view output, WallTime now) {
  return {check_script(output, "Prolog", "prolog"), check_script(output, "Epilog", "epilog"), check_flags(output),
          check_clock(output, now)};
}

CheckItem check_folder(const std::string& folder, Allocations& found) {
  CheckItem item{.name = "folder", .state = State::missing};
  auto read = read_allocations(folder);
  if (!read) {
    item.text = read.error().errno_value == ENOENT ? folder + " is not there" : printable(read.error().message());
    item.fix = fmt::format("install -d -o root -g root -m 755 {}", printable(folder));
    if (read.error().errno_value == EACCES) item.state = State::unknown, item.fix = "run it as root";
    return item;
  }
  found = *std::move(read);
  if (!found.refused.empty()) {
    item.text = found.refused.front();
    item.fix = "remove it; the Prolog of the next job writes a good one";
  } else if (::geteuid() == 0 && ::access(folder.c_str(), W_OK) != 0) {
    item.text = fmt::format("{} cannot be written to", folder);
    item.fix = "mount it for writing";
  } else {
    item.state = State::ok;
    item.text = fmt::format("{}: {} job{}", folder, found.all.size(), found.all.size() == 1 ? "" : "s");
  }
  return item;
}

void NodeCheck::run(const Command& command, std::function<void(const HelperResult&)> then) {
  ++open_;
  run_(command, kCommandLimit, [this, then = std::move(then)](const HelperResult& result) {
    then(result);
    finish_one();
  });
}

void NodeCheck::start() {
  run({"scontrol", "show", "config"}, [this](const HelperResult& result) {
    if (result.ok()) {
      configuration_ = check_configuration(result.output, clock_.wall());
      return;
    }
    for (const char* name : {"prolog", "epilog", "prolog-flags", "clock"})
      configuration_.push_back(
          {.name = name, .text = "scontrol show config: " + said(result), .fix = "start slurmctld, or set SLURM_CONF"});
  });
  Allocations found;
  folder_item_ = check_folder(folder_, found);
  check_stale(found.all);
  check_gpus(found.all);
  check_users(found.all);
  check_srun(found.all);
  finish_one();
}

// A file whose job is over: its Epilog did not remove it.
void NodeCheck::check_stale(const std::vector<Allocation>& jobs) {
  stale_.state = State::ok;
  stale_.text = "no file of a job that is over";
  if (jobs.empty()) return;
  std::vector<std::uint64_t> numbers;
  for (const Allocation& job : jobs) numbers.push_back(job.job);
  const std::string list = fmt::format("--jobs={}", fmt::join(numbers, ","));
  run({"squeue", "--noheader", list, "--states=all", "--format=%A %T"}, [this, numbers](const HelperResult& result) {
    if (!result.ok() && !is_unknown_job(result.output)) {
      stale_.state = State::unknown;
      stale_.text = "squeue: " + said(result);
      return;
    }
    std::set<std::uint64_t> there;
    const std::string_view lines = result.ok() ? std::string_view(result.output) : std::string_view();
    for (const std::string_view line : split(lines, '\n')) {
      const std::size_t blank = std::min(line.find(' '), line.size());
      const std::string_view state = trim(line.substr(blank));
      const bool over = state == "COMPLETED" || state == "CANCELLED" || state == "FAILED" || state == "TIMEOUT" ||
                        state == "NODE_FAIL" || state == "PENDING" || state == "OUT_OF_MEMORY" || state == "PREEMPTED";
      if (const auto number = to_unsigned(line.substr(0, blank)); number && !over) there.insert(*number);
    }
    for (const std::uint64_t number : numbers) {
      if (there.contains(number)) continue;
      stale_.state = State::missing;
      stale_.text = fmt::format("job {} does not run, and its file is there: its Epilog has not removed it", number);
      stale_.fix = fmt::format("see to the Epilog; rm {}/{}", printable(folder_), number);
    }
  });
}

// Which GPUs Slurm means by its numbers, of each job that is here.
void NodeCheck::check_gpus(const std::vector<Allocation>& jobs) {
  run(gres_command(node_name()), [this, jobs](const HelperResult& result) {
    GpuNumbers numbers(folder_, facts_);
    numbers.looked(result, clock_.now());
    check_order(numbers);
    gpus_.state = numbers.known() ? State::ok : !result.status ? State::unknown : State::missing;
    gpus_.text = numbers.known() ? fmt::format("slurmd -G names the files of {} GPU{}", numbers.size(),
                                               numbers.size() == 1 ? "" : "s")
                                 : printable(numbers.why());
    gpus_.fix =
        numbers.known() ? "" : "no job is judged until it is known: see gres.conf (File=), SLURM_CONF and slurmd";
    for (const Allocation& job : jobs) {
      const auto files = numbers.files_of(job.gpus, job.start);
      if (!numbers.known() || files) continue;
      gpus_.state = State::missing;
      gpus_.text = fmt::format("job {} is not judged: {}", job.job, files.error().message());
      gpus_.fix = "give whole GPUs by File= of gres.conf; of a job from before a change nothing is known";
    }
  });
}

// Whether an exporter's number of a GPU is Slurm's. Watchers on nodes go by the files, and need not care.
void NodeCheck::check_order(const GpuNumbers& numbers) {
  std::vector<unsigned> all;
  for (unsigned number = 0; number < numbers.size(); ++number) all.push_back(number);
  const auto files = numbers.files_of(all, WallTime::max());
  order_.state = State::untried;
  if (!numbers.known() || !files || counted_.empty()) {
    order_.text = counted_.empty() ? "the driver does not list the GPUs of this node"
                                   : "which whole GPUs Slurm means is not known";
    return;
  }
  const bool same =
      files->size() == counted_.size() &&
      std::ranges::equal(*files, counted_, [](const GpuFile& one, const auto& two) { return one == two; });
  order_.state = same ? State::ok : State::differs;
  order_.text = same ? "Slurm numbers the GPUs as the driver and exporters do"
                     : "Slurm numbers the GPUs otherwise than the driver and exporters do: `lull watch --from` must "
                       "not be given --slurm-order";
}

// The question of the nodes is asked as the job's user.
void NodeCheck::check_users(const std::vector<Allocation>& jobs) {
  std::map<std::string, std::pair<uid_t, std::uint64_t>> users;
  users_.state = State::untried;
  users_.text = "no job has GPUs on this node";
  for (const Allocation& job : jobs) {
    if (job.user.empty()) {
      users_.state = State::missing;
      users_.text = fmt::format("Slurm did not name the user of job {}", job.job);
      users_.fix = "make the user known to slurmctld and to this node (SSSD, LDAP, /etc/passwd)";
      return;
    }
    if (job.uid && users.size() < kMostUsers) users.try_emplace(job.user, *job.uid, job.job);
  }
  if (users.empty()) return;
  users_.state = State::ok;
  users_.text = fmt::format("{} user{} known here", users.size(), users.size() == 1 ? "" : "s");
  for (const auto& [user, about] : users)
    run({"getent", "passwd", "--", user}, [this, user, about](const HelperResult& result) {
      if (users_.state == State::missing) return;
      const auto fields = split(trim(result.output), ':');
      const auto uid = fields.size() > 2 ? to_unsigned(fields[2]) : std::nullopt;
      if (result.ok() && uid == about.first) return;
      const bool unknown = !result.status;  // getent is not there, or was too slow
      users_.state = unknown ? State::unknown : State::missing;
      users_.text = unknown ? fmt::format("getent passwd {}: {}", printable(user), said(result))
                    : result.ok()
                        ? fmt::format("{} of job {} has another uid on this node", printable(user), about.second)
                        : fmt::format("{} of job {} is not known on this node", printable(user), about.second);
      users_.fix = fmt::format("make `getent passwd {}` answer within 5 s (SSSD, LDAP, /etc/passwd)", printable(user));
    });
}

void NodeCheck::check_srun(const std::vector<Allocation>& jobs) {
  std::size_t nodes = 0;
  const Allocation* job = widest(jobs, nodes);
  if (job == nullptr) {
    srun_.state = State::untried;
    srun_.text = "no job on this node to try it with";
    return;
  }
  if (!root_) {
    srun_.text = "only root can run srun as the user of a job";
    srun_.fix = "run it as root";
    return;
  }
  run(ask_command(job->job, job->user, nodes, {"true"}), [this, nodes, number = job->job](const HelperResult& result) {
    const bool silent = is_silence(result.output);
    srun_.state = result.ok() ? State::ok : silent || is_unknown_job(result.output) ? State::unknown : State::missing;
    srun_.text = fmt::format("srun --overlap in job {} on {} node{}", number, nodes, nodes == 1 ? "" : "s");
    if (result.ok()) return;
    srun_.text += ": " + said(result);
    srun_.fix =
        silent ? "start slurmctld"
               : "lull acts on no job of several nodes until it works: see munge, ports between nodes and MaxStepCount";
  });
}

void NodeCheck::finish_one() {
  if (--open_ > 0) return;
  std::vector<CheckItem> items = std::move(configuration_);
  for (CheckItem* item : {&folder_item_, &stale_, &gpus_, &order_, &users_, &srun_}) items.push_back(std::move(*item));
  done_(std::move(items));
}

int status_of(const std::vector<CheckItem>& items) {
  const auto any = [&](State state) { return std::ranges::find(items, state, &CheckItem::state) != items.end(); };
  return any(State::missing) ? 1 : any(State::unknown) ? kExitFailure : 0;
}

std::string check_text(const std::vector<CheckItem>& items) {
  std::string text;
  for (const CheckItem& item : items) {
    text += fmt::format("{:<8} {:<13} {}\n", to_text(item.state), item.name, item.text);
    if (!item.fix.empty()) text += fmt::format("{:<22} {}\n", "", item.fix);
  }
  return text;
}

std::string check_json(const std::string& node, const std::vector<CheckItem>& items) {
  JsonWriter json(2);
  json.begin_object().member("node", node).member("status", status_of(items)).key("checks").begin_array();
  for (const CheckItem& item : items)
    json.begin_object()
        .member("name", item.name)
        .member("state", to_text(item.state))
        .member("text", item.text)
        .member_or_null("fix", item.fix)
        .end_object();
  return json.end_array().end_object().take() + "\n";
}

}  // namespace lull::slurm
