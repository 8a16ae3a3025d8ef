#pragma once
// The lease folder: who holds which GPU, among all users of a machine, without a
// daemon. A lease is a file `UUID.UID` that its holder owns and keeps locked; the
// lock belongs to an open file description that the job inherits, so the kernel
// drops it when the last process that has it is gone, however it went. Whoever
// changes anything in the folder first takes the folder lock: a lock on the folder
// itself, held for microseconds. docs/leases.md has the whole protocol and why
// it is safe.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "lease/record.h"

namespace lull {

// Which folder the leases are in. One for all users of the machine is what makes them worth something; where there is
// none and only root could make it, a user has one alone, and is told what that means. So is who is in a container that
// does not share the host's folder.
struct LeasePlace {
  std::string path;
  bool shared_default = false;  // /run/lull: must be root's
  bool alone = false;           // there is no /run/lull: this user's own, into which others do not look
  bool container = false;       // of a container: the host and other containers do not look into it

  // $LULL_LEASES; inside a simulation its own; else /run/lull, or /tmp/lull-UID where only root could make that. No
  // other variable counts: the same user has the same folder in a session, in cron and after su.
  static LeasePlace of_environment();

  // What cannot be promised there; empty: nothing.
  std::string caveat() const;
};

// What tells a container from its host.
struct ContainerSigns {
  std::uint64_t pid_namespace = 0;  // 0: not known
  bool marked = false;              // by what Docker, Podman, Apptainer or Kubernetes puts there
  std::string mounts;               // /proc/self/mountinfo; read only where one of the others is a sign

  static ContainerSigns of_this_process();
  // This is a container, and its /run/lull is not one that was mounted into it.
  bool has_own_leases() const;
};

// A folder that belongs to us and that no other user can write to.
Result<> check_own_folder(const std::string& path);

// One lease file whose lock is held.
struct LeaseInfo {
  std::string gpu;   // UUID, from the file's name
  std::string file;  // name in the folder
  uid_t owner = 0;   // who holds it: the kernel's word, not the file's
  LeaseRecord record;
  bool readable = true;  // no: a file that we may not read; taken, to be safe
};

struct TicketInfo {
  std::string file;
  uid_t owner = 0;
  TicketRecord record;
  std::int64_t born = 0;  // when the file was made; 0: not known
  bool stopped = false;   // its waiter cannot take anything now; LeaseQueue finds out where it matters
  Turn turn() const { return {record.priority, born, record.number}; }
};

// Everything that is alive in the folder at one moment.
struct FolderState {
  std::vector<LeaseInfo> leases;
  std::vector<TicketInfo> tickets;  // those who go first, first
  std::size_t unread = 0;           // tickets ahead of us that we did not need to read; of scan_ahead()
};

// A file that we hold locked: a lease, or a place in the queue. Destroying it
// closes our descriptor; an inherited copy still holds the lock.
struct LockedFile {
  Fd fd;
  std::string file;
};

inline constexpr const char* kTicketPrefix = "ticket.";

// Who asks, and where it stands in the queue.
struct Place {
  int priority = 0;
  std::uint64_t number = UINT64_MAX;  // of those who do not queue: behind all of their priority
  std::string ticket;                 // our own file, if we have one
  uid_t user = 0;
  std::int64_t born = 0;
  unsigned share = 1;  // we would be one of so many holders at most
  Turn turn() const { return {priority, born, number}; }
};

// When the file was made, in nanoseconds, as the kernel keeps it; 0: it does not.
std::int64_t birth_of(int fd);

class LeaseFolder {
 public:
  // Opens the folder, and makes it (mode 1777) where that is allowed.
  static Result<LeaseFolder> open(const LeasePlace& place);
  // For observers: no folder means no leases.
  static Result<std::optional<LeaseFolder>> look(const LeasePlace& place);

  const std::string& path() const { return path_; }
  int descriptor() const { return folder_.get(); }

  // The folder lock: while it is held, no other process changes the folder. Signals that could
  // stop or end us from the terminal are blocked until then.
  class FolderLock {
   public:
    FolderLock(FolderLock&& other) noexcept
        : lock_(std::move(other.lock_)), signals_(std::exchange(other.signals_, nullptr)) {}
    FolderLock& operator=(FolderLock&&) = delete;
    FolderLock(const FolderLock&) = delete;
    ~FolderLock();

   private:
    friend class LeaseFolder;
    explicit FolderLock(void* signals) : signals_(signals) {}
    Fd lock_;
    void* signals_;  // the mask to go back to
  };
  Result<FolderLock> enter(Duration patience = std::chrono::seconds(20)) const;

  // What is alive. Exact while the folder lock is held, else as of about now: who is served at this moment may be seen
  // with its lease and still waiting, or neither. Of the tickets no more than `most`, the first by their names' word.
  Result<FolderState> scan(std::size_t most = SIZE_MAX) const;
  // For observers that act on the queue: if a request waits, or did `before`, it is exact. If the folder lock cannot be
  // had within `patience`, no other process got anything in that time either: the result is as before, without those
  // that have ended.
  Result<FolderState> look_on(const FolderState& before, Duration patience) const;
  // The same for one who has a ticket: all leases, and of the tickets those ahead of it by their names' word, the
  // nearest first, until they are `enough`. Tickets that are known are not looked at again as long as their names are
  // there.
  Result<> scan_ahead(FolderState& state, const Place& us, const std::function<bool(const FolderState&)>& enough) const;
  // The greatest number of a ticket, by their names' word.
  Result<std::uint64_t> last_number() const;
  // One file of it, by name; nothing: not alive, or not a lease or ticket.
  std::optional<LeaseInfo> lease_in(const std::string& file) const;
  std::optional<TicketInfo> ticket_in(const std::string& file) const;

  // The rest needs the folder lock, and is the caller's to hold: it is passed as proof.

  // A new file with the lock on it. That the GPU is free, the caller has seen.
  Result<LockedFile> take(const FolderLock&, const LeaseRecord& record) const;
  Result<LockedFile> queue(const FolderLock&, const TicketRecord& record) const;
  Result<> rewrite(const FolderLock&, const LockedFile& file, std::string_view text) const;
  // Gives it back: the name goes first, so it is never seen free and still there.
  void give_back(const FolderLock&, LockedFile file) const;
  // Takes a lease from whoever holds it: the name is freed, the old lock means nothing from then on.
  Result<> revoke(const FolderLock&, const std::string& file) const;
  // Files of ours (for root: of all users) without a live holder, left by killed processes. Needs no folder lock.
  // Looks at all leases, at what `waiter` left in the queue, and at some others there: of a long queue each looks at a
  // part.
  std::vector<std::string> dead(pid_t waiter) const;
  // Removes those of them for which that is still so.
  void remove_dead(const FolderLock&, std::span<const std::string> files) const;

 private:
  LeaseFolder(Fd folder, std::string path) : folder_(std::move(folder)), path_(std::move(path)) {}
  Result<LockedFile> make(const std::string& stem, std::string_view text) const;
  Result<LockedFile> draft(std::string_view text) const;
  Result<std::string> name(const std::string& draft, const std::string& stem) const;
  bool is_dead(const std::string& file) const;
  template <class Visit>
  Result<> each_name(Visit visit) const;

  Fd folder_;
  std::string path_;
};

// The leases alive now, for display; no folder means no leases.
Result<std::vector<LeaseInfo>> read_leases(const LeasePlace& place = LeasePlace::of_environment());
// That of this GPU, of several the last; null: none.
const LeaseInfo* lease_of(const Device& device, const std::vector<LeaseInfo>& leases);
// All who share it. A lease within which another one of it was taken stands behind that one, and is left out.
std::vector<const LeaseInfo*> leases_of(const Device& device, const std::vector<LeaseInfo>& leases);

// One file of the lease folder: what its name says, and whether it has a live process. For folder.cc.
inline constexpr std::string_view kDraftPrefix = ".draft-";
// A ticket says its number in its name, and its priority where that is not 0, so that others need not open it.
inline constexpr std::string_view kNumberWord = ".number";
inline constexpr std::string_view kPriorityWord = ".priority";

struct Opened {
  Fd fd;
  struct stat status{};
  bool denied = false;
};
std::optional<Opened> open_to_look(int folder, const std::string& file);

struct flock whole_file(short type);
bool write_locked(int fd);
std::string read_start(int fd, off_t size);
std::string_view uuid_in(std::string_view file);
Turn turn_in(std::string_view file);
int rename_to_new(int folder, const std::string& from, const std::string& to);

}  // namespace lull
