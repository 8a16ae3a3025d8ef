#include "base/users.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/process_start.h"
#include "base/text.h"

namespace lull {
namespace {

using UserNames = std::unordered_map<uid_t, std::string>;

UserNames parse_passwd(const std::string& path) {
  UserNames names;
  const auto text = read_file(path);
  if (!text) return names;
  for (const std::string_view line : split(*text, '\n')) {
    const std::vector<std::string_view> fields = split(line, ':');
    if (fields.size() < 3 || fields[0].empty()) continue;
    if (const auto uid = to_unsigned(fields[2]); uid && *uid <= std::numeric_limits<uid_t>::max())
      names.emplace(static_cast<uid_t>(*uid), std::string(fields[0]));
  }
  return names;
}

constexpr Duration kNameLimit = std::chrono::milliseconds(500);
constexpr Duration kNotAskedFor = std::chrono::minutes(1);  // when it did not answer in time

std::string ask_without_limit(uid_t uid) {
  std::vector<char> buffer(4096);
  passwd entry{};
  passwd* found = nullptr;
  int error = 0;
  while ((error = ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found)) == ERANGE &&
         buffer.size() < (1U << 20))
    buffer.resize(buffer.size() * 2);
  return error == 0 && found != nullptr && found->pw_name != nullptr ? found->pw_name : std::to_string(uid);
}

// A network directory may hang, and a session must not. A program with threads cannot fork, and waits.
std::optional<std::string> ask_name_service(uid_t uid) {
  static std::optional<Instant> silent_since;
  if (const auto self = read_process_entry(::getpid()); !self || self->threads > 1) return ask_without_limit(uid);
  const Instant now = SystemClock().now();
  if (silent_since && now - *silent_since < kNotAskedFor) return std::nullopt;
  auto name = run_with_timeout([&] { return ask_without_limit(uid); }, kNameLimit);
  silent_since = name ? std::nullopt : std::optional(now);
  return name ? std::optional(*std::move(name)) : std::nullopt;
}

// Nothing: the name service does not answer.
std::optional<std::string> name_of(uid_t uid, const std::string& passwd) {
  static std::mutex mutex;
  static std::map<std::string, UserNames>* files = nullptr;  // never destroyed: a thread may ask at exit
  const std::scoped_lock lock(mutex);
  if (files == nullptr) files = new std::map<std::string, UserNames>;
  auto file = files->find(passwd);
  if (file == files->end()) file = files->emplace(passwd, parse_passwd(passwd)).first;
  auto known = file->second.find(uid);
  if (known == file->second.end()) {
    auto name = ask_name_service(uid);
    if (!name) return std::nullopt;
    known = file->second.emplace(uid, *std::move(name)).first;
  }
  return known->second;
}

struct IdRange {
  uid_t owner = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  bool has(uid_t uid) const { return uid >= first && uid - first < count; }
};

// What a file was when it was read. It may change while we run: users come.
struct Version {
  ino_t inode = 0;
  off_t size = 0;
  std::int64_t changed = 0;
  bool operator==(const Version&) const = default;
};

Version version_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_size, info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

struct Subordinates {
  Version subuid;
  Version passwd;
  std::vector<IdRange> ranges;
  UserNames users;  // users with a name are not subordinates: a range may be wrong
};

// Lines of NAME:FIRST:COUNT, or with the number of the user.
void read_subordinates(const UserFiles& files, Subordinates& known) {
  known.ranges.clear();
  known.users = parse_passwd(files.passwd);
  const auto text = read_file(files.subuid);
  if (!text) return;
  for (const std::string_view line : split(*text, '\n')) {
    const std::vector<std::string_view> fields = split(line, ':');
    if (fields.size() != 3) continue;
    const auto first = to_unsigned(trim(fields[1]));
    const auto count = to_unsigned(trim(fields[2]));
    if (!first || !count || fields[0].empty()) continue;
    const auto user = std::ranges::find_if(known.users, [&](const auto& one) { return one.second == fields[0]; });
    const auto number = to_unsigned(fields[0]);
    if (user != known.users.end())
      known.ranges.push_back({user->first, *first, *count});
    else if (number && *number < std::numeric_limits<uid_t>::max())
      known.ranges.push_back({static_cast<uid_t>(*number), *first, *count});
  }
}

// Calls `visit` with the owner of each range that this uid is in, and whether it is sure that it is nobody's own.
template <class Visit>
void for_each_owner(uid_t uid, const UserFiles& files, const Visit& visit) {
  static std::mutex mutex;
  static std::map<std::string, Subordinates>* tables = nullptr;  // never destroyed: a thread may ask at exit
  const std::scoped_lock lock(mutex);
  if (tables == nullptr) tables = new std::map<std::string, Subordinates>;
  const auto [place, fresh] = tables->try_emplace(files.subuid + ":" + files.passwd);
  Subordinates& known = place->second;
  const Version subuid = version_of(files.subuid);
  const Version passwd = version_of(files.passwd);
  if (fresh || known.subuid != subuid || known.passwd != passwd) {
    known.subuid = subuid;
    known.passwd = passwd;
    read_subordinates(files, known);
  }
  if (known.users.contains(uid) || std::ranges::none_of(known.ranges, [&](const IdRange& one) { return one.has(uid); }))
    return;
  const auto name = name_of(uid, files.passwd);
  if (name && *name != std::to_string(uid)) return;  // a network directory knows it by name
  for (const IdRange& range : known.ranges)
    if (range.has(uid)) visit(range.owner, name.has_value());
}

}  // namespace

uid_t owner_of(uid_t uid, const UserFiles& files) {
  std::optional<uid_t> owner;
  bool several = false;
  bool sure = true;
  for_each_owner(uid, files, [&](uid_t user, bool nobodys_own) {
    several = several || (owner && *owner != user);
    sure = sure && nobodys_own;
    owner = user;
  });
  return owner && sure && !several ? *owner : uid;
}

bool belongs_to(uid_t uid, uid_t user, const UserFiles& files) {
  bool found = uid == user;
  if (!found) for_each_owner(uid, files, [&](uid_t owner, bool) { found = found || owner == user; });
  return found;
}

std::string user_name(uid_t uid, const UserFiles& files) {
  const uid_t owner = owner_of(uid, files);
  const std::string name = name_of(owner, files.passwd).value_or(std::to_string(owner));
  return owner == uid ? name : name + " (subuid " + std::to_string(uid) + ")";
}

bool is_us(uid_t owner) {
  if (owner != ::geteuid()) return false;
  constexpr uid_t kOverflow = 65534;  // unless an administrator chose another
  const auto shared = read_file("/proc/sys/kernel/overflowuid");
  if (owner != (shared ? to_unsigned(trim(*shared)).value_or(kOverflow) : kOverflow)) return true;
  auto map = read_file("/proc/self/uid_map");
  if (!map) return map.error().errno_value == ENOENT;  // a kernel without such namespaces
  std::erase_if(*map, [](char c) { return c == ' ' || c == '\n'; });
  return *map == "004294967295";  // "0 0 4294967295": all users, by their own numbers
}

std::optional<uid_t> user_called(const std::string& name) {
  std::vector<char> space(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, space.data(), space.size(), &found) == 0 && found != nullptr)
    return found->pw_uid;
  const auto number = to_unsigned(name);
  return number && *number < 0xFFFFFFFFU ? std::optional(static_cast<uid_t>(*number)) : std::nullopt;
}

}  // namespace lull
