#pragma once
// Why a GPU is filled, or not, as data: what the log, --status and its JSON say. to_string() is the one place for the
// words.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace lull {

struct Reason {
  enum Kind : std::uint8_t {
    none,
    leased,             // who
    waited_for,         // who
    used,               // who: a process that computes on it
    opened,             // who: a process that has it open
    memory_grew,        // number: bytes, while our filler was paused
    user,               // who; time: since the last key
    rule,               // who: what speaks against it, in words of the rule
    starts_soon,        // time: until the rule has held for long enough
    hot,                // number: C
    cool_enough,        //
    too_little_memory,  // number: bytes that are free
    memory_left,        // number: bytes in use by nobody who can be seen
    out_of_hours,
    unreadable,    // who: why
    hidden,        // number: processes whose files we may not look at
    backing_off,   // time left; number: failures in a row; who: the last one, in words
    filled,        // who: which filler has it
    elsewhere,     // who: which other GPU of an all-at-once filler is not free
    done,          // it has ended with 0 and is not wanted again
    no_filler,     // nobody is meant to fill it
    nothing_came,  // who opened it, and did nothing
    free_again,
    not_resumed,  // its resume command failed
    config,       // it is not in the settings any more
    shutting_down,
  };
  Kind kind = none;
  std::string who = {};
  pid_t pid = 0;  // of who, where it is a process
  Duration time = {};
  double number = 0;
  std::string gpu = {};  // label of the GPU that it is about

  bool operator==(const Reason&) const = default;
};

// "leased by ada", "ada typed 12 s ago", "starts in 14 s"
std::string to_string(const Reason& reason);
// One word for programs: "leased", "starts-soon".
std::string_view to_string(Reason::Kind kind);

}  // namespace lull
