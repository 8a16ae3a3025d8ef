#pragma once
// The people of this machine, by name. A subordinate uid (/etc/subuid: who a user is inside of a rootless container)
// belongs to the user who was given it.

#include <sys/types.h>

#include <optional>
#include <string>

namespace lull {

struct UserFiles {
  std::string passwd = "/etc/passwd";
  std::string subuid = "/etc/subuid";
};

// The name of a user, or the number as text; "ada (subuid 100999)" for a subordinate uid. Looks into the files first:
// asking the system's name service loads plugins, and with a network directory may take seconds. One that does not
// answer within half a second is not waited for: the number then stands for the name for a minute.
std::string user_name(uid_t uid, const UserFiles& files = {});

// The user of this uid: itself, or the one user that has it as a subordinate uid. If two have it, or if the name
// service does not say whether the uid has a name of its own, itself.
uid_t owner_of(uid_t uid, const UserFiles& files = {});
// Is this uid the user, or a subordinate uid of theirs (perhaps of others, too)?
bool belongs_to(uid_t uid, uid_t user, const UserFiles& files = {});

// Is the owner of a file or a process the user that we are? In a user namespace all who have no number there share one,
// which is not ours alone.
bool is_us(uid_t owner);

// Of this name, or of this number, as the user database knows it: also one of a network directory.
std::optional<uid_t> user_called(const std::string& name);

}  // namespace lull
