#include "slurm/gres.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <map>
#include <utility>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/toml.h"
#include "slurm/allocation.h"
#include "slurm/node_list.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAgainForGpus = 60s;  // where it did not work
constexpr unsigned kNvidiaMajor = 195;
constexpr unsigned kDrmMajor = 226;
constexpr unsigned kFirstRender = 128;
constexpr const char* kOrderFile = "gpus";
// Where Slurm is configured to look; the last is a copy that slurmd gets from slurmctld.
constexpr std::array<const char*, 5> kFolders = {"/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc", "/opt/slurm/etc",
                                                 "/run/slurm/conf"};

WallTime to_wall(const timespec& time) {
  return WallTime(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

// In the environment of a process.
std::string variable_of(pid_t pid, std::string_view name) {
  const auto text = read_file(AT_FDCWD, fmt::format("/proc/{}/environ", pid), 1 << 20);
  if (!text) return {};
  for (const std::string_view one : split(*text, '\0'))
    if (one.starts_with(name) && one.substr(name.size()).starts_with('='))
      return std::string(one.substr(name.size() + 1));
  return {};
}

// "Gres Name=gpu Type=a Count=2 Index=1 ID=7696487 File=/dev/nvidia[0-1] Links=(null)"
std::map<std::string_view, std::string_view> fields_of(std::string_view line) {
  std::map<std::string_view, std::string_view> fields;
  for (const std::string_view word : split(line, ' ')) {
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos) fields.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return fields;
}

// The last order that was known, since when slurmd has had it, and the slurmd that had it when lull looked.
struct KnownOrder {
  GpuOrder gpus;
  WallTime since{};
  std::optional<SlurmdStart> slurmd = {};
};

std::string to_text(const GpuOrder& order, WallTime since, const std::optional<SlurmdStart>& slurmd) {
  std::string text = fmt::format("# by lull watch --slurm\nsince = \"{}\"\n", format_rfc3339(since, 9));
  text += !slurmd ? "slurmd = \"none\"\n"
                  : fmt::format("slurmd = \"{} {}\"\n", format_rfc3339(slurmd->at, 9), slurmd->ticks);
  text += "gpus = [";
  for (std::size_t i = 0; i < order.size(); ++i)
    text +=
        fmt::format("{}\"{}\"", i == 0 ? "" : ", ",
                    !order[i] ? "none" : fmt::format("{} {}", order[i]->render ? "render" : "nvidia", order[i]->minor));
  return text + "]\n";
}

// "2026-11-18T07:10:12.000000000Z 8123"
std::optional<SlurmdStart> parse_slurmd(std::string_view text) {
  const std::size_t blank = std::min(text.find(' '), text.size());
  const auto at = parse_rfc3339(text.substr(0, blank));
  const auto ticks = to_unsigned(text.substr(std::min(blank + 1, text.size())));
  return at && ticks ? std::optional(SlurmdStart{*at, *ticks}) : std::nullopt;
}

Result<KnownOrder> parse_order(std::string_view text) {
  const toml::Node root = TRY(toml::parse(text, kOrderFile));
  const toml::Reader reader(kOrderFile);
  const toml::Node* since = root.find("since");
  const toml::Node* slurmd = root.find("slurmd");
  const toml::Node* gpus = root.find("gpus");
  if (since == nullptr || slurmd == nullptr || gpus == nullptr) return fail("not as it was written");
  const auto time = parse_rfc3339(TRY(reader.text(*since, "since")));
  const std::string daemon = TRY(reader.text(*slurmd, "slurmd"));
  KnownOrder known{.gpus = {}, .since = time.value_or(WallTime{}), .slurmd = parse_slurmd(daemon)};
  if (!time || (!known.slurmd && daemon != "none")) return fail("not as it was written");
  for (const toml::Node& node : gpus->list) {
    const std::string word = TRY(reader.text(node, "gpus"));
    const std::size_t blank = std::min(word.find(' '), word.size());
    const auto number = blank == word.size() ? std::nullopt : to_unsigned(std::string_view(word).substr(blank + 1));
    if (!number && word != "none") return fail("not as it was written");
    known.gpus.push_back(number ? std::optional(GpuFile{static_cast<unsigned>(*number), word.starts_with("render")})
                                : std::nullopt);
  }
  return known;
}

}  // namespace

// -N: where the node has another name than the machine, as slurmd sees it, whatever LULL_HOST says.
Command gres_command(const std::string& node) {
  utsname names{};
  const std::string_view host = ::uname(&names) == 0 ? static_cast<const char*>(names.nodename) : "";
  if (node == host.substr(0, host.find('.'))) return {"slurmd", "-G"};
  return {"slurmd", "-G", "-N", node};
}

std::optional<GpuFile> gpu_file(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISCHR(status.st_mode)) return std::nullopt;
  const unsigned number = minor(status.st_rdev);
  if (major(status.st_rdev) == kNvidiaMajor && number < 254) return GpuFile{number, false};
  if (major(status.st_rdev) == kDrmMajor && number >= kFirstRender) return GpuFile{number, true};
  return std::nullopt;
}

Result<GpuOrder> read_gres(std::string_view output,
                           const std::function<std::optional<GpuFile>(const std::string&)>& file_of) {
  GpuOrder order;
  for (const std::string_view line : split(output, '\n')) {
    const std::size_t at = line.find("Gres Name=");
    if (at == std::string_view::npos) continue;
    auto fields = fields_of(line.substr(at + 5));
    if (fields["Name"] != "gpu") continue;
    const auto count = to_unsigned(fields["Count"]);
    if (fields["File"].empty() || fields["File"] == "(null)")
      return fail("gres.conf names no File of the GPUs: the GPUs of a job are unknown");
    const auto files = parse_node_list(fields["File"]);
    if (!files || !count) return fail(fmt::format("`slurmd -G` says '{}'", printable(line.substr(0, 200))));
    if (files->size() > 1 && *count == 1) {  // MultipleFiles: one number for all of them
      order.emplace_back();
      continue;
    }
    if (files->size() != *count)
      return fail(fmt::format("`slurmd -G` has {} GPUs for {} files", *count, files->size()));
    for (const std::string& file : *files) order.push_back(file_of(file));
  }
  for (std::size_t i = 0; i < order.size(); ++i)
    if (order[i] && std::ranges::count(order, order[i]) > 1)
      return fail(fmt::format("`slurmd -G` has one GPU twice: its number {}", i));
  return order;
}

// Of its contents, or of what file has its name: `cp -p` and `mv` keep the first of the two times.
std::optional<WallTime> changed_at(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return std::max(to_wall(status.st_mtim), to_wall(status.st_ctim));
}

GresFacts gres_facts() {
  GresFacts facts;
  const char* own = std::getenv("SLURM_CONF");
  const std::string configuration = own == nullptr ? "" : own;
  std::vector<std::pair<std::string, SlurmdStart>> daemons;
  for (const ProcessEntry& one : read_all_processes()) {
    struct stat status{};
    if (one.name != "slurmd" || one.ended() || ::stat(fmt::format("/proc/{}", one.pid).c_str(), &status) != 0 ||
        status.st_uid != 0)
      continue;
    daemons.emplace_back(variable_of(one.pid, "SLURM_CONF"), SlurmdStart{started_at(one.start_ticks), one.start_ticks});
  }
  for (const auto& [file, began] : daemons) {
    if (!configuration.empty() && !file.empty() && file != configuration) continue;  // of another cluster
    if (!facts.slurmd || began.ticks < facts.slurmd->ticks) facts.slurmd = began;
  }
  if (!configuration.empty()) {
    facts.changed = changed_at(folder_of(configuration) + "/gres.conf");
    return facts;
  }
  for (const char* folder : kFolders)
    if (!facts.changed) facts.changed = changed_at(std::string(folder) + "/gres.conf");
  return facts;
}

GpuNumbers::GpuNumbers(std::string folder, Facts facts) : folder_(std::move(folder)), facts_(std::move(facts)) {
  const auto text = read_trusted_file(folder_, kOrderFile);
  auto order = text ? parse_order(*text) : fail("");
  if (!order) return;
  last_ = std::move(order->gpus);
  since_ = order->since;
  last_slurmd_ = order->slurmd;
}

bool GpuNumbers::wants_look(Instant now) {
  if (!facts_ || looking_) return false;
  const bool again = !order_ ? !seen_ || now >= again_ : !facts_().same_as(*seen_);
  looking_ = again;
  return again;
}

void GpuNumbers::looked(const HelperResult& result, Instant now,
                        const std::function<std::optional<GpuFile>(const std::string&)>& file_of) {
  looking_ = false;
  again_ = now + kLookAgainForGpus;
  if (const auto taken = take(result, file_of); !taken) {
    order_.reset();
    why_ = taken.error().message();
  }
}

Result<> GpuNumbers::take(const HelperResult& result,
                          const std::function<std::optional<GpuFile>(const std::string&)>& file_of) {
  seen_ = facts_();
  if (!result.ok()) return fail(fmt::format("slurmd -G: {}: Slurm's GPU order is unknown", result.trouble));
  GpuOrder order = TRY(read_gres(result.output, file_of));
  if (!seen_->changed) return fail("gres.conf cannot be found: set SLURM_CONF for lull as for slurmd");
  const bool same = last_ == order;
  if (!same && seen_->slurmd && seen_->slurmd->at < *seen_->changed)
    return fail("gres.conf was changed after slurmd started: Slurm's GPU order is unknown; restart slurmd");
  // AutoDetect: a GPU that is lost shifts the numbers of `slurmd -G`, not those of the slurmd that runs.
  if (!same && last_ && !is_later(seen_->slurmd))
    return fail("`slurmd -G` shows other GPUs than the slurmd that runs has: restart slurmd");
  if (!same) since_ = seen_->slurmd ? seen_->slurmd->at : *seen_->changed;
  last_ = order;
  if (seen_->slurmd) last_slurmd_ = seen_->slurmd;
  order_ = std::move(order);
  (void)write_trusted_file(folder_, kOrderFile, to_text(*order_, since_, last_slurmd_));
  return {};
}

bool GpuNumbers::is_later(const std::optional<SlurmdStart>& slurmd) const {
  if (!slurmd) return false;
  return !last_slurmd_ || (slurmd->ticks != last_slurmd_->ticks && slurmd->at > last_slurmd_->at);
}

Result<std::vector<GpuFile>> GpuNumbers::files_of(const std::vector<unsigned>& numbers, WallTime begin) const {
  if (numbers.empty()) return std::vector<GpuFile>();
  if (!order_) return fail(why_);
  if (begin < since_) return fail("slurmd has had these GPUs in this order only since after the job began");
  std::vector<GpuFile> files;
  for (const unsigned number : numbers) {
    if (number >= order_->size() || !(*order_)[number])
      return fail(fmt::format("Slurm's GPU {} is not a whole GPU, or its device file cannot be read", number));
    files.push_back(*(*order_)[number]);
  }
  return files;
}

}  // namespace lull::slurm
