#include "lease/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/random.h"
#include "base/text.h"
#include "lease/record.h"
#include "lease/watch.h"

namespace lull {
namespace {

constexpr mode_t kFolderMode = 01777;
constexpr Duration kSoon = std::chrono::milliseconds(1);  // the pause after which one who wants in blocks
constexpr std::size_t kSomeOfTheQueue = 64;               // files: looked at by each who tidies or looks on

sigset_t held_back_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGTSTP, SIGTTIN, SIGTTOU, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2})
    ::sigaddset(&set, number);
  return set;
}

void in_order(FolderState& state) {
  std::sort(state.leases.begin(), state.leases.end(),
            [](const LeaseInfo& a, const LeaseInfo& b) { return a.file < b.file; });
  std::sort(state.tickets.begin(), state.tickets.end(),
            [](const TicketInfo& a, const TicketInfo& b) { return a.turn().before(b.turn()); });
}

// From `after` on, a blocking call of this thread returns with EINTR, again and again: one may come between two calls.
class Interruptions {
 public:
  explicit Interruptions(Duration after) {
    struct sigaction nothing{};
    nothing.sa_handler = [](int) {};
    sigset_t ours;
    ::sigemptyset(&ours);
    ::sigaddset(&ours, SIGRTMIN);
    if (::sigaction(SIGRTMIN, &nothing, nullptr) != 0) return;  // it stays: another thread may be here, too
    ::pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);             // the folder lock goes back to the old mask
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGRTMIN;
    event._sigev_un._tid = ::gettid();
    if (::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
    const Duration first = std::max<Duration>(after, std::chrono::milliseconds(1));
    const auto seconds = std::chrono::floor<std::chrono::seconds>(first);
    const itimerspec times{.it_interval = {.tv_sec = 0, .tv_nsec = 20'000'000},
                           .it_value = {.tv_sec = seconds.count(), .tv_nsec = (first - seconds).count()}};
    come_ = ::timer_settime(timer_, 0, &times, nullptr) == 0;
    if (!come_) ::timer_delete(timer_);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  ~Interruptions() {
    if (come_) ::timer_delete(timer_);
  }
  bool come() const { return come_; }  // no: the kernel has no timer for us

 private:
  timer_t timer_{};
  bool come_ = false;
};

Result<> check_folder(int fd, const LeasePlace& place) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return fail(errno, "look at " + place.path);
  if (place.shared_default && status.st_uid != 0)
    return fail(fmt::format("the lease folder {} belongs to user {}, not to root: whoever owns it can take away leases",
                            place.path, status.st_uid));
  if ((status.st_mode & 022) != 0 && (status.st_mode & S_ISVTX) == 0)
    return fail(
        fmt::format("the lease folder {} lets others remove files that are not theirs (mode {:04o}); "
                    "chmod 1777 {} makes it safe",
                    place.path, status.st_mode & 07777U, place.path));
  return {};
}

Result<> make_folder(const LeasePlace& place) {
  if (::mkdir(place.path.c_str(), 0700) != 0) {
    if (errno == EEXIST) return {};
    return fail(errno, "make the lease folder " + place.path);
  }
  // In two steps, so that the umask has no say; until then only we can use it.
  if (!place.alone && ::chmod(place.path.c_str(), kFolderMode) != 0) return fail(errno, "chmod 1777 " + place.path);
  return {};
}

Result<Fd> open_folder(const LeasePlace& place) {
  if (place.alone) TRY(check_own_folder(place.path));
  Fd fd = TRY(open_file(place.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  TRY(check_folder(fd.get(), place));
  return fd;
}

}  // namespace

std::int64_t birth_of(int fd) {
  struct statx status{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &status) != 0 || (status.stx_mask & STATX_BTIME) == 0) return 0;
  return status.stx_btime.tv_sec * 1'000'000'000 + status.stx_btime.tv_nsec;
}

Result<LeaseFolder> LeaseFolder::open(const LeasePlace& place) {
  auto fd = open_folder(place);
  if (!fd && fd.error().errno_value == ENOENT) {
    TRY(make_folder(place));
    fd = open_folder(place);
  }
  if (!fd) return std::unexpected(std::move(fd).error());
  if (::faccessat(fd->get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return fail(errno, fmt::format("the lease folder {} is not ours to write to", place.path));
  return LeaseFolder(*std::move(fd), place.path);
}

Result<std::optional<LeaseFolder>> LeaseFolder::look(const LeasePlace& place) {
  // Another user may own the path of our folder: open() refuses it, so there are no leases of ours.
  struct stat status{};
  if (place.alone && ::lstat(place.path.c_str(), &status) == 0 && status.st_uid != ::geteuid()) return std::nullopt;
  auto fd = open_folder(place);
  if (!fd && fd.error().errno_value == ENOENT) return std::nullopt;
  if (!fd) return std::unexpected(std::move(fd).error().during("the lease folder"));
  return LeaseFolder(*std::move(fd), place.path);
}

LeaseFolder::FolderLock::~FolderLock() {
  lock_.reset();
  if (signals_ == nullptr) return;
  auto* mask = static_cast<sigset_t*>(signals_);
  ::pthread_sigmask(SIG_SETMASK, mask, nullptr);
  delete mask;
}

// Inside is microseconds long: a try or two do. Where many want in, the kernel lets those who block in one after the
// other, which a thousand who try again and again would keep it from. But not for ever: a holder who was stopped inside
// shows as an error and not as silence.
Result<LeaseFolder::FolderLock> LeaseFolder::enter(Duration patience) const {
  auto before = std::make_unique<sigset_t>();
  const sigset_t held_back = held_back_signals();
  Fd lock = TRY(open_at(folder_.get(), ".", O_RDONLY | O_DIRECTORY));
  ::pthread_sigmask(SIG_BLOCK, &held_back, before.get());
  FolderLock folder_lock(before.release());
  const SystemClock clock;
  const Instant end = clock.now() + patience;
  Duration pause = std::chrono::microseconds(100);
  std::optional<Interruptions> interruptions;
  while (::flock(lock.get(), LOCK_EX | (interruptions && interruptions->come() ? 0 : LOCK_NB)) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(errno, "lock " + path_);
    if (clock.now() >= end)
      return fail(
          fmt::format("another process has kept the lease folder {} locked for more than {} s (a stopped process?)",
                      path_, std::chrono::ceil<std::chrono::seconds>(patience).count()));
    if (interruptions && interruptions->come()) continue;
    const timespec nap{0, pause.count()};
    ::nanosleep(&nap, nullptr);
    pause = std::min<Duration>(pause * 3 / 2, std::chrono::milliseconds(4));
    if (pause > kSoon && !interruptions) interruptions.emplace(end - clock.now());
  }
  folder_lock.lock_ = std::move(lock);
  // No other process looks into a folder that was removed under us.
  struct stat ours{};
  struct stat named{};
  if (::fstat(folder_.get(), &ours) != 0 || ::stat(path_.c_str(), &named) != 0 || ours.st_ino != named.st_ino ||
      ours.st_dev != named.st_dev)
    return fail(fmt::format("the lease folder {} was replaced while we used it", path_));
  return folder_lock;
}

template <class Visit>
Result<> LeaseFolder::each_name(Visit visit) const {
  Directory names(TRY(open_at(folder_.get(), ".", O_RDONLY | O_DIRECTORY)));
  while (const char* name = names.next(true)) visit(std::string(name));
  if (names.error() != 0) return fail(names.error(), "read " + path_);  // not all of it was seen
  return {};
}

std::optional<LeaseInfo> LeaseFolder::lease_in(const std::string& file) const {
  const std::string_view uuid = uuid_in(file);
  if (uuid.empty()) return {};
  const auto opened = open_to_look(folder_.get(), file);
  if (!opened) return {};
  if (!opened->denied && !write_locked(opened->fd.get())) return {};
  LeaseInfo info;
  info.gpu = uuid;
  info.file = file;
  info.owner = opened->status.st_uid;
  info.readable = !opened->denied;
  if (info.readable)
    if (auto record = read_lease(read_start(opened->fd.get(), opened->status.st_size)))
      info.record = *std::move(record);
  info.record.gpu = uuid;
  return info;
}

std::optional<TicketInfo> LeaseFolder::ticket_in(const std::string& file) const {
  if (!file.starts_with(kTicketPrefix)) return {};
  const auto opened = open_to_look(folder_.get(), file);
  if (!opened || opened->denied || !write_locked(opened->fd.get())) return {};
  auto record = read_ticket(read_start(opened->fd.get(), opened->status.st_size));
  if (!record) return {};
  return TicketInfo{file, opened->status.st_uid, *std::move(record), birth_of(opened->fd.get())};
}

Result<FolderState> LeaseFolder::scan(std::size_t most) const {
  FolderState state;
  std::vector<std::string> tickets;
  TRY(each_name([&](std::string file) {
    if (auto lease = lease_in(file)) state.leases.push_back(*std::move(lease));
    if (file.starts_with(kTicketPrefix)) tickets.push_back(std::move(file));
  }));
  if (tickets.size() > most)
    std::ranges::sort(tickets, [](const auto& a, const auto& b) { return turn_in(a).before(turn_in(b)); });
  for (const std::string& file : tickets) {
    if (state.tickets.size() == most) break;  // of those with a live process: others do not limit them
    if (auto ticket = ticket_in(file)) state.tickets.push_back(*std::move(ticket));
  }
  in_order(state);
  return state;
}

Result<FolderState> LeaseFolder::look_on(const FolderState& before, Duration patience) const {
  FolderState state = TRY(scan(kSomeOfTheQueue));
  if (state.tickets.empty() && before.tickets.empty()) return state;
  if (const auto folder_lock = enter(patience)) return scan(kSomeOfTheQueue);
  const auto gone_from = [](const auto& now) {
    return [&now](const auto& one) {
      return std::ranges::none_of(now, [&](const auto& other) { return other.file == one.file; });
    };
  };
  FolderState left = before;
  std::erase_if(left.leases, gone_from(state.leases));
  std::erase_if(left.tickets, gone_from(state.tickets));
  return left;
}

Result<> LeaseFolder::scan_ahead(FolderState& state, const Place& us,
                                 const std::function<bool(const FolderState&)>& enough) const {
  std::map<std::string_view, TicketInfo*> known;
  for (TicketInfo& ticket : state.tickets) known.emplace(ticket.file, &ticket);
  FolderState now;
  std::vector<std::pair<Turn, std::string>> others;
  TRY(each_name([&](std::string file) {
    if (!file.starts_with(kTicketPrefix)) {
      if (auto lease = lease_in(file)) now.leases.push_back(*std::move(lease));
    } else if (const auto found = known.find(file); found != known.end()) {
      now.tickets.push_back(*found->second);
    } else if (const Turn turn = turn_in(file); file != us.ticket && !us.turn().before(turn)) {
      others.emplace_back(turn, std::move(file));
    }
  }));
  std::ranges::sort(others, [](const auto& a, const auto& b) { return a.first.before(b.first); });
  in_order(now);
  for (; !others.empty() && !enough(now); others.pop_back())
    if (auto ticket = ticket_in(others.back().second)) {
      now.tickets.push_back(*std::move(ticket));
      in_order(now);
    }
  now.unread = others.size();
  state = std::move(now);
  return {};
}

Result<std::uint64_t> LeaseFolder::last_number() const {
  std::uint64_t last = 0;
  TRY(each_name([&](const std::string& file) {
    if (file.starts_with(kTicketPrefix)) last = std::max(last, turn_in(file).number);
  }));
  return last;
}

// A file that is locked, readable and complete, under a temporary name.
Result<LockedFile> LeaseFolder::draft(std::string_view text) const {
  std::string file = fmt::format("{}{}-{:016x}", kDraftPrefix, ::geteuid(), random_bits());
  LockedFile made;
  made.fd = TRY(during("in " + path_, open_at(folder_.get(), file, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600)));
  made.file = std::move(file);
  struct flock range = whole_file(F_WRLCK);
  // Others must be able to ask the kernel about the lock, whatever our umask is.
  if (::fcntl(made.fd.get(), F_OFD_SETLK, &range) != 0 || ::fchmod(made.fd.get(), 0644) != 0) {
    const int why = errno;
    ::unlinkat(folder_.get(), made.file.c_str(), 0);
    return fail(why, fmt::format("lock {}/{}", path_, made.file));
  }
  if (auto written = write_all(made.fd.get(), text); !written) {
    ::unlinkat(folder_.get(), made.file.c_str(), 0);
    return std::unexpected(std::move(written).error().during(path_ + "/" + made.file));
  }
  return made;
}

// Gives the draft the first name that is free. If another user has our name, the next one.
Result<std::string> LeaseFolder::name(const std::string& draft, const std::string& stem) const {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const std::string file = attempt == 0 ? stem : fmt::format("{}.{}", stem, attempt);
    int why = rename_to_new(folder_.get(), draft, file);
    if (why == EEXIST) {
      const auto there = open_to_look(folder_.get(), file);
      const bool dead =
          there && !there->denied && there->status.st_uid == ::geteuid() && !write_locked(there->fd.get());
      if (!dead || ::unlinkat(folder_.get(), file.c_str(), 0) != 0) continue;
      why = rename_to_new(folder_.get(), draft, file);
    }
    if (why == EEXIST) continue;
    if (why != 0) return fail(why, fmt::format("make {}/{}", path_, file));
    return file;
  }
  return fail(fmt::format("files of others sit on every name of ours for {} in {}; root can remove them", stem, path_));
}

// Always a new file: an old one could have a reader's lock on it, or a second name. It gets its name last, so that
// whoever is killed half-way leaves nothing that others could take for a lease which they may not look into.
Result<LockedFile> LeaseFolder::make(const std::string& stem, std::string_view text) const {
  LockedFile made = TRY(draft(text));
  auto named = name(made.file, stem);
  if (!named) {
    ::unlinkat(folder_.get(), made.file.c_str(), 0);
    return std::unexpected(std::move(named).error());
  }
  made.file = *std::move(named);
  return made;
}

Result<LockedFile> LeaseFolder::take(const FolderLock&, const LeaseRecord& record) const {
  if (!plain_word(record.gpu)) return fail("'" + printable(record.gpu) + "' is not a UUID that a lease can have");
  return make(fmt::format("{}.{}", record.gpu, ::geteuid()), write_record(record));
}

Result<LockedFile> LeaseFolder::queue(const FolderLock&, const TicketRecord& record) const {
  std::string stem = fmt::format("{}{}.{}{}{}", kTicketPrefix, ::geteuid(), ::getpid(), kNumberWord, record.number);
  if (record.priority != 0) stem += fmt::format("{}{}", kPriorityWord, record.priority);
  return make(stem, write_record(record));
}

Result<> LeaseFolder::rewrite(const FolderLock&, const LockedFile& file, std::string_view text) const {
  constexpr int kMostTries = 100;
  ssize_t put = 0;
  int tries = 0;
  do {
    put = ::pwrite(file.fd.get(), text.data(), text.size(), 0);
  } while (put < 0 && errno == EINTR && ++tries < kMostTries);
  if (put != static_cast<ssize_t>(text.size()) || ::ftruncate(file.fd.get(), static_cast<off_t>(text.size())) != 0)
    return fail(put < 0 ? errno : ENOSPC, fmt::format("write {}/{}", path_, file.file));
  return {};
}

void LeaseFolder::give_back(const FolderLock&, LockedFile file) const {
  // Only if the name is still ours: it could have been revoked, and taken anew.
  struct stat ours{};
  struct stat named{};
  if (::fstat(file.fd.get(), &ours) == 0 &&
      ::fstatat(folder_.get(), file.file.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 && ours.st_ino == named.st_ino &&
      ours.st_dev == named.st_dev)
    ::unlinkat(folder_.get(), file.file.c_str(), 0);
}

Result<> LeaseFolder::revoke(const FolderLock&, const std::string& file) const {
  if (::unlinkat(folder_.get(), file.c_str(), 0) != 0) return fail(errno, fmt::format("remove {}/{}", path_, file));
  return {};
}

bool LeaseFolder::is_dead(const std::string& file) const {
  if (file.starts_with(kWakePipePrefix)) return is_dead_wake_pipe(folder_.get(), file);
  if (uuid_in(file).empty() && !file.starts_with(kTicketPrefix) && !file.starts_with(kDraftPrefix)) return false;
  const auto opened = open_to_look(folder_.get(), file);
  if (!opened || opened->denied || write_locked(opened->fd.get())) return false;
  const uid_t me = ::geteuid();
  return opened->status.st_uid == me || me == 0;
}

std::vector<std::string> LeaseFolder::dead(pid_t waiter) const {
  std::vector<std::string> files;
  (void)each_name([&](std::string file) { files.push_back(std::move(file)); });
  const std::string mark = fmt::format(".{}.{}.", ::geteuid(), waiter);
  if (!files.empty()) std::ranges::rotate(files, files.begin() + static_cast<long>(random_bits() % files.size()));
  std::size_t others = 0;
  std::erase_if(files, [&](const std::string& file) {
    const bool queues = file.starts_with(kTicketPrefix) || file.starts_with(kWakePipePrefix);
    if (queues && !file.contains(mark) && ++others > kSomeOfTheQueue) return true;
    return !is_dead(file);
  });
  return files;
}

void LeaseFolder::remove_dead(const FolderLock&, std::span<const std::string> files) const {
  for (const std::string& file : files)
    if (is_dead(file)) ::unlinkat(folder_.get(), file.c_str(), 0);
}

Result<std::vector<LeaseInfo>> read_leases(const LeasePlace& place) {
  auto folder = TRY(LeaseFolder::look(place));
  if (!folder) return std::vector<LeaseInfo>();
  return TRY(folder->scan()).leases;
}

const LeaseInfo* lease_of(const Device& device, const std::vector<LeaseInfo>& leases) {
  for (const std::string& name : lease_names(device)) {
    const auto found = std::ranges::find(leases.rbegin(), leases.rend(), name, &LeaseInfo::gpu);
    if (found != leases.rend()) return &*found;
  }
  return nullptr;
}

std::vector<const LeaseInfo*> leases_of(const Device& device, const std::vector<LeaseInfo>& leases) {
  std::vector<const LeaseInfo*> found;
  const std::vector<std::string> names = lease_names(device);
  for (const LeaseInfo& lease : leases)
    if (std::ranges::find(names, lease.gpu) != names.end()) found.push_back(&lease);
  const std::vector<const LeaseInfo*> all = found;
  std::erase_if(found, [&](const LeaseInfo* outer) {
    return std::ranges::any_of(all, [&](const LeaseInfo* inner) {
      return !outer->record.id.empty() && inner != outer && inner->record.within == outer->record.id;
    });
  });
  return found;
}

namespace {

constexpr const char* kShared = "/run/lull";
constexpr std::uint64_t kHostPids = 0xEFFFFFFC;  // inode of the first pid namespace (include/linux/proc_ns.h)

struct Mount {
  std::string_view point;
  std::string_view type;
};

// "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue"
Mount mount_in(std::string_view line) {
  const std::vector<std::string_view> words = split(line, ' ');
  const auto dash = std::ranges::find(words, "-");
  if (words.size() < 5 || dash == words.end() || dash + 1 == words.end()) return {};
  return {words[4], dash[1]};
}

}  // namespace

Result<> check_own_folder(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return fail(errno, path);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 022) != 0)
    return fail(path + " is not a folder of ours");
  return {};
}

ContainerSigns ContainerSigns::of_this_process() {
  ContainerSigns signs;
  struct stat status{};
  if (::stat("/proc/self/ns/pid", &status) == 0) signs.pid_namespace = status.st_ino;
  for (const char* mark : {"/.dockerenv", "/run/.containerenv", "/.singularity.d", "/var/run/secrets/kubernetes.io"})
    signs.marked = signs.marked || ::access(mark, F_OK) == 0;
  // A pod may do without the secrets, and with the pid namespace of its node.
  signs.marked = signs.marked || std::getenv("KUBERNETES_SERVICE_HOST") != nullptr;
  if (signs.marked || signs.pid_namespace != kHostPids) signs.mounts = read_file("/proc/self/mountinfo").value_or("");
  return signs;
}

// A mark alone may be of the image that a virtual machine was made of; its root is no overlay then.
bool ContainerSigns::has_own_leases() const {
  bool layered = false;
  for (const std::string_view line : split(mounts, '\n')) {
    const Mount mount = mount_in(line);
    if (mount.point == kShared) return false;
    if (mount.point == "/") layered = mount.type == "overlay" || mount.type.starts_with("fuse");
  }
  return (pid_namespace != 0 && pid_namespace != kHostPids) || (marked && layered);
}

LeasePlace LeasePlace::of_environment() {
  if (const char* path = std::getenv("LULL_LEASES"); path != nullptr && *path != '\0')
    return {std::filesystem::absolute(path)};  // its lease holder works from another folder
  if (const char* sim = std::getenv("LULL_SIM"); sim != nullptr && *sim != '\0') return {std::string(sim) + "/leases"};
  LeasePlace place{kShared, true};
  if (::geteuid() != 0 && ::access(kShared, F_OK) != 0 && errno == ENOENT)
    place = {fmt::format("/tmp/lull-{}", ::geteuid()), false, true};
  place.container = ContainerSigns::of_this_process().has_own_leases();
  return place;
}

std::string LeasePlace::caveat() const {
  if (container)
    return fmt::format(
        "this container leases GPUs in a folder of its own ({1}): the host and other containers may get the same GPU; "
        "share the host's with: docker run -v {0}:{0}",
        kShared, path);
  if (!alone) return "";
  return fmt::format(
      "there is no {0}: GPUs are leased in {1}, which other users do not look into, so they may get the same GPU; "
      "once: sudo install -d -m 1777 {0}",
      kShared, path);
}

namespace {

constexpr std::size_t kLargestRecord = 64U << 10;

template <class Number>
Number number_after(std::string_view word, std::string_view file) {
  Number number = 0;
  if (const std::size_t at = file.find(word); at != std::string_view::npos)
    std::from_chars(file.data() + at + word.size(), file.data() + file.size(), number);
  return number;
}

}  // namespace

struct flock whole_file(short type) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

// A lease is a write lock. Asking as a reader would leaves those out who only
// hold a read lock: anyone who may look could, and it must mean nothing.
bool write_locked(int fd) {
  struct flock range = whole_file(F_RDLCK);
  if (::fcntl(fd, F_OFD_GETLK, &range) != 0) return true;
  return range.l_type != F_UNLCK;
}

std::string read_start(int fd, off_t size) {
  std::string text(std::min(kLargestRecord, static_cast<std::size_t>(std::max<off_t>(size, 0))), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

// The UUID in `GPU-….1000`, or nothing.
std::string_view uuid_in(std::string_view file) {
  const std::size_t dot = file.find('.');
  if (dot == std::string_view::npos || file.starts_with(kTicketPrefix) || file.starts_with(kWakePipePrefix)) return {};
  const std::string_view uuid = file.substr(0, dot);
  return plain_word(uuid) ? uuid : std::string_view();
}

// Links and anything but plain files were not made by lull and mean nothing.
std::optional<Opened> open_to_look(int folder, const std::string& file) {
  Opened opened;
  auto fd = open_at(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  const auto unseen = [&opened] {  // by us, for whatever reason: it may be a lease
    opened.denied = true;
    opened.status.st_mode = S_IFREG;
    return std::move(opened);
  };
  if (!fd) {
    if (fd.error().errno_value == ENOENT || fd.error().errno_value == ELOOP) return {};
    if (::fstatat(folder, file.c_str(), &opened.status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return {};
      return unseen();
    }
    opened.denied = true;
  } else {
    if (::fstat(fd->get(), &opened.status) != 0) return unseen();
    opened.fd = *std::move(fd);
  }
  if (!S_ISREG(opened.status.st_mode)) return {};
  return opened;
}

// 0, or why not; never in the place of another file.
int rename_to_new(int folder, const std::string& from, const std::string& to) {
  if (::renameat2(folder, from.c_str(), folder, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that cannot do that in one step.
  if (::linkat(folder, from.c_str(), folder, to.c_str(), 0) != 0) return errno;
  ::unlinkat(folder, from.c_str(), 0);
  return 0;
}

// By its name's word. One without a number is of another version, and goes before all.
Turn turn_in(std::string_view file) {
  const int priority = number_after<int>(kPriorityWord, file);
  return {std::clamp(priority, -kGreatestPriority, kGreatestPriority), 0,
          number_after<std::uint64_t>(kNumberWord, file)};
}

}  // namespace lull
