#pragma once
// A Schema says what each column of a trace is: the time, what tells the GPUs
// apart, a signal and its unit, or nothing of ours. It comes from the header
// (our own names, nvidia-smi's, or plain signal names) and from --columns, which
// goes first. The same roles serve NDJSON, where a column is a key.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/metric.h"
#include "trace/time.h"

namespace lull::trace {

enum class Role : std::uint8_t { none, time, gpu, uuid, pci, host, metric, job, pids, user, command, lease };
// Says who has the GPU, not which one it is.
constexpr bool tells_who(Role role) { return role >= Role::job; }
// What a row says about which GPU it is of, and who has it; the order is that of Schema::identity.
inline constexpr std::size_t kMaxIdentity = 9;

struct Column {
  std::string name;
  Role role = Role::none;
  std::size_t slot = 0;   // metric: which column of the batch; identity: which part
  Metric metric{};        // of Role::metric
  double scale = 1;       // a bare number times this is in the unit of the metric
  std::string unit;       // what follows the number in the cells of this file: "MiB"
  double unit_scale = 1;  // and what that is worth
  bool wanted = false;    // somebody asked for it
};

enum class Format : std::uint8_t { csv, ndjson };

struct Schema {
  Format format = Format::csv;
  char separator = ',';
  bool header = true;  // the first line is no data
  bool ours = false;   // written by `lull record`: a last line without an end was cut off
  std::vector<Column> columns;
  std::vector<Role> identity;   // the parts that tell GPUs apart, in column order
  std::vector<Metric> metrics;  // the slots of a batch
  TimeKind time = TimeKind::seconds;
  bool zoned = true;       // times name a moment, not a reading of some wall clock
  bool from_epoch = true;  // times count from 1970, not from the start of the trace
  std::size_t last_wanted = 0;
};

// "time=ts,gpu=host+idx,util=GPU Util,power=p:mW": ROLE=COLUMN[:UNIT], where COLUMN
// is a name in the header or a number from 1, and gpu may join several with '+'.
struct ColumnChoice {
  std::string role;
  std::string column;
  std::string unit;
};
Result<std::vector<ColumnChoice>> parse_columns(std::string_view text);

// What a number with `unit` must be multiplied with to be in the unit of the metric.
std::optional<double> unit_factor(Unit of_metric, std::string_view unit);

// The schema of a trace that begins with `head` (whole lines). `wanted` names the
// signals to read; those that the trace lacks are simply not in the schema.
Result<Schema> detect_schema(std::string_view head, const std::vector<ColumnChoice>& choices,
                             const std::vector<Metric>& wanted);

// Words in place of a number that mean "not known": [N/A], [GPU is lost], nan, …
bool means_unknown(std::string_view cell);

// The cells of one line, unquoted and trimmed; nothing where a quote is not closed.
std::optional<std::vector<std::string>> split_line(std::string_view line, char separator);

// A signal's cell as the slow, obvious way reads it; nothing if it makes no sense.
std::optional<float> parse_cell(std::string_view cell, const Column& column);

}  // namespace lull::trace
