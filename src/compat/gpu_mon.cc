#include "compat/gpu_mon.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <utility>

#include "base/shell_words.h"
#include "base/text.h"
#include "compat/argparse.h"
#include "compat/config_parser.h"

namespace lull {
namespace {

constexpr std::string_view kDefaultFile = "~/.config/gpu_mon.conf";
constexpr int kUnreadable = 2;
constexpr std::int64_t kLongest = 365 * 24 * 3600;  // a year
constexpr unsigned kMostGpus = 4096;

const std::array kOptions = {
    ArgparseOption{"help", {"-h", "--help"}, Takes::help},
    ArgparseOption{"conf", {"-c", "--conf"}, Takes::one, Value::text},
};

// One value of the file with the place where it stands.
class Section {
 public:
  Section(const ConfigParser& parser, std::string name) : parser_(parser), name_(std::move(name)) {}

  bool has(std::string_view key) const { return parser_.has(name_, key); }
  const std::string& name() const { return name_; }
  Result<std::string> text(std::string_view key) const { return parser_.get(name_, key); }

  std::unexpected<Error> wrong(std::string_view key, std::string_view value, std::string_view wanted) const {
    return fail(fmt::format("line {}: {}={}: {}", parser_.line_of(name_, key), key, printable(value), wanted));
  }

  Result<std::int64_t> integer(std::string_view key, std::int64_t least) const {
    const std::string value = TRY(text(key));
    std::string_view digits = trim(value);
    const bool negative = digits.starts_with('-');
    if (negative || digits.starts_with('+')) digits.remove_prefix(1);
    const auto number = to_unsigned(digits);
    if (!number || *number > static_cast<std::uint64_t>(kLongest) ||
        (negative ? -static_cast<std::int64_t>(*number) : static_cast<std::int64_t>(*number)) < least)
      return wrong(key, value, fmt::format("must be a whole number of seconds from {} to {}", least, kLongest));
    return negative ? -static_cast<std::int64_t>(*number) : static_cast<std::int64_t>(*number);
  }

  Result<bool> boolean(std::string_view key) const {
    const std::string value = TRY(text(key));
    const std::string word = lowered(value);
    for (const std::string_view yes : {"1", "yes", "true", "on"})
      if (word == yes) return true;
    for (const std::string_view no : {"0", "no", "false", "off"})
      if (word == no) return false;
    return wrong(key, value, "must be yes or no (also true, false, on, off, 1, 0)");
  }

  Result<MonGpus> gpus() const {
    const std::string value = TRY(text("gpus"));
    if (lowered(value) == "all") return MonGpus();
    std::set<unsigned> numbers;
    for (const std::string_view part : split(value, ',')) {
      const auto number = to_unsigned(trim(part));
      if (!number || *number >= kMostGpus)
        return wrong("gpus", value, "must be ALL or numbers of GPUs with commas between them");
      numbers.insert(static_cast<unsigned>(*number));
    }
    return MonGpus(std::move(numbers));
  }

 private:
  const ConfigParser& parser_;
  std::string name_;
};

// Names with commas between them. Blanks around them are no part of a name, and an empty one names nobody.
std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names;
  for (const std::string_view part : split(text, ','))
    if (const std::string_view name = trim(part); !name.empty()) names.emplace_back(name);
  return names;
}

Result<MonProcess> process_in(const Section& section) {
  MonProcess process;
  process.section = section.name();
  process.gpus = TRY(section.gpus());
  process.directory = TRY(section.text("dir"));
  process.command = TRY(section.text("cmd"));
  auto words = shell_words(process.command);
  if (!words) return section.wrong("cmd", process.command, words.error().what);
  if (words->empty()) return section.wrong("cmd", process.command, "names no program");
  process.words = *std::move(words);
  if (section.has("log")) process.log = TRY(section.text("log"));
  return process;
}

}  // namespace

Result<MonOptions> parse_mon(std::span<const std::string> words) {
  auto parsed = argparse(kOptions, words, false);
  if (!parsed) {
    parsed.error().errno_value = kUnreadable;
    return std::unexpected(std::move(parsed.error()));
  }
  return MonOptions{std::string(parsed->text("conf", kDefaultFile)), parsed->has("help")};
}

std::string_view mon_usage() { return "usage: gpu_mon.py [-h] [-c CONF]\n"; }

std::string_view mon_help() {
  return R"(
options:
  -h, --help            show this help message and exit
  -c CONF, --conf CONF  Configuration file to use, default=~/.config/gpu_mon.conf
)";
}

std::string expand_user(std::string_view path) {
  if (!path.starts_with('~')) return std::string(path);
  const std::size_t end = std::min(path.find('/'), path.size());
  const std::string name(path.substr(1, end - 1));
  const char* home = name.empty() ? std::getenv("HOME") : nullptr;
  if (home == nullptr) {
    const passwd* entry = name.empty() ? ::getpwuid(::getuid()) : ::getpwnam(name.c_str());
    if (entry == nullptr) return std::string(path);
    home = entry->pw_dir;
  }
  return std::string(home) + std::string(path.substr(end));
}

Result<MonSettings> parse_mon_config(std::string_view text) {
  const ConfigParser parser = TRY(ConfigParser::parse(text));
  MonSettings settings;
  const Section defaults(parser, "defaults");
  settings.interval_seconds = TRY(defaults.integer("interval_seconds", 0));
  for (const std::string& name : parser.sections()) {
    const Section section(parser, name);
    if (name.starts_with("gpu"))
      settings.ignored.push_back({TRY(section.gpus()), names_in(TRY(section.text("ignore_programs")))});
    if (name.starts_with("process")) settings.processes.push_back(TRY(process_in(section)));
  }
  const Section tty(parser, "tty");
  settings.tty_enabled = TRY(tty.boolean("enabled"));
  if (tty.has("whitelist")) settings.tty_whitelist = names_in(TRY(tty.text("whitelist")));
  if (tty.has("idle_seconds"))
    settings.tty_idle_seconds = TRY(tty.integer("idle_seconds", std::numeric_limits<std::int64_t>::min()));
  return settings;
}

std::string mon_line(std::string_view time, std::string_view level, std::string_view logger, std::string_view text) {
  return fmt::format("{:<15} {} {:<14} {}\n", time, level, logger, text);
}

std::string mon_name(const MonGpus& gpus) {
  if (!gpus) return "all GPUs";
  return fmt::format("{} {}", gpus->size() == 1 ? "GPU" : "GPUs", fmt::join(*gpus, ","));
}

std::string mon_gpu(std::string_view file, unsigned id) {
  return fmt::format("GPUInfo(file_name='{}', id={})", file, id);
}

std::string mon_process(std::string_view file, unsigned id, std::int64_t pid, std::string_view name) {
  return fmt::format("ProcInfo(file_name='{}', gpu_id={}, pid={}, name='{}')", file, id, pid, printable(name));
}

}  // namespace lull
