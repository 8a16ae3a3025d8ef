#include "fill/plan_file.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>

#include "act/spawn.h"
#include "base/process.h"
#include "base/shell_words.h"
#include "base/text.h"
#include "base/toml.h"

namespace lull {
namespace {

using toml::Node;
using toml::Reader;

constexpr std::size_t kMostFillers = 256;

// What is wrong with the text of a value, said where it stands.
template <class T>
Result<T> at(const Reader& reader, const Node& node, std::string_view key, Result<T> value) {
  if (!value) return reader.refuse(node, fmt::format("{}: {}", key, value.error().message()));
  return value;
}

Result<std::vector<std::string>> texts(const Reader& reader, const Node& node, std::string_view key) {
  TRY(reader.expect(node, Node::Kind::list, key, "a list of texts"));
  std::vector<std::string> found;
  for (const Node& one : node.list) found.push_back(TRY(reader.text(one, key)));
  return found;
}

Result<std::vector<std::string>> command(const Reader& reader, const Node& node) {
  std::vector<std::string> words;
  if (node.kind == Node::Kind::list)
    words = TRY(texts(reader, node, "command"));
  else if (node.kind == Node::Kind::text)
    words = TRY(at(reader, node, "command", shell_words(node.text)));
  else
    return reader.refuse(node,
                         fmt::format("command is {}: a text or a list of texts would be right", node.kind_name()));
  if (words.empty() || words[0].empty()) return reader.refuse(node, "command is empty");
  return words;
}

Result<std::string> gpus(const Reader& reader, const Node& node) {
  if (node.kind == Node::Kind::text) return reader.text(node, "gpus");
  std::string list;
  const auto add = [&](const Node& one) -> Result<> {
    if (one.kind == Node::Kind::text) {
      list += (list.empty() ? "" : ",") + one.text;
      return {};
    }
    if (one.kind != Node::Kind::number || !one.whole || one.number < 0)
      return reader.refuse(one,
                           "gpus is a number such as 0, a list such as [0, 2], or a text such as \"0-3\" or \"all\"");
    list += fmt::format("{}{:.0f}", list.empty() ? "" : ",", one.number);
    return {};
  };
  if (node.kind != Node::Kind::list) {
    TRY(add(node));
    return list;
  }
  for (const Node& one : node.list) TRY(add(one));
  if (list.empty()) return reader.refuse(node, "gpus is an empty list: leave it out for all of them");
  return list;
}

Result<std::vector<std::pair<std::string, std::string>>> environment(const Reader& reader, const Node& node) {
  TRY(reader.expect(node, Node::Kind::table, "environment", "a table such as { OMP_NUM_THREADS = \"2\" }"));
  std::vector<std::pair<std::string, std::string>> found;
  for (const toml::Member& one : node.members) {
    if (one.name.empty() || one.name.find('=') != std::string::npos)
      return reader.refuse(one.value, fmt::format("'{}' is no name of a variable", printable(one.name)));
    if (one.value.kind == Node::Kind::number && one.value.whole)
      found.emplace_back(one.name, fmt::format("{:.0f}", one.value.number));
    else
      found.emplace_back(one.name, TRY(reader.text(one.value, one.name)));
  }
  return found;
}

Result<IoClass> io_class(const Reader& reader, const Node& node) {
  const std::string text = TRY(reader.text(node, "io_class"));
  if (text == "idle") return IoClass::idle;
  if (text == "best-effort") return IoClass::best_effort;
  return reader.refuse(node,
                       fmt::format("io_class is '{}': \"idle\" or \"best-effort\" would be right", printable(text)));
}

// The value of a key, where the table has it.
template <class T, class Read>
Result<> take(const Node& table, std::string_view key, T& into, Read read) {
  if (const Node* node = table.find(key)) into = static_cast<T>(TRY(read(*node, key)));
  return {};
}

constexpr std::array<std::string_view, 23> kFillerKeys = {
    "name",   "command",  "gpus",          "per_gpu",        "priority",    "once",        "directory", "environment",
    "log",    "log_size", "log_keep",      "user",           "nice",        "io_class",    "hours",     "max_temp",
    "memory", "yield",    "yield_command", "resume_command", "yield_limit", "stop_signal", "grace"};

Result<FillerSettings> read_filler(const Reader& reader, const Node& table) {
  TRY(reader.known(table, "[[filler]]", kFillerKeys));
  FillerSettings filler;
  const auto text = [&](const Node& node, std::string_view key) { return reader.text(node, key); };
  const auto truth = [&](const Node& node, std::string_view key) { return reader.truth(node, key); };
  const auto size = [&](const Node& node, std::string_view key) { return reader.size(node, key); };
  const auto memory = [&](const Node& node, std::string_view key) -> Result<std::uint64_t> {
    const std::uint64_t bytes = TRY(reader.size(node, key));
    constexpr std::uint64_t kLeast = 1U << 20;  // `memory = 20` surely does not mean 20 bytes
    if (bytes > 0 && bytes < kLeast)
      return reader.refuse(node, fmt::format("{} is {} bytes: a size such as \"20GiB\" would be right", key, bytes));
    return bytes;
  };
  const auto time = [&](const Node& node, std::string_view key) { return reader.duration(node, key); };
  const auto number = [&](double low, double high) {
    return [&reader, low, high](const Node& node, std::string_view key) { return reader.number(node, key, low, high); };
  };
  // A text that means something.
  const auto parsed = [&](auto parse) {
    return [&reader, parse](const Node& node, std::string_view key) -> decltype(parse(std::string())) {
      const std::string one = TRY(reader.text(node, key));
      return at(reader, node, key, parse(one));
    };
  };
  const auto of = [&](auto read) {
    return [&reader, read](const Node& node, std::string_view) { return read(reader, node); };
  };
  TRY(take(table, "name", filler.name, text));
  TRY(take(table, "command", filler.command, of(command)));
  TRY(take(table, "gpus", filler.gpus, of(gpus)));
  TRY(take(table, "per_gpu", filler.per_gpu, truth));
  TRY(take(table, "priority", filler.priority, number(-1000, 1000)));
  TRY(take(table, "once", filler.once, truth));
  TRY(take(table, "directory", filler.directory, text));
  TRY(take(table, "environment", filler.environment, of(environment)));
  TRY(take(table, "log", filler.log, text));
  TRY(take(table, "log_size", filler.log_size, size));
  TRY(take(table, "log_keep", filler.log_keep, number(0, 1000)));
  TRY(take(table, "user", filler.user, text));
  TRY(take(table, "nice", filler.nice, number(-20, 19)));
  TRY(take(table, "io_class", filler.io_class, of(io_class)));
  TRY(take(table, "hours", filler.hours, parsed([](const std::string& one) { return parse_hours(one); })));
  TRY(take(table, "max_temp", filler.max_temp, number(20, 120)));
  TRY(take(table, "memory", filler.memory, memory));
  TRY(take(table, "yield", filler.yield, parsed([](const std::string& one) { return parse_yield(one); })));
  TRY(take(table, "yield_command", filler.yield_command, text));
  TRY(take(table, "resume_command", filler.resume_command, text));
  TRY(take(table, "yield_limit", filler.yield_limit, time));
  TRY(take(table, "stop_signal", filler.stop_signal, parsed([](const std::string& one) { return parse_signal(one); })));
  TRY(take(table, "grace", filler.grace, time));
  if (filler.command.empty()) return reader.refuse(table, "a filler needs a command");
  return filler;
}

Result<PeopleSettings> read_people(const Reader& reader, const Node& table) {
  TRY(reader.known(table, "[people]", {"count", "idle", "idle_seconds", "leave_out", "leave_out_us"}));
  PeopleSettings people;
  const auto truth = [&](const Node& node, std::string_view key) { return reader.truth(node, key); };
  const auto time = [&](const Node& node, std::string_view key) { return reader.duration(node, key); };
  TRY(take(table, "count", people.count, truth));
  TRY(take(table, "idle", people.idle, time));
  TRY(take(table, "idle_seconds", people.idle, time));
  TRY(take(table, "leave_out", people.leave_out,
           [&](const Node& node, std::string_view key) { return texts(reader, node, key); }));
  TRY(take(table, "leave_out_us", people.leave_out_us, truth));
  return people;
}

Result<FillSettings> read_plan(const Reader& reader, const Node& root, std::string_view name) {
  TRY(reader.known(root, "", {"free", "every", "confirm", "ignore", "ignore_hidden", "people", "filler"}));
  FillSettings settings;
  settings.free = TRY(parse_rule(kDefaultFree));
  const auto rule = [&](const Node& node, std::string_view key) -> Result<Rule> {
    const std::string text = TRY(reader.text(node, key));
    return at(reader, node, key, parse_rule(text));
  };
  TRY(take(root, "free", settings.free, rule));
  const auto time = [&](const Node& node, std::string_view key) { return reader.duration(node, key); };
  TRY(take(root, "every", settings.every, time));
  if (const Node* node = root.find("every"); node != nullptr && settings.every < kQuickestSample)
    return reader.refuse(*node, "every: at least 100ms");
  TRY(take(root, "confirm", settings.confirm, time));
  TRY(take(root, "ignore", settings.ignore,
           [&](const Node& node, std::string_view key) { return texts(reader, node, key); }));
  TRY(take(root, "ignore_hidden", settings.ignore_hidden,
           [&](const Node& node, std::string_view key) { return reader.truth(node, key); }));
  if (const Node* node = root.find("people")) settings.people = TRY(read_people(reader, *node));
  const auto tables = TRY(reader.tables(root, "filler"));
  if (tables.empty()) return fail(fmt::format("{}: no filler: it needs a [[filler]] table", printable(name)));
  if (tables.size() > kMostFillers)
    return reader.refuse(tables[kMostFillers], fmt::format("more than {} fillers", kMostFillers));
  std::set<std::string> names;
  for (const Node& table : tables) {
    FillerSettings filler = TRY(read_filler(reader, table));
    if (table.find("name") == nullptr) filler.name = fmt::format("filler {}", settings.fillers.size() + 1);
    if (!names.insert(filler.name).second)
      return reader.refuse(table, fmt::format("there are two fillers called '{}'", printable(filler.name)));
    settings.fillers.push_back(std::move(filler));
  }
  return settings;
}

int minute_of(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || text.size() - colon != 3) return -1;
  const auto hour = to_unsigned(text.substr(0, colon));
  const auto minute = to_unsigned(text.substr(colon + 1));
  constexpr int kDay = 24 * 60;
  if (!hour || !minute || *hour > 24 || *minute > 59) return -1;
  const int all = static_cast<int>(*hour * 60 + *minute);
  return all <= kDay ? all : -1;
}

}  // namespace

Result<HoursOfDay> parse_hours(std::string_view text) {
  const auto dash = text.find('-');
  const std::string_view first = trim(text.substr(0, dash));
  const int from = minute_of(first);
  const int to = dash == std::string_view::npos ? -1 : minute_of(trim(text.substr(dash + 1)));
  if (from < 0 || to < 0 || from == to)
    return fail(fmt::format("'{}' is no time of day: \"22:00-06:00\" would be right", printable(text)));
  return HoursOfDay{from, to};
}

std::string to_text(const HoursOfDay& hours) {
  return fmt::format("{:02}:{:02}-{:02}:{:02}", hours.from / 60, hours.from % 60, hours.to / 60, hours.to % 60);
}

Result<YieldWay> parse_yield(std::string_view text) {
  for (const YieldWay way : {YieldWay::confirm, YieldWay::stop, YieldWay::pause})
    if (word_of(way) == text) return way;
  return fail(fmt::format("'{}' is none of confirm, stop and pause", printable(text)));
}

std::string_view word_of(YieldWay way) {
  switch (way) {
    case YieldWay::confirm: return "confirm";
    case YieldWay::stop: return "stop";
    case YieldWay::pause: return "pause";
  }
  return "";
}

Result<FillSettings> parse_plan(std::string_view text, std::string_view name) {
  const auto root = TRY(toml::parse(text, name));
  return read_plan(Reader(name), root, name);
}

Result<FillSettings> load_plan(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return std::unexpected(Error(text.error()).during("the settings cannot be read"));
  return parse_plan(*text, path);
}

std::vector<std::string> doubts(const FillSettings& settings) {
  std::vector<std::string> found;
  for (const std::string& remark : remarks(settings.free)) found.push_back("free: " + remark);
  for (const FillerSettings& filler : settings.fillers) {
    const auto doubt = [&](const std::string& what) { found.push_back(printable(filler.name) + ": " + what); };
    const bool is_path = filler.command[0].find('/') != std::string::npos && filler.command[0][0] != '/';
    const std::string program =
        is_path && !filler.directory.empty() ? filler.directory + "/" + filler.command[0] : filler.command[0];
    if (!is_executable(program)) doubt(printable(program) + " is no program that can be run");
    struct stat status{};
    if (!filler.directory.empty() && (::stat(filler.directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)))
      doubt(printable(filler.directory) + " is no folder");
    const std::string log_folder = filler.log.substr(0, std::min(filler.log.rfind('/'), filler.log.size()));
    if (log_folder.starts_with('/') && (::stat(log_folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)))
      doubt(printable(log_folder) + ", the folder of its log, is no folder");
    if (!filler.user.empty() && ::getpwnam(filler.user.c_str()) == nullptr)
      doubt("there is no user " + printable(filler.user));
    if (!filler.user.empty() && ::geteuid() != 0) doubt("only root may run it as another user");
    if (filler.nice < 0 && ::geteuid() != 0) doubt("only root may give it a nice value below 0");
    if (!filler.resume_command.empty() && filler.yield_command.empty())
      doubt("its resume_command is never run without a yield_command");
  }
  return found;
}

}  // namespace lull
