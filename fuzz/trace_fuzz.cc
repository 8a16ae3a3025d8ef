// Any bytes as a trace: refused or read, never a crash, packed or not. The fast way of
// reading CSV must agree with the slow one, and chunks of any size with one chunk.

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/fd.h"
#include "trace/bytes.h"
#include "trace/csv.h"
#include "trace/ndjson.h"
#include "trace/schema.h"

namespace {

using namespace lull;
using namespace lull::trace;

void require(bool what) {
  if (!what) std::abort();
}

const std::vector<Metric> kWanted = {Metric::util, Metric::power, Metric::mem_used, Metric::pstate, Metric::quiet};

Fd file_of(std::string_view bytes) {
  Fd fd(::memfd_create("trace", MFD_CLOEXEC));
  require(fd && write_all(fd.get(), bytes).has_value());
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

// How much can be had of a damaged stream depends on how it is asked for.
bool damaged = false;

// A row with the cells that name its GPU, to compare what different parsers made.
struct Row {
  std::int64_t at;
  std::vector<std::string> gpu;
  std::vector<unsigned> values;
  bool operator==(const Row&) const = default;
};

template <class Parser>
void collect(const Parser& parser, const Batch& batch, std::vector<Row>& rows) {
  for (std::size_t i = 0; i < batch.rows; ++i) {
    Row row{batch.at[i], parser.identities().cells(batch.gpu[i]), {}};
    for (const auto& column : batch.value) row.values.push_back(std::bit_cast<unsigned>(column[i]));
    rows.push_back(std::move(row));
  }
}

template <class Parser>
std::vector<Row> read_all(std::string_view bytes, Parser parser, std::size_t target, std::uint64_t& bad) {
  auto source = ByteSource::from(file_of(bytes), "fuzz");
  require(source.has_value());
  Chunker chunker(*std::move(source), target);
  std::vector<Row> rows;
  Chunk chunk;
  Batch batch;
  while (*chunker.next(chunk)) {
    require(chunk.size > 0 && chunk.bytes[chunk.size - 1] == '\n');
    parser.parse(chunk, batch);
    bad += batch.bad;
    collect(parser, batch, rows);
  }
  damaged = damaged || !chunker.source().damage().empty();
  return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto source = ByteSource::from(file_of(bytes), "fuzz");
  require(source.has_value());
  Chunker chunker(*std::move(source), 16U << 10);
  Chunk head;
  if (!*chunker.next(head)) return 0;
  const auto choices = parse_columns(head.text().substr(0, head.text().find('\n')));
  auto schema = detect_schema(head.text(), choices.value_or(std::vector<ColumnChoice>{}), kWanted);
  if (!schema) schema = detect_schema(head.text(), {{"time", "1", ""}, {"gpu", "2", ""}, {"util", "3", ""}}, kWanted);
  if (!schema) return 0;
  damaged = false;
  std::uint64_t bad = 0;
  std::uint64_t bad_small = 0;
  if (schema->format == Format::ndjson) {
    const auto rows = read_all(bytes, NdjsonParser(*schema), 16U << 10, bad);
    const auto small = read_all(bytes, NdjsonParser(*schema), 100, bad_small);
    require(damaged || (rows == small && bad == bad_small));
    return 0;
  }
  std::uint64_t bad_slow = 0;
  CsvParser slow(*schema);
  slow.set_slow(true);
  const auto rows = read_all(bytes, CsvParser(*schema), 16U << 10, bad);
  require(rows == read_all(bytes, std::move(slow), 16U << 10, bad_slow) && bad == bad_slow);
  const auto small = read_all(bytes, CsvParser(*schema), 100, bad_small);
  require(damaged || (rows == small && bad == bad_small));
  return 0;
}
