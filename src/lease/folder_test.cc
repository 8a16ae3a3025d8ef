#include "lease/folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/process.h"
#include "lease/folder_test.h"
#include "lease/queue.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

TEST_F(Lease, MakesTheFolderStickyWhateverTheUmask) {
  const mode_t before = ::umask(077);
  const auto opened = LeaseFolder::open(place_);
  ::umask(before);
  ASSERT_TRUE(opened);
  EXPECT_EQ(fs::status(place_.path).permissions(), fs::perms::all | fs::perms::sticky_bit);
}

TEST_F(Lease, RefusesAFolderWhereOthersCouldRemoveOurFiles) {
  fs::create_directory(place_.path);
  fs::permissions(place_.path, fs::perms::all);
  const auto opened = LeaseFolder::open(place_);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find("chmod 1777"), std::string::npos) << opened.error().message();
}

TEST_F(Lease, RefusesALinkInPlaceOfTheFolder) {
  fs::create_directory(root_ + "/elsewhere");
  fs::create_directory_symlink(root_ + "/elsewhere", place_.path);
  EXPECT_FALSE(LeaseFolder::open(place_));
}

TEST_F(Lease, RefusesASharedFolderThatIsNotRoots) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directory(place_.path);
  ASSERT_EQ(::chown(place_.path.c_str(), 12345, 12345), 0);
  fs::permissions(place_.path, fs::perms::all | fs::perms::sticky_bit);
  place_.shared_default = true;
  const auto opened = LeaseFolder::open(place_);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find("12345"), std::string::npos);
  place_.shared_default = false;  // named by the user: a choice of theirs
  EXPECT_TRUE(LeaseFolder::open(place_));
}

TEST_F(Lease, LookingMakesNothing) {
  const auto looked = LeaseFolder::look(place_);
  ASSERT_TRUE(looked);
  EXPECT_FALSE(looked->has_value());
  EXPECT_FALSE(fs::exists(place_.path));
  EXPECT_TRUE(must(read_leases(place_)).empty());
}

TEST_F(Lease, IsAliveAsLongAsTheDescriptor) {
  const LeaseFolder leases = folder();
  {
    const auto folder_lock = must(leases.enter());
    const LockedFile file = must(leases.take(folder_lock, record("GPU-1")));
    const auto seen = must(read_leases(place_));
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].gpu, "GPU-1");
    EXPECT_EQ(seen[0].owner, ::geteuid());
    EXPECT_EQ(seen[0].record.command, "python train.py");
    struct stat status{};
    ASSERT_EQ(::fstat(file.fd.get(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0644U);
  }
  EXPECT_TRUE(must(read_leases(place_)).empty());
}

TEST_F(Lease, ADuplicateOfTheDescriptorHoldsIt) {
  const LeaseFolder leases = folder();
  LockedFile file = must(leases.take(must(leases.enter()), record("GPU-1")));
  const Fd inherited(::dup(file.fd.get()));
  file.fd.reset();
  EXPECT_EQ(must(read_leases(place_)).size(), 1U);
}

TEST_F(Lease, GivenBackLeavesNothing) {
  const LeaseFolder leases = folder();
  const auto folder_lock = must(leases.enter());
  leases.give_back(folder_lock, must(leases.take(folder_lock, record("GPU-1"))));
  EXPECT_TRUE(files().empty());
}

TEST_F(Lease, ARevokedLeaseIsGoneThoughItsHolderLives) {
  const LeaseFolder leases = folder();
  const auto folder_lock = must(leases.enter());
  LockedFile old = must(leases.take(folder_lock, record("GPU-1")));
  must(leases.revoke(folder_lock, old.file));
  EXPECT_TRUE(must(read_leases(place_)).empty());
  const LockedFile fresh = must(leases.take(folder_lock, record("GPU-1")));
  leases.give_back(folder_lock, std::move(old));  // must not remove the new one, which has the same name
  EXPECT_EQ(must(read_leases(place_)).size(), 1U);
}

TEST_F(Lease, SweepRemovesTheDeadAndOnlyThem) {
  const LeaseFolder leases = folder();
  const auto folder_lock = must(leases.enter());
  const LockedFile living = must(leases.take(folder_lock, record("GPU-1")));
  {
    const LockedFile dead = must(leases.take(folder_lock, record("GPU-2")));
  }
  std::ofstream(place_.path + "/README") << "not ours\n";
  leases.remove_dead(folder_lock, leases.dead(::getpid()));
  EXPECT_EQ(files(), (std::set<std::string>{living.file, "README"}));
}

TEST_F(Lease, AReadersLockIsNoLease) {
  const LeaseFolder leases = folder();
  const auto folder_lock = must(leases.enter());
  {
    const LockedFile dead = must(leases.take(folder_lock, record("GPU-1")));
  }
  const std::string name = *files().begin();
  const Fd reader = must(open_file(place_.path + "/" + name, O_RDONLY));
  struct flock range{};
  range.l_type = F_RDLCK;
  ASSERT_EQ(::fcntl(reader.get(), F_OFD_SETLK, &range), 0);
  EXPECT_TRUE(must(read_leases(place_)).empty());
  const LockedFile file = must(leases.take(folder_lock, record("GPU-1")));  // a new inode: the reader has the old one
  EXPECT_EQ(must(read_leases(place_)).size(), 1U);
}

TEST_F(Lease, LinksAndOddFilesMeanNothing) {
  const LeaseFolder leases = folder();
  fs::create_symlink("/etc/passwd", place_.path + "/GPU-1.0");
  ASSERT_EQ(::mkfifo((place_.path + "/GPU-2.0").c_str(), 0666), 0);
  fs::create_directory(place_.path + "/GPU-3.0");
  std::ofstream(place_.path + "/ticket.0.1") << "number: 99999999999999999999\n";
  EXPECT_TRUE(must(read_leases(place_)).empty());
  EXPECT_TRUE(must(leases.scan()).tickets.empty());
}

TEST_F(Lease, ANameThatSomebodySitsOnIsSteppedAround) {
  const LeaseFolder leases = folder();
  const auto folder_lock = must(leases.enter());
  fs::create_directory(squatted("GPU-1"));
  const LockedFile file = must(leases.take(folder_lock, record("GPU-1")));
  EXPECT_NE(place_.path + "/" + file.file, squatted("GPU-1"));
  EXPECT_EQ(must(read_leases(place_)).size(), 1U);
}

TEST_F(Lease, AFileThatMayNotBeReadCountsAsTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a second user";
  const LeaseFolder leases = folder();
  std::ofstream(place_.path + "/GPU-1.0") << "secret\n";
  fs::permissions(place_.path + "/GPU-1.0", fs::perms::owner_read | fs::perms::owner_write);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(12345, 12345, 12345) != 0) ::_exit(2);
    const auto seen = leases.scan();
    ::_exit(seen && seen->leases.size() == 1 && !seen->leases[0].readable ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Lease, OneProcessGetsTheFolderLock) {
  const LeaseFolder leases = folder();
  const auto folder_lock = must(leases.enter());
  const auto second = leases.enter(20ms);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message().find("locked"), std::string::npos);
}

TEST_F(Lease, AWaiterGetsTheFolderLockOnceItsHolderHasEnded) {
  const LeaseFolder leases = folder();
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto folder_lock = leases.enter();
    (void)!::write(ends[1], "x", 1);
    const timespec nap{0, 200'000'000};
    ::nanosleep(&nap, nullptr);
    ::_exit(folder_lock ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(leases.enter(10s));
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s) << "not only when its own time is up";
  int status = -1;
  ::waitpid(holder, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

// A waiter that is served in the moment in which it comes, again and again, beside somebody who looks on.
TEST_F(Lease, WhoLooksOnSeesNobodyWaitingThatIsServed) {
  const LeaseFolder leases = folder();
  std::atomic<bool> done = false;
  std::thread waiter([&] {
    while (!done) {
      std::optional<LockedFile> lease;
      std::optional<LockedFile> ticket;
      {
        const auto folder_lock = must(leases.enter());
        TicketRecord record = ticket_for(1);
        ticket = must(leases.queue(folder_lock, record));
        lease = must(leases.take(folder_lock, this->record("GPU-1")));
        record.missing = 0;
        must(leases.rewrite(folder_lock, *ticket, write_record(record)));
      }
      {
        const auto folder_lock = must(leases.enter());
        leases.give_back(folder_lock, *std::move(ticket));
      }
      leases.give_back(must(leases.enter()), *std::move(lease));
    }
  });
  FolderState seen;
  std::size_t served = 0;
  for (int looks = 0; served < 200 && looks < 100'000; ++looks) {
    seen = must(leases.look_on(seen, 1min));
    served += seen.tickets.size();
    for (const TicketInfo& ticket : seen.tickets) {
      EXPECT_EQ(ticket.record.missing, 0U);
      EXPECT_EQ(seen.leases.size(), 1U);
    }
  }
  done = true;
  waiter.join();
  EXPECT_GE(served, 200U);
}

TEST_F(Lease, WhoLooksOnAndCannotEnterSeesWhatWasWithoutThoseWhoAreGone) {
  const LeaseFolder leases = folder();
  const TicketRecord record = ticket_for(2);
  std::optional<LockedFile> first;
  std::optional<LockedFile> second;
  FolderState before;
  {
    const auto folder_lock = must(leases.enter());
    first = must(leases.queue(folder_lock, record));
    second = must(leases.take(folder_lock, this->record("GPU-1")));
  }
  before = must(leases.look_on({}, 1min));
  ASSERT_EQ(before.tickets.size(), 1U);
  const auto folder_lock = must(leases.enter());
  const LockedFile third = must(leases.take(folder_lock, this->record("GPU-2")));
  FolderState now = must(leases.look_on(before, 1ms));
  EXPECT_EQ(now.leases.size(), 1U) << "what is half done counts when it is done";
  EXPECT_EQ(now.tickets.size(), 1U);
  second.reset();
  first.reset();
  now = must(leases.look_on(before, 1ms));
  EXPECT_TRUE(now.leases.empty() && now.tickets.empty());
}

// What the kernel says of it is ENOENT, which readdir(3) takes for the end.
TEST_F(Lease, AFolderThatWasRemovedUnderUsIsUnknown) {
  const LeaseFolder leases = folder();
  std::filesystem::remove_all(place_.path);
  const auto scanned = leases.scan();
  ASSERT_FALSE(scanned);
  EXPECT_EQ(scanned.error().errno_value, ENOENT);
}

TEST_F(Lease, AReplacedFolderIsNoticed) {
  const LeaseFolder leases = folder();
  fs::remove_all(place_.path);
  fs::create_directory(place_.path);
  EXPECT_FALSE(leases.enter());
}

TEST_F(Lease, UuidsThatAreNoFileNamesAreRefused) {
  const LeaseFolder leases = folder();
  const auto folder_lock = must(leases.enter());
  for (const char* uuid : {"", "../GPU-1", "GPU/1", "a b", ".."})
    EXPECT_FALSE(leases.take(folder_lock, record(uuid))) << uuid;
}

// Of a long queue only those are read on whom something depends, the nearest first.
TEST_F(Lease, ReadsTheNearestAheadFirst) {
  const LeaseFolder leases = folder();
  std::vector<LockedFile> tickets;
  for (std::uint64_t number = 1; number <= 6; ++number) {
    TicketRecord ticket;
    ticket.number = number;
    ticket.priority = number == 6 ? 1 : 0;
    tickets.push_back(must(leases.queue(must(leases.enter()), ticket)));
  }
  EXPECT_EQ(must(leases.last_number()), 6U);
  const Place us{0, 4, tickets[3].file, ::geteuid(), birth_of(tickets[3].fd.get())};
  const auto numbers = [](const FolderState& state) {
    std::vector<std::uint64_t> found;
    for (const TicketInfo& ticket : state.tickets) found.push_back(ticket.record.number);
    return found;
  };
  FolderState state;
  must(leases.scan_ahead(state, us, [](const FolderState& now) { return now.tickets.size() >= 2; }));
  EXPECT_EQ(numbers(state), (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(state.unread, 2U);
  tickets.erase(tickets.begin() + 1);  // its name is still there
  fs::remove(place_.path + "/" + tickets[1].file);
  must(leases.scan_ahead(state, us, [](const FolderState& now) { return now.tickets.size() >= 3; }));
  EXPECT_EQ(numbers(state), (std::vector<std::uint64_t>{6, 1, 2}));  // 2 is known, and was not looked at again
  EXPECT_EQ(state.unread, 0U);
  state = {};
  must(leases.scan_ahead(state, us, [](const FolderState&) { return false; }));
  EXPECT_EQ(numbers(state), (std::vector<std::uint64_t>{6, 1}));  // 5 came later
}

}  // namespace
}  // namespace lull
