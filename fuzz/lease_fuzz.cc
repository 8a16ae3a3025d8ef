// Any bytes as a lease file, a ticket or what a watcher answers: refused or understood, never a crash. What is
// understood and written again says the same, and nothing of it that is shown moves a cursor.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lease/record.h"
#include "session/control.h"

namespace {

void require(bool what) {
  if (!what) std::abort();
}

void require_one_line(std::string_view text) {
  for (const char c : text) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lull;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // What was written by us is read as it was written.
  if (const auto lease = read_lease(text)) {
    require(lease->share >= 1 && lease->share <= kMostHolders);
    const auto again = read_lease(write_record(*lease));
    require(again.has_value() && read_lease(write_record(*again)) == again);
  }
  if (const auto ticket = read_ticket(text)) {
    require(ticket->share >= 1 && ticket->share <= kMostHolders);
    require(ticket->priority >= -kGreatestPriority && ticket->priority <= kGreatestPriority);
    const auto again = read_ticket(write_record(*ticket));
    require(again.has_value() && again->number == ticket->number && again->priority == ticket->priority);
  }
  require_one_line(answer_line(text));
  const std::string_view watcher = watcher_in(text);
  require(watcher.find_first_not_of("0123456789") == std::string_view::npos);
  return 0;
}
