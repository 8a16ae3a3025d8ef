// Any bytes as a lease file or a ticket: refused or understood, never a crash. What is understood and written again
// says the same.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzz/require.h"
#include "lease/record.h"

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
  return 0;
}
