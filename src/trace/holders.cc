#include "trace/holders.h"

#include <algorithm>

#include "base/text.h"
#include "trace/cells.h"

namespace lull::trace {
namespace {

// A block's columns are floats, which count so far without a hole; the joined ones come behind.
static_assert(Holders::kMost * 2 <= 1U << 24);

std::vector<std::string> list_words(std::string_view cell) {
  std::vector<std::string> words;
  std::string word;
  const auto end = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const char c : cell)
    if (c == ' ' || c == ',' || c == ';' || c == '+' || c == '[' || c == ']' || c == '"')
      end();
    else
      word += c;
  end();
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

bool share_one(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const std::string& one) { return std::binary_search(b.begin(), b.end(), one); });
}

}  // namespace

std::optional<bool> RecordedJob::compare(const RecordedJob& later) const {
  if (!job.empty() && !later.job.empty()) return job == later.job;
  if (!pids.empty() && !later.pids.empty()) return share_one(pids, later.pids);
  if (!lease.empty() && !later.lease.empty()) return lease == later.lease;
  if (!users.empty() && !later.users.empty()) return share_one(users, later.users);
  return std::nullopt;
}

std::string RecordedJob::user_text() const {
  std::string text;
  for (const std::string& user : users) text += (text.empty() ? "" : ", ") + user;
  return text;
}

float Holders::find(const std::vector<Role>& roles, const std::vector<std::string>& cells) {
  RecordedJob holder;
  std::string key;
  bool told = false;
  bool nobody = false;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (roles[i] == Role::host && !means_unknown(cells[i])) holder.host = cells[i];
    if (!is_owner(roles[i]) || roles[i] == Role::architecture) continue;
    key += cells[i] + '\n';
    if (means_unknown(cells[i])) continue;
    const bool none = cells[i] == "none" || cells[i] == "[]";
    // A command or a lease says nothing about who is on the card: a lease may be held before anything runs.
    if (roles[i] != Role::command && roles[i] != Role::lease) {
      told = told || !none;
      nobody = nobody || none;
    }
    if (none) continue;
    if (roles[i] == Role::job) holder.job = cells[i];
    if (roles[i] == Role::pids) holder.pids = list_words(cells[i]);
    if (roles[i] == Role::user) holder.users = list_words(cells[i]);
    if (roles[i] == Role::command) holder.command = cells[i];
    if (roles[i] == Role::lease) holder.lease = cells[i];
  }
  if (!told) return nobody ? kNobody : kUnknownSample;
  key += holder.host;
  const auto [entry, fresh] = known_.try_emplace(std::move(key), static_cast<float>(all_.size()));
  if (!fresh) return entry->second;
  if (all_.size() >= kMost) return entry->second = kUnknownSample;
  all_.push_back(std::move(holder));
  return entry->second;
}

const RecordedJob& KnownHolders::operator[](float number) const {
  return number < kFirst ? (*told_)[number] : joined_[static_cast<std::size_t>(number - kFirst)];
}

float KnownHolders::joined(float before, float now) {
  if (!(before > kNobody) || before == now) return now;
  const RecordedJob& earlier = (*this)[before];
  RecordedJob all = (*this)[now];
  bool lacks = false;
  const auto take = [&](auto RecordedJob::* part) {
    if (!(all.*part).empty() || (earlier.*part).empty()) return;
    all.*part = earlier.*part;
    lacks = true;
  };
  take(&RecordedJob::job);
  take(&RecordedJob::pids);
  take(&RecordedJob::users);
  take(&RecordedJob::command);
  take(&RecordedJob::lease);
  take(&RecordedJob::host);
  if (!lacks || joined_.size() >= Holders::kMost) return now;
  const auto [entry, fresh] = by_pair_.try_emplace({before, now}, kFirst + static_cast<float>(joined_.size()));
  if (fresh) joined_.push_back(std::move(all));
  return entry->second;
}

void KnownHolders::append_to(Holders& told) {
  offset_ = static_cast<float>(told.size());
  for (const RecordedJob& holder : joined_) told.append(holder);
}

}  // namespace lull::trace
