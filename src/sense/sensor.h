#pragma once
// The sensor: a process that asks the driver. A call into a driver may hang in the kernel for ever (D state: even
// SIGKILL has to wait), and no program can exit or exec while a thread of its own does. So a child makes the calls, and
// nobody waits for the child. A parent without threads clones itself; one that has some (Python) cannot, since the
// clone might stick in a lock that another thread held. It starts the program `lull` as its sensor (sensor_program.h).
//
// Inside, hands (threads) take the GPUs one after the other; as a rule one hand takes all. When it dawdles the parent
// calls another, which takes over the rest: a stuck GPU costs only itself, and cards that take seconds to attach do so
// side by side. Between two samples a hand looks at what the driver would otherwise forget (Source::look).

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "base/result.h"
#include "sense/board.h"
#include "sense/source.h"

namespace lull {

// All that the sensor is told, at its birth.
struct SensorTask {
  Needs needs;
  bool processes = false;                             // read what /proc says of the tenants
  bool openers = false;                               // count who holds the device files
  Duration openers_budget = std::chrono::seconds(1);  // for one look at them
  bool topology = false;
  bool looks = true;         // look between the samples
  bool apart = false;        // our parent will become another program: do not even be a child of it
  Duration lets_go_after{};  // nobody asked for this long: end, a fresh one can be started. Zero: never
  std::vector<std::string> ignore_openers;
  Root root;
  std::string library;
};

// How a sensor is told that it is needed no more, besides by a signal.
struct Lifelines {
  int pipe = -1;    // at its end: the parent has closed the other, by its hand, at its end, or by exec
  int parent = -1;  // readable: the parent has ended. A child that it forked may still hold the pipe
};

// A sensor that runs. It is gone with its parent, gives no SIGCHLD, is passed over by wait(), ours and that of a
// command that we become, and holds no descriptor of ours but the bell (and the lifeline of one that is apart).
struct Sensor {
  Process process;
  Fd lifeline;  // of one that is apart: it goes when this closes, by our hand, at our end or when we become another
                // program
};
Result<Sensor> start_sensor(Board& board, int bell, const SensorTask& task);

// Tells the sensor's hands that there is work.
void call_hand(Board& board);

// From a process that is to be a sensor to one that has nothing but the board, the bell and its lifelines.
[[noreturn]] void become_sensor(Board& board, int bell, Lifelines lifelines, const SensorTask& task);

// What the sensor does all its life, in its own process: hands.cc.
[[noreturn]] void serve_board(Board& board, int bell, const SensorTask& task);

}  // namespace lull
