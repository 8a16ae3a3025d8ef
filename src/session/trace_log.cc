#include "session/trace_log.h"

#include <utility>

namespace lull {
namespace {

constexpr Duration kFrame = std::chrono::seconds(5);  // packed rows wait at most so long for their frame
constexpr std::size_t kFrameBytes = 256 << 10;

}  // namespace

Result<TraceLog> TraceLog::open(const std::string& path, trace::RowLayout layout) {
  trace::WriterOptions options;
  options.path = path;
  options.format = layout.format;
  options.packing = trace::packing_by_name(path);
  options.header = trace::header_line(layout);
  if (layout.format == trace::Format::ndjson) options.like = trace::empty_row(layout);
  const bool packed = options.packing != trace::Packing::none;
  return TraceLog(TRY(trace::TraceWriter::open(std::move(options))), std::move(layout), packed);
}

void TraceLog::begin(const Snapshot& first) { anchor_ = first.wall.time_since_epoch() - first.at.time_since_epoch(); }

Result<> TraceLog::add(const Snapshot& snapshot, std::span<const std::size_t> devices, const Facts& job,
                       const Facts& machine, std::span<const trace::Who> who) {
  rows_.clear();
  // Wall time that nobody can set: the samples are as far apart as they were.
  const WallTime at(std::chrono::round<std::chrono::milliseconds>(snapshot.at.time_since_epoch() + anchor_));
  const trace::Who nobody_told;
  for (std::size_t i = 0; i < devices.size(); ++i)
    trace::append_row(rows_, layout_,
                      {at, snapshot.inventory->devices[devices[i]], snapshot.readings[devices[i]], job, machine,
                       i < who.size() ? who[i] : nobody_told});
  writer_.add(rows_);
  if (packed_ && writer_.pending() < kFrameBytes && snapshot.at - flushed_ < kFrame) return {};
  flushed_ = snapshot.at;
  return writer_.flush();
}

}  // namespace lull
