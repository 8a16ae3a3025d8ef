#include "trace/writer.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/text.h"
#include "trace/ndjson.h"

namespace lull::trace {
namespace {

Result<std::string> pack(std::string_view text, Packing packing) {
  if (packing == Packing::zstd) {
    std::string frame(ZSTD_compressBound(text.size()), '\0');
    const std::size_t size = ZSTD_compress(frame.data(), frame.size(), text.data(), text.size(), 3);
    if (ZSTD_isError(size) != 0) return fail(fmt::format("zstd: {}", ZSTD_getErrorName(size)));
    frame.resize(size);
    return frame;
  }
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return fail("gzip: no memory");
  std::string member(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(member.data());
  stream.avail_out = static_cast<uInt>(member.size());
  const bool done = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  member.resize(stream.total_out);
  deflateEnd(&stream);
  if (!done) return fail("gzip: the data does not fit");
  return member;
}

// As much as possible; how much that was, and what stopped it.
struct Put {
  std::size_t bytes = 0;
  int error = 0;
};
Put put(int fd, std::string_view bytes) {
  Put done;
  while (done.bytes < bytes.size()) {
    const ssize_t got = ::write(fd, bytes.data() + done.bytes, bytes.size() - done.bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      done.error = got < 0 ? errno : ENOSPC;
      break;
    }
    done.bytes += static_cast<std::size_t>(got);
  }
  return done;
}

// The biggest frame of ours, unpacked, is far below this. A longer one is not ours.
constexpr std::size_t kLongestFrame = 16U << 20;
constexpr std::size_t kLongestFirstLine = 64U << 10;

// The beginning of a row with these keys, in this order, that ends anywhere: its values may be any.
bool begins_like_a_row(std::string_view piece, const std::vector<std::string>& keys) {
  // True: it is there, and goes on behind it. False, with `ended` as the answer: the piece is over, or another one.
  bool ended = false;
  const auto expect = [&](const std::string& text) {
    if (piece.size() <= text.size()) {
      ended = text.starts_with(piece);
      return false;
    }
    if (!piece.starts_with(text)) return false;
    piece.remove_prefix(text.size());
    return true;
  };
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!expect(fmt::format("{}\"{}\":", i == 0 ? '{' : ',', keys[i]))) return ended;
    std::size_t end = 0;
    if (piece.front() == '"') {
      for (end = 1; end < piece.size() && piece[end] != '"'; ++end)
        if (piece[end] == '\\') ++end;
      ++end;
    } else {
      end = piece.find_first_of(",}");
    }
    if (end >= piece.size()) return true;  // npos too
    piece.remove_prefix(end);
  }
  return piece == "}";
}

std::string_view first_line_of(std::string_view text) { return trim(text.substr(0, text.find('\n'))); }

}  // namespace

Format format_by_name(std::string_view path) {
  for (const std::string_view packed : {".gz", ".zst", ".zstd"})
    if (path.ends_with(packed)) path.remove_suffix(packed.size());
  return path.ends_with(".ndjson") || path.ends_with(".jsonl") || path.ends_with(".json") ? Format::ndjson
                                                                                          : Format::csv;
}

Result<TraceWriter> TraceWriter::open(WriterOptions options) {
  TraceWriter writer;
  writer.options_ = std::move(options);
  if (writer.options_.path.empty()) {
    const int copy = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (copy < 0) return fail(errno, "standard output");
    writer.fd_ = Fd(copy);
    writer.pending_ = writer.options_.header;
    return writer;
  }
  const std::string& path = writer.options_.path;
  // Not to be opened for writing before it is known to be a file: a FIFO would wait for a reader.
  writer.fd_ = TRY(open_file(path, O_RDWR | O_APPEND | O_CREAT | O_NOCTTY, 0666));
  struct stat status{};
  if (::fstat(writer.fd_.get(), &status) != 0) return fail(errno, "stat " + path);
  writer.regular_ = S_ISREG(status.st_mode);
  if (!writer.regular_) {
    writer.pending_ = writer.options_.header;
    return writer;
  }
  if (::flock(writer.fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return fail(printable(path) + ": another `lull record` is writing it");
    return fail(errno, "lock " + path);
  }
  writer.size_ = static_cast<std::uint64_t>(status.st_size);
  if (writer.size_ == 0)
    writer.pending_ = writer.options_.header;
  else if (writer.options_.packing == Packing::none)
    TRY(writer.continue_text());
  else
    TRY(writer.continue_frames());
  return writer;
}

Result<> TraceWriter::check_columns(std::string_view first_line) const {
  const std::string path = printable(options_.path);
  if (options_.format == Format::csv) {
    if (first_line == trim(options_.header)) return {};
    return fail(fmt::format("{} has other columns ({}): choose another file, or --signals to match", path,
                            printable(first_line.substr(0, 120))));
  }
  if (!first_line.starts_with("{")) return fail(fmt::format("{} is not NDJSON: choose another file", path));
  const auto theirs = keys_of_lines({first_line});
  const auto ours = keys_of_lines({options_.like});
  if (std::set(theirs.begin(), theirs.end()) == std::set(ours.begin(), ours.end())) return {};
  return fail(fmt::format("{} has other keys ({}): choose another file, or --signals to match", path,
                          printable(first_line.substr(0, 120))));
}

Result<> TraceWriter::cut_to(std::uint64_t size) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return fail(errno, "truncate " + options_.path);
  size_ = size;
  return {};
}

Result<> TraceWriter::continue_text() {
  std::string head(std::min<std::uint64_t>(size_, 64U << 10), '\0');
  const ssize_t got = ::pread(fd_.get(), head.data(), head.size(), 0);
  if (got < 0) return fail(errno, "read " + options_.path);
  head.resize(static_cast<std::size_t>(got));
  if (packing_by_magic(head) != Packing::none)
    return fail(printable(options_.path) + ": it is packed, but its name does not say so (.gz, .zst)");
  if (head.find('\n') == std::string::npos) {
    // Cut off in its very first line: begin again, if that line was to be ours.
    const bool ours = options_.format == Format::csv ? options_.header.starts_with(head)
                                                     : begins_like_a_row(head, keys_of_lines({options_.like}));
    if (!ours) {
      TRY(check_columns(head));
      return fail(printable(options_.path) + " is not a trace of lull: choose another file");
    }
    note_ = fmt::format("{} had only a piece of its first line; begun anew", printable(options_.path));
    pending_ = options_.header;
    return cut_to(0);
  }
  TRY(check_columns(first_line_of(head)));
  // Back from the end to the last newline.
  std::uint64_t whole = size_;
  std::string tail;
  for (std::uint64_t to = size_; to > 0;) {
    const std::uint64_t from = to - std::min<std::uint64_t>(to, 64U << 10);
    tail.resize(to - from);
    if (::pread(fd_.get(), tail.data(), tail.size(), static_cast<off_t>(from)) != static_cast<ssize_t>(tail.size()))
      return fail(errno, "read " + options_.path);
    if (const std::size_t newline = tail.rfind('\n'); newline != std::string::npos) {
      whole = from + newline + 1;
      break;
    }
    to = from;
  }
  if (whole == size_) return {};
  note_ =
      fmt::format("{} was cut off in the middle of a row; going on after the last whole one", printable(options_.path));
  return cut_to(whole);
}

// The first frame of a file, which tells our files from all others however early they are cut off.
Result<std::string> TraceWriter::first_frame() const { return pack(options_.header, options_.packing); }

Result<bool> TraceWriter::begins_with_first_frame() const {
  const std::string expected = TRY(first_frame());
  std::string head(std::min<std::uint64_t>(size_, expected.size()), '\0');
  if (::pread(fd_.get(), head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()))
    return fail(errno, "read " + options_.path);
  return expected.starts_with(head);
}

// Only what a crash cut off is taken away, and only from a file that is surely ours: a file that is damaged, or
// that another program wrote, is left unchanged.
Result<> TraceWriter::continue_frames() {
  const std::string path = printable(options_.path);
  const Fd in = TRY(open_file(options_.path, O_RDONLY));
  std::string bytes(256U << 10, '\0');
  std::string out(1U << 20, '\0');
  std::string first;    // until its newline
  std::string partial;  // unpacked since the last complete frame
  std::uint64_t offset = 0;
  std::uint64_t complete = 0;
  bool whole_line = true;
  bool too_long = false;  // the frame that we are in
  bool checked = false;
  const auto unpacker = Unpacker::create(options_.packing);
  while (true) {
    const ssize_t got = ::read(in.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno, "read " + options_.path);
    if (got == 0) break;
    std::string_view left(bytes.data(), static_cast<std::size_t>(got));
    if (offset == 0 && packing_by_magic(left) != options_.packing && left.size() >= 4)
      return fail(path + ": it is not packed as its name says");
    for (std::size_t made = 1; !left.empty() || made > 0;) {
      const auto step = unpacker->unpack(left, out.data(), out.size());
      if (!step) return fail(fmt::format("{} is damaged near byte {}: choose another file", path, offset));
      made = step->made;
      left.remove_prefix(step->taken);
      offset += step->taken;
      if (made > 0) whole_line = out[made - 1] == '\n';
      too_long = too_long || partial.size() + made > kLongestFrame;
      if (!too_long) partial.append(out.data(), made);
      if (!checked) {
        first.append(out.data(), std::min(made, kLongestFirstLine));
        checked = first.find('\n') != std::string::npos || first.size() >= kLongestFirstLine;
        if (checked) TRY(check_columns(first_line_of(first)));
      }
      if (step->between) {
        complete = offset;
        partial.clear();
        too_long = false;
        if (left.empty()) break;
      }
    }
  }
  if (!checked && !TRY(begins_with_first_frame())) {
    if (!first.empty()) TRY(check_columns(first));
    return fail(path + " is not a trace of lull: choose another file");
  }
  if (complete == 0 && partial.find('\n') == std::string::npos) {
    note_ = fmt::format("{} had nothing whole in it; begun anew", path);
    pending_ = options_.header;
    return cut_to(0);
  }
  if (complete == size_) {
    if (!whole_line) pending_ = "\n";
    return {};
  }
  if (too_long) return fail(fmt::format("{} breaks off, and lull did not pack it: choose another file", path));
  // What can be had of the frame that a crash cut off goes into a whole one.
  partial.resize(partial.rfind('\n') == std::string::npos ? 0 : partial.rfind('\n') + 1);
  pending_ += partial;
  note_ = fmt::format("{} was cut off; going on after the last whole row", path);
  return cut_to(complete);
}

Result<std::string> TraceWriter::frames_of_pending() const {
  if (size_ > 0 || !regular_ || !pending_.starts_with(options_.header)) return pack(pending_, options_.packing);
  const std::string rows = pending_.substr(options_.header.size());
  std::string frames = TRY(first_frame());
  if (!rows.empty()) frames += TRY(pack(rows, options_.packing));
  return frames;
}

Result<> TraceWriter::flush() {
  if (pending_.empty()) return {};
  const bool packed = options_.packing != Packing::none;
  const std::string frame = packed ? TRY(frames_of_pending()) : std::string();
  const std::string_view bytes = packed ? std::string_view(frame) : std::string_view(pending_);
  const Put done = put(fd_.get(), bytes);
  if (done.error == 0) {
    size_ += done.bytes;
    pending_.clear();
    return {};
  }
  // Rows that made it stay; half a row, or half a frame, goes.
  std::size_t whole = 0;
  if (!packed) whole = pending_.rfind('\n', done.bytes == 0 ? 0 : done.bytes - 1) + 1;  // npos + 1 is 0
  if (!packed && done.bytes == 0) whole = 0;
  if (regular_) TRY(cut_to(size_ + whole));
  pending_.erase(0, whole);
  return fail(done.error, "write " + (options_.path.empty() ? "standard output" : options_.path));
}

Result<> TraceWriter::close() {
  TRY(flush());
  if (regular_ && ::fdatasync(fd_.get()) != 0 && errno != EINVAL && errno != EROFS)
    return fail(errno, "write " + options_.path);
  return {};
}

}  // namespace lull::trace
