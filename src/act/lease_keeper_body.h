#pragma once
// What the keeper itself runs (lease_keeper.h says what it is for). It begins in its
// parent's memory, beside the parent's own threads, and when the parent has become
// the command it drops all of that memory but the program itself: what is left is a
// few pages. So its code must stand on its own: system calls made directly, no libc
// function, no allocation, no errno, nothing that lives outside of the program's
// image and the keeper's own room. Under sanitizers, and with compilers or
// processors that this was not tried on, it is an ordinary fork instead and keeps
// its copy of the memory.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace lull::keeper {

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LULL_KEEPER_SHARES_MEMORY 1
inline constexpr int kCloneFlags = 0x00000100;  // CLONE_VM
#else
#define LULL_KEEPER_SHARES_MEMORY 0
inline constexpr int kCloneFlags = 0;
#endif

inline constexpr std::size_t kRoomSize = 64U << 10;     // its stack, and what it has to remember
inline constexpr std::size_t kDescriptorsAtOnce = 200;  // the kernel takes 253 in one message

enum class Order : std::uint8_t { hold, until_process, until_time, parted };
struct Message {
  Order order;
  bool alone_at_the_end;  // the parent's end of the socket closes only by exec or with the parent
  std::int64_t nanoseconds;
};

// At the beginning of the room.
struct Start {
  int socket;
  int parents_end;
  int folder;
  uid_t user;
  void* room;
  pid_t pid;  // of the keeper itself, for who started it; negative: it could not be started,
  int why;    // for this reason
};

int run(void* start);  // never returns

}  // namespace lull::keeper
