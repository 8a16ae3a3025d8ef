#pragma once
// The roll-up of a recorded day: its rows as packed columns of numbers, in a hidden file beside it. A day is read from
// there several times sooner than from its text, and gives the same rows. It counts only for the file that it was made
// of: a day that was written to since is read from its text.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "trace/bytes.h"
#include "trace/row_parser.h"
#include "trace/schema.h"

namespace lull::trace {

inline constexpr std::string_view kRollUpEnding = ".rollup";
std::string rollup_path(const std::string& day_path);  // DIR/.2026-11-17.csv.zst.rollup

class RollUp {
 public:
  // That of a day. Null: there is none for this file as it is, or it lacks something that the schema wants.
  static std::shared_ptr<const RollUp> find(const std::string& day_path, const Schema& schema);

  // What the schema wants of it, in chunks for its parser.
  class Reader {
   public:
    Reader(Reader&&) = default;
    Result<bool> next(Chunk& chunk);  // false at the end

   private:
    friend class RollUp;
    Reader(const RollUp& of, Fd fd) : of_(of), fd_(std::move(fd)) {}
    std::unexpected<Error> damaged() const;

    const RollUp& of_;
    Fd fd_;
    std::size_t block_ = 0;
    std::string packed_;
  };
  Result<Reader> open() const;
  std::unique_ptr<RowParser> parser(const Schema& schema) const;  // that of the file

 private:
  friend class RollUpParser;
  struct Place {  // of a column
    std::uint64_t offset = 0;
    std::uint64_t size = 0;  // packed
  };
  struct Rows {
    std::uint64_t count = 0;
    std::vector<Place> columns;  // time, GPU, then each signal
  };

  std::string path_;
  uid_t owner_ = 0;  // of the day, and its mode
  mode_t mode_ = 0;
  std::vector<std::vector<std::string>> names_;  // of GPUs and who has them, as the cells say
  std::vector<std::size_t> wanted_;              // by slot of the schema: its column
  std::vector<Rows> blocks_;
};

// Makes the roll-up of a finished day, unless it exists. One with a row that cannot be read has
// none: its text is read, and says so.
Result<> roll_up(const std::string& day_path);

}  // namespace lull::trace
