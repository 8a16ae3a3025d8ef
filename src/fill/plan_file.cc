#include "fill/plan_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "act/guard.h"
#include "base/process.h"
#include "base/text.h"
#include "base/toml.h"
#include "base/units.h"
#include "rule/quantity.h"

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
  for (const Node& one : node.kind == Node::Kind::list ? node.list : std::vector<Node>{node}) TRY(add(one));
  if (list.empty()) return reader.refuse(node, "gpus names none: leave it out for those of the first GPU's vendor");
  return list;
}

Result<std::vector<std::pair<std::string, std::string>>> environment(const Reader& reader, const Node& node) {
  TRY(reader.expect(node, Node::Kind::table, "environment", "a table such as { OMP_NUM_THREADS = \"2\" }"));
  std::vector<std::pair<std::string, std::string>> found;
  for (const toml::Member& one : node.members) {
    if (one.name.empty() || one.name.find('=') != std::string::npos)
      return reader.refuse(one.value, fmt::format("'{}' is not a variable name", printable(one.name)));
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

// Opens the GPU of a filler that is parked or taken back: it is not another process.
constexpr const char* kParkTool = "cuda-checkpoint";

// `lull park` has limits of its own for each step.
constexpr Duration kLongestParking = std::chrono::minutes(30);

constexpr std::array<std::string_view, 24> kFillerKeys = {
    "name",   "command",  "gpus",          "per_gpu",        "priority",    "once",     "directory", "environment",
    "log",    "log_size", "log_keep",      "user",           "nice",        "io_class", "hours",     "max_temp",
    "memory", "yield",    "yield_command", "resume_command", "yield_limit", "signal",   "grace",     "park_else"};

Result<bool> parse_park_else(std::string_view text) {
  constexpr std::array<std::string_view, 2> kElse = {"end", "keep"};
  return TRY(one_of(text, kElse)) == 1;
}

// The commands of one that yields by `lull park`: this very program, whatever was installed since.
Result<> arrange_parking(FillerSettings& filler, const std::string& tool) {
  if (filler.yield != YieldWay::park) return {};
  if (!filler.yield_command.empty() || !filler.resume_command.empty())
    return fail("yielding by park has its own commands: leave out the yield command and the resume command");
  const std::string lull = fmt::format("exec /proc/{}/exe", ::getpid());
  const std::string with = tool.empty() ? "" : " --cuda-checkpoint " + shell_line({tool});
  filler.yield_command = fmt::format("{} park{} \"$LULL_FILLER_PID@$LULL_FILLER_START+\"", lull, with);
  filler.resume_command = fmt::format("{} unpark{} \"$LULL_FILLER_PID\"", lull, with);
  filler.yield_limit = std::max<Duration>(filler.yield_limit, kLongestParking);
  return {};
}

Result<FillerSettings> read_filler(const Reader& reader, const Node& table) {
  TRY(reader.known(table, "[[filler]]", kFillerKeys));
  FillerSettings filler;
  const auto text = [&](const Node& node, std::string_view key) { return reader.text(node, key); };
  const auto truth = [&](const Node& node, std::string_view key) { return reader.truth(node, key); };
  const auto size = [&](const Node& node, std::string_view key) { return reader.size(node, key); };
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
  TRY(take(table, "hours", filler.hours, parsed([](const std::string& one) { return Hours::parse(one); })));
  TRY(take(table, "max_temp", filler.max_temp, number(20, 120)));
  TRY(take(table, "memory", filler.memory, size));
  TRY(take(table, "yield", filler.yield, parsed([](const std::string& one) { return parse_yield(one); })));
  TRY(take(table, "yield_command", filler.yield_command, text));
  TRY(take(table, "resume_command", filler.resume_command, text));
  TRY(take(table, "yield_limit", filler.yield_limit, time));
  TRY(take(table, "signal", filler.signal, parsed([](const std::string& one) { return parse_signal(one); })));
  TRY(take(table, "grace", filler.grace, time));
  TRY(take(table, "park_else", filler.park_keeps, parsed([](const std::string& one) { return parse_park_else(one); })));
  if (filler.command.empty()) return reader.refuse(table, "a filler needs a command");
  if (const auto arranged = arrange_parking(filler, ""); !arranged)
    return reader.refuse(table, arranged.error().message());
  return filler;
}

Result<PeopleSettings> read_people(const Reader& reader, const Node& table) {
  TRY(reader.known(table, "[people]", {"count", "idle", "except_user", "except_self"}));
  PeopleSettings people;
  const auto truth = [&](const Node& node, std::string_view key) { return reader.truth(node, key); };
  const auto time = [&](const Node& node, std::string_view key) { return reader.duration(node, key); };
  TRY(take(table, "count", people.count, truth));
  TRY(take(table, "idle", people.idle, time));
  TRY(take(table, "except_user", people.except_user,
           [&](const Node& node, std::string_view key) { return texts(reader, node, key); }));
  TRY(take(table, "except_self", people.except_self, truth));
  return people;
}

Result<FillSettings> read_plan(const Reader& reader, const Node& root, std::string_view name) {
  TRY(reader.known(root, "", {"idle", "every", "confirm", "ignore", "ignore_hidden", "people", "filler"}));
  FillSettings settings;
  settings.idle = TRY(parse_rule(kDefaultIdle));
  const auto rule = [&](const Node& node, std::string_view key) -> Result<Rule> {
    const std::string text = TRY(reader.text(node, key));
    return at(reader, node, key, rule_or_span(text, kDefaultIdle));
  };
  TRY(take(root, "idle", settings.idle, rule));
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

}  // namespace

constexpr std::array<std::string_view, 4> kWays = {"confirm", "stop", "pause", "park"};

Result<YieldWay> parse_yield(std::string_view text) { return static_cast<YieldWay>(TRY(one_of(text, kWays))); }

std::string_view to_string(YieldWay way) { return kWays[static_cast<std::size_t>(way)]; }

Result<FillSettings> parse_plan(std::string_view text, std::string_view name) {
  const auto root = TRY(toml::parse(text, name));
  auto settings = TRY(read_plan(Reader(name), root, name));
  if (std::ranges::any_of(settings.fillers, [](const auto& one) { return one.yield == YieldWay::park; }))
    settings.ignore.emplace_back(kParkTool);
  return settings;
}

Result<FillSettings> load_plan(const std::string& path) {
  return parse_plan(TRY(during("the settings cannot be read", read_file(path))), path);
}

std::vector<std::string> doubts(const FillSettings& settings) {
  std::vector<std::string> found;
  for (const std::string& remark : remarks(settings.idle)) found.push_back("idle: " + remark);
  for (const FillerSettings& filler : settings.fillers)
    if (!filler.resume_command.empty() && filler.yield_command.empty())
      found.push_back(printable(filler.name) + ": its resume_command is never run without a yield_command");
  return found;
}

std::vector<std::string> obstacles(const FillSettings& settings) {
  std::vector<std::string> found;
  for (const FillerSettings& filler : settings.fillers) {
    const auto add = [&](const std::string& what) { found.push_back(printable(filler.name) + ": " + what); };
    for (const std::string& what : what_prevents_start(
             {.command = filler.command, .directory = filler.directory, .user = filler.user, .log = filler.log}))
      add(what);
    if (filler.nice < 0 && ::geteuid() != 0) add("only root may give it a nice value below 0");
  }
  return found;
}

Result<FillSettings> settle(const FillCommandOptions& options, std::vector<std::string> command) {
  FillSettings settings;
  settings.idle = TRY(during("--idle", rule_or_span(options.idle, kDefaultIdle)));
  settings.every = TRY(duration_option("--every", options.every));
  if (settings.every < kQuickestSample) return fail("--every: at least " + format_duration(kQuickestSample));
  settings.confirm = TRY(duration_option("--confirm", options.confirm));
  settings.people.idle = TRY(duration_option("--user-idle", options.user_idle));
  settings.people.except_user = comma_list(options.except_user);
  settings.ignore = options.ignore;
  settings.ignore_hidden = options.ignore_hidden;
  FillerSettings filler;
  const std::string& program = command[0];
  filler.name = program.substr(program.rfind('/') + 1);
  filler.command = std::move(command);
  filler.gpus = options.gpus;
  filler.per_gpu = options.per_gpu;
  filler.once = options.once;
  filler.log = options.log;
  filler.yield = TRY(during("--yield", parse_yield(options.yield)));
  filler.yield_command = options.yield_command;
  filler.resume_command = options.resume_command;
  filler.yield_limit = TRY(limit_option("--yield-limit", options.yield_limit));
  filler.park_keeps = TRY(during("--park-else", parse_park_else(options.park_else)));
  TRY(during("--yield park", arrange_parking(filler, options.cuda_checkpoint)));
  filler.signal = TRY(signal_option("--signal", options.signal));
  filler.grace = TRY(duration_option("--grace", options.grace));
  const auto nice = to_double(options.nice);
  if (!nice || *nice < -20 || *nice > 19)
    return fail(fmt::format("--nice: -20 to 19, not '{}'", printable(options.nice)));
  filler.nice = static_cast<int>(*nice);
  if (!options.hours.empty()) filler.hours = TRY(during("--hours", Hours::parse(options.hours)));
  if (filler.yield == YieldWay::park) settings.ignore.emplace_back(kParkTool);
  settings.fillers.push_back(std::move(filler));
  return settings;
}

}  // namespace lull
