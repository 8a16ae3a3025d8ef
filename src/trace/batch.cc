#include "trace/batch.h"

#include <utility>

#include "trace/cells.h"

namespace lull::trace {
namespace {

bool names_a_gpu(const Identities::Cells& cells, const std::vector<Role>& roles) {
  if (std::all_of(roles.begin(), roles.end(), is_owner)) return true;  // nothing tells GPUs apart
  for (std::size_t i = 0; i < roles.size(); ++i)
    if (roles[i] != Role::host && !is_owner(roles[i]) && !means_unknown(cells[i])) return true;
  return false;
}

}  // namespace

std::uint32_t Identities::find_slowly(const Cells& cells) {
  std::string key;
  for (std::size_t i = 0; i < parts_; ++i) {
    key += cells[i];
    key += '\n';
  }
  const auto [entry, fresh] = by_key_.try_emplace(key, static_cast<std::uint32_t>(known_.size()));
  if (fresh) {
    Known known;
    for (std::size_t i = 0; i < parts_; ++i) {
      known.cells.emplace_back(cells[i]);
      known.plain = known.plain && cells[i].find_first_of(",;\t\"\r\n") == std::string_view::npos;
    }
    known.next = entry->second;
    known.usable = names_a_gpu(cells, roles_);
    known_.push_back(std::move(known));
  }
  known_[last_].next = entry->second;
  return last_ = entry->second;
}

}  // namespace lull::trace
