#include "slurm/allocation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/host.h"
#include "base/json_writer.h"
#include "base/process_start.h"
#include "base/text.h"
#include "base/toml.h"
#include "base/units.h"

namespace lull::slurm {
namespace {

constexpr std::string_view kFolder = "/run/lull/slurm";
constexpr std::size_t kMostBytes = 64 << 10;
constexpr std::size_t kMostGpus = 512;
constexpr std::size_t kMostFiles = 4096;
constexpr std::size_t kMostText = 4096;  // of a user's comment, say

using TextField = std::pair<std::string_view, std::string Allocation::*>;
constexpr std::array kTexts = {
    TextField{"node", &Allocation::node},       TextField{"user", &Allocation::user},
    TextField{"nodes", &Allocation::nodes},     TextField{"partition", &Allocation::partition},
    TextField{"account", &Allocation::account}, TextField{"qos", &Allocation::qos},
    TextField{"comment", &Allocation::comment}, TextField{"rule", &Allocation::rule},
    TextField{"sluid", &Allocation::sluid},
};

// A text of JSON is one of TOML.
std::string toml_text(std::string_view text) {
  std::string out;
  append_json_text(out, printable(text.substr(0, kMostText)));
  return out;
}

// Only root (and `trusted`) can have written it, or can write to it.
Result<> check_owner(int fd, mode_t kind, const std::string& what, uid_t trusted) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail(errno, what);
  if ((status.st_mode & S_IFMT) != kind) return fail(what + " is not a " + (kind == S_IFDIR ? "folder" : "plain file"));
  if (status.st_uid != 0 && status.st_uid != trusted) return fail(what + " is not root's");
  if ((status.st_mode & 022) != 0) return fail(what + " can be written to by others than root");
  return {};
}

struct TrustedFile {
  std::string name;
  std::string text;
  WallTime written{};
};

// O_NONBLOCK: a pipe in its place must not make us wait.
Result<TrustedFile> read_trusted_at(int folder, const std::string& name, const std::string& path, uid_t trusted) {
  const Fd file = TRY(open_at(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  TRY(check_owner(file.get(), S_IFREG, path, trusted));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail(errno, path);
  return TrustedFile{name, TRY(read_file(AT_FDCWD, fmt::format("/proc/self/fd/{}", file.get()), kMostBytes)),
                     WallTime(std::chrono::seconds(status.st_mtim.tv_sec))};
}

// Of all plain names in it.
Result<std::vector<TrustedFile>> read_trusted(const std::string& folder, uid_t trusted,
                                              std::vector<std::string>& refused,
                                              bool (*wanted)(std::string_view name)) {
  const Fd fd = TRY(open_file(folder, O_RDONLY | O_DIRECTORY));
  TRY(check_owner(fd.get(), S_IFDIR, folder, trusted));
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(fmt::format("/proc/self/fd/{}", fd.get()), error), end;
       !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (wanted(name)) names.push_back(std::move(name));
    if (names.size() > kMostFiles) return fail(folder + ": too many files");
  }
  if (error) return fail(error.value(), folder);
  std::ranges::sort(names);
  std::vector<TrustedFile> files;
  for (const std::string& name : names) {
    auto file = read_trusted_at(fd.get(), name, folder + "/" + name, trusted);
    if (file)
      files.push_back(*std::move(file));
    else if (file.error().errno_value != ENOENT)  // the job has just ended
      refused.push_back(printable(file.error().message()));
  }
  return files;
}

bool is_number(std::string_view name) { return to_unsigned(name).has_value() && !name.starts_with('0'); }
bool is_gpu_name(std::string_view name) { return to_unsigned(name).has_value(); }

// The first of these that is set.
std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (auto value = environment(name); value && !value->empty()) return *std::move(value);
  return {};
}

// Holds no descriptor of slurmd's: who hangs in the kernel must not keep it waiting for the end of our output.
void be_apart() {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (null) ::dup2(null.get(), standard);
  ::setpgid(0, 0);
}

}  // namespace

std::optional<std::uint64_t> parse_job_number(std::string_view text) {
  if (text.starts_with("slurm:")) text.remove_prefix(6);
  const auto number = to_unsigned(text);
  return number && *number > 0 && *number <= 0xFFFFFFFFULL ? number : std::nullopt;
}

Result<std::vector<unsigned>> parse_gpu_numbers(std::string_view text) {
  std::vector<unsigned> numbers;
  if (trim(text).empty()) return numbers;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view range = trim(part);
    const std::size_t dash = range.find('-');
    const auto low = to_unsigned(range.substr(0, dash));
    const auto high = dash == std::string_view::npos ? low : to_unsigned(range.substr(dash + 1));
    if (!low || !high || *high < *low || *high >= kMostGpus)
      return fail(fmt::format("'{}' is not a list of GPU numbers such as 0,1", printable(text.substr(0, 200))));
    for (std::uint64_t n = *low; n <= *high; ++n) numbers.push_back(static_cast<unsigned>(n));
  }
  std::ranges::sort(numbers);
  numbers.erase(std::ranges::unique(numbers).begin(), numbers.end());
  return numbers;
}

std::string Allocation::run() const {
  return fmt::format("{}/{}", restarts ? std::to_string(*restarts) : "?", start.time_since_epoch().count());
}

std::string to_text(const Allocation& one) {
  std::string text = fmt::format("# by lull slurm prolog\njob = {}\n", one.job);
  for (const auto& [name, field] : kTexts)
    if (!(one.*field).empty()) text += fmt::format("{} = {}\n", name, toml_text(one.*field));
  if (one.uid) text += fmt::format("uid = {}\n", *one.uid);
  text += fmt::format("gpus = [{}]\n", fmt::join(one.gpus, ", "));
  if (one.shares_gpus) text += "shares_gpus = true\n";
  if (one.restarts) text += fmt::format("restarts = {}\n", *one.restarts);
  if (one.het_job != 0) text += fmt::format("het_job = {}\n", one.het_job);
  return text + fmt::format("start = \"{}\"\n", format_rfc3339(one.start));
}

Result<Allocation> parse_allocation(std::string_view text, std::string_view name) {
  const toml::Node root = TRY(toml::parse(text, name));
  const toml::Reader reader(name);
  Allocation one;
  const auto whole = [&](std::string_view key, double most) -> Result<std::optional<std::uint64_t>> {
    const toml::Node* node = root.find(key);
    if (node == nullptr) return std::nullopt;
    const double number = TRY(reader.number(*node, key, 0, most));
    if (!node->whole) return reader.refuse(*node, fmt::format("{}: a whole number would be right", key));
    return static_cast<std::uint64_t>(number);
  };
  const auto job = TRY(whole("job", 4294967295.0));
  if (!job || *job == 0) return fail(fmt::format("{}: the job's number is missing", name));
  one.job = *job;
  if (const auto uid = TRY(whole("uid", 4294967294.0))) one.uid = static_cast<uid_t>(*uid);
  if (const auto restarts = TRY(whole("restarts", 1e9))) one.restarts = static_cast<unsigned>(*restarts);
  one.het_job = TRY(whole("het_job", 4294967295.0)).value_or(0);
  for (const auto& [key, field] : kTexts)
    if (const toml::Node* node = root.find(key)) one.*field = TRY(reader.text(*node, key));
  if (const toml::Node* node = root.find("gpus")) {
    TRY(reader.expect(*node, toml::Node::Kind::list, "gpus", "[0, 1]"));
    for (const toml::Node& gpu : node->list) {
      const double number = TRY(reader.number(gpu, "gpus", 0, static_cast<double>(kMostGpus - 1)));
      if (!gpu.whole) return reader.refuse(gpu, "gpus: a whole number would be right");
      one.gpus.push_back(static_cast<unsigned>(number));
    }
  }
  std::ranges::sort(one.gpus);
  one.gpus.erase(std::ranges::unique(one.gpus).begin(), one.gpus.end());
  one.shares_gpus = root.find("shares_gpus") != nullptr;
  if (const toml::Node* node = root.find("start")) {
    const auto start = parse_rfc3339(TRY(reader.text(*node, "start")));
    if (!start) return reader.refuse(*node, "start: a time such as 2026-03-15T11:04:29Z would be right");
    one.start = *start;
  }
  return one;
}

std::string node_name() {
  if (const char* name = std::getenv("SLURMD_NODENAME"); name != nullptr && *name != '\0') return name;
  const std::string host = host_name();
  return host.substr(0, host.find('.'));
}

std::string allocation_folder(std::string_view chosen) {
  const char* variable = std::getenv("LULL_SLURM_DIR");
  std::string folder(!chosen.empty() ? chosen : variable != nullptr && *variable != '\0' ? variable : kFolder);
  for (std::size_t at = folder.find("%n"); at != std::string::npos; at = folder.find("%n", at)) {
    const std::string node = node_name();
    folder.replace(at, 2, node);
    at += node.size();
  }
  return folder;
}

Result<std::string> read_trusted_file(const std::string& folder, const std::string& name, uid_t trusted) {
  const Fd fd = TRY(open_file(folder, O_RDONLY | O_DIRECTORY));
  TRY(check_owner(fd.get(), S_IFDIR, folder, trusted));
  return TRY(read_trusted_at(fd.get(), name, folder + "/" + name, trusted)).text;
}

Result<> write_allocation(const std::string& folder, const Allocation& allocation) {
  return write_trusted_file(folder, std::to_string(allocation.job), to_text(allocation));
}

Result<> write_trusted_file(const std::string& folder, const std::string& name, std::string_view text) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(folder, error);
  if (error) return fail(error.value(), folder);
  if (made) (void)::chmod(folder.c_str(), 0755);  // whatever slurmd's umask is
  const Fd dir = TRY(open_file(folder, O_RDONLY | O_DIRECTORY));
  const std::string draft = "." + name + ".new";
  (void)::unlinkat(dir.get(), draft.c_str(), 0);  // of one that was killed
  const auto write = [&]() -> Result<> {
    const Fd file = TRY(open_at(dir.get(), draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644));
    TRY(write_all(file.get(), text));
    if (::fchmod(file.get(), 0644) != 0) return fail(errno, draft);  // whatever our umask is
    if (::renameat(dir.get(), draft.c_str(), dir.get(), name.c_str()) != 0) return fail(errno, name);
    return {};
  };
  auto written = write();
  if (written) return {};
  (void)::unlinkat(dir.get(), draft.c_str(), 0);
  return std::unexpected(std::move(written).error().during(folder));
}

Result<> remove_allocation(const std::string& folder, std::uint64_t job) {
  const std::string path = fmt::format("{}/{}", folder, job);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail(errno, path);
  return {};
}

Result<Allocations> read_allocations(const std::string& folder, uid_t trusted) {
  Allocations found;
  for (const TrustedFile& file : TRY(read_trusted(folder, trusted, found.refused, is_number))) {
    const std::string path = folder + "/" + file.name;
    auto one = parse_allocation(file.text, path);
    if (one && std::to_string(one->job) != file.name) one = fail(fmt::format("{} is about job {}", path, one->job));
    if (one)
      found.all.push_back(*std::move(one));
    else
      found.refused.push_back(printable(one.error().message()));
  }
  std::ranges::sort(found.all, {}, &Allocation::job);
  return found;
}

// A folder with a file for each GPU. `read` gets its text, and notes the jobs in it: nothing means no job, and is
// refused.
template <class Read>
static Allocations read_by_gpu(const std::string& folder, const std::string& node, uid_t trusted,
                               std::string_view right, const Read& read) {
  Allocations found;
  std::map<std::uint64_t, Allocation> jobs;
  const auto files = read_trusted(folder, trusted, found.refused, is_gpu_name);
  if (!files) {
    if (files.error().errno_value != ENOENT) found.refused.push_back(printable(files.error().message()));
    return found;
  }
  for (const TrustedFile& file : *files) {
    const auto gpu = parse_gpu_numbers(file.name);
    read(file.text, [&](std::optional<std::uint64_t> job) -> Allocation* {
      if (!gpu || !job || *job == 0) {
        found.refused.push_back(fmt::format("{}/{}: {} would be right", folder, file.name, right));
        return nullptr;
      }
      Allocation& one = jobs.try_emplace(*job, Allocation{.job = *job, .node = node}).first->second;
      // It may have been written again since: the job is at least as old.
      if (one.start == WallTime{} || file.written < one.start) one.start = file.written;
      if (std::ranges::find(one.gpus, gpu->front()) == one.gpus.end()) one.gpus.push_back(gpu->front());
      return &one;
    });
  }
  for (auto& [job, one] : jobs) {
    std::ranges::sort(one.gpus);
    found.all.push_back(std::move(one));
  }
  return found;
}

Allocations read_gpustat(const std::string& folder, const std::string& node, uid_t trusted) {
  return read_by_gpu(folder, node, trusted, "a job's number and a uid", [](std::string_view text, const auto& note) {
    const auto words = split(trim(text), ' ');
    if (words[0].empty()) return;  // no job has it
    const std::uint64_t uid = words.size() == 2 ? to_unsigned(words[1]).value_or(UINT64_MAX) : UINT64_MAX;
    if (Allocation* one = note(uid < 4294967295U ? to_unsigned(words[0]) : std::nullopt))
      one->uid = static_cast<uid_t>(uid);
  });
}

Allocations read_dcgm_mapping(const std::string& folder, const std::string& node, uid_t trusted) {
  return read_by_gpu(folder, node, trusted, "a job's number in each line", [](std::string_view text, const auto& note) {
    for (const std::string_view line : split(text, '\n'))
      if (!trim(line).empty()) note(to_unsigned(trim(line)));
  });
}

// ---- prolog and epilog

Result<Allocation> allocation_from(const Environment& environment, const std::string& node, WallTime now) {
  Allocation one;
  const std::string job = first_of(environment, {"SLURM_JOB_ID", "SLURM_JOBID"});
  const auto number = parse_job_number(job);
  if (!number)
    return fail(job.empty() ? "SLURM_JOB_ID is not set: this is for Slurm's Prolog and Epilog"
                            : fmt::format("SLURM_JOB_ID={} is not a job id", printable(job)));
  one.job = *number;
  one.node = node;
  const std::string uid = first_of(environment, {"SLURM_JOB_UID", "SLURM_UID"});
  const auto user = to_unsigned(uid);
  if (!user || *user >= 0xFFFFFFFFULL)
    return fail(fmt::format("job {}: SLURM_JOB_UID={} is not a uid", one.job, printable(uid)));
  one.uid = static_cast<uid_t>(*user);
  one.user = first_of(environment, {"SLURM_JOB_USER"});
  auto gpus = parse_gpu_numbers(first_of(environment, {"SLURM_JOB_GPUS"}));
  if (!gpus) return std::unexpected(std::move(gpus).error().during(fmt::format("job {}: SLURM_JOB_GPUS", one.job)));
  one.gpus = *std::move(gpus);
  // Of shards and the like slurmd may say only what a program of the vendor's is to see.
  const std::string seen =
      first_of(environment, {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"});
  one.shares_gpus = one.gpus.empty() && !seen.empty() && seen != "NoDevFiles";
  one.nodes = first_of(environment, {"SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (const auto restarts = to_unsigned(first_of(environment, {"SLURM_JOB_RESTART_COUNT", "SLURM_RESTART_COUNT"})))
    one.restarts = static_cast<unsigned>(std::min<std::uint64_t>(*restarts, 1'000'000'000));
  const std::string het_job = first_of(environment, {"SLURM_HET_JOB_ID", "SLURM_PACK_JOB_ID"});
  const auto leader = het_job.empty() ? std::optional<std::uint64_t>(0) : to_unsigned(het_job);
  if (!leader || *leader > 0xFFFFFFFFULL)
    return fail(fmt::format("job {}: SLURM_HET_JOB_ID={} is not a job id", one.job, printable(het_job)));
  one.het_job = *leader;
  one.partition = first_of(environment, {"SLURM_JOB_PARTITION"});
  one.account = first_of(environment, {"SLURM_JOB_ACCOUNT"});
  one.qos = first_of(environment, {"SLURM_JOB_QOS"});
  one.comment = first_of(environment, {"SLURM_JOB_COMMENT"});
  one.rule = first_of(environment, {"SPANK_LULL_GPU_IDLE", "SLURM_SPANK_LULL_GPU_IDLE"});
  one.sluid = first_of(environment, {"SLURM_JOB_SLUID"});
  one.start = now;
  return one;
}

std::string complaint_within(Duration limit, const std::function<Result<>()>& body) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "cannot make a pipe";
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  const SystemClock clock;
  const Instant until = clock.now() + limit;
  const auto child = start_child([&] {
    be_apart();
    const auto done = body();
    if (!done) (void)write_all(write_end.get(), done.error().message());
  });
  if (!child) return "cannot start a process";
  write_end.reset();
  std::string complaint;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock.now()).count();
    pollfd ready{read_end.get(), POLLIN, 0};
    const int got = left <= 0 ? 0 : ::poll(&ready, 1, static_cast<int>(left));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      (void)child->signal(SIGKILL);
      (void)::waitpid(child->pid(), nullptr, WNOHANG);
      return fmt::format("not done within {}", format_duration(limit));
    }
    std::array<char, 4096> buffer{};
    const ssize_t size = ::read(read_end.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    complaint.append(buffer.data(), static_cast<std::size_t>(size));
    if (complaint.size() > 65536) break;
  }
  int status = 0;
  (void)wait_for_child(child->pid(), std::max(Duration::zero(), until - clock.now()), &status);
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return complaint;
}

}  // namespace lull::slurm
