#include "sense/blocked_thread.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"

namespace lull {

void BlockedThread::look(pid_t process, pid_t thread, Instant at) {
  const auto status = read_file(fmt::format("/proc/{}/task/{}/status", process, thread));
  const std::string_view text = status ? std::string_view(*status) : std::string_view();
  const bool asleep = status_field(text, "State").value_or("").starts_with('D');
  std::uint64_t switches = 0;
  for (const std::string_view name : {"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"})
    switches += to_unsigned(status_field(text, name).value_or("")).value_or(0);
  if (!asleep || std::exchange(switches_, switches) != switches)
    since_.reset();
  else if (!since_)
    since_ = at;
}

}  // namespace lull
