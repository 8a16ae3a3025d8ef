#pragma once
// The kinds of files that traces come in, as a table: how each is told by its beginning,
// what its columns are, and who turns it into rows. To add one: a file of its own in this
// module, a row in the table of format.cc, a fixture under tests/fixtures/traces.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trace/names.h"
#include "trace/row_parser.h"
#include "trace/schema.h"
#include "trace/time.h"

namespace lull::trace {

// What the user asked for.
struct ReadHow {
  std::vector<ColumnChoice> columns;
  std::vector<Metric> wanted;
  bool every = false;  // --every was given: a file may do without times
};

struct TraceFormat {
  std::string_view name;  // in a message: "this is …"
  bool (*recognise)(std::string_view head, const ReadHow& how);
  Result<Schema> (*open)(std::string_view head, const ReadHow& how);
  std::unique_ptr<RowParser> (*parser)(const Schema& schema);
  bool takes_columns;  // --columns makes sense
};

template <class Parser>
std::unique_ptr<RowParser> make_row_parser(const Schema& schema) {
  return std::make_unique<Parser>(schema);
}

// Each is defined in the file of its name.
extern const TraceFormat kSmiTable, kDmon, kPmon, kDcgmi, kTegrastats, kNpuSmi, kPrometheus, kSnapshots, kAmdJson,
    kIntelGpuTop, kLong, kWide;
std::span<const TraceFormat* const> formats();

// The schema of a file that begins with `head`, or one line that says what the file looks like and what to do.
Result<Schema> recognise(std::string_view head, const ReadHow& how);
std::unique_ptr<RowParser> make_parser(const Schema& schema);

// The beginning of a table of any shape: CSV with a header, or an object on each line.
struct TableHead {
  bool json = false;
  char separator = ',';
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> rows;
};
TableHead table_head(std::string_view head);
std::vector<std::string> table_names(std::string_view head);  // those alone, which is less work
// The cells of one of its lines; nothing where it is broken.
std::optional<std::vector<std::string>> cells_in(std::string_view line, const Schema& schema);
// A number in such a table, with its own unit or that of the series; nothing if it makes no sense.
std::optional<float> series_cell(std::string_view cell, const Meaning& meaning, bool decimal_comma);
// The column of the time, by --columns or by its name; how its times are written goes into the schema.
Result<std::size_t> time_of_table(const TableHead& table, const ReadHow& how, Schema& schema);

// Refuses what --columns says of anything but the time and signals.
Result<> only_signals(const ReadHow& how, std::string_view format);

// For formats whose rows hold what a GPU showed at one moment: a place for each wanted signal of GPUs, and a GPU's name
// by index, UUID and host.
Schema schema_of_samples(const std::vector<Metric>& wanted);
// How the times of such a file are written, from the first of them; nothing: it has none.
void take_kind_of_time(Schema& schema, const std::optional<AnyTime>& time);
// Leaves those of its signals that such a file has.
void keep_signals(Schema& schema, std::span<const Metric> there);
// The same where every such file has the same ones, which are its columns.
void take_signals(Schema& schema, std::span<const Metric> there);
// A signal's slot in such a schema, or npos.
std::size_t slot_of(const Schema& schema, Metric metric);
inline constexpr std::size_t kNoSlot = static_cast<std::size_t>(-1);
// Sets a signal of a row by a word of such a file; one that makes no sense is unknown.
void set_signal(const Schema& schema, Metric metric, std::string_view word, std::size_t row, Batch& batch,
                double scale = 1);

}  // namespace lull::trace
