#include "config/signal_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/units.h"
#include "config/signal_reader.h"
#include "gpu/own_signal.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr std::array<std::string_view, 3> kAs = {"value", "rate", "age"};
constexpr Duration kLongestTimeout = 30s;

// One line: "lull.toml:3:9: signal requests: …".
class SignalReader : public toml::Reader {
 public:
  SignalReader(std::string_view file, std::string_view signal) : Reader(file), signal_(signal) {}

  std::unexpected<Error> wrong(const toml::Node& node, std::string_view what) const {
    return refuse(node, fmt::format("signal {}: {}", printable(signal_), what));
  }
  Result<std::string> word(const toml::Node& node, std::string_view key) const {
    if (node.kind != toml::Node::Kind::text) return wrong(node, fmt::format("{} is a text in quotes", key));
    if (node.text.empty()) return wrong(node, fmt::format("{} is empty", key));
    return node.text;
  }
  Result<Duration> time(const toml::Node& node, std::string_view key) const {
    const auto time = node.kind == toml::Node::Kind::text ? parse_duration(node.text) : fail("");
    if (!time || *time <= Duration::zero())
      return wrong(node, fmt::format("{} is a time above 0, such as \"3s\"", key));
    return *time;
  }

 private:
  std::string_view signal_;
};

bool is_metric_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' || (c >= '0' && c <= '9');
  };
  return !name.empty() && !(name.front() >= '0' && name.front() <= '9') && std::ranges::all_of(name, fits);
}

Result<SignalSource> read_table(std::string_view name, const toml::Node& table, std::string_view file) {
  const SignalReader read(file, name);
  SignalSource source;
  source.name = name;
  constexpr std::array<std::string_view, 9> kKeys = {"file", "command", "url",     "metric", "labels",
                                                     "as",   "socket",  "timeout", "max_age"};
  for (const toml::Member& member : table.members)
    if (std::ranges::find(kKeys, member.name) == kKeys.end())
      return read.wrong(member.value,
                        fmt::format("there is no '{}'{}", printable(member.name), did_you_mean(member.name, kKeys)));
  const toml::Node* of_file = table.find("file");
  const toml::Node* of_command = table.find("command");
  const toml::Node* of_url = table.find("url");
  if ((of_file != nullptr) + (of_command != nullptr) + (of_url != nullptr) != 1)
    return read.wrong(table, "one of file, command and url says where it comes from");
  for (const std::string_view key : {"metric", "labels", "socket"})
    if (const toml::Node* given = table.find(key); given != nullptr && of_url == nullptr)
      return read.wrong(*given, fmt::format("{} goes with url", key));
  if (of_file != nullptr) {
    source.file = TRY(read.word(*of_file, "file"));
    if (!source.file.starts_with('/'))
      return read.wrong(*of_file, "file must be a whole path, such as /run/server/queue");
  } else if (of_command != nullptr) {
    source.kind = SignalSource::Kind::command;
    source.command = TRY(read.word(*of_command, "command"));
    if (const toml::Node* given = table.find("max_age"))
      return read.wrong(*given, "max_age goes with file and url: what a command prints is of now");
  } else {
    source.kind = SignalSource::Kind::url;
    auto address = parse_http_address(TRY(read.word(*of_url, "url")));
    if (!address) return read.wrong(*of_url, address.error().message());
    source.address = *std::move(address);
    const toml::Node* metric = table.find("metric");
    if (metric == nullptr)
      return read.wrong(table, "metric says which one of the endpoint, such as \"vllm:num_requests_running\"");
    source.series = TRY(read.word(*metric, "metric"));
    if (!is_metric_name(source.series))
      return read.wrong(*metric, fmt::format("'{}' is not a metric name; labels = {{ … }} selects by labels",
                                             printable(source.series)));
    if (const toml::Node* labels = table.find("labels")) {
      if (labels->kind != toml::Node::Kind::table)
        return read.wrong(*labels, "labels is a table, such as { model_name = \"a\" }");
      for (const toml::Member& label : labels->members) {
        if (label.value.kind != toml::Node::Kind::text) return read.wrong(label.value, "a label is a text in quotes");
        source.labels.emplace_back(label.name, label.value.text);
      }
    }
    if (const toml::Node* socket = table.find("socket")) {
      source.address.socket = TRY(read.word(*socket, "socket"));
      if (!source.address.socket.starts_with('/') || source.address.socket.size() > kLongestSocketPath)
        return read.wrong(*socket, "socket is the whole path of a unix socket, such as /run/server.sock");
    }
  }
  if (const toml::Node* as = table.find("as")) {
    const auto found = std::ranges::find(kAs, TRY(read.word(*as, "as")));
    if (found == kAs.end()) return read.wrong(*as, "as is \"value\", \"rate\" or \"age\"");
    source.as = static_cast<SignalSource::As>(found - kAs.begin());
  }
  if (const toml::Node* timeout = table.find("timeout")) {
    source.timeout = TRY(read.time(*timeout, "timeout"));
    if (source.timeout > kLongestTimeout)
      return read.wrong(*timeout, "timeout is at most " + format_duration(kLongestTimeout));
  }
  if (const toml::Node* age = table.find("max_age")) source.max_age = TRY(read.time(*age, "max_age"));
  const auto metric = name_signal(name);
  if (!metric) return read.refuse(table, metric.error().message());
  source.metric = *metric;
  return source;
}

}  // namespace

std::string SignalSource::to_string() const {
  std::string text;
  switch (kind) {
    case Kind::file: text = "file " + file; break;
    case Kind::command: text = "command " + command; break;
    case Kind::url:
      text = address.to_string() + " " + series;
      for (std::size_t i = 0; i < labels.size(); ++i)
        text += fmt::format("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first, labels[i].second);
      if (!labels.empty()) text += "}";
      break;
  }
  if (as != As::value) text += fmt::format(" as {}", kAs[static_cast<std::size_t>(as)]);
  return printable(text);
}

Result<SignalSource> read_signal(std::string_view name, const toml::Node& value, std::string_view file) {
  if (value.kind != toml::Node::Kind::table)
    return SignalReader(file, name)
        .wrong(value,
               "a table says where it comes from, such as { url = \"http://127.0.0.1:8000/metrics\", metric = \"…\" }");
  SignalSource source = TRY(read_table(name, value, file));
  source.from = fmt::format("{}:{}:{}", printable(file), value.line, value.column);
  return source;
}

Result<SignalSource> parse_signal_from(std::string_view text, std::string_view option) {
  const std::size_t equals = text.find('=');
  const auto wrong = [&](std::string_view what) {
    return fail(fmt::format("{} '{}': {}", option, printable(text), what));
  };
  if (equals == std::string_view::npos || equals == 0)
    return wrong("NAME=SOURCE would be right, such as queue=file:/run/server/queue");
  const std::string_view name = trim(text.substr(0, equals));
  const std::string_view said = trim(text.substr(equals + 1));
  toml::Node table;
  if (said.starts_with('{')) {
    const auto read = toml::parse("source = " + std::string(said), option);
    const toml::Node* found = read ? read->find("source") : nullptr;
    if (found == nullptr || found->kind != toml::Node::Kind::table || read->members.size() != 1)
      return wrong("expected a TOML table such as { url = \"http://127.0.0.1:8000/metrics\", metric = \"…\" }");
    table = *found;
  } else {
    table.kind = toml::Node::Kind::table;
    for (const std::string_view kind : {"file", "command"})
      if (said.starts_with(kind) && said.substr(kind.size()).starts_with(':')) {
        toml::Member member;
        member.name = kind;
        member.value.kind = toml::Node::Kind::text;
        member.value.text = said.substr(kind.size() + 1);
        table.members.push_back(member);
      }
    if (table.members.empty())
      return wrong("SOURCE is file:PATH, command:CMD or { url = \"http://…\", metric = \"…\" }");
  }
  auto source = read_table(name, table, option);
  if (!source) return source;
  source->from = option;
  source->given = text;
  return source;
}

Result<std::vector<SignalSource>> signals_with(std::vector<SignalSource> known, const std::vector<std::string>& more,
                                               std::string_view option) {
  std::vector<SignalSource> given;
  for (const std::string& text : more) {
    SignalSource source = TRY(parse_signal_from(text, option));
    if (std::ranges::find(given, source.name, &SignalSource::name) != given.end())
      return fail(fmt::format("{} names {} twice", option, source.name));
    given.push_back(std::move(source));
  }
  for (SignalSource& source : given) {
    const auto same = std::ranges::find(known, source.name, &SignalSource::name);
    if (same != known.end())
      *same = std::move(source);
    else
      known.push_back(std::move(source));
  }
  return known;
}

}  // namespace lull
