#pragma once
// A Schema says what each column of a trace is: the time, what tells the GPUs
// apart, a signal and its unit, or nothing of ours. It comes from the header
// (our own names, nvidia-smi's, or plain signal names) and from --columns, which
// goes first. The same roles serve NDJSON, where a column is a key.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/metric.h"
#include "trace/time.h"

namespace lull::trace {

enum class Role : std::uint8_t {
  none,
  time,
  date,
  gpu,
  uuid,
  pci,
  host,
  metric,
  job,
  pids,
  user,
  command,
  lease,
  architecture,
};
inline constexpr std::size_t kRoles = 14;
// Says who has the GPU or what it is, not which one.
constexpr bool is_owner(Role role) { return role >= Role::job; }
// What a row says about which GPU it is of, what that is, and who has it; the order is that of Schema::identity.
inline constexpr std::size_t kMaxIdentity = 9;

struct Column {
  std::string name;
  Role role = Role::none;
  std::size_t slot = 0;       // metric: which column of the batch; identity: which part
  Metric metric{};            // of Role::metric
  double scale = 1;           // a bare number times this is in the unit of the metric
  std::string unit;           // what follows the number in the cells of this file: "MiB"
  double unit_scale = 1;      // and what that is worth
  bool wanted = false;        // asked for
  bool guessed_size = false;  // bytes or MiB: the first rows tell
  bool bare = false;          // neither its name nor an option says the unit
};

// "time=ts,gpu=host+idx,util=GPU Util,power=p:mW": ROLE=COLUMN[:UNIT], where COLUMN
// is a name in the header or a number from 1, and gpu may join several with '+'.
struct ColumnChoice {
  std::string role;
  std::string column;
  std::string unit;
  std::string_view option = "--columns";  // that says so
};

enum class Format : std::uint8_t { csv, ndjson };
struct TraceFormat;  // trace/format.h: how a file of this kind is read

struct Schema {
  Format format = Format::csv;
  char separator = ',';
  bool header = true;  // the first line is not data
  bool ours = false;   // written by `lull record`: a last line without an end was cut off
  bool means = false;  // utilisation and power are means since the sample before, as `lull record` writes them
  std::vector<Column> columns;
  std::vector<Role> identity;   // the parts that tell GPUs apart, in column order
  bool names_gpus() const;      // there is such a part, not only who has them
  std::vector<Metric> metrics;  // the slots of a batch
  TimeKind time = TimeKind::seconds;
  bool zoned = true;       // times name a moment, not a reading of some wall clock
  bool from_epoch = true;  // times count from 1970, not from the start of the trace
  int zone_minutes = 0;    // the zone that its times are written in
  bool decimal_comma = false;
  std::size_t last_wanted = 0;

  const TraceFormat* reads_as = nullptr;
  std::vector<ColumnChoice> choices;  // what --columns said, for formats that look at it while reading
  std::vector<int> ranks;  // by slot: of several sources of a signal only those of this rank are read; empty: any
  std::vector<std::string> labelled;  // series whose labels say which job has the GPU, of those with a job
  std::vector<std::string>
      doubtful;              // by slot: the column whose unit is not given, as --columns would name it; or empty
  std::uint8_t variant = 0;  // which of its kinds, where a format has several
  std::string note;          // what was assumed, for a person
  bool in_turn = false;      // chunks must come in order, on one thread
  bool lines = true;         // false: chunks may end anywhere
  bool partial = false;      // rows of one GPU and moment each bring some of its signals
  bool one_gpu = false;      // by an option

  // What only the order of rows tells (sequence.h).
  bool timed = true;              // false: rows have no time, --every says how far apart they are
  bool header_each_tick = false;  // a command in a loop wrote it: a header does not begin a new recording
  enum class Wraps : std::uint8_t { no, each_day, each_year };
  Wraps wraps = Wraps::no;         // the times lack a date, or its year
  std::size_t gpus_in_a_tick = 0;  // not 0: the place in its tick tells the GPU
  std::int64_t small_gap = 0;      // ns; no more than this lies between the rows of a tick
  std::int64_t large_gap = 0;      // and no less between ticks
  bool sure_ticks = true;          // false: times are so coarse that ticks run into each other
};

Result<std::vector<ColumnChoice>> parse_columns(std::string_view text);

// The schema of a trace that begins with `head` (whole lines). `wanted` names the
// signals to read; those that the trace lacks are simply not in the schema.
// `untimed`: it need not have a time.
Result<Schema> detect_schema(std::string_view head, const std::vector<ColumnChoice>& choices,
                             const std::vector<Metric>& wanted, bool untimed = false);

bool is_identity(Role role);
std::string column_list(const std::vector<Column>& columns);

}  // namespace lull::trace
