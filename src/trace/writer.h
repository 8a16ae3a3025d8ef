#pragma once
// A trace being written: plain text row by row, or packed in frames that are each
// complete, so that a crash loses the last seconds and never the file. What is
// there already stays and is appended to: a last line (or frame) that a crash cut
// off is taken away first. A file with other columns is refused, and so is one that
// is damaged or not surely ours: it stays as it is. If a write fails half-way (disk
// full), what it left unfinished is taken back.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "trace/bytes.h"
#include "trace/schema.h"

namespace lull::trace {

struct WriterOptions {
  std::string path;  // empty: standard output
  Format format = Format::csv;
  Packing packing = Packing::none;
  std::string header;  // the first line of a CSV, with its newline
  std::string like;    // NDJSON: a line as we would write it, whose keys must be those of the file
};

class TraceWriter {
 public:
  static Result<TraceWriter> open(WriterOptions options);

  void add(std::string_view rows) { pending_ += rows; }  // whole lines
  std::size_t pending() const { return pending_.size(); }
  // Puts what was added into the file. On failure what could not be written is still pending.
  Result<> flush();
  Result<> close();  // flush, and wait until the disk has it

  const std::string& note() const { return note_; }  // what was found and done on opening
  std::uint64_t written() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  Result<> continue_text();
  Result<> continue_frames();
  Result<std::string> first_frame() const;
  Result<bool> begins_with_first_frame() const;
  Result<std::string> frames_of_pending() const;
  Result<> check_columns(std::string_view first_line) const;
  Result<> cut_to(std::uint64_t size);

  WriterOptions options_;
  Fd fd_;
  bool regular_ = false;
  std::uint64_t size_ = 0;  // of what is whole in the file
  std::string pending_;
  std::string note_;
};

// What format and packing a file name asks for: trace.ndjson.zst. nothing: .csv or unknown.
Format format_by_name(std::string_view path);

}  // namespace lull::trace
