#pragma once
// The inside of the sampler: who it asks (one sensor process at a time), what it has heard, and when it stops waiting.
//
// A round is one sample of everything. `requested` and `done` count rounds. advance() looks at the board and decides;
// everything it decides is a matter of what stands there and of the time.

#include <array>
#include <cstdint>
#include <optional>

#include "sense/arrange.h"
#include "sense/sampler.h"
#include "sense/sensor.h"
#include "sense/wire.h"

namespace lull {

// What the sensor is told of what the owner wants.
SensorTask task_of(const SamplerOptions& options);

// A sensor that has just begun knows the moment only. Where there was a sample before, the time since then was watched
// by nobody: what would be a mean over it is unknown.
void forget_moments(Reading& reading);

struct Sampler::Core {
  explicit Core(SamplerOptions chosen);
  static constexpr Duration kDawdle = std::chrono::milliseconds(50);  // nobody was done for so long: another hand

  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  void request(bool fresh_lists);
  // Decides what can be decided by now; publishes the round where that is all there will be.
  void advance();
  void hand_over(Snapshot& into);
  Instant look_by() const;
  bool under_way() const { return requested > done; }
  void let_go();

  // One GPU as we have heard of it.
  struct Seen {
    Identity identity;
    Answer answer;
    std::uint64_t round = 0;  // of the answer
    Instant read{};           // when that was; none yet: the clock's beginning
    bool fresh = true;        // its meters are: this sensor has not answered for it before
    bool given_up = false;    // it was not waited for any longer in an earlier round, and has not answered since
    // Left alone until then, and why.
    Instant avoid_until{};
    Absence why_avoided = Absence::no_answer;
    Instant avoided_since{};
    Duration pause{};        // how long that was the last time; each time in a row it is longer
    Duration attach_took{};  // when it was last attached, by this sensor or one before
    // The thread that attaches it: how often it was put to sleep and woken, and since when that has stayed the same
    // while the kernel lets no signal through to it.
    std::uint64_t switches = 0;
    std::optional<Instant> still_since;
  };
  // A sensor that we no longer ask, and the GPU whose call it was in.
  struct Left {
    Process process;
    int gpu = -1;
  };
  // What stands on the board now.
  struct Look {
    Stage stage = Stage::opening;
    bool damaged = false;
    unsigned answered = 0;
    unsigned waiting = 0;    // not begun
    unsigned reading = 0;    // in a call, within their time
    unsigned attaching = 0;  // likewise
    unsigned hanging = 0;    // beyond it
    int longest = -1;        // the GPU that is in a call for the longest
    Duration slowest_attach{};
    bool machine_pending = false;
    bool complete() const { return stage == Stage::open && waiting + reading + attaching == 0 && !machine_pending; }
  };

  Look look(Instant at);
  bool learn_identities();
  bool has_all_named();
  bool is_left_out(unsigned gpu) const;
  bool machine_is_pending(const Look& look, Instant at) const;
  void give_up_slow_attaching(Look& look, Instant at);
  void watch_attaching(unsigned gpu, Instant at);
  bool wakes(unsigned gpu, Instant at) const;
  bool overdue(const Look& look, Instant at);
  bool all_hang(const Look& look, Instant at) const;

  bool driver_is_loaded() const;
  bool start();
  void ask();
  void leave(int culprit);
  void end_sensor();
  void back_off(Instant at);
  void died(const Look& look, Instant at);
  void driver_failed(Instant at);
  void avoid(unsigned gpu, Absence why, Instant at);
  Duration attach_limit(const Seen& one) const;
  void tell_whom_to_avoid(Instant at);
  bool heard_open();
  bool driver_report(DriverReport& report);

  bool collect();
  bool leave_alone_for_reset(Instant at);
  bool nothing_works() const;
  void publish(Instant at);
  Instant read_by(Instant at) const;
  void arrange_rows();
  void fill(Reading& reading, const Row& row, Instant at);
  void add_machine(Snapshot& snapshot);

  const SamplerOptions options;
  const SensorTask task;
  const Duration patience;                                  // with one GPU's call
  const std::optional<std::vector<unsigned>> only_numbers;  // nobody else is asked
  Fd bell;

  std::uint64_t requested = 0;
  std::uint64_t with_lists = 0;  // the newest that wants fresh ones
  std::uint64_t done = 0;
  std::uint64_t taken = 0;  // by the owner
  Instant round_began{};
  Instant clock_from{};   // the deadline counts from here: opening and attaching have limits of their own
  Instant last_sign{};    // when we asked, or something new stood on the board
  Instant last_answer{};  // when a GPU's answer did
  Instant last_look{};
  unsigned answered_before = 0;
  unsigned restarts = 0;  // within this round

  Board* board = nullptr;  // null: there is no sensor
  Fd board_file;           // of a sensor that is a program
  Process sensor;
  Fd lifeline;          // of a sensor that is apart
  bool opened = false;  // by this sensor
  Instant started{};
  Instant opened_at{};
  Instant not_before{};   // the next start
  unsigned failures = 0;  // starts in a row that led to nothing
  std::vector<Left> left;

  DriverState driver;
  std::string driver_version;
  std::string library;
  std::vector<Seen> seen;
  MachineReport machine;
  bool machine_known = false;
  std::vector<std::byte> room;  // a message is copied out before it is judged
  std::shared_ptr<const Inventory> inventory = std::make_shared<Inventory>();
  std::vector<Row> rows;
  bool rearrange = false;
  Snapshot published;  // the newest; once it is taken, room for the next but one
};

}  // namespace lull
