#include "replay/hurt.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lull::replay {

std::vector<Hurt> hurt_owners(const ReplayResult& result) {
  std::map<std::tuple<std::string, std::string, std::string>, Hurt> by_name;
  for (const End& end : result.ends) {
    if (!(end.holder > trace::kNobody)) continue;
    const trace::Holder& holder = result.trace.holders[end.holder];
    std::string user = holder.user_text();
    // Without a user or a command, the job or the processes are the best name there is.
    if (user.empty() && holder.command.empty()) user = holder.job;
    for (const std::string& pid : holder.pids)
      if (user.empty() && holder.command.empty()) user = "process " + pid;
    Hurt& hurt = by_name[{user, holder.command, holder.host}];
    hurt.user = user;
    hurt.command = holder.command;
    hurt.host = holder.host;
    ++hurt.ended;
    hurt.worked_again += end.back ? 1 : 0;
    hurt.lost_seconds += end.lost_seconds;
    hurt.freed_seconds += end.freed_seconds;
  }
  std::vector<Hurt> all;
  for (auto& [name, hurt] : by_name) all.push_back(std::move(hurt));
  std::stable_sort(all.begin(), all.end(), [](const Hurt& a, const Hurt& b) {
    return std::tie(a.lost_seconds, a.worked_again, a.ended) > std::tie(b.lost_seconds, b.worked_again, b.ended);
  });
  return all;
}

}  // namespace lull::replay
