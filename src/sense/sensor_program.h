#pragma once
// A sensor for programs that have threads, Python for one. A clone of such a program may find a lock taken by a thread
// that it does not have, and wait for ever. So the program `lull` is started as the sensor, by the name kSensorName:
// its board is a file without a name, and what it is to do stands on the board.
//
// Between the clone and the exec nothing is done but system calls. It is no child of ours, so that no wait() finds it
// and no SIGCHLD comes of it; it is gone when this process ends (not the thread that started it) or becomes another
// program.

#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "sense/sampler.h"
#include "sense/sensor.h"

namespace lull {

inline constexpr std::string_view kSensorName = "lull-sensor";  // argv[0] of the program

// A board in a file, to be mapped. Where the program found that it is of another version of lull it says so behind it.
Fd make_board_file();
bool is_other_board(const Fd& file);

Result<Sensor> start_sensor_program(Board& board, const Fd& memory, int bell, const SensorTask& task,
                                    const SensorProgram& program);

// The other side: main() of the program, under that name. Returns only where it cannot be one.
int sensor_program(int argc, char** argv);

}  // namespace lull
