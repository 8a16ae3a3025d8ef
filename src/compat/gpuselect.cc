#include "compat/gpuselect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"

namespace lull {

namespace {

constexpr int kUnreadable = 2;
constexpr int kSenseless = 1;

struct Row {
  std::string_view name;
  char letter;
  bool value;
};
constexpr std::array kRows = {Row{"devices", 'd', true},  Row{"name", 'n', true},   Row{"util", 'u', true},
                              Row{"mem_util", 'm', true}, Row{"count", 'c', true},  Row{"processes", 'p', true},
                              Row{"quiet", 'q', false},   Row{"debug", 'D', false}, Row{"help", 'h', false}};

std::unexpected<Error> unreadable(std::string what) { return std::unexpected(Error{std::move(what), kUnreadable}); }
std::unexpected<Error> senseless(std::string what) { return std::unexpected(Error{std::move(what), kSenseless}); }

// Python's int(): a negative number is one too, and is complained about later.
Result<long> whole(const Row& row, std::string_view text) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return unreadable(fmt::format("argument -{}/--{}: invalid int value: '{}'", row.letter, row.name, printable(text)));
  return value;
}

Result<std::vector<long>> device_list(std::string_view text) {
  std::vector<long> devices;
  for (const std::string_view part : split(text, ',')) {
    long number = 0;
    const std::string_view digits = trim(part);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size())
      return unreadable("argument -d/--devices: Parameter must be a single int or 'int1,int2,...'");
    if (std::find(devices.begin(), devices.end(), number) == devices.end()) devices.push_back(number);
  }
  return devices;
}

// As Python shows a string in a list.
std::string quoted(const std::string& word) {
  const char quote = word.find('\'') != std::string::npos && word.find('"') == std::string::npos ? '"' : '\'';
  std::string text(1, quote);
  for (const char c : word) {
    switch (c) {
      case '\\': text += "\\\\"; break;
      case '\n': text += "\\n"; break;
      case '\r': text += "\\r"; break;
      case '\t': text += "\\t"; break;
      default:
        if (c == quote) text += '\\';
        text += c;
    }
  }
  return printable(text + quote);
}

class Parser {
 public:
  explicit Parser(std::span<const std::string> words) : words_(words) {}

  Result<GpuselectOptions> parse() {
    while (next_ < words_.size()) {
      const std::string_view word = words_[next_];
      if (word == "--" || word.size() < 2 || word[0] != '-') break;
      ++next_;
      TRY(word.starts_with("--") ? long_option(word.substr(2)) : short_options(word.substr(1)));
    }
    if (next_ < words_.size() && words_[next_] == "--") ++next_;
    options_.command.assign(words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end());
    if (!options_.help) TRY(check());
    return std::move(options_);
  }

 private:
  Result<> long_option(std::string_view text) {
    const std::string_view name = text.substr(0, text.find('='));
    std::vector<const Row*> meant;
    for (const Row& row : kRows) {
      if (row.name == name) {
        meant.assign(1, &row);
        break;
      }
      if (row.name.starts_with(name)) meant.push_back(&row);
    }
    if (meant.empty()) return unreadable(fmt::format("unrecognized arguments: --{}", printable(text)));
    if (meant.size() > 1) return unreadable(fmt::format("ambiguous option: --{}", printable(name)));
    const bool joined = name.size() < text.size();
    if (!meant[0]->value && joined)
      return unreadable(fmt::format("argument -{}/--{}: ignored explicit argument", meant[0]->letter, meant[0]->name));
    return apply(*meant[0], joined ? std::optional(text.substr(name.size() + 1)) : std::nullopt);
  }

  Result<> short_options(std::string_view letters) {
    while (!letters.empty()) {
      const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.letter == letters[0]; });
      if (row == kRows.end()) return unreadable(fmt::format("unrecognized arguments: -{}", printable(letters)));
      letters.remove_prefix(1);
      if (row->value) {
        if (letters.starts_with('=')) letters.remove_prefix(1);
        return apply(*row, letters.empty() ? std::nullopt : std::optional(letters));
      }
      TRY(apply(*row, std::nullopt));
    }
    return {};
  }

  Result<> apply(const Row& row, std::optional<std::string_view> joined) {
    if (!row.value) {
      (row.letter == 'q' ? options_.quiet : row.letter == 'D' ? options_.debug : options_.help) = true;
      return {};
    }
    if (!joined) {
      if (next_ >= words_.size() || words_[next_] == "--")
        return unreadable(fmt::format("argument -{}/--{}: expected one argument", row.letter, row.name));
      joined = words_[next_++];
    }
    switch (row.letter) {
      case 'd': options_.devices = TRY(device_list(*joined)); return {};
      case 'n': options_.name = std::string(*joined); return {};
      case 'u': util_ = TRY(whole(row, *joined)); return {};
      case 'm': mem_util_ = TRY(whole(row, *joined)); return {};
      case 'c': count_ = TRY(whole(row, *joined)); return {};
      default: processes_ = TRY(whole(row, *joined)); return {};
    }
  }

  Result<> check() {
    constexpr long kMost = 1000000;
    if (count_ < 1) return senseless("GPU count must be >= 1");
    if (!options_.devices.empty() && options_.name) return senseless("Use only one of 'devices' and 'name' parameters");
    if (util_ < 0 || mem_util_.value_or(0) < 0 || processes_ < 0)
      return senseless("Utilization/process count thresholds must be >= 0");
    options_.count = static_cast<unsigned>(std::min(count_, kMost));
    options_.util = static_cast<unsigned>(std::min(util_, kMost));
    if (mem_util_) options_.mem_util = static_cast<unsigned>(std::min(*mem_util_, kMost));
    options_.processes = static_cast<unsigned>(std::min(processes_, kMost));
    for (const long device : options_.devices)
      if (device < 0) return senseless(fmt::format("Invalid device ID {}", device));
    // Whoever names more GPUs than the count wants them all.
    options_.count = std::max(options_.count, static_cast<unsigned>(options_.devices.size()));
    return {};
  }

  std::span<const std::string> words_;
  std::size_t next_ = 0;
  GpuselectOptions options_;
  long count_ = 1;
  long util_ = 0;
  std::optional<long> mem_util_;
  long processes_ = 0;
};

}  // namespace

Result<GpuselectOptions> parse_gpuselect(std::span<const std::string> words) { return Parser(words).parse(); }

std::string gpuselect_running(std::span<const std::string> command) {
  std::string text = "Running: [";
  for (std::size_t i = 0; i < command.size(); ++i) text += (i == 0 ? "" : ", ") + quoted(command[i]);
  return text + "]";
}

std::string_view gpuselect_help() {
  return "usage: gpuselect [-h] [-d DEVICES] [-n NAME] [-u UTIL] [-m MEM_UTIL] [-c COUNT] [-p PROCESSES] [-q] [-D]\n"
         "                 [--] [CMD ...]\n\n"
         "Chooses idle GPUs, prints them as CUDA_VISIBLE_DEVICES wants them, or runs CMD on them.\n"
         "This is lull under the name of gpuselect; `lull pick --help` can do more.\n\n"
         "  -h, --help            show this\n"
         "  -d, --devices 0,1     only these devices, and all of them\n"
         "  -n, --name NAME       only devices with this in their names\n"
         "  -u, --util N          utilisation at most, in % (0)\n"
         "  -m, --mem_util N      memory utilisation at most, in % (0); where given, also of memory in use\n"
         "  -c, --count N         how many (1)\n"
         "  -p, --processes N     processes at most (0); from 1 on the GPU is shared with so many others\n"
         "  -q, --quiet           do not print the value of CUDA_VISIBLE_DEVICES\n"
         "  -D, --debug           say on stderr how it was chosen\n\n"
         "example: gpuselect --count 2 --name 3090 -- python train.py\n";
}

}  // namespace lull
