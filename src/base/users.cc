#include "base/users.h"

#include <pwd.h>

#include <cerrno>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
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

std::string ask_name_service(uid_t uid) {
  std::vector<char> buffer(4096);
  passwd entry{};
  passwd* found = nullptr;
  int error = 0;
  while ((error = ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found)) == ERANGE &&
         buffer.size() < (1U << 20))
    buffer.resize(buffer.size() * 2);
  return error == 0 && found != nullptr && found->pw_name != nullptr ? found->pw_name : std::to_string(uid);
}

}  // namespace

std::string user_name(uid_t uid, const std::string& passwd) {
  static std::mutex mutex;
  static std::map<std::string, UserNames>* files = nullptr;  // never destroyed: a thread may ask at exit
  const std::scoped_lock lock(mutex);
  if (files == nullptr) files = new std::map<std::string, UserNames>;
  auto file = files->find(passwd);
  if (file == files->end()) file = files->emplace(passwd, parse_passwd(passwd)).first;
  auto known = file->second.find(uid);
  if (known == file->second.end()) known = file->second.emplace(uid, ask_name_service(uid)).first;
  return known->second;
}

}  // namespace lull
