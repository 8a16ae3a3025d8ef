#include "sim/holders.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "base/fd.h"
#include "base/text.h"
#include "sim/evaluate.h"
#include "sim/files.h"
#include "sim/folder.h"

namespace lull::sim {
namespace {

namespace fs = std::filesystem;

void add_clients(const State& state, unsigned gpu, std::set<std::uint32_t>& pids) {
  for (const Client& client : state.clients) {
    const std::uint32_t pid = client.pid.load(std::memory_order_acquire);
    if (pid == 0 || (client.gpus[gpu / 64].load(std::memory_order_acquire) >> gpu % 64 & 1) == 0) continue;
    if (process_start_ticks(pid) == client.start_ticks.load(std::memory_order_acquire)) pids.insert(pid);
  }
}

void add_loads(Mapping& mapping, unsigned gpu, std::set<std::uint32_t>& pids) {
  const std::int64_t now = mapping.now_ns();
  const auto found = mapping.read([&](const Live& live) {
    std::vector<std::uint32_t> some;
    const Scene scene{mapping.writable_state(), mapping.writable(), live, now};
    each_load(scene, gpu, now, [&](const Load& load) { some.push_back(host_pid_of(mapping.state(), load)); });
    return some;
  });
  pids.insert(found.begin(), found.end());
}

bool has_open(const fs::path& process, const fs::path& file) {
  std::error_code error;
  for (fs::directory_iterator it(process / "fd", error), end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    if (fs::read_symlink(it->path(), unreadable) == file && !unreadable) return true;
  }
  return false;
}

// KFD is of all cards of AMD: who has it open need not hold this one.
std::string own_device_file(const std::string& folder, const State& state, unsigned gpu) {
  const Gpu& card = state.gpus[gpu];
  return has_render_node(card.vendor) ? device_files(folder, card).back() : device_file(folder, gpu);
}

void add_openers(const std::string& folder, const State& state, unsigned gpu, std::set<std::uint32_t>& pids) {
  std::error_code error;
  const fs::path file = fs::canonical(own_device_file(folder, state, gpu), error);
  if (error) return;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const auto pid = to_unsigned(it->path().filename().string());
    if (pid && has_open(it->path(), file)) pids.insert(static_cast<std::uint32_t>(*pid));
  }
}

}  // namespace

std::vector<Holder> holders_of(Mapping& mapping, const std::string& folder, unsigned gpu) {
  std::set<std::uint32_t> pids;
  add_clients(mapping.state(), gpu, pids);
  add_loads(mapping, gpu, pids);
  add_openers(folder, mapping.state(), gpu, pids);
  std::vector<Holder> holders;
  for (const std::uint32_t pid : pids) {
    const std::string name = read_file(fmt::format("/proc/{}/comm", pid)).value_or("");
    holders.push_back({pid, std::string(trim(name))});
  }
  return holders;
}

}  // namespace lull::sim
