// Any bytes as a trace of any format: refused or read, never a crash, packed or not. The fast
// way of reading CSV must agree with the slow one, and chunks of any size with one chunk.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "fuzz/require.h"
#include "trace/bytes.h"
#include "trace/csv.h"
#include "trace/format.h"
#include "trace/sequence.h"

namespace {

using namespace lull;
using namespace lull::trace;

const std::vector<Metric> kWanted = {Metric::util,   Metric::power, Metric::mem_used,
                                     Metric::pstate, Metric::procs, Metric::quiet};

Fd file_of(std::string_view bytes) {
  Fd fd(::memfd_create("trace", MFD_CLOEXEC));
  require(fd && write_all(fd.get(), bytes).has_value());
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

// How much can be had of a damaged stream depends on how it is asked for.
bool damaged = false;

// A known value with the cells that name its GPU, to compare what different ways of reading made.
struct Value {
  std::int64_t at;
  std::vector<std::string> gpu;
  std::size_t slot;
  unsigned bits;
  auto operator<=>(const Value&) const = default;
};

struct Read {
  std::vector<Value> values;
  std::uint64_t bad = 0;
  std::uint64_t rows = 0;
  std::uint64_t unclear = 0;
};

void collect(const Identities& identities, const Batch& batch, Read& read) {
  read.bad += batch.bad;
  read.rows += batch.rows;
  for (std::size_t i = 0; i < batch.rows; ++i)
    for (std::size_t slot = 0; slot < batch.value.size(); ++slot)
      if (!std::isnan(batch.value[slot][i]))
        read.values.push_back(
            {batch.at[i], identities.cells(batch.gpu[i]), slot, std::bit_cast<unsigned>(batch.value[slot][i])});
}

Read read_all(std::string_view bytes, const Schema& schema, RowParser& parser, std::size_t target) {
  auto source = ByteSource::from(file_of(bytes), "fuzz");
  require(source.has_value());
  Chunker chunker(*std::move(source), target, schema.lines);
  Sequence sequence(schema, std::chrono::seconds(1));
  Read read;
  Chunk chunk;
  Batch batch;
  const auto take = [&] {
    if (sequence.needed()) sequence.apply(parser.identities(), batch);
    collect(sequence.by_place() ? sequence.identities() : parser.identities(), batch, read);
  };
  while (*chunker.next(chunk)) {
    require(!schema.lines || (chunk.size > 0 && chunk.bytes[chunk.size - 1] == '\n'));
    parser.parse(chunk, batch);
    take();
  }
  parser.finish(batch);
  take();
  if (sequence.by_place()) {
    sequence.finish(batch);
    collect(sequence.identities(), batch, read);
  }
  read.unclear = sequence.unclear_ticks();
  damaged = damaged || !chunker.source().damage().empty();
  return read;
}

bool same(const Schema& schema, Read a, Read b) {
  // Values of one moment share a row if they come in one chunk, and are then in the order of their signals.
  for (Read* one : {&a, &b})
    if (schema.partial) std::sort(one->values.begin(), one->values.end());
  return a.values == b.values && a.bad == b.bad && (schema.partial || a.rows == b.rows) && a.unclear == b.unclear;
}

// As TraceReader does it: the place in the tick tells the GPU, where nothing else does.
void find_ticks(std::string_view head, Schema& schema) {
  if (schema.names_gpus() || !schema.timed) return;
  const auto parser = make_parser(schema);
  Chunk chunk;
  chunk.first = true;
  chunk.bytes.assign(head.begin(), head.end());
  if (chunk.bytes.back() != '\n') chunk.bytes.push_back('\n');
  chunk.size = chunk.bytes.size();
  chunk.bytes.resize(chunk.size + Chunker::kPadding, '\n');
  Batch batch;
  parser->parse(chunk, batch);
  const TickShape shape = shape_of_ticks({batch.at.data(), batch.rows});
  schema.gpus_in_a_tick = shape.rows > 1 ? shape.rows : 0;
  schema.small_gap = shape.small_gap;
  schema.large_gap = shape.large_gap;
  schema.sure_ticks = shape.sure;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto source = ByteSource::from(file_of(bytes), "fuzz");
  require(source.has_value());
  std::string head(16U << 10, '\0');
  head.resize(*source->read(head.data(), head.size()));
  if (head.empty()) return 0;
  const auto choices = parse_columns(std::string_view(head).substr(0, head.find('\n')));
  auto schema = recognise(head, {choices.value_or(std::vector<ColumnChoice>{}), kWanted, true});
  if (!schema) schema = recognise(head, {{{"time", "1", ""}, {"gpu", "2", ""}, {"util", "3", ""}}, kWanted, false});
  if (!schema) return 0;
  find_ticks(head, *schema);
  damaged = false;
  const Read whole = read_all(bytes, *schema, *make_parser(*schema), 16U << 10);
  const Read small = read_all(bytes, *schema, *make_parser(*schema), 100);
  require(damaged || same(*schema, whole, small));
  CsvParser slow(*schema);
  if (dynamic_cast<CsvParser*>(make_parser(*schema).get()) != nullptr) {
    slow.set_slow(true);
    require(same(*schema, whole, read_all(bytes, *schema, slow, 16U << 10)));
  }
  return 0;
}
