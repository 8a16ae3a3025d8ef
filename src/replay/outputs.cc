#include "replay/outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/fd.h"
#include "base/random.h"
#include "base/text.h"

namespace lull::replay {
namespace {

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

}  // namespace

Result<std::optional<double>> read_price(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto price = to_double(text);
  if (!price || !(*price >= 0 && *price <= 1e6))
    return fail(fmt::format("--price: '{}' is not a price an hour: 0 to 1000000 would be right, such as 2.49",
                            printable(text)));
  return *price;
}

Result<> check_outputs(const std::vector<std::string>& traces, const std::string& html) {
  struct stat page{};
  struct stat out{};
  const bool has_page = !html.empty() && ::stat(html.c_str(), &page) == 0;
  const bool has_out = ::fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode);
  for (const std::string& trace : traces) {
    struct stat in{};
    if ((trace == "-" ? ::fstat(STDIN_FILENO, &in) : ::stat(trace.c_str(), &in)) != 0 || !S_ISREG(in.st_mode)) continue;
    if (has_page && same_file(in, page))
      return fail(fmt::format("--html {} is the trace itself, and would be overwritten", printable(html)));
    if (has_out && same_file(in, out))
      return fail(fmt::format("standard output goes into {}, the trace itself", printable(trace)));
  }
  if (has_page && has_out && same_file(page, out))
    return fail(fmt::format("--html {} is where standard output goes", printable(html)));
  return {};
}

// The draft is a new file: it takes the place of nothing, and a link that lies there leads nowhere.
Result<> write_page(const std::string& path, const std::string& page) {
  const std::string draft = fmt::format("{}.{:016x}.part", path, random_bits());
  const auto write = [&]() -> Result<> {
    const Fd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));  // not its name
    if (!fd) return fail(errno, "open");
    return write_all(fd.get(), page);
  };
  auto written = write();
  if (written && ::rename(draft.c_str(), path.c_str()) != 0) written = fail(errno, "rename");
  if (written) return {};
  ::unlink(draft.c_str());
  return std::unexpected(std::move(written).error().during("--html " + printable(path)));
}

}  // namespace lull::replay
