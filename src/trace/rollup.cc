#include "trace/rollup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/text.h"
#include "gpu/own_signal.h"
#include "trace/format.h"
#include "trace/history.h"

namespace lull::trace {
namespace {

constexpr std::string_view kFirstLine = "lull roll-up 1";
constexpr std::uint64_t kMark = 0x6c6c75726c6c756c;  // also tells the order of bytes
constexpr std::size_t kBlockRows = 1U << 16;
constexpr std::size_t kHeadSize = 256U << 10;
constexpr std::size_t kMostIndex = 32U << 20;
constexpr std::uint64_t kMostColumns = 256;
constexpr int kQuickLevel = 3;
constexpr std::uint32_t kNotMet = std::numeric_limits<std::uint32_t>::max();

struct Trailer {  // the last bytes of the file
  std::uint64_t index_size = 0;
  std::uint64_t mark = kMark;
};

// The file that a roll-up is of, as it was then.
std::string stamp_of(const struct stat& day) {
  return fmt::format("{} {}.{:09}", day.st_size, day.st_mtim.tv_sec, day.st_mtim.tv_nsec);
}

// The rows of such a file mean the same whoever reads them.
bool has_rollup(const Schema& schema) {
  return schema.ours && schema.means && schema.zoned && schema.names_gpus() && !schema.one_gpu;
}

// The name of the column of each signal, by its slot.
std::vector<std::string> columns_of(const Schema& schema) {
  std::vector<std::string> names(schema.metrics.size());
  for (const auto& column : schema.columns)
    if (column.role == Role::metric && column.wanted) names[column.slot] = column.name;
  return names;
}

Result<std::string> read_exactly(int fd, std::uint64_t offset, std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = ::pread(fd, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno, "read");
    if (got == 0) return fail("it is cut off");
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

// The text behind the columns: what there is and where.
class IndexReader {
 public:
  explicit IndexReader(std::string_view text) : rest_(text) {}
  std::optional<std::string_view> line() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view found = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return found;
  }
  // Of things that take a line each: no more than there is text.
  std::optional<std::uint64_t> count(std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) {
    const auto found = line();
    const auto number = found ? to_unsigned(*found) : std::nullopt;
    return number && *number <= std::min<std::uint64_t>(most, rest_.size() + 1) ? number : std::nullopt;
  }
  bool over() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

Result<std::string> read_index(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail(errno, "stat");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < sizeof(Trailer)) return fail("it is cut off");
  const std::string last = TRY(read_exactly(fd, size - sizeof(Trailer), sizeof(Trailer)));
  Trailer trailer;
  std::memcpy(&trailer, last.data(), sizeof trailer);
  if (trailer.mark != kMark || trailer.index_size > std::min<std::uint64_t>(size - sizeof trailer, kMostIndex))
    return fail("it is not a roll-up");
  const std::string packed = TRY(read_exactly(fd, size - sizeof trailer - trailer.index_size, trailer.index_size));
  const unsigned long long whole = ::ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (whole > kMostIndex) return fail("it is not a roll-up");  // also: not known
  std::string text(whole, '\0');
  if (::ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size()) != whole) return fail("it is damaged");
  return text;
}

class Packer {
 public:
  explicit Packer(int fd) : fd_(fd), context_(::ZSTD_createCCtx(), &::ZSTD_freeCCtx) {
    if (context_ == nullptr) return;
    ::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kQuickLevel);
    ::ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
  }
  // Appends a frame; how large it is.
  Result<std::size_t> put(const void* bytes, std::size_t size) {
    frame_.resize(::ZSTD_compressBound(size));
    const std::size_t packed =
        context_ == nullptr ? 0 : ::ZSTD_compress2(context_.get(), frame_.data(), frame_.size(), bytes, size);
    if (packed == 0 || ::ZSTD_isError(packed) != 0) return fail("zstd: it cannot be packed");
    TRY(write_all(fd_, std::string_view(frame_).substr(0, packed)));
    offset_ += packed;
    return packed;
  }
  std::uint64_t offset() const { return offset_; }

 private:
  int fd_;
  std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context_;
  std::string frame_;
  std::uint64_t offset_ = 0;
};

// The columns of a day on their way to the disk.
class RollUpWriter {
 public:
  RollUpWriter(int fd, std::size_t signals) : packer_(fd), fd_(fd), values_(signals) {}

  Result<> add(const Batch& batch) {
    at_.insert(at_.end(), batch.at.begin(), batch.at.begin() + static_cast<std::ptrdiff_t>(batch.rows));
    gpu_.insert(gpu_.end(), batch.gpu.begin(), batch.gpu.begin() + static_cast<std::ptrdiff_t>(batch.rows));
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i].insert(values_[i].end(), batch.value[i].begin(),
                        batch.value[i].begin() + static_cast<std::ptrdiff_t>(batch.rows));
    return at_.size() >= kBlockRows ? flush() : Result<>{};
  }
  Result<> finish(const std::string& stamp, const Schema& schema, const Identities& names) {
    TRY(flush());
    std::string index = fmt::format("{}\n{}\n{}\n", kFirstLine, stamp, values_.size());
    for (const std::string& name : columns_of(schema)) index += name + "\n";
    index += fmt::format("{}\n", schema.identity.size());
    for (const Role role : schema.identity) index += fmt::format("{}\n", static_cast<unsigned>(role));
    index += fmt::format("{}\n", names.size());
    for (std::size_t i = 0; i < names.size(); ++i)
      for (const std::string& cell : names.cells(i)) index += cell + "\n";
    index += fmt::format("{}\n{}", blocks_, places_);
    Trailer trailer;
    trailer.index_size = TRY(packer_.put(index.data(), index.size()));
    return write_all(fd_, std::string_view(reinterpret_cast<const char*>(&trailer), sizeof trailer));
  }

 private:
  Result<> flush() {
    if (at_.empty()) return {};
    places_ += fmt::format("{}\n", at_.size());
    ++blocks_;
    // As steps: those of a grid take next to no room.
    for (std::size_t i = at_.size(); --i > 0;)
      at_[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(at_[i]) - static_cast<std::uint64_t>(at_[i - 1]));
    TRY(put(at_));
    TRY(put(gpu_));
    for (std::vector<float>& column : values_) TRY(put(column));
    return {};
  }
  template <class Value>
  Result<> put(std::vector<Value>& column) {
    const std::uint64_t offset = packer_.offset();
    places_ += fmt::format("{} {}\n", offset, TRY(packer_.put(column.data(), column.size() * sizeof(Value))));
    column.clear();
    return {};
  }

  Packer packer_;
  int fd_;
  std::vector<std::int64_t> at_;
  std::vector<std::uint32_t> gpu_;
  std::vector<std::vector<float>> values_;
  std::string places_;
  std::size_t blocks_ = 0;
};

// False: there is a row that only the text tells of.
Result<bool> write_columns(ByteSource source, const Schema& schema, const std::string& stamp, int to) {
  Chunker chunker(std::move(source));
  const auto parser = make_parser(schema);
  RollUpWriter writer(to, schema.metrics.size());
  Chunk chunk;
  Batch batch;
  while (TRY(chunker.next(chunk))) {
    parser->parse(chunk, batch);
    if (batch.bad > 0 || batch.new_header) return false;
    TRY(writer.add(batch));
  }
  if (!chunker.source().damage().empty()) return false;
  TRY(writer.finish(stamp, schema, parser->identities()));
  return true;
}

Result<Schema> schema_of_day(const std::string& path) {
  ByteSource source = TRY(ByteSource::open(path));
  std::string head(kHeadSize, '\0');
  head.resize(TRY(source.read(head.data(), head.size())));
  head.resize(head.rfind('\n') + 1);  // npos + 1 is 0
  std::vector<Metric> all;
  for (const MetricInfo& row : kMetricTable) all.push_back(row.metric);
  for (const MetricInfo& row : own_signals()) all.push_back(row.metric);
  return recognise(head, {.columns = {}, .wanted = all});
}

// Any user may put a file of this name into a folder that all may write: it counts if its owner wrote the day's file,
// and no other user could change it.
Result<Fd> open_rollup(const std::string& path, uid_t owner, mode_t mode) {
  Fd fd = TRY(open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return fail(errno, "stat");
  const bool trusted = status.st_uid == owner || status.st_uid == ::geteuid() || status.st_uid == 0;
  if (!S_ISREG(status.st_mode) || !trusted || (status.st_mode & 022 & ~mode) != 0) return fail("it is not of its day");
  return fd;
}

bool is_current(const std::string& path, const struct stat& day, const std::string& stamp) {
  const auto fd = open_rollup(path, day.st_uid, day.st_mode);
  const auto index = fd ? read_index(fd->get()) : Result<std::string>(fail(""));
  return index && index->starts_with(fmt::format("{}\n{}\n", kFirstLine, stamp));
}

}  // namespace

std::string rollup_path(const std::string& day_path) {
  const std::size_t name = day_path.rfind('/') + 1;  // npos + 1 is 0
  return day_path.substr(0, name) + "." + day_path.substr(name) + std::string(kRollUpEnding);
}

std::shared_ptr<const RollUp> RollUp::find(const std::string& day_path, const Schema& schema) {
  struct stat day{};
  if (!has_rollup(schema) || ::stat(day_path.c_str(), &day) != 0) return nullptr;
  auto found = std::make_shared<RollUp>();
  found->path_ = rollup_path(day_path);
  found->owner_ = day.st_uid;
  found->mode_ = day.st_mode;
  const auto fd = open_rollup(found->path_, found->owner_, found->mode_);
  const auto text = fd ? read_index(fd->get()) : Result<std::string>(fail(""));
  if (!text) return nullptr;
  IndexReader index(*text);
  if (index.line() != kFirstLine || index.line() != stamp_of(day)) return nullptr;
  std::vector<std::string> names(index.count(kMostColumns).value_or(0));
  for (std::string& name : names) name = index.line().value_or("");
  std::vector<Role> roles(index.count(kMaxIdentity).value_or(0));
  for (Role& role : roles) role = static_cast<Role>(to_unsigned(index.line().value_or("")).value_or(0));
  if (roles != schema.identity) return nullptr;
  for (const std::string& wanted : columns_of(schema)) {
    const auto place = std::ranges::find(names, wanted);
    if (place == names.end() || wanted.empty()) return nullptr;
    found->wanted_.push_back(2 + static_cast<std::size_t>(place - names.begin()));
  }
  found->names_.resize(index.count().value_or(0));
  for (auto& cells : found->names_)
    for (std::size_t i = 0; i < roles.size(); ++i) cells.emplace_back(index.line().value_or(""));
  found->blocks_.resize(index.count().value_or(0));
  for (Rows& block : found->blocks_) {
    block.count = to_unsigned(index.line().value_or("")).value_or(0);
    if (block.count == 0 || block.count > 2 * kBlockRows) return nullptr;
    for (std::size_t i = 0; i < 2 + names.size(); ++i) {
      const std::string_view place = index.line().value_or("");
      const std::size_t blank = std::min(place.find(' '), place.size());
      const auto offset = to_unsigned(place.substr(0, blank));
      const auto size = to_unsigned(place.substr(std::min(blank + 1, place.size())));
      if (!offset || !size || *size > ::ZSTD_compressBound(block.count * 8)) return nullptr;
      block.columns.push_back({*offset, *size});
    }
  }
  return index.over() && !found->blocks_.empty() ? found : nullptr;
}

Result<RollUp::Reader> RollUp::open() const { return Reader(*this, TRY(open_rollup(path_, owner_, mode_))); }

std::unexpected<Error> RollUp::Reader::damaged() const { return fail(printable(of_.path_) + " is damaged"); }

// The number of rows, then the wanted columns as they are in memory.
Result<bool> RollUp::Reader::next(Chunk& chunk) {
  if (block_ >= of_.blocks_.size()) return false;
  const Rows& block = of_.blocks_[block_++];
  chunk.bytes.resize(sizeof block.count + block.count * (8 + 4 + 4 * of_.wanted_.size()));
  std::memcpy(chunk.bytes.data(), &block.count, sizeof block.count);
  chunk.size = sizeof block.count;
  const auto unpack = [&](const Place& column, std::size_t each) -> Result<> {
    const std::string packed = TRY(read_exactly(fd_.get(), column.offset, column.size));
    const std::size_t size = block.count * each;
    if (::ZSTD_decompress(chunk.bytes.data() + chunk.size, size, packed.data(), packed.size()) != size)
      return damaged();
    chunk.size += size;
    return {};
  };
  TRY(unpack(block.columns[0], 8));
  const std::size_t gpus = chunk.size;
  TRY(unpack(block.columns[1], 4));
  for (std::size_t row = 0; row < block.count; ++row) {
    std::uint32_t gpu = 0;
    std::memcpy(&gpu, chunk.bytes.data() + gpus + 4 * row, sizeof gpu);
    if (gpu >= of_.names_.size()) return damaged();
  }
  for (const std::size_t column : of_.wanted_) TRY(unpack(block.columns[column], 4));
  return true;
}

// From such a chunk to rows.
class RollUpParser final : public RowParser {
 public:
  RollUpParser(const RollUp& of, const Schema& schema) : RowParser(schema), of_(of), met_(of.names_.size(), kNotMet) {}

  void parse(const Chunk& chunk, Batch& batch) override {
    const char* from = chunk.begin();
    const auto take = [&from](void* to, std::size_t size) {
      std::memcpy(to, from, size);
      from += size;
    };
    std::uint64_t count = 0;
    take(&count, sizeof count);
    batch.at.resize(count);
    batch.gpu.resize(count);
    batch.reset(of_.wanted_.size());
    batch.rows = batch.lines = count;
    take(batch.at.data(), 8 * count);
    for (std::size_t row = 1; row < count; ++row)
      batch.at[row] = static_cast<std::int64_t>(static_cast<std::uint64_t>(batch.at[row - 1]) +
                                                static_cast<std::uint64_t>(batch.at[row]));
    take(batch.gpu.data(), 4 * count);
    for (std::uint32_t& gpu : batch.gpu) {
      if (met_[gpu] == kNotMet) [[unlikely]]
        met_[gpu] = meet(gpu);
      gpu = met_[gpu];
    }
    for (std::vector<float>& column : batch.value) take(column.data(), 4 * count);
  }

 private:
  std::uint32_t meet(std::uint32_t gpu) {
    Identities::Cells cells{};
    std::ranges::copy(of_.names_[gpu], cells.begin());
    return identities_.find(cells);
  }

  const RollUp& of_;
  std::vector<std::uint32_t> met_;  // their numbers here
};

std::unique_ptr<RowParser> RollUp::parser(const Schema& schema) const {
  return std::make_unique<RollUpParser>(*this, schema);
}

Result<> roll_up(const std::string& day_path) {
  const Fd day = TRY(open_file(day_path, O_RDONLY | O_NOFOLLOW));
  if (::flock(day.get(), LOCK_EX | LOCK_NB) != 0) return fail(errno, "lock " + day_path);
  struct stat status{};
  if (::fstat(day.get(), &status) != 0) return fail(errno, "stat " + day_path);
  const std::string path = rollup_path(day_path);
  const std::string stamp = stamp_of(status);
  if (is_current(path, status, stamp)) return {};
  const auto schema = schema_of_day(day_path);
  if (!schema || !has_rollup(*schema)) return {};
  const std::string unfinished = path + std::string(kUnfinishedEnding);
  const auto write = [&]() -> Result<bool> {
    const Fd to = TRY(open_file(unfinished, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
    TRY(share_as(status, to.get(), unfinished));
    ByteSource source = TRY(ByteSource::open(day_path));
    const bool whole = TRY(write_columns(std::move(source), *schema, stamp, to.get()));
    if (whole && ::fsync(to.get()) != 0) return fail(errno, "write " + unfinished);
    return whole;
  };
  const auto written = write();
  if (!written || !*written) ::unlink(unfinished.c_str());
  if (!written) return std::unexpected(Error(written.error()).during("roll up " + printable(day_path)));
  if (*written && ::rename(unfinished.c_str(), path.c_str()) != 0) return fail(errno, "rename " + unfinished);
  return {};
}

}  // namespace lull::trace
