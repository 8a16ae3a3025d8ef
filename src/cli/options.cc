#include "cli/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <set>
#include <string_view>

#include "base/fd.h"
#include "base/text.h"
#include "cli/command.h"
#include "view/screen.h"

namespace lull {
namespace {

// The first argument that looks like an option and is none, with the nearest that is.
std::string unknown_option(const CLI::App& app, const std::vector<std::string>& rest) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  for (const std::string& argument : rest) {
    if (!argument.starts_with("-")) continue;
    const std::string word = argument.substr(0, argument.find('='));
    return fmt::format("there is no option {}{}", printable(word), did_you_mean(word, candidates));
  }
  return rest.empty() ? std::string() : fmt::format("'{}' is one argument too many", printable(rest.front()));
}

// CLI11 says "--every: 1 required TIME missing", or of --json=1 "json was given a disallowed flag override": the option
// is all that we take of that.
std::string wrong_value(const CLI::App& app, std::string_view said) {
  const std::string name(said.substr(0, said.find_first_of(": ")));
  if (!name.starts_with('-')) return fmt::format("{}{} takes no value", name.size() == 1 ? "-" : "--", name);
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option == nullptr || option->get_items_expected_max() == 0) return "";
  if (option->count() > 1) return fmt::format("{} is given {} times: once would be right", name, option->count());
  return fmt::format("{0} needs a value: {0} {1}", name, option->get_type_name());
}

// "--gpus LIST", and what cannot be given with it.
HelpRow row_of(const CLI::Option& option) {
  HelpRow row{option.get_name(option.get_positional(), true), option.get_description()};
  if (option.get_name() == "--help") row.text = "show this help";
  if (option.get_items_expected_max() > 0 && !option.get_positional()) row.name += " " + option.get_type_name();
  if (option.get_required() && !option.get_positional()) row.text += " (required)";
  std::set<std::string> others;
  for (const CLI::Option* other : option.get_excludes()) others.insert(other->get_name());
  if (!others.empty()) row.text += fmt::format(" (not with {})", fmt::join(others, ", "));
  return row;
}

Help help_of(const CLI::App& app, const std::string& usage) {
  Help help{.about = app.get_description(), .usage = usage, .arguments = {}, .options = {}, .more = {}};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty())
      (option->get_positional() ? help.arguments : help.options).push_back(row_of(*option));
  help.more = app.get_footer();
  if (!usage.empty()) return help;
  help.usage = app.get_name() + " [options]";
  for (const HelpRow& argument : help.arguments) help.usage += " " + argument.name + "…";
  return help;
}

std::string with_default(const std::string& help, std::string_view value) {
  return value.empty() ? help : fmt::format("{} (default {})", help, value);
}

std::string help_of(const SharedOption& shared, const std::string& more) {
  std::string help = shared.help;
  if (const std::size_t at = help.find("{}"); at != std::string::npos) help.replace(at, 2, more);
  return help;
}

}  // namespace

CommandLine::Option& CommandLine::Option::value(const std::string& name) {
  option_->type_name(name);
  return *this;
}

CommandLine::Option& CommandLine::Option::optional_value() {
  option_->expected(0, 1);
  return *this;
}

CommandLine::Option& CommandLine::Option::required() {
  option_->required();
  return *this;
}

CommandLine::Option& CommandLine::Option::excludes(const std::string& other) {
  option_->excludes(other);
  return *this;
}

CommandLine::Option& CommandLine::Option::not_empty(const std::string& example) {
  const std::string right =
      fmt::format("it is empty; {0} {1} would be right, or no {0} at all", option_->get_name(), example);
  option_->check([right](const std::string& text) { return text.empty() ? right : std::string(); });
  return *this;
}

CommandLine::Option& CommandLine::Option::hidden() {
  option_->group("");
  return *this;
}

bool CommandLine::Option::given() const { return option_->count() > 0; }

CommandLine::CommandLine(const std::string& about, const std::string& command)
    : app_(std::make_unique<CLI::App>(about, command)) {}
CommandLine::~CommandLine() = default;

CommandLine::Option CommandLine::flag(const std::string& names, bool& into, const std::string& help) {
  return Option(app_->add_flag(names, into, help)->disable_flag_override());
}

CommandLine::Option CommandLine::option(const std::string& names, std::string& into, const std::string& help,
                                        const std::string& default_text) {
  return Option(app_->add_option(names, into, with_default(help, default_text.empty() ? into : default_text)));
}

// CLI11 would take "0x10", " 5" and "+5", and say of "nan" only that it could not be converted.
CommandLine::Option CommandLine::option(const std::string& names, unsigned& into, const std::string& help,
                                        unsigned most) {
  const std::string name = names.substr(names.rfind(',') + 1);
  const auto read = [&into, name, most](const std::string& text) {
    const auto number = to_unsigned(text);
    if (!number || *number > most)
      throw CLI::ValidationError(fmt::format("{} '{}': a whole number from 0 to {} would be right", name, text, most));
    into = static_cast<unsigned>(*number);
  };
  return Option(app_->add_option_function<std::string>(names, read, with_default(help, fmt::format("{}", into))));
}

CommandLine::Option CommandLine::arguments(const std::string& name, std::vector<std::string>& into,
                                           const std::string& help) {
  return Option(app_->add_option(name, into, help));
}

CommandLine::Option CommandLine::each(const std::string& names, std::vector<std::string>& into,
                                      const std::string& help) {
  CLI::Option* option = app_->add_option(names, into, help);
  return Option(option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

CommandLine::Option CommandLine::flag(const SharedOption& shared, bool& into, const std::string& more) {
  return flag(shared.names, into, help_of(shared, more));
}

CommandLine::Option CommandLine::option(const SharedOption& shared, std::string& into, const std::string& more,
                                        const std::string& default_text) {
  Option made = option(shared.names, into, help_of(shared, more), default_text).value(shared.value);
  return *shared.example == '\0' ? made : made.not_empty(shared.example);
}

CommandLine::Option CommandLine::option(const SharedOption& shared, unsigned& into, const std::string& more) {
  return option(shared.names, into, help_of(shared, more)).value(shared.value);
}

CommandLine::Option CommandLine::each(const SharedOption& shared, std::vector<std::string>& into,
                                      const std::string& more) {
  return each(shared.names, into, help_of(shared, more)).value(shared.value);
}

void CommandLine::usage(const std::string& tail) {
  usage_ = tail.empty() ? app_->get_name() : app_->get_name() + " " + tail;
}

void CommandLine::footer(const std::string& text) { app_->footer(text); }

int CommandLine::command_begins(int argc, char** argv) const {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--" || word.size() < 2 || word.front() != '-') return i;
    if (word.find('=') != std::string_view::npos) continue;
    const CLI::Option* option = app_->get_option_no_throw(std::string(word));
    const bool takes_value =
        option != nullptr && option->get_items_expected_max() > 0 && option->get_expected_min() > 0;
    if (takes_value && i + 1 < argc && std::string_view(argv[i + 1]) != "--") ++i;
  }
  return argc;
}

std::vector<CommandLine::Described>* CommandLine::describing = nullptr;

std::vector<CommandLine::Described> CommandLine::describe(int (*command)(int argc, char** argv), int argc,
                                                          char** argv) {
  std::vector<Described> found;
  describing = &found;
  command(argc, argv);
  describing = nullptr;
  return found;
}

std::optional<int> CommandLine::parse(int argc, char** argv) {
  CLI::App& app = *app_;
  if (describing != nullptr) {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group().empty() || option->get_positional()) continue;
      Described one{{}, option->get_items_expected_max() > 0 ? option->get_type_name() : "", row_of(*option).text};
      for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
      describing->push_back(std::move(one));
    }
    return 0;
  }
  const auto refuse = [&](const std::string& what) {
    (void)write_all(STDERR_FILENO, fmt::format("{}: {} ({} --help explains)\n", app.get_name(), what, app.get_name()));
    return kExitUsage;
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", help_text(help_of(app, usage_), help_width(STDOUT_FILENO)));
    return 0;
  } catch (const CLI::ExtrasError& error) {
    const std::string what = unknown_option(app, app.remaining());
    return refuse(what.empty() ? printable(error.what()) : what);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = wrong_value(app, error.what());
    return refuse(what.empty() ? printable(error.what()) : what);
  } catch (const CLI::ParseError& error) {
    return refuse(printable(error.what()));
  }
  return std::nullopt;
}

}  // namespace lull
