#include "sense/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "base/fd.h"
#include "base/text.h"
#include "base/try.h"

namespace lull {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kKernelNotSupported = 524;  // ENOTSUPP, which libc has no name for

struct Keeping {
  std::string folder;  // empty: nothing is kept
  std::string sys;
};
Keeping& keeping() {
  static Keeping kept;
  return kept;
}

// Where the copy of a file is; nothing: it is not kept.
std::optional<std::string> copy_of(const std::string& path) {
  const auto& [folder, sys] = keeping();
  if (folder.empty() || !path.starts_with(sys + "/")) return std::nullopt;
  return folder + "/sys" + path.substr(sys.size());
}

// The copy is for a report: what cannot be written is left out.
void keep(const std::string& path, std::string_view bytes, int error) {
  const auto copy = copy_of(path);
  if (!copy) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(*copy).parent_path(), ignored);
  const auto file = open_file(*copy + (error != 0 ? ".error" : ""), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0644);
  if (file) (void)write_all(file->get(), error != 0 ? std::string(std::strerror(error)) + "\n" : std::string(bytes));
}

// Reads one value: the kernel gives all of it in one piece.
int read_page(const std::string& path, std::array<char, kPage>& page, std::size_t& size) {
  const auto file = open_file(path, O_RDONLY | O_NOCTTY);
  if (!file) return file.error().errno_value;
  ssize_t got = 0;
  do {
    got = ::read(file->get(), page.data(), page.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno;
  size = static_cast<std::size_t>(got);
  return 0;
}

FileValue<std::string_view> read_into(const std::string& path, std::array<char, kPage>& page) {
  std::size_t size = 0;
  const int error = read_page(path, page, size);
  keep(path, {page.data(), size}, error);
  if (error != 0) return std::unexpected(absence_of_errno(error));
  return std::string_view(page.data(), size);
}

template <class T>
FileValue<T> parse(std::string_view text, int base) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::unexpected(Absence::implausible);
  return number;
}

}  // namespace

Absence absence_of_errno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EINVAL:
    case EOPNOTSUPP:
    case ENOSYS:
    case kKernelNotSupported: return Absence::not_supported;
    case EPERM:
    case EACCES: return Absence::no_permission;
    case ENODEV:
    case ENXIO: return Absence::lost;
    case EBUSY:
    case EAGAIN: return Absence::busy;
    default: return Absence::failed;
  }
}

FileValue<std::string> read_bytes(const std::string& path) {
  std::array<char, kPage> page;
  return std::string(TRY(read_into(path, page)));
}

FileValue<std::string> read_text(const std::string& path) {
  std::array<char, kPage> page;
  std::string_view text = TRY(read_into(path, page));
  text = text.substr(0, text.find('\n'));
  text = trim(text.substr(0, text.find('\0')));  // the device tree ends its strings so
  if (text.empty()) return std::unexpected(Absence::implausible);
  return std::string(text);
}

FileValue<double> read_number(const std::string& path, double scale) {
  const std::string text = TRY(read_text(path));
  return static_cast<double>(TRY(parse<std::int64_t>(text, 10))) * scale;
}

FileValue<std::uint64_t> read_count(const std::string& path) { return parse<std::uint64_t>(TRY(read_text(path)), 10); }

FileValue<double> read_unsigned(const std::string& path, double scale) {
  const auto count = read_count(path);
  if (!count) return std::unexpected(count.error());
  return static_cast<double>(*count) * scale;
}

FileValue<std::uint64_t> read_hex(const std::string& path) {
  const std::string text = TRY(read_text(path));
  return parse<std::uint64_t>(std::string_view(text).substr(text.starts_with("0x") ? 2 : 0), 16);
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> found(::realpath(path.c_str(), nullptr), std::free);
  return found ? std::string(found.get()) : std::string();
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> numbered(const std::string& folder, std::string_view prefix) {
  std::vector<std::pair<std::uint64_t, std::string>> found;
  Directory names(folder);
  while (const char* name = names.next()) {
    const std::string_view text = name;
    if (!text.starts_with(prefix)) continue;
    if (const auto number = to_unsigned(text.substr(prefix.size()))) found.emplace_back(*number, text);
  }
  std::ranges::sort(found);
  std::vector<std::string> result;
  for (auto& one : found) result.push_back(std::move(one.second));
  return result;
}

void put(Reading& reading, Metric metric, const FileValue<double>& value) {
  if (value)
    reading.set(metric, *value);
  else
    reading.miss(metric, value.error());
}

void keep_files_in(std::string folder, const std::string& sys) { keeping() = {std::move(folder), sys}; }

bool keeps_files() { return !keeping().folder.empty(); }

void keep_link(const std::string& path) {
  const auto kept = copy_of(path);
  if (!kept) return;
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  if (size <= 0 || static_cast<std::size_t>(size) == target.size()) return;
  std::error_code ignored;
  const std::filesystem::path copy = *kept;
  std::filesystem::create_directories(copy.parent_path(), ignored);
  std::filesystem::create_symlink(std::string(target.data(), static_cast<std::size_t>(size)), copy, ignored);
}

}  // namespace lull
