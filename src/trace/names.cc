#include "trace/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/units.h"
#include "trace/cells.h"
#include "trace/known_names.h"
#include "trace/number.h"

namespace lull::trace {
namespace {

// "GpuUtil [%]" -> gpu, util: words in small letters; numbers stand alone.
std::vector<std::string> name_words(std::string_view name) {
  // Units whose letters are not all of one size are one word.
  for (const std::string_view unit : {"KiB", "MiB", "GiB", "TiB", "MHz", "GHz", "mW", "kW"})
    if (name.size() > unit.size() && name.ends_with(unit)) {
      std::vector<std::string> words = name_words(name.substr(0, name.size() - unit.size()));
      words.emplace_back(unit);
      for (char& c : words.back()) c = static_cast<char>(c | 0x20);
      return words;
    }
  enum class Kind : std::uint8_t { none, lower, upper, digit };
  std::vector<std::string> words;
  Kind before = Kind::none;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const Kind kind = is_digit(c)            ? Kind::digit
                      : c >= 'a' && c <= 'z' ? Kind::lower
                      : c >= 'A' && c <= 'Z' ? Kind::upper
                                             : Kind::none;
    if (kind == Kind::none) {
      before = kind;
      continue;
    }
    const bool camel = before == Kind::lower && kind == Kind::upper;
    const bool new_word = before == Kind::none || camel || ((before == Kind::digit) != (kind == Kind::digit));
    if (new_word) words.emplace_back();
    words.back() += kind == Kind::upper ? static_cast<char>(c | 0x20) : c;
    before = kind;
  }
  return words;
}

std::string joined(const std::vector<std::string>& words, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += '_';
    text += words[i];
  }
  return text;
}

const KnownName* usual(std::string_view name) {
  for (const KnownName& row : kUsualNames)
    if (row.name == name) return &row;
  return nullptr;
}

std::string_view unit_of_suffix(std::string_view word) {
  for (const auto& [suffix, unit] : kSuffixes)
    if (suffix == word) return unit;
  return "";
}

Meaning meaning_from(const KnownName& row) {
  return {row.role, row.metric, row.rank, row.scale == 0 ? 1 : row.scale, row.scale == 0};
}

// The names of exporters mean one unit each; other names may be of any.
bool has_own_unit(std::string_view name) {
  return std::ranges::any_of(std::array<std::string_view, 3>{"dcgm_", "nvidia_", "lull_"},
                             [&](std::string_view exporter) { return name.starts_with(exporter); });
}

std::optional<Meaning> meaning_of_words(const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  if (const KnownName* row = usual(joined(words, words.size()))) {
    Meaning meaning = meaning_from(*row);
    meaning.bare = !has_own_unit(row->name);
    return meaning;
  }
  const std::string_view unit = unit_of_suffix(words.back());
  if (unit.empty() || words.size() < 2) return std::nullopt;
  const std::string core = joined(words, words.size() - 1);
  if (core == "gpu" && (unit == "%" || unit == "ratio"))  // gpu_percent
    return Meaning{Role::metric, Metric::util, 12, *unit_factor(Unit::percent, unit), false};
  const KnownName* const row = usual(core);
  if (row == nullptr) return std::nullopt;
  Meaning meaning = meaning_from(*row);
  if (row->role == Role::time) return meaning;  // unit_in_name() tells its unit
  if (row->role != Role::metric) return std::nullopt;
  const auto factor = unit_factor(info(row->metric).unit, unit);
  if (!factor) return std::nullopt;  // mem_used_pct is not a size
  meaning.scale = *factor;
  meaning.size_unclear = false;
  return meaning;
}

struct Label {
  std::string_view name;
  int rank;
};
// Of several labels that could name the GPU or the machine the best one counts.
constexpr std::array kGpuLabels = {Label{"gpu", 0},    Label{"index", 1},        Label{"gpu_index", 1},
                                   Label{"gpu_id", 1}, Label{"minor_number", 2}, Label{"minor", 2},
                                   Label{"device", 3}};
constexpr std::array kHostLabels = {Label{"Hostname", 0}, Label{"hostname", 1},        Label{"host", 1},
                                    Label{"node", 2},     Label{"kubernetes_node", 2}, Label{"nodename", 2},
                                    Label{"instance", 3}};
// `job` is none of them: Prometheus calls what it scrapes so.
constexpr std::array kJobLabels = {Label{"hpc_job", 0}, Label{"slurm_job_id", 1}, Label{"slurm_jobid", 1},
                                   Label{"jobid", 2}, Label{"job_id", 2}};
constexpr std::array kPodLabels = {Label{"exported_pod", 0}, Label{"pod", 1}, Label{"pod_name", 2}};
constexpr std::array kNamespaceLabels = {Label{"exported_namespace", 0}, Label{"namespace", 1},
                                         Label{"pod_namespace", 2}};
constexpr std::array kContainerLabels = {Label{"exported_container", 0}, Label{"container", 1},
                                         Label{"container_name", 2}};
constexpr std::array kUserLabels = {Label{"user", 0}, Label{"exported_user", 1}, Label{"username", 2}};

template <std::size_t N>
int rank_in(const std::array<Label, N>& labels, std::string_view name) {
  for (const Label& label : labels)
    if (label.name == name) return label.rank;
  return 100;
}

// {a="b",c="d"}: what stands between the braces.
Labels labels_in(std::string_view text) {
  Labels labels;
  while (labels.size() < 200) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) break;
    std::string_view name = trim(text.substr(0, equals));
    while (name.starts_with(',')) name = trim(name.substr(1));
    text = trim(text.substr(equals + 1));
    std::string value;
    if (text.starts_with('"')) {
      std::size_t i = 1;
      for (; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\' && i + 1 < text.size()) ++i;
        value += text[i];
      }
      text.remove_prefix(std::min(i + 1, text.size()));
    } else {
      const std::size_t comma = std::min(text.find(','), text.size());
      value = trim(text.substr(0, comma));
      text.remove_prefix(comma);
    }
    labels.emplace_back(name, value);
  }
  return labels;
}

// system.gpu.0.powerWatts and system/gpu.0.gpu, with or without "run - " before and __MIN behind.
std::optional<SeriesName> weights_and_biases(std::string_view name) {
  SeriesName series;
  if (const std::size_t dash = name.rfind(" - "); dash != std::string_view::npos) {
    series.gpu.host = trim(name.substr(0, dash));
    name.remove_prefix(dash + 3);
  }
  name = trim(name);
  if (name.starts_with("system.") || name.starts_with("system/")) name.remove_prefix(7);
  if (!name.starts_with("gpu.")) return std::nullopt;
  const std::vector<std::string_view> parts = split(name.substr(4), '.');
  if (parts.size() != 2 || !to_unsigned(parts[0])) return std::nullopt;
  series.gpu.gpu = parts[0];
  series.measured = name;
  constexpr std::array<std::pair<std::string_view, Meaning>, 8> kFields = {{
      {"gpu", {Role::metric, Metric::util, 10, 1, false}},
      {"memory", {Role::metric, Metric::mem_util, 10, 1, false}},
      {"memoryAllocatedBytes", {Role::metric, Metric::mem_used, 10, 1, false}},
      {"temp", {Role::metric, Metric::temp, 10, 1, false}},
      {"powerWatts", {Role::metric, Metric::power, 10, 1, false}},
      {"enforcedPowerLimitWatts", {Role::metric, Metric::power_limit, 10, 1, false}},
      {"smClock", {Role::metric, Metric::clock, 10, 1, false}},
      {"fanSpeed", {Role::metric, Metric::fan, 10, 1, false}},
  }};
  for (const auto& [field, meaning] : kFields)
    if (field == parts[1]) series.meaning = meaning;
  return series;
}

// gpu0_util, "GPU 1 power (W)", util_gpu_2: the number behind the word gpu names it, the rest is the signal.
SeriesName series_of_words(std::string_view name) {
  const Heading heading = heading_of(name);
  std::vector<std::string> words = name_words(heading.name);
  SeriesName series;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if ((words[i] != "gpu" && words[i] != "device" && words[i] != "nvidia") || !is_digit(words[i + 1].front()))
      continue;
    series.gpu.gpu = words[i + 1];
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i), words.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    break;
  }
  series.measured = joined(words, words.size());
  series.meaning = meaning_of_words(words);
  if (series.meaning && series.meaning->role != Role::metric) series.meaning.reset();
  if (series.meaning && !heading.unit.empty())
    if (const auto factor = unit_factor(info(series.meaning->metric).unit, heading.unit)) {
      series.meaning->scale = *factor;
      series.meaning->size_unclear = false;
      series.meaning->bare = false;
    }
  return series;
}

}  // namespace

Heading heading_of(std::string_view cell) {
  cell = trim(cell);
  for (const std::string_view pair : {"[]", "()"}) {
    const std::size_t open = cell.rfind(pair[0]);
    if (open == std::string_view::npos || open == 0 || !cell.ends_with(pair[1])) continue;
    const std::string_view unit = trim(cell.substr(open + 1, cell.size() - open - 2));
    if (pair == "()" && unit.size() > 4) continue;  // Relative Time (Process)
    return {std::string(trim(cell.substr(0, open))), std::string(unit)};
  }
  return {std::string(cell), ""};
}

std::string_view unit_in_name(std::string_view name) {
  const std::vector<std::string> words = name_words(name);
  return words.size() < 2 ? std::string_view{} : unit_of_suffix(words.back());
}

std::optional<Meaning> meaning_of(std::string_view name) {
  for (const KnownName& row : kExactNames)
    if (row.name == name) return meaning_from(row);
  if (const auto metric = metric_by_field(name)) return Meaning{Role::metric, *metric, 0, 1, false};
  // What nvidia-smi calls `sm` is utilisation.
  if (const auto metric = metric_by_name(name); metric && metric != Metric::sm)
    return Meaning{Role::metric, *metric, 1, 1, false, true};
  return meaning_of_words(name_words(name));
}

SeriesName series_of(std::string_view name) {
  name = trim(name);
  if (const std::size_t brace = name.find('{'); brace != std::string_view::npos && name.ends_with('}')) {
    auto labels = labels_in(name.substr(brace + 1, name.size() - brace - 2));
    if (const std::string_view metric = trim(name.substr(0, brace)); !metric.empty())
      labels.emplace_back("__name__", metric);
    return series_of(labels);
  }
  if (auto series = weights_and_biases(name)) return *series;
  return series_of_words(name);
}

namespace {

// The value of the best of these labels; empty: none is there.
template <std::size_t N>
std::string best_label(const std::array<Label, N>& names, const Labels& labels) {
  std::string best;
  int rank = 100;
  for (const auto& [name, value] : labels)
    if (const int of = rank_in(names, name); of < rank && !value.empty()) {
      rank = of;
      best = value;
    }
  return best;
}

WhoName owner_in(const Labels& labels) {
  WhoName who{best_label(kJobLabels, labels), "", best_label(kUserLabels, labels), ""};
  // Where the exporter's own pod is told, that of the job has another label.
  if (const std::string pod = best_label(kPodLabels, labels); !pod.empty() && pod.find("exporter") == pod.npos) {
    if (who.job.empty()) who.job = fmt::format("{}/{}", best_label(kNamespaceLabels, labels), pod);
    who.command = best_label(kContainerLabels, labels);
  }
  return who;
}

}  // namespace

SeriesName series_of(const Labels& labels) {
  SeriesName series;
  series.labels = labels;
  series.who = owner_in(labels);
  series.gpu.gpu = best_label(kGpuLabels, labels);
  series.gpu.host = best_label(kHostLabels, labels);
  std::string slice;  // of a card that is cut up (MIG): the series of its parts look alike else
  for (const auto& [name, value] : labels) {
    if (value.empty()) continue;
    if (name == "__name__") series.measured = value;
    if (name == "UUID" || name == "uuid" || name == "gpu_uuid") series.gpu.uuid = value;
    if (name == "GPU_I_ID") slice = value;
  }
  if (!slice.empty()) {
    series.gpu.gpu = fmt::format("{}:{}", series.gpu.gpu, slice);
    if (!series.gpu.uuid.empty()) series.gpu.uuid += ":" + slice;
  }
  if (!series.measured.empty()) series.meaning = meaning_of(series.measured);
  if (series.meaning && series.meaning->role != Role::metric) series.meaning.reset();
  return series;
}

float sample_of(const Meaning& meaning, double number) {
  // Fewer than four million bytes is less than an empty card shows; as many MiB is more than there is.
  constexpr double kMostMebibytes = 4e6;
  if (meaning.size_unclear) return static_cast<float>(number < kMostMebibytes ? number * kMiB : number);
  return static_cast<float>(number * meaning.scale);
}

}  // namespace lull::trace
